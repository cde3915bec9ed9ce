//! A model of Lambda's event source mapping, the part between a DynamoDB stream and a function: filtering, batching,
//! concurrent batches, checkpoints, retries, bisection and the on-failure destination. It follows the documented rules
//! and the settings of a SAM template.
//!
//! Invariants:
//! - The crate never reads a clock, sleeps, polls or calls a function. The caller passes the time and the records,
//!   executes each [`Step`] and reports its outcome, so the same input always gives the same steps.
//! - A pushed record is filtered out, done (its batch succeeded, or the beginning of its batch did), returned as
//!   discarded, or outstanding. None is lost.
//! - Records of one item are delivered in their order and are never in two batches at once.
//!
//! One [`Mapping`] serves one shard and one function. The caller's loop:
//!
//! ```
//! # use std::time::Duration;
//! # use daybook_event_source_mapping::{InvocationOutcome, Mapping, MappingSettings, Record, Step};
//! # fn invoke(payload: &str) -> InvocationOutcome { InvocationOutcome::Returned("null".into()) }
//! # let now = Duration::from_secs(1_700_000_000);
//! # let stream_arn = "arn:aws:dynamodb:local:000000000000:table/daybook/stream/1";
//! # let from_get_records = serde_json::json!({"dynamodb": {
//! #     "SequenceNumber": "100", "Keys": {"pk": {"S": "a"}}, "ApproximateCreationDateTime": 1_700_000_000}});
//! let mut mapping = Mapping::new(MappingSettings::default());
//! mapping.push(Record::from_stream(from_get_records, stream_arn)?, now)?;
//! loop {
//!     match mapping.poll(now) {
//!         Step::Invoke(batch) => {
//!             let outcome = invoke(&batch.payload());
//!             mapping.settle(batch, outcome, now);
//!         }
//!         Step::Discard(discarded) => eprintln!("to the destination: {:?}", discarded.reason),
//!         Step::Wait { until: _ } => break, // until then, or until something is pushed or settled
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! In reading order:
//! - [`template`]: the functions of a SAM template and their mappings.
//! - [`settings`]: the settings of a mapping, with Lambda's defaults and ranges, and the patterns that decide which records a
//!   function receives.
//! - [`mapping`]: the state machine. `record_queue` holds the records in order, `outcome` reads a function's response.
//! - [`record`]: stream records and the payload that a function is invoked with.
//! - [`destination`]: the document that the on-failure destination receives.

pub mod destination;
pub mod mapping;
mod outcome;
pub mod record;
mod record_queue;
pub mod settings;
pub mod template;

pub use daybook_stream_batch::SequenceNumber;
pub use destination::{DiscardReason, Discarded, Source};
pub use mapping::{Batch, Mapping, Position, Step};
pub use outcome::InvocationOutcome;
pub use record::Record;
pub use settings::{MappingSettings, RecordFilter};
pub use template::Template;
