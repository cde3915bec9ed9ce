//! The records that mappings discarded, and the bucket that holds them for operator commands.

use std::sync::{Arc, Mutex, PoisonError};

use daybook_function_runtime::with_causes;
use daybook_local_aws::bucket::Bucket;
use daybook_local_aws::state::{Journal, StateError, StateFile};
use serde_json::Value;

const BUCKET: &str = "daybook-discarded";

/// The records that mappings discarded, as an on-failure destination receives them. Clones share them.
#[derive(Clone)]
pub(crate) struct DiscardedRecords {
    /// All that were ever discarded.
    all: Arc<Mutex<Vec<Value>>>,
    /// Where they survive a restart.
    file: Option<StateFile>,
    /// Those that no operator deleted.
    pub(crate) bucket: Bucket,
}

impl DiscardedRecords {
    /// Goes on with the records in the file.
    pub(crate) fn new(file: Option<StateFile>) -> Result<Self, StateError> {
        let stored = file.as_ref().map(|file| file.entries::<Value>(Journal::Discarded)).transpose()?;
        let all = stored.unwrap_or_default();
        let objects = all.iter().map(|discarded| (object_key(discarded), discarded.to_string()));
        let bucket = Bucket::with_file(BUCKET, objects, file.clone())?;
        Ok(Self { all: Arc::new(Mutex::new(all)), file, bucket })
    }

    pub(crate) fn all(&self) -> Vec<Value> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn push(&self, discarded: Value) {
        self.bucket.put(object_key(&discarded), discarded.to_string());
        if let Some(Err(error)) = self.file.as_ref().map(|file| file.append(Journal::Discarded, &discarded)) {
            tracing::error!(error = with_causes(&error), %discarded, "cannot store the discarded records");
        }
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(discarded);
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
