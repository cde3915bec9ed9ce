//! The input and output of a function behind a DynamoDB stream: the wire format between Lambda's event source mapping
//! and the stream functions. The mapping of the local stack uses it too.
//!
//! Invariants:
//! - Records stay raw until they are read one by one: one invalid record cannot fail the others.
//! - The identifier in a response is never null or empty.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

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

/// Maximum digits of DynamoDB's sequence numbers: too many for a `u128`.
const MAX_DIGITS: usize = 40;

/// The sequence number of a record in its shard: 1 to 40 decimal digits, compared as a number and never as text.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct SequenceNumber(Box<str>);

impl SequenceNumber {
    /// Parses decimal digits. `None` when `text` is anything else or longer than 40.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = (1..=MAX_DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| Self(text.into()))
    }

    /// The digits, leading zeros included.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn significant(&self) -> &str {
        self.0.trim_start_matches('0')
    }
}

impl Ord for SequenceNumber {
    fn cmp(&self, other: &Self) -> Ordering {
        let (left, right) = (self.significant(), other.significant());
        left.len().cmp(&right.len()).then_with(|| left.cmp(right))
    }
}

impl PartialOrd for SequenceNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SequenceNumber {
    fn eq(&self, other: &Self) -> bool {
        self.significant() == other.significant()
    }
}

impl Eq for SequenceNumber {}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    #[test]
    fn sequence_numbers_are_ordered_by_number_not_by_text() {
        assert!(number("9") < number("10"));
        assert!(number("99999999999999999999") < number("100000000000000000000"));
        assert!(number("340282366920938463463374607431768211456") < number("4000000000000000000000000000000000000000"));
    }

    #[test]
    fn leading_zeros_do_not_change_the_number() {
        assert_eq!(number("0007"), number("7"));
        assert_eq!(number("000"), number("0"));
        assert_eq!(number("0007").as_str(), "0007");
    }

    #[test]
    fn only_1_to_40_digits_are_a_sequence_number() {
        for text in ["", "-1", "1a", " 1", "1.0", "٣", &"1".repeat(41)] {
            assert!(SequenceNumber::parse(text).is_none(), "{text}");
        }
        assert!(SequenceNumber::parse(&"9".repeat(40)).is_some());
    }

    proptest! {
        #[test]
        fn sequence_numbers_are_ordered_like_integers(left: u128, right: u128, zeros in 0..2usize) {
            let left_text = format!("{}{left}", "0".repeat(zeros));
            prop_assume!(left_text.len() <= MAX_DIGITS);
            prop_assert_eq!(number(&left_text).cmp(&number(&right.to_string())), left.cmp(&right));
        }
    }
}
