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
//! - [`BatchRows`]: the rows of a batch, for an operator. `record`: reads one stream record: a message, something else, or unreadable.
//! - `message`: a message as an entry for EventBridge, and its state while it is published.
//! - `publisher`: makes the calls, until everything is settled or a limit is reached. `limits`: deadline, rate, and
//!   how long failures are tolerated. `breaker`: whether failures are about single messages or about the bus.
//! - `queues`: the messages that may be sent next, without I/O: order, packing, waiting.
//! - `put_events`: the result of each entry, from a response of EventBridge.
//! - `memory`: what the process knows from earlier invocations.
//! - `changes_queue`: the changes queue, from which the projector learns which aggregates have new events.
//! - [`check_bus`]: whether the bus exists.
//! - `dead_letter`: the contents of the dead-letter queue.
//! - `published`: the result of publishing. `signals`: its logs and metrics. `spans`: its traces.
//! - [`clients`], [`settings`]: configuration. `clock`: the wall clock.

mod batch_rows;
mod breaker;
mod bus_check;
mod changes_queue;
pub mod clients;
mod clock;
mod dead_letter;
mod function;
mod limits;
mod memory;
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
mod spans;

pub use batch_rows::BatchRows;
pub use bus_check::{BusCheck, NoSuchBus, check_bus};
pub use daybook_stream_batch::{BatchResponse, SequenceNumber, StreamBatch};
pub use dead_letter::DeadLetter;
pub use function::run;
pub use message::EntryError;
pub use relay::{Relay, RelayError};
pub use resend::{Resend, ResendOutcome};
pub use settings::{RelaySettings, RetryPolicy, changes_queue};
