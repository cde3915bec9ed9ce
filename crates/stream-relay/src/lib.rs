//! Lambda 2: reads outbox rows from the table's stream and publishes them to the bus.
//!
//! Invariants:
//! - A record is settled when EventBridge returned an event id for its message, or the dead-letter queue accepted the
//!   whole message. Unsettled records are retried: the response contains the lowest sequence number among them.
//! - Only a failure of a single message sends it to the dead-letter queue; a failure of the bus stops the invocation.
//! - A message is never in flight while an earlier message of its aggregate in the batch is unsettled.
//! - Details are opaque: this code depends on no aggregate, and never parses or reformats a detail.
//!
//! In reading order:
//! - [`run`]: the `main` of the function.
//! - [`relay`]: an invocation. [`resend`]: rows that an operator sends again.
//! - `record`: reads one stream record: a message, something else, or unreadable.
//! - `message`: a message as an entry for EventBridge, its state while it is published, and the result.
//! - `publisher`: makes the calls, until everything is settled or a limit is reached. `breaker`: whether failures are about
//!   single messages or about the bus.
//! - `queues`: the messages that may be sent next, without I/O: order, packing, waiting.
//! - `put_events`: the result of each entry, from a response of EventBridge.
//! - `memory`: what the process knows from earlier invocations.
//! - `hints`: the messages of the changes queue and of the reactions queue.
//! - `dead_letter`: the contents of the dead-letter queue.
//! - `signals`: logs and metrics of an invocation. `spans`: its traces.
//! - [`clients`], [`settings`]: configuration. [`check_bus`]: whether the bus exists.

mod breaker;
pub mod clients;
mod dead_letter;
mod function;
mod hints;
mod memory;
mod message;
mod publisher;
mod put_events;
mod queues;
mod record;
pub mod relay;
pub mod resend;
pub mod settings;
mod signals;
mod spans;

pub use clients::{BusCheck, NoSuchBus, check_bus};
pub use daybook_queue::Waits;
pub use daybook_stream_batch::{BatchResponse, SequenceNumber, StreamBatch};
pub use daybook_table::Clock;
pub use dead_letter::DeadLetter;
pub use function::run;
pub use message::EntryError;
pub use relay::{Relay, RelayError};
pub use resend::{BatchRows, Resend, ResendOutcome};
pub use settings::{RelaySettings, RetryPolicy, changes_queue, processes_queue, reactions_queue};
