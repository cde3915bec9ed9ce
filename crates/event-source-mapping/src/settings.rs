//! The settings of an event source mapping.

use std::time::Duration;

use crate::filter::RecordFilter;

/// The settings of one mapping. The default has Lambda's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct MappingSettings {
    /// Maximum records in a batch: 1 to 10,000.
    pub batch_size: usize,
    /// How long records are gathered for a batch that is not full: 0 to 300 s.
    pub batching_window: Duration,
    /// Concurrent batches of one shard: 1 to 10.
    pub parallelization_factor: usize,
    /// Whether a failed batch is split in two.
    pub bisect_batch_on_function_error: bool,
    /// Retries of a batch before it is discarded: 0 to 10,000; `None` is infinite.
    pub maximum_retry_attempts: Option<u32>,
    /// A record older than this is discarded instead of delivered: 60 s to 7 days; `None` is never. A stream keeps its
    /// records for 24 hours.
    pub maximum_record_age: Option<Duration>,
    /// Whether the function's response reports the failed records.
    pub report_batch_item_failures: bool,
    /// The records that the function receives.
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
