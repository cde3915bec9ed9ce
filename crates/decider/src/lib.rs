//! The pure kernel of Daybook: the definition of an aggregate, the decision on its commands, the fold of its events
//! into a state, and the messages to publish.
//!
//! Invariant: nothing here performs I/O, waits, reads a clock or depends on AWS. Time, new ids and the caller come in
//! through [`Context`], so a decision repeated with the same input has the same result to the byte.
//!
//! In reading order:
//! - [`aggregate`]: the [`Aggregate`] trait, which is all that a new aggregate implements.
//! - [`involved`]: the other aggregates that a decision reads, and sends commands to. `involve`: the same with
//!   types. [`joint`]: the decision on commands of several aggregates. [`folded`]: an aggregate at some version, with
//!   its last event, and a command. [`aggregate_key`]: the identity of an aggregate.
//! - [`process`]: aggregates whose input is events of others, and that dispatch commands. `reacts`: the same with types.
//! - [`caller`]: the sender of a request; [`access`]: what the sender asks to do. [`claim`]: values that belong to one
//!   aggregate alone.
//! - [`deadline`]: commands that an aggregate gets at a time.
//! - [`personal`]: values about persons, which can be forgotten. `forms`: what stands for them in JSON.
//! - [`record`]: the result of an accepted command: [`RecordedEvent`]s and [`OutboxMessage`]s.
//! - [`model`]: an aggregate with its Rust types erased, so that the Lambdas can hold many in one [`Registry`].
//!   `erased` implements it for every aggregate, `draft` is a decision in progress, on the types that it hides,
//!   `outbox_message` builds its messages, `reading` reads commands and stored events, [`unreadable`] has those that cannot
//!   be read, [`panics`] turns panics of an aggregate's code into errors.
//! - [`registry`]: the registration of aggregates by hand, and its checks. `variant_names`: the names of an aggregate's
//!   commands and events, for these checks.
//! - `sample`: values that fit a schema. [`given`]: given/when/then for the tests beside an aggregate.
//! - [`json`]: JSON text exactly as it was written. `strict` reads JSON that callers sent.

#![warn(missing_docs)]

pub mod access;
pub mod aggregate;
pub mod aggregate_key;
pub mod caller;
pub mod claim;
pub mod deadline;
mod draft;
mod erased;
pub mod folded;
pub mod given;
mod involve;
pub mod involved;
pub mod joint;
pub mod json;
pub mod model;
mod outbox_message;
pub mod panics;
pub mod personal;
pub mod process;
mod reacts;
mod reading;
pub mod record;
pub mod registry;
mod sample;
pub mod unreadable;
mod variant_names;

pub use access::{Access, Authorization};
pub use aggregate::{Aggregate, Commands, Context, Decision, EventType, Message, Rejection, StoredEvent, Upcast};
pub use aggregate_key::AggregateKey;
pub use caller::{Caller, IamIdentity, PoolUser};
pub use claim::{Claim, ClaimChanges};
pub use deadline::{Deadline, DeadlineChanges, DeclaredDeadline, Due};
pub use folded::{CommandRequest, Folded, LastEvent};
pub use involved::{Involved, Need, SentCommand};
pub use joint::{Addressed, Decisions, JointError};
pub use json::Json;
pub use model::{CommandError, Decided, DecisionInput, DomainRejection, Model, StateError};
pub use panics::AggregatePanic;
pub use personal::Personal;
pub use process::{Answer, CommandRejection, Dispatch, Input, Source, Sources};
pub use reacts::Reacts;
pub use reading::read_stored;
pub use record::{FollowedEvent, Meta, OutboxMessage, RecordedEvent};
pub use registry::{RegistrationError, Registry};
#[doc(hidden)]
pub use sample::{sample, samples};
pub use unreadable::{UnreadableEvent, UnreadableKind};
