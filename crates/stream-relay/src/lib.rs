//! Lambda 2: takes outbox rows from the table's stream and puts them on the bus.
//!
//! Invariants:
//! - A record is settled when EventBridge gave its message an event id, or the dead-letter queue took it whole. What is
//!   not settled comes again: the answer names the lowest sequence number among it.
//! - A message is never in flight while an earlier one of its aggregate in the batch is unsettled.
//! - Details are opaque: nothing here knows an aggregate, and no detail is parsed or printed again.
//!
//! In reading order:
//! - `record`: one stream record: a message, something else, or unreadable.
//! - `message`: a message as the bus takes it, and what is known of it during an invocation.
//! - `lanes`: what may be sent when, without I/O: order, packing, waiting.
//! - `faults`: what an answer of EventBridge means for each entry.
//! - `dead_letter`: what goes to the dead-letter queue.
//! - [`relay`]: an invocation. `signals`: what an operator hears of it.
//! - [`resend`]: the same machinery for rows that an operator sends again.
//! - [`clients`], [`settings`]: how it is configured.

pub mod clients;
mod dead_letter;
mod faults;
mod lanes;
mod message;
mod record;
pub mod relay;
pub mod resend;
pub mod settings;
mod signals;

pub use daybook_stream_batch::{BatchResponse, SequenceNumber, StreamBatch};
pub use dead_letter::Letter;
pub use message::EntryError;
pub use relay::{Relay, RelayError};
pub use resend::{Outcome, Resend};
pub use settings::{Pace, RelaySettings};
