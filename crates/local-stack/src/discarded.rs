//! The records that mappings discarded, and the bucket that holds them for operator commands.

use daybook_function_runtime::with_causes;
use daybook_local_aws::bucket::Bucket;
use daybook_local_aws::state::{Journal, StackState, StateError};
use serde_json::Value;

pub(crate) const BUCKET: &str = "daybook-discarded";

/// The records that mappings discarded, as an on-failure destination receives them. Clones share them.
#[derive(Clone)]
pub(crate) struct DiscardedRecords {
    /// All that were ever discarded.
    state: StackState,
    /// Those that no operator deleted.
    pub(crate) bucket: Bucket,
}

impl DiscardedRecords {
    /// Goes on with the records in the state.
    pub(crate) fn new(state: StackState) -> Result<Self, StateError> {
        let all = state.entries::<Value>(Journal::DISCARDED)?;
        let objects = all.iter().map(|discarded| (object_key(discarded), discarded.to_string()));
        let bucket = Bucket::new(BUCKET, objects, state.clone())?;
        Ok(Self { state, bucket })
    }

    pub(crate) fn all(&self) -> Vec<Value> {
        let failed = |error: &StateError| tracing::error!(error = with_causes(error), "cannot read discarded records");
        self.state.entries(Journal::DISCARDED).inspect_err(failed).unwrap_or_default()
    }

    pub(crate) fn push(&self, discarded: &Value) {
        self.bucket.put(object_key(discarded), discarded.to_string());
        if let Err(error) = self.state.append(Journal::DISCARDED, discarded) {
            tracing::error!(error = with_causes(&error), %discarded, "cannot store the discarded records");
        }
    }
}

/// The key of an object as Lambda writes it: `aws/lambda/MAPPING/SHARD/YYYY/MM/DD/YYYY-MM-DDTHH.MM.SS-ID`. Here, the function
/// stands for the mapping's id, and the first record's number for the random id, so that the key is the same after a
/// restart.
fn object_key(discarded: &Value) -> String {
    let text = |pointer: &str| discarded.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (function, shard) = (text("/requestContext/functionArn"), text("/DDBStreamBatchInfo/shardId"));
    let (at, first) = (text("/timestamp"), text("/DDBStreamBatchInfo/startSequenceNumber"));
    let at = at.get(..19).unwrap_or(at);
    let (day, time) = at.split_once('T').unwrap_or((at, ""));
    let (path, time) = (day.replace('-', "/"), time.replace(':', "."));
    format!("aws/lambda/{function}/{shard}/{path}/{day}T{time}-{first}")
}
