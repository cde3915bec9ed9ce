//! The pure kernel of Daybook: what an aggregate is, how a command is decided, how events fold into a state, and which
//! messages are published.
//!
//! Invariant: nothing here performs I/O, waits, reads a clock or knows of AWS. Time, new ids and the caller come in
//! through [`Context`], so a decision repeated with the same input has the same result to the byte.
//!
//! In reading order:
//! - [`aggregate`]: the [`Aggregate`] trait, which is all that a new aggregate implements.
//! - [`record`]: what an accepted command becomes: [`RecordedEvent`]s and [`OutboxMessage`]s.
//! - [`model`]: an aggregate with its Rust types erased, so that the Lambdas can hold many in one [`Registry`].
//!   `erased` does it for any aggregate, `aggregate_state` holds the types that it hides, `draft` is a decision while it is
//!   being made, `reading` reads commands and stored events.
//! - [`registry`]: where aggregates are registered by hand, and what is checked then.
//! - [`given`]: given/when/then for the tests beside an aggregate.
//! - [`json`]: JSON text exactly as it was written. `strict` reads what callers sent, `explain` words what is wrong with it.

pub mod aggregate;
mod aggregate_state;
mod draft;
mod erased;
pub mod given;
pub mod json;
pub mod model;
mod reading;
pub mod record;
pub mod registry;

pub use aggregate::{Aggregate, Commands, Context, Decision, EventType, Message, Rejection, StoredEvent, Upcast};
pub use json::Json;
pub use model::{
    CommandError, CommandRequest, Decided, DecisionInput, DomainRejection, Folded, Model, UnreadableEvent,
    UnreadableKind,
};
pub use record::{Meta, OutboxMessage, RecordedEvent};
pub use registry::{RegistrationError, Registry};
