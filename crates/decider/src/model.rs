//! An aggregate with its Rust types erased, so that one Lambda serves every registered type through one path.

use std::sync::Arc;

use jiff::Timestamp;
use schemars::Schema;
use ulid::Ulid;

use crate::access::{Access, Authorization};
use crate::aggregate::{Commands, EventType};
use crate::aggregate_key::AggregateKey;
use crate::caller::Caller;
use crate::claim::{Claim, ClaimChanges};
use crate::deadline::{DeadlineChanges, DeclaredDeadline};
use crate::folded::{CommandRequest, Folded};
use crate::involved::{Involved, Need, SentCommand};
use crate::json::Json;
use crate::panics::AggregatePanic;
use crate::personal;
use crate::process::Source;
use crate::record::{MAX_BYTES, MAX_RECORDS, Meta, OutboxMessage, RecordedEvent};
use crate::unreadable::UnreadableEvent;

/// A registered aggregate type.
pub trait Model: Send + Sync {
    /// [`Aggregate::TYPE`](crate::Aggregate::TYPE).
    fn type_name(&self) -> &'static str;

    /// The path of the Rust type that implements [`Aggregate`](crate::Aggregate), for source code that is written for people.
    fn rust_type(&self) -> &'static str;

    /// [`Aggregate::STATE_VERSION`](crate::Aggregate::STATE_VERSION).
    fn state_version(&self) -> u32;

    /// [`Aggregate::COMMANDS`](crate::Aggregate::COMMANDS).
    fn commands(&self) -> Commands;

    /// [`Aggregate::EVENTS`](crate::Aggregate::EVENTS).
    fn events(&self) -> &'static [EventType];

    /// [`Aggregate::RETIRED`](crate::Aggregate::RETIRED).
    fn retired(&self) -> &'static [EventType];

    /// [`Aggregate::FULL_HISTORY`](crate::Aggregate::FULL_HISTORY): such an aggregate is folded from its first event,
    /// never from a snapshot.
    fn full_history(&self) -> bool;

    /// The name of the command that a client calls `name`: its alias in serde, or the name itself.
    fn command_name<'a>(&'a self, name: &'a str) -> &'a str;

    /// The current name of an event that is stored under `name`.
    fn event_name<'a>(&self, name: &'a str) -> &'a str {
        let is_stored_as = |event: &&EventType| event.forms().any(|(stored, _)| stored == name);
        self.events().iter().find(is_stored_as).map_or(name, |event| event.name)
    }

    /// Every name under which streams of this type hold events, with the latest version that is read.
    fn stored_events(&self) -> Vec<(&'static str, u32)> {
        self.events().iter().chain(self.retired()).flat_map(EventType::forms).collect()
    }

    /// Every name that the first event of a stream may have.
    fn opening_events(&self) -> Vec<&'static str> {
        self.events().iter().take(1).flat_map(EventType::forms).map(|(name, _)| name).collect()
    }

    /// [`Aggregate::sources`](crate::Aggregate::sources).
    fn sources(&self) -> &[Source];

    /// The source of this type.
    fn source(&self, aggregate_type: &str) -> Option<&Source> {
        self.sources().iter().find(|source| source.aggregate_type == aggregate_type)
    }

    /// The JSON Schemas of commands, events, messages and state, which the first call makes. Panics if the aggregate's code
    /// panics in it. Registration in a test finds that.
    fn schemas(&self) -> &Schemas;

    /// The aggregate before its first event.
    fn before_first_event(&self) -> Folded;

    /// The aggregate with the state of a snapshot. Fails if the state does not fit this type; the snapshot should then be
    /// ignored.
    fn restore(&self, version: u64, message_seq: u64, state: &Json) -> Result<Folded, StateError>;

    /// The names and data of the events that a stored event is read as, in the form that this code writes.
    fn read(&self, event: &RecordedEvent) -> Result<Vec<(String, Json)>, UnreadableEvent>;

    /// The aggregate after `events`, which must follow `onto` without a gap. Fails if an event cannot be read or is not the next
    /// one. None is skipped: a wrong state is worse than none.
    fn fold(&self, onto: Folded, events: &[RecordedEvent]) -> Result<Folded, UnreadableEvent>;

    /// The messages that [`Aggregate::announce`](crate::Aggregate::announce) returns for a stored event, which must follow
    /// `before`. Numbers and ids are those that the decision on the event gave them, if `announce` has not changed since: the ids
    /// of messages follow the id of their event. Their epoch is `epoch`. Fails if the event cannot be read, or a message cannot
    /// be written.
    fn announced(
        &self,
        before: &Folded,
        id: &str,
        event: &RecordedEvent,
        epoch: u32,
    ) -> Result<Vec<OutboxMessage>, UnreadableEvent>;

    /// The state as JSON. Fails if the state has no JSON form.
    fn state(&self, folded: &Folded) -> Result<Json, StateError>;

    /// [`Aggregate::is_deleted`](crate::Aggregate::is_deleted), which was called when `folded` was made.
    fn is_deleted(&self, folded: &Folded) -> bool {
        folded.is_deleted
    }

    /// [`Aggregate::is_forgotten`](crate::Aggregate::is_forgotten).
    fn is_forgotten(&self, folded: &Folded) -> Result<bool, AggregatePanic>;

    /// The aggregate without the personal values about itself, as it is read once they are forgotten. Fails if its state has no
    /// JSON form.
    fn without_personal(&self, folded: Folded, id: &str) -> Result<Folded, StateError>;

    /// [`Aggregate::FORGET`](crate::Aggregate::FORGET).
    fn forget(&self) -> Option<&'static str>;

    /// [`Aggregate::claims`](crate::Aggregate::claims), those that can be stored, sorted and each once; none before
    /// the first event and after a deletion.
    fn claims(&self, folded: &Folded) -> Result<Vec<Claim>, AggregatePanic>;

    /// [`Aggregate::deadlines`](crate::Aggregate::deadlines), sorted by name, and then
    /// [`Aggregate::dispatches`](crate::Aggregate::dispatches), in the order of that function: those that can be stored, and each
    /// name once. None before the first event and after a deletion.
    fn deadlines(&self, folded: &Folded) -> Result<Vec<DeclaredDeadline>, AggregatePanic>;

    /// [`Aggregate::authorize`](crate::Aggregate::authorize).
    fn authorize(
        &self,
        caller: &Caller,
        access: Access<'_>,
        id: Option<&str>,
        folded: Option<&Folded>,
    ) -> Result<Authorization, AggregatePanic>;

    /// Decides `commands` one after the other, all or nothing, if the caller may send each of them. Fails if a command cannot be
    /// decided. If the rules reject it, the [`Decided`] contains a `rejection`.
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
    /// The commands, `{"command", "data"}`.
    pub command: Schema,
    /// The events, `{"type", "data"}`.
    pub event: Schema,
    /// The messages, `{"type", "data"}`.
    pub message: Schema,
    /// The state.
    pub state: Schema,
    /// What some callers get instead of it.
    pub part: Option<Schema>,
}

