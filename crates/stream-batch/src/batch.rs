//! The batch, and the response to it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::sequence::SequenceNumber;

/// A batch as the event source mapping passes it to a function. Records stay raw, so that one invalid record cannot
/// fail the others.
#[derive(Debug, Deserialize)]
pub struct StreamBatch {
    #[serde(rename = "Records")]
    pub records: Vec<Box<RawValue>>,
}

/// The response to the mapping: no failure, or the record to continue from.
///
/// The type makes sure that the identifier is never null or empty: the mapping would treat that as a failure of the
/// whole batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchResponse {
    batch_item_failures: Vec<BatchItemFailure>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct BatchItemFailure {
    item_identifier: SequenceNumber,
}

impl BatchResponse {
    /// The response when every record is settled.
    pub fn clean() -> Self {
        Self::default()
    }

    /// The response that makes the mapping deliver this record and all later ones again.
    pub fn from_checkpoint(item_identifier: SequenceNumber) -> Self {
        Self { batch_item_failures: vec![BatchItemFailure { item_identifier }] }
    }

    /// The record to continue from; `None` when every record is settled.
    pub fn checkpoint(&self) -> Option<&SequenceNumber> {
        self.batch_item_failures.first().map(|failure| &failure.item_identifier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> SequenceNumber {
        SequenceNumber::parse(text).unwrap()
    }

    #[test]
    fn response_lists_no_or_one_identifier() {
        let json = |response| serde_json::to_string(&response).unwrap();
        assert_eq!(json(BatchResponse::clean()), r#"{"batchItemFailures":[]}"#);
        assert_eq!(
            json(BatchResponse::from_checkpoint(number("0012"))),
            r#"{"batchItemFailures":[{"itemIdentifier":"0012"}]}"#
        );
    }

    #[test]
    fn batch_with_invalid_records_is_read_record_by_record() {
        let batch: StreamBatch = serde_json::from_str(r#"{"Records":[{"a":1.0},"odd",null,[]]}"#).unwrap();
        let records: Vec<_> = batch.records.iter().map(|record| record.get()).collect();
        assert_eq!(records, [r#"{"a":1.0}"#, r#""odd""#, "null", "[]"]);
        assert!(serde_json::from_str::<StreamBatch>("{}").is_err());
    }
}
