//! The records that mappings discarded, and the bucket that holds them for operator commands.

use std::sync::{Arc, Mutex, PoisonError};

use daybook_function_runtime::with_causes;
use daybook_local_aws::bucket::Bucket;
use daybook_local_aws::state::{Journal, StateError, StateFile};
use serde_json::Value;

/// The name of the bucket.
const BUCKET: &str = "daybook-discarded";

/// The records that mappings discarded, as an on-failure destination receives them. Clones share them.
#[derive(Clone)]
pub(crate) struct DiscardedRecords {
    /// All that were ever discarded.
    journal: DiscardedJournal,
    /// Those that no operator deleted.
    pub(crate) bucket: Bucket,
}

#[derive(Clone)]
enum DiscardedJournal {
    /// They end with the process.
    InMemory(Arc<Mutex<Vec<Value>>>),
    /// They survive a restart.
    InFile(StateFile),
}

impl DiscardedRecords {
    /// Goes on with the records in the file.
    pub(crate) fn new(file: Option<StateFile>) -> Result<Self, StateError> {
        let journal = file.clone().map_or_else(|| DiscardedJournal::InMemory(Arc::default()), DiscardedJournal::InFile);
        let objects = journal.all().into_iter().map(|discarded| (object_key(&discarded), discarded.to_string()));
        let bucket = Bucket::with_file(BUCKET, objects, file)?;
        Ok(Self { journal, bucket })
    }

    pub(crate) fn all(&self) -> Vec<Value> {
        self.journal.all()
    }

    pub(crate) fn push(&self, discarded: Value) {
        self.bucket.put(object_key(&discarded), discarded.to_string());
        self.journal.push(discarded);
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

impl DiscardedJournal {
    fn all(&self) -> Vec<Value> {
        match self {
            Self::InMemory(records) => records.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Self::InFile(file) => file.entries(Journal::Discarded).unwrap_or_else(|error| {
                tracing::error!(error = with_causes(&error), "cannot read the discarded records");
                Vec::new()
            }),
        }
    }

    fn push(&self, discarded: Value) {
        match self {
            Self::InMemory(records) => records.lock().unwrap_or_else(PoisonError::into_inner).push(discarded),
            Self::InFile(file) => {
                if let Err(error) = file.append(Journal::Discarded, &discarded) {
                    tracing::error!(error = with_causes(&error), %discarded, "cannot store the discarded records");
                }
            }
        }
    }
}
