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
//! One [`Mapping`] serves one shard and one function. The caller polls it in a loop: it invokes the function for
//! [`Step::Invoke`] and settles the batch, stores what [`Step::Discard`] contains, and at [`Step::Wait`] waits until then, or
//! until something is pushed or settled.
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
pub use destination::{DiscardContext, DiscardReason, Discarded};
pub use mapping::{Batch, Mapping, RestartPoint, Step};
pub use outcome::InvocationOutcome;
pub use record::Record;
pub use settings::{MappingSettings, RecordFilter};
pub use template::Template;
