//! The rows of a consumer, and the time that they may contain.

use std::collections::BTreeMap;
use std::{env, fmt};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::HandleError;

/// Maximum bytes of the parts of a key. DynamoDB allows 2,048 for a partition key, which also contains the consumer's name.
const MAX_PARTITION: usize = 1_800;
const MAX_SORT: usize = 1_024;

/// The key of a row. Rows of one partition can be queried together, in the order of `sort`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// The partition.
    pub partition: String,
    /// The row in the partition.
    pub sort: String,
}

impl RowKey {
    /// The key of a row.
    pub fn new(partition: impl Into<String>, sort: impl Into<String>) -> Self {
        Self { partition: partition.into(), sort: sort.into() }
    }

    /// Fails if DynamoDB would reject the key.
    pub(crate) fn check(&self) -> Result<(), HandleError> {
        let fits = self.partition.len() <= MAX_PARTITION && (1..=MAX_SORT).contains(&self.sort.len());
        let limits = format!("a partition has at most {MAX_PARTITION} bytes, and sort 1 to {MAX_SORT}");
        if fits { Ok(()) } else { Err(HandleError::new(format!("the key {self} does not fit: {limits}"))) }
    }
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.partition, self.sort)
    }
}

/// The rows that a message reads: those of [`Consumer::reads`](crate::Consumer::reads).
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a>(pub(crate) &'a BTreeMap<RowKey, Option<Value>>);

impl Rows<'_> {
    /// A row, if it exists.
    ///
    /// # Errors
    ///
    /// When `reads` does not return its key, or the row does not fit `T`.
    pub fn get<T: DeserializeOwned>(&self, key: &RowKey) -> Result<Option<T>, HandleError> {
        let row = self.0.get(key).ok_or_else(|| HandleError::new(format!("`reads` does not return the row {key}")))?;
        row.as_ref()
            .map(|row| T::deserialize(row).map_err(|error| HandleError::new(format!("the row {key}: {error}"))))
            .transpose()
    }
}

/// The rows that a message changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes(pub(crate) BTreeMap<RowKey, Option<Value>>);

impl Changes {
    /// No changes.
    pub fn none() -> Self {
        Self::default()
    }

    /// Writes a row. If `reads` does not return its key, the row replaces whatever is stored under this key: use that only
    /// for a key that belongs to the message or to its aggregate.
    ///
    /// # Errors
    ///
    /// When the row has no JSON form.
    pub fn put(&mut self, key: RowKey, row: &impl Serialize) -> Result<(), HandleError> {
        self.0.insert(key, Some(serde_json::to_value(row)?));
        Ok(())
    }

    /// Deletes a row, if it exists.
    pub fn delete(&mut self, key: RowKey) {
        self.0.insert(key, None);
    }
}

/// The time, for rows that contain one. It is that of the machine; in the local stack that of the stack, whose clock can be moved
/// forward.
pub fn now() -> Timestamp {
    let ahead = env::var("CLOCK_AHEAD_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Timestamp::now() + SignedDuration::from_secs(ahead.unwrap_or_default())
}