/// Everything that a decision needs from outside.
#[derive(Clone, Debug)]
pub struct DecisionInput {
    /// The time. The decision uses the time of the aggregate's last event if that is later.
    pub now: Timestamp,
    /// The first new id: a ULID of `now` with fresh randomness. The decision uses a later one if the aggregate's last
    /// event has an id of this millisecond or a later one.
    pub seed: Ulid,
    /// The metadata that the events are recorded with.
    pub meta: Meta,
    /// The epoch of the messages. It is raised after a restore of the table, because numbers are then assigned again.
    pub epoch: u32,
    /// The sender of the commands.
    pub caller: Caller,
    /// The other aggregates, as far as they are known.
    pub involved: Involved,
    /// Whether another aggregate sends the commands. Its rules allow it, so `authorize` is not called.
    pub is_sent: bool,
    /// The state that a rejection is recorded on, if earlier commands of the request have changed the aggregate.
    pub recorded_on: Option<Folded>,
}

impl DecisionInput {
    /// The input of a request with these metadata and caller, and of no other aggregate.
    pub fn new(now: Timestamp, seed: Ulid, meta: Meta, caller: Caller, epoch: u32) -> Self {
        let (involved, is_sent, recorded_on) = (Involved::default(), false, None);
        Self { now, seed, meta, epoch, caller, involved, is_sent, recorded_on }
    }

    /// The input of a decision on `before`: time and ids never run backwards within an aggregate.
    pub(crate) fn after(&self, before: &Folded) -> Self {
        let (now, seed) = before.last_event.map_or((self.now, self.seed), |last| last.next(self.now, self.seed));
        Self { now, seed, ..self.clone() }
    }
}

/// The result of deciding commands.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The events to append; their numbers follow the version that was decided on.
    pub events: Vec<RecordedEvent>,
    /// The messages to publish.
    pub messages: Vec<OutboxMessage>,
    /// The claims to take and to release.
    pub claims: ClaimChanges,
    /// The deadlines and dispatches to set and to drop.
    pub deadlines: DeadlineChanges,
    /// Whether the personal values about the aggregate are forgotten from now on.
    pub forgets: bool,
    /// The aggregate after these events.
    pub after: Folded,
    /// The state after these events as JSON, as responses and snapshots contain it.
    pub state: Arc<Json>,
    /// The commands to other aggregates, also those before a rejection.
    pub sent: Vec<SentCommand>,
    /// The rejection, when the rules reject a command; `events` then contains only the events that record it.
    pub rejection: Option<DomainRejection>,
}

impl Decided {
    /// No change of an aggregate.
    pub(crate) fn nothing(model: &dyn Model, id: &str, before: &Folded) -> Result<Self, StateError> {
        let state = personal::attributed(model.state(before)?, (model.type_name(), id));
        let state = Arc::new(state.map_err(|reason| StateError::Json(serde::ser::Error::custom(reason)))?);
        let (claims, deadlines) = (ClaimChanges::default(), DeadlineChanges::default());
        let (events, messages, sent) = (Vec::new(), Vec::new(), Vec::new());
        let (after, forgets) = (before.clone(), false);
        Ok(Self { events, messages, claims, deadlines, forgets, after, state, sent, rejection: None })
    }

