//! `FilterCriteria`: which records a function receives.
//!
//! A pattern has the shape of the record: an attribute of an item is an object with its type, such as `{"S": ["open"]}`. A
//! number in a record is not equal to the same digits in a string: DynamoDB writes `N` attributes as strings, so `numeric`
//! never matches one.

use daybook_event_pattern::{EventPattern, PatternError};
use serde_json::Value;

/// Patterns joined by OR. The default has none and matches every record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordFilter(Vec<EventPattern>);

/// A pattern that Lambda would reject.
#[derive(Debug, thiserror::Error)]
pub enum BadPattern {
    /// The text is not JSON.
    #[error("filter pattern: not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    /// The JSON is not a pattern, or uses an operator that Lambda does not have.
    #[error("filter pattern: {0}")]
    Invalid(#[from] PatternError),
}

impl RecordFilter {
    /// Adds a pattern, JSON text.
    pub fn add(&mut self, pattern: &str) -> Result<(), BadPattern> {
        self.0.push(EventPattern::of_filter(&serde_json::from_str(pattern)?)?);
        Ok(())
    }

    /// Whether a record, as Lambda delivers it, reaches the function.
    pub fn matches(&self, record: &Value) -> bool {
        self.0.is_empty() || self.0.iter().any(|pattern| pattern.matches(record))
    }
}
