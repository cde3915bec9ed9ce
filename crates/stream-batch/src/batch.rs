//! The batch, and the response to it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::sequence::SequenceNumber;

/// A batch as the event source mapping hands it over. Records stay raw, so that an odd one cannot fail the others.
#[derive(Debug, Deserialize)]
pub struct StreamBatch {
    /// The records.
    #[serde(rename = "Records")]
    pub records: Vec<Box<RawValue>>,
}

/// The response to the mapping: nothing, or the record from which to go on.
///
/// By its type the identifier is never null or empty, which the mapping would take for a failure of the whole batch.
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
    /// Every record is settled.
    pub fn clean() -> Self {
        Self::default()
    }

    /// Everything from this record on comes again.
    pub fn from_checkpoint(item_identifier: SequenceNumber) -> Self {
        Self { batch_item_failures: vec![BatchItemFailure { item_identifier }] }
    }

    /// The record from which to go on, unless every record is settled.
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
    fn the_answer_is_a_list_of_no_or_one_identifier() {
        let json = |response| serde_json::to_string(&response).unwrap();
        assert_eq!(json(BatchResponse::clean()), r#"{"batchItemFailures":[]}"#);
        assert_eq!(
            json(BatchResponse::from_checkpoint(number("0012"))),
            r#"{"batchItemFailures":[{"itemIdentifier":"0012"}]}"#
        );
    }

    #[test]
    fn a_batch_keeps_whatever_its_records_are() {
        let batch: StreamBatch = serde_json::from_str(r#"{"Records":[{"a":1.0},"odd",null,[]]}"#).unwrap();
        let records: Vec<_> = batch.records.iter().map(|record| record.get()).collect();
        assert_eq!(records, [r#"{"a":1.0}"#, r#""odd""#, "null", "[]"]);
        assert!(serde_json::from_str::<StreamBatch>("{}").is_err());
    }
}