    /// The version that was decided on.
    pub fn version_before(&self) -> u64 {
        self.after.version - self.events.len() as u64
    }

    /// Adds another decision, on the state after this one.
    pub(crate) fn add(&mut self, next: Self) {
        self.events.extend(next.events);
        self.messages.extend(next.messages);
        self.forgets |= next.forgets;
        self.claims = std::mem::take(&mut self.claims).then(next.claims);
        self.deadlines = std::mem::take(&mut self.deadlines).then(next.deadlines);
        (self.after, self.state) = (next.after, next.state);
    }
}

/// A rejection of a command by the aggregate's rules, without its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainRejection {
    /// Its name, such as `InsufficientFunds`.
    pub name: &'static str,
    /// The explanation for the caller.
    pub detail: String,
    /// The position of the command among those that were decided, counted from 0.
    pub index: usize,
    /// The aggregate that rejects it, if it is not the one that the request is about.
    pub by: Option<AggregateKey>,
}

impl DomainRejection {
    /// A rejection by the aggregate that the request is about, of its first command.
    pub fn new(name: &'static str, detail: String) -> Self {
        Self { name, detail, index: 0, by: None }
    }
}

/// The reason why a command cannot be decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No such command.
    #[error("no command {command:?}; known: {}", known.join(", "))]
    Unknown {
        /// Its position among the commands, counted from 0.
        index: usize,
        /// The name in the request.
        command: String,
        /// The names of the aggregate's commands.
        known: Vec<String>,
    },
    /// The data does not fit the command.
    #[error("{command}: {reason}")]
    Invalid {
        /// Its position among the commands, counted from 0.
        index: usize,
        /// The command.
        command: String,
        /// What does not fit, and where.
        reason: String,
    },
    /// The caller may not send the command to the aggregate in this state.
    #[error("the caller may not send {command}")]
    Forbidden {
        /// The position of the command, counted from 0.
        index: usize,
        /// The command.
        command: String,
    },
    /// The aggregate does not exist and the command does not create it.
    #[error("it does not exist")]
    Missing,
    /// The command creates an aggregate that exists.
    #[error("it exists already")]
    Exists {
        /// The position of the create command, counted from 0.
        index: usize,
    },
    /// The aggregate has been deleted.
    #[error("it has been deleted")]
    Deleted,
    /// The commands would create the aggregate twice.
    #[error("command {} of the array creates it again", index + 1)]
    CreatedTwice {
        /// The position of the second create command, counted from 0.
        index: usize,
    },
    /// A command follows one that deleted the aggregate.
    #[error("command {} of the array comes after its deletion", index + 1)]
    AfterDeletion {
        /// The position of the command after the deletion, counted from 0.
        index: usize,
    },
    /// The commands cause more events and messages than can be appended at once.
    #[error("the commands would write more than {MAX_RECORDS} events and messages, the maximum of one request")]
    TooMany,
    /// The events and messages are larger together than can be appended at once.
    #[error("the commands would write more than {MAX_BYTES} bytes, the maximum of one request")]
    TooLarge,
    /// The decision needs to know this about other aggregates.
    #[error("other aggregates have to be read first")]
    Needs(Vec<Need>),
    /// The decision involves too many other aggregates.
    #[error("the commands would involve more than {} other aggregates, the maximum of one request", Involved::MAX)]
    TooManyInvolved,
    /// The aggregate's code panicked.
    #[error(transparent)]
    Panicked(#[from] AggregatePanic),
    /// The aggregate's code returned something that cannot be stored: an event or a message that has no JSON form, a
    /// claim, a deadline or a dispatch that is not valid, or a creation that does not begin with the opening event.
    #[error("{event} cannot be written: {reason}")]
    Unwritable {
        /// The event, the event of the message, or the aggregate that got no event.
        event: String,
        /// Why not.
        reason: String,
    },
}

impl CommandError {
    /// The name of the rejection that a process gets as the answer, if this is one, and not an error of the code.
    pub fn rejection(&self) -> Option<&'static str> {
        match self {
            Self::Missing => Some("Missing"),
            Self::Exists { .. } => Some("Exists"),
            Self::Deleted => Some("Deleted"),
            _ => None,
        }
    }

    /// The position of the command that causes the error, counted from 0; `None` when the error is not about one
    /// command.
    pub fn index(&self) -> Option<usize> {
        match *self {
            Self::Unknown { index, .. }
            | Self::Invalid { index, .. }
            | Self::Forbidden { index, .. }
            | Self::Exists { index }
            | Self::CreatedTwice { index }
            | Self::AfterDeletion { index } => Some(index),
            Self::Missing
            | Self::Deleted
            | Self::TooMany
            | Self::TooLarge
            | Self::Needs(_)
            | Self::TooManyInvolved
            | Self::Panicked(_)
            | Self::Unwritable { .. } => None,
        }
    }
}

/// The reason why a state cannot be converted from or to JSON.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It does not fit, or has no JSON form.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The aggregate's code panicked.
    #[error(transparent)]
    Panicked(#[from] AggregatePanic),
}
