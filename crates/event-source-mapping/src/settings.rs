//! The settings of an event source mapping, with `FilterCriteria`: which records a function receives.
//!
//! A pattern has the shape of the record: an attribute of an item is an object with its type, such as `{"S": ["open"]}`. A
//! number in a record is not equal to the same digits in a string: DynamoDB writes `N` attributes as strings, so `numeric`
//! never matches one.

use std::time::Duration;

use daybook_event_pattern::EventPattern;
use serde_json::Value;

/// The settings of one mapping. The default has Lambda's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct MappingSettings {
    /// Maximum records in a batch: 1 to 10,000.
    pub batch_size: usize,
    /// How long records are gathered for a batch that is not full: 0 to 300 s.
    pub batching_window: Duration,
    /// Concurrent batches of one shard: 1 to 10.
    pub parallelization_factor: usize,
    pub bisect_batch_on_function_error: bool,
    /// Retries of a batch before it is discarded: 0 to 10,000; `None` is infinite.
    pub maximum_retry_attempts: Option<u32>,
    /// A record older than this is discarded instead of delivered: 60 s to 7 days; `None` is never. A stream keeps its
    /// records for 24 hours.
    pub maximum_record_age: Option<Duration>,
    pub report_batch_item_failures: bool,
    pub filter: RecordFilter,
}

impl Default for MappingSettings {
    fn default() -> Self {
        Self {
            batch_size: 100,
            batching_window: Duration::ZERO,
            parallelization_factor: 1,
            bisect_batch_on_function_error: false,
            maximum_retry_attempts: None,
            maximum_record_age: None,
            report_batch_item_failures: false,
            filter: RecordFilter::default(),
        }
    }
}

/// Patterns joined by OR. The default has none and matches every record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordFilter(Vec<EventPattern>);

impl RecordFilter {
    /// Adds a pattern, JSON text. The error says why Lambda would reject it.
    pub fn add(&mut self, pattern: &str) -> Result<(), String> {
        let json = serde_json::from_str(pattern).map_err(|error| format!("filter pattern: not JSON: {error}"))?;
        self.0.push(EventPattern::of_filter(&json).map_err(|error| format!("filter pattern: {error}"))?);
        Ok(())
    }

    /// Whether a record, as Lambda delivers it, reaches the function.
    pub fn matches(&self, record: &Value) -> bool {
        self.0.is_empty() || self.0.iter().any(|pattern| pattern.matches(record))
    }
}
