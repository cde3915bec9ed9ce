//! The settings of an event source mapping.

use std::time::Duration;

use crate::filter::RecordFilter;

/// The settings of one mapping. The default is what Lambda does with a mapping that sets nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct MappingSettings {
    /// Records in a batch, at most: 1 to 10,000.
    pub batch_size: usize,
    /// How long to gather records for a batch that is not full: 0 to 300 s.
    pub batching_window: Duration,
    /// Batches of one shard side by side: 1 to 10.
    pub parallelization_factor: usize,
    /// Whether a batch that failed is split in two.
    pub bisect_batch_on_function_error: bool,
    /// Retries of a batch before it is discarded: 0 to 10,000, or without end.
    pub maximum_retry_attempts: Option<u32>,
    /// A record older than this is discarded instead of delivered: 60 s to 7 days, or never. A stream has its records for
    /// 24 hours.
    pub maximum_record_age: Option<Duration>,
    /// Whether the function's response is read for the records that failed.
    pub report_batch_item_failures: bool,
    /// The records that the function sees.
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
