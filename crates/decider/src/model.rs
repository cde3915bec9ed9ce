//! An aggregate with its Rust types erased, so that one Lambda serves every registered type through one path.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use schemars::Schema;
use serde::Deserialize;
use ulid::Ulid;

use crate::aggregate::{Commands, EventType};
use crate::json::Json;
use crate::record::{Meta, OutboxMessage, RecordedEvent};

/// A registered aggregate type.
pub trait Model: Send + Sync {
    /// [`Aggregate::TYPE`](crate::Aggregate::TYPE).
    fn type_name(&self) -> &'static str;

    /// [`Aggregate::STATE_VERSION`](crate::Aggregate::STATE_VERSION).
    fn state_version(&self) -> u32;

    /// [`Aggregate::COMMANDS`](crate::Aggregate::COMMANDS).
    fn commands(&self) -> Commands;

    /// [`Aggregate::EVENTS`](crate::Aggregate::EVENTS).
    fn events(&self) -> &'static [EventType];

    /// [`Aggregate::RETIRED`](crate::Aggregate::RETIRED).
    fn retired(&self) -> &'static [EventType];

    /// [`Aggregate::FULL_HISTORY`](crate::Aggregate::FULL_HISTORY): such an aggregate is folded from its first event, never from a snapshot.
    fn full_history(&self) -> bool;

    /// Every name under which streams of this type hold events, with the newest version that is read.
    fn stored_events(&self) -> Vec<(&'static str, u32)> {
        self.events().iter().chain(self.retired()).flat_map(EventType::forms).collect()
    }

    /// Every name that the first event of a stream may have.
    fn opening_events(&self) -> Vec<&'static str> {
        self.events().iter().take(1).flat_map(EventType::forms).map(|(name, _)| name).collect()
    }

    /// The JSON Schemas of commands, events, messages and state.
    fn schemas(&self) -> Schemas;

    /// The aggregate before its first event.
    fn before_first_event(&self) -> Folded;

    /// The aggregate as a snapshot has it.
    ///
    /// # Errors
    ///
    /// When the snapshot's state is not one of this type; it should then be ignored.
    fn restore(&self, version: u64, message_seq: u64, state: &Json) -> Result<Folded, serde_json::Error>;

    /// Name and data of the events, in the form that this code writes, that a stored event is read as.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    fn read(&self, event: &RecordedEvent) -> Result<Vec<(String, Json)>, UnreadableEvent>;

    /// The aggregate after `events`, which must follow on `onto` without a gap.
    ///
    /// # Errors
    ///
    /// When an event cannot be read or is not the next one. None is skipped: a wrong state is worse than none.
    fn fold(&self, onto: Folded, events: &[RecordedEvent]) -> Result<Folded, UnreadableEvent>;

    /// The state as JSON.
    ///
    /// # Errors
    ///
    /// When the state has no JSON form.
    fn state(&self, folded: &Folded) -> Result<Json, serde_json::Error>;

    /// [`Aggregate::is_deleted`](crate::Aggregate::is_deleted).
    fn is_deleted(&self, folded: &Folded) -> bool;

    /// Decides `commands` one after the other, all or nothing.
    ///
    /// # Errors
    ///
    /// When a command does not reach the rules. Where the rules reject it, the [`Decided`] has a `rejection`.
    fn decide(
        &self,
        before: &Folded,
        id: &str,
        commands: &[CommandRequest],
        input: &DecisionInput,
    ) -> Result<Decided, CommandError>;
}

/// The JSON Schemas of an aggregate type.
#[derive(Clone, Debug)]
pub struct Schemas {
    /// Of its commands, `{"command", "data"}`.
    pub command: Schema,
    /// Of its events, `{"type", "data"}`.
    pub event: Schema,
    /// Of its messages, `{"type", "data"}`.
    pub message: Schema,
    /// Of its state.
    pub state: Schema,
}

/// A command as it arrives.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    /// Its name.
    pub command: String,
    /// Its data; `{}` when left out.
    #[serde(default = "Json::empty_object")]
    pub data: Json,
}

