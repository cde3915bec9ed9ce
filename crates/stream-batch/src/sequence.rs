//! Sequence numbers of stream records.

use std::cmp::Ordering;
use std::fmt;

use serde::Serialize;

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
