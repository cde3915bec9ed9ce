//! What an event source mapping can be told.

use std::time::Duration;

use crate::filter::Filter;

/// The settings of one mapping. The default is what Lambda does with a mapping that sets nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct MappingSettings {
    /// Records in a batch, at most: 1 to 10,000.
    pub batch_size: usize,
    /// How long to gather records for a batch that is not full: 0 to 300 s.
    pub batching_window: Duration,
    /// Batches of one shard side by side: 1 to 10.
    pub parallelization_factor: usize,
    /// Where a new mapping begins to read. The caller's business: the mapping takes the records that it is given.
    pub starting_position: StartingPosition,
    /// Whether a batch that failed is split in two.
    pub bisect_batch_on_function_error: bool,
    /// Retries of a batch before it is discarded: 0 to 10,000, or without end.
    pub maximum_retry_attempts: Option<u32>,
    /// A record older than this is discarded instead of delivered: 60 s to 7 days, or never. What the stream itself
    /// keeps (24 hours) is the caller's business.
    pub maximum_record_age: Option<Duration>,
    /// Whether the function's response is read for the records that failed.
    pub report_batch_item_failures: bool,
    /// The records that the function sees.
    pub filter: Filter,
}

impl Default for MappingSettings {
    fn default() -> Self {
        Self {
            batch_size: 100,
            batching_window: Duration::ZERO,
            parallelization_factor: 1,
            starting_position: StartingPosition::TrimHorizon,
            bisect_batch_on_function_error: false,
            maximum_retry_attempts: None,
            maximum_record_age: None,
            report_batch_item_failures: false,
            filter: Filter::default(),
        }
    }
}

/// Where a new mapping begins to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartingPosition {
    /// `TRIM_HORIZON`: at the oldest record that the stream still has.
    TrimHorizon,
    /// `LATEST`: after the newest. Records that arrive while the mapping is being made can be missed.
    Latest,
}