/// Everything that a decision needs from outside.
#[derive(Clone, Debug)]
pub struct DecisionInput {
    /// The time.
    pub now: Timestamp,
    /// Where new ids start: a ULID of `now` with fresh randomness.
    pub seed: Ulid,
    /// Who sent the commands and what they belong to.
    pub meta: Meta,
}

/// The result of deciding commands.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The events to append, numbered on from the version that was decided on.
    pub events: Vec<RecordedEvent>,
    /// The messages to publish.
    pub messages: Vec<OutboxMessage>,
    /// The aggregate with these events.
    pub after: Folded,
    /// Why the rules reject the commands; `events` then holds only the events that record it.
    pub rejection: Option<DomainRejection>,
}

/// Why the rules reject a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainRejection {
    /// Its name, such as `InsufficientFunds`.
    pub name: &'static str,
    /// What was wrong, for the caller.
    pub detail: String,
}

/// A command that does not reach the rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No such command.
    #[error("no command {command:?}; there are {}", known.join(", "))]
    Unknown {
        /// What was asked for.
        command: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The data does not fit the command.
    #[error("{command}: {reason}")]
    Invalid {
        /// The command.
        command: String,
        /// What does not fit, and where.
        reason: String,
    },
    /// The aggregate does not exist and the command does not create it.
    #[error("it does not exist")]
    Missing,
    /// The command creates an aggregate that exists.
    #[error("it exists already")]
    Exists,
    /// The aggregate has been deleted.
    #[error("it has been deleted")]
    Deleted,
    /// The commands would create the aggregate twice.
    #[error("command {place} of the array creates it again")]
    CreatedTwice {
        /// The place among the commands, counted from 1, of the one that is too much.
        place: usize,
    },
    /// The commands would go on after one of them deleted the aggregate.
    #[error("command {place} of the array comes after its deletion")]
    AfterDeletion {
        /// The place among the commands, counted from 1, of the one that comes too late.
        place: usize,
    },
    /// The aggregate's own code decided on what cannot be stored: an event or a message that has no JSON form, or a
    /// creation that does not begin with the event that opens streams.
    #[error("{event} cannot be written: {reason}")]
    Unwritable {
        /// The event, or the event whose message it was, or the aggregate that has none.
        event: String,
        /// Why not.
        reason: String,
    },
}

/// A stored event that the code cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {seq_num} ({event_type} version {event_version}): {reason}")]
pub struct UnreadableEvent {
    /// Its place in the stream.
    pub seq_num: u64,
    /// Its stored name.
    pub event_type: String,
    /// Its stored version.
    pub event_version: u32,
    /// Whether it is of a newer release or corrupt.
    pub kind: UnreadableKind,
    /// What is wrong with it.
    pub reason: String,
}

/// Why a stored event cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadableKind {
    /// A newer release than this one wrote it: its name, or its version, is one that this code does not know. Where
    /// that release runs, the event can be read.
    Newer,
    /// It is not what its name and version say, or not in its place, or its upcast is missing: it needs repair.
    Corrupt,
}

/// An aggregate at some version. Cheap to clone.
#[derive(Clone)]
pub struct Folded {
    pub(crate) version: u64,
    pub(crate) message_seq: u64,
    pub(crate) history_bytes: usize,
    /// The [`AggregateState`](crate::aggregate_state::AggregateState) of the model that folded it.
    pub(crate) state: Arc<dyn Any + Send + Sync>,
}

impl Folded {
    /// How many events have been folded; 0 is the aggregate before its creation.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How many messages its events have announced.
    pub fn message_seq(&self) -> u64 {
        self.message_seq
    }

    /// About how many bytes of history it holds beside the state.
    pub fn history_bytes(&self) -> usize {
        self.history_bytes
    }
}

impl fmt::Debug for Folded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folded")
            .field("version", &self.version)
            .field("message_seq", &self.message_seq)
            .finish_non_exhaustive()
    }
}
