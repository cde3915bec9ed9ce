//! Lambda 2: takes outbox rows from the table's stream and puts them on the bus.
//!
//! Invariants:
//! - A record is settled when EventBridge gave its message an event id, or the dead-letter queue took it whole. What is
//!   not settled comes again: the response names the lowest sequence number among it.
//! - A message is never in flight while an earlier one of its aggregate in the batch is unsettled.
//! - Details are opaque: nothing here knows an aggregate, and no detail is parsed or printed again.
//!
//! In reading order:
//! - [`relay`]: an invocation. [`resend`]: rows that an operator sends again.
//! - `record`: one stream record: a message, something else, or unreadable.
//! - `message`: a message as EventBridge takes it, and what is known of it while it is published.
//! - `publisher`: the calls of both, until everything is settled or a limit is reached. `limits`: deadline, rate, patience.
//! - `queues`: what may be sent when, without I/O: order, packing, waiting.
//! - `put_events`: what an answer of EventBridge means for each entry.
//! - `dead_letter`: what goes to the dead-letter queue.
//! - `published`: what publishing has come to. `signals`: its logs and metrics.
//! - [`clients`], [`settings`]: how it is configured.

pub mod clients;
mod dead_letter;
mod limits;
mod message;
mod published;
mod publisher;
mod put_events;
mod queues;
mod record;
pub mod relay;
pub mod resend;
pub mod settings;
mod signals;

pub use daybook_stream_batch::{BatchResponse, SequenceNumber, StreamBatch};
pub use dead_letter::DeadLetter;
pub use message::EntryError;
pub use relay::{Relay, RelayError};
pub use resend::{Resend, ResendOutcome};
pub use settings::{RelaySettings, RetryPolicy};
