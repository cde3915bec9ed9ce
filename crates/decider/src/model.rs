//! An aggregate with its Rust types erased, so that one Lambda serves every registered type through one path.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use jiff::Timestamp;
use schemars::{Schema, schema_for};
use serde::Deserialize;
use ulid::Ulid;

use crate::aggregate::{Aggregate, Commands, Context, EventType, Ids, StoredEvent};
use crate::json::{Json, tagged};
use crate::record::{Meta, OutboxMessage, RecordedEvent};

/// A registered aggregate type.
pub trait Model: Send + Sync {
    /// [`Aggregate::TYPE`].
    fn type_name(&self) -> &'static str;

    /// [`Aggregate::STATE_VERSION`].
    fn state_version(&self) -> u32;

    /// [`Aggregate::COMMANDS`].
    fn commands(&self) -> Commands;

    /// [`Aggregate::EVENTS`].
    fn events(&self) -> &'static [EventType];

    /// [`Aggregate::FULL_HISTORY`]: such an aggregate is folded from its first event, never from a snapshot.
    fn full_history(&self) -> bool;

    /// The JSON Schemas of commands, events and state.
    fn schemas(&self) -> Schemas;

    /// The aggregate before its first event.
    fn before_first_event(&self) -> Folded;

    /// The aggregate as a snapshot has it.
    ///
    /// # Errors
    ///
    /// When the snapshot's state is not one of this type; it should then be ignored.
    fn restore(&self, version: u64, message_seq: u64, state: &Json) -> Result<Folded, serde_json::Error>;

    /// The aggregate after `events`, which must follow on `onto` without a gap.
    ///
    /// # Errors
    ///
    /// When an event cannot be read or is not the next one. Nothing is guessed: a wrong state is worse than none.
    fn fold(&self, onto: Folded, events: &[RecordedEvent]) -> Result<Folded, UnreadableEvent>;

    /// The state as JSON.
    ///
    /// # Errors
    ///
    /// When the state has no JSON form.
    fn state(&self, folded: &Folded) -> Result<Json, serde_json::Error>;

    /// [`Aggregate::is_deleted`].
    fn is_deleted(&self, folded: &Folded) -> bool;

    /// Decides `commands` one after the other, all or nothing.
    ///
    /// # Errors
    ///
    /// When a command cannot even be put to the rules. A refusal by the rules is a [`Decided`] with a `refusal`.
    fn decide(
        &self,
        before: &Folded,
        id: &str,
        commands: &[CommandRequest],
        circumstances: &Circumstances,
    ) -> Result<Decided, CommandError>;
}

/// The JSON Schemas of an aggregate type.
#[derive(Clone, Debug)]
pub struct Schemas {
    /// Of its commands, `{"command", "data"}`.
    pub command: Schema,
    /// Of its events, `{"type", "data"}`.
    pub event: Schema,
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

/// Everything that a decision would otherwise have to ask the world for.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// The time.
    pub now: Timestamp,
    /// Where new ids start: a ULID of `now` with fresh randomness.
    pub seed: Ulid,
    /// Who sent the commands and what they belong to.
    pub meta: Meta,
}

/// What the commands came to.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The events to append, numbered on from the version that was decided on.
    pub events: Vec<RecordedEvent>,
    /// The messages to announce.
    pub messages: Vec<OutboxMessage>,
    /// The aggregate with these events.
    pub after: Folded,
    /// Why the commands were refused; `events` then holds only what records it.
    pub refusal: Option<Refusal>,
}

/// Why the rules refuse a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
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
    /// The aggregate's own code made an event or a message that has no JSON form.
    #[error("{event} cannot be written as JSON: {reason}")]
    Unwritable {
        /// The event, or the event whose message it was.
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
    /// What is wrong with it.
    pub reason: String,
}

/// An aggregate at some version. Cheap to clone.
#[derive(Clone)]
pub struct Folded {
    version: u64,
    message_seq: u64,
    history_bytes: usize,
    held: Arc<dyn Any + Send + Sync>,
}

impl Folded {
    /// How many events have been folded; 0 is the aggregate before its creation.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How many messages it has announced.
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

/// The model of the aggregate `A`.
pub(crate) struct ModelOf<A>(PhantomData<fn() -> A>);

impl<A: Aggregate> ModelOf<A> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }

    fn held(folded: &Folded) -> &Held<A> {
        folded.held.downcast_ref().expect("a state is only given back to the model that folded it")
    }
}

/// What [`Folded`] hides.
struct Held<A: Aggregate> {
    state: A::State,
    /// Empty unless [`Aggregate::FULL_HISTORY`].
    history: Vec<A::Event>,
}

impl<A: Aggregate> Clone for Held<A> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), history: self.history.clone() }
    }
}

impl<A: Aggregate> Held<A> {
    fn push(&mut self, event: A::Event) {
        self.state = A::evolve(std::mem::take(&mut self.state), &event);
        if A::FULL_HISTORY {
            self.history.push(event);
        }
    }
}

impl<A: Aggregate> Model for ModelOf<A> {
    fn type_name(&self) -> &'static str {
        A::TYPE
    }

    fn state_version(&self) -> u32 {
        A::STATE_VERSION
    }

    fn commands(&self) -> Commands {
        A::COMMANDS
    }

    fn events(&self) -> &'static [EventType] {
        A::EVENTS
    }

    fn full_history(&self) -> bool {
        A::FULL_HISTORY
    }

    fn schemas(&self) -> Schemas {
        Schemas { command: schema_for!(A::Command), event: schema_for!(A::Event), state: schema_for!(A::State) }
    }

    fn before_first_event(&self) -> Folded {
        let held = Held::<A> { state: A::State::default(), history: Vec::new() };
        Folded { version: 0, message_seq: 0, history_bytes: 0, held: Arc::new(held) }
    }

    fn restore(&self, version: u64, message_seq: u64, state: &Json) -> Result<Folded, serde_json::Error> {
        let held = Held::<A> { state: state.read()?, history: Vec::new() };
        Ok(Folded { version, message_seq, history_bytes: 0, held: Arc::new(held) })
    }

    fn fold(&self, onto: Folded, events: &[RecordedEvent]) -> Result<Folded, UnreadableEvent> {
        let Folded { mut version, mut message_seq, mut history_bytes, held } = onto;
        let mut held = Arc::unwrap_or_clone(
            held.downcast::<Held<A>>().expect("a state is only given back to the model that folded it"),
        );
        for event in events {
            if event.seq_num != version + 1 {
                return Err(unreadable(event, format!("it follows on {version}, so the stream has a gap")));
            }
            for event in read_event::<A>(event)? {
                held.push(event);
            }
            version = event.seq_num;
            message_seq = event.message_seq;
            if A::FULL_HISTORY {
                history_bytes += event.data.text().len();
            }
        }
        Ok(Folded { version, message_seq, history_bytes, held: Arc::new(held) })
    }

    fn state(&self, folded: &Folded) -> Result<Json, serde_json::Error> {
        Json::of(&Self::held(folded).state)
    }

    fn is_deleted(&self, folded: &Folded) -> bool {
        folded.version > 0 && A::is_deleted(&Self::held(folded).state)
    }

    fn decide(
        &self,
        before: &Folded,
        id: &str,
        commands: &[CommandRequest],
        circumstances: &Circumstances,
    ) -> Result<Decided, CommandError> {
        let commands = commands.iter().map(read_command::<A>).collect::<Result<Vec<_>, _>>()?;
        let ids = Ids::from_seed(circumstances.seed);
        let mut draft = Draft::<A>::new(before, Self::held(before), id, circumstances, &ids);
        for (command, creates) in commands {
            if A::is_deleted(&draft.held.state) && draft.version() > 0 {
                return Err(if creates { CommandError::Exists } else { CommandError::Deleted });
            }
            match (creates, draft.version()) {
                (true, 1..) => return Err(CommandError::Exists),
                (false, 0) => return Err(CommandError::Missing),
                (true, 0) | (false, 1..) => {}
            }
            let context = Context::new(id, circumstances.now, &circumstances.meta, &draft.held.history, &ids);
            match A::decide(&draft.held.state, command, &context) {
                Ok(events) => draft.extend(events)?,
                Err(rejection) => {
                    // The batch's other events are dropped; the refusal is recorded on what was there before.
                    let mut draft = Draft::<A>::new(before, Self::held(before), id, circumstances, &ids);
                    if draft.version() > 0 {
                        draft.extend(rejection.recorded)?;
                    }
                    return Ok(draft.finish(Some(Refusal { name: rejection.name, detail: rejection.detail })));
                }
            }
        }
        Ok(draft.finish(None))
    }
}

/// The events and messages of a decision while it is being made.
struct Draft<'a, A: Aggregate> {
    id: &'a str,
    circumstances: &'a Circumstances,
    ids: &'a Ids,
    held: Held<A>,
    before: &'a Folded,
    message_seq: u64,
    history_bytes: usize,
    events: Vec<RecordedEvent>,
    messages: Vec<OutboxMessage>,
}

impl<'a, A: Aggregate> Draft<'a, A> {
    fn new(before: &'a Folded, held: &Held<A>, id: &'a str, circumstances: &'a Circumstances, ids: &'a Ids) -> Self {
        Self {
            id,
            circumstances,
            ids,
            held: held.clone(),
            before,
            message_seq: before.message_seq,
            history_bytes: before.history_bytes,
            events: Vec::new(),
            messages: Vec::new(),
        }
    }

    fn version(&self) -> u64 {
        self.before.version + self.events.len() as u64
    }

    fn extend(&mut self, events: Vec<A::Event>) -> Result<(), CommandError> {
        events.into_iter().try_for_each(|event| self.push(event))
    }

    fn push(&mut self, event: A::Event) -> Result<(), CommandError> {
        let (name, data) = tagged::split(&event).map_err(|error| CommandError::Unwritable {
            event: format!("an event of {}", A::TYPE),
            reason: error.to_string(),
        })?;
        let unwritable = |reason: String| CommandError::Unwritable { event: name.clone(), reason };
        let version = A::EVENTS
            .iter()
            .find(|known| known.name == name)
            .ok_or_else(|| unwritable("it is not one of the aggregate's EVENTS".to_owned()))?
            .version;

        let state_before = self.held.state.clone();
        self.held.push(event.clone());
        let announced = A::announce(&state_before, &event, &self.held.state);
        if A::FULL_HISTORY {
            self.history_bytes += data.text().len();
        }

        let recorded = RecordedEvent {
            seq_num: self.version() + 1,
            event_id: self.ids.next(),
            event_type: name.clone(),
            event_version: version,
            data,
            meta: self.circumstances.meta.clone(),
            occurred_at: self.circumstances.now,
            message_seq: self.message_seq + announced.len() as u64,
        };
        for (index, message) in announced.into_iter().enumerate() {
            let (message_type, data) = message.0.map_err(unwritable)?;
            self.message_seq += 1;
            let message = OutboxMessage::new(
                (A::TYPE, self.id),
                &recorded,
                (self.message_seq, index),
                (self.ids.next(), message_type, data),
            )
            .map_err(|error| unwritable(error.to_string()))?;
            self.messages.push(message);
        }
        self.events.push(recorded);
        Ok(())
    }

    fn finish(self, refusal: Option<Refusal>) -> Decided {
        let after = Folded {
            version: self.version(),
            message_seq: self.message_seq,
            history_bytes: self.history_bytes,
            held: Arc::new(self.held),
        };
        Decided { events: self.events, messages: self.messages, after, refusal }
    }
}

/// The command, and whether it is the one that creates.
fn read_command<A: Aggregate>(request: &CommandRequest) -> Result<(A::Command, bool), CommandError> {
    let command = tagged::join("command", &request.command, &request.data).map_err(|reason| {
        let known = tags(&schema_for!(A::Command), "command");
        if known.contains(&request.command) {
            CommandError::Invalid { command: request.command.clone(), reason }
        } else {
            CommandError::Unknown { command: request.command.clone(), known }
        }
    })?;
    Ok((command, request.command == A::COMMANDS.create))
}

/// The event as today's code knows it, after as many upcasts as it takes.
fn read_event<A: Aggregate>(event: &RecordedEvent) -> Result<Vec<A::Event>, UnreadableEvent> {
    let is_current =
        |name: &str, version: u32| A::EVENTS.iter().any(|known| known.name == name && known.version == version);
    let read = |name: &str, data: &Json| tagged::join("type", name, data).map_err(|reason| unreadable(event, reason));
    if is_current(&event.event_type, event.event_version) {
        return Ok(vec![read(&event.event_type, &event.data)?]);
    }
    let data = event.data.read().map_err(|error| unreadable(event, error.to_string()))?;
    let mut pending = vec![StoredEvent { name: event.event_type.clone(), version: event.event_version, data }];
    let mut current = Vec::new();
    while let Some(stored) = pending.pop() {
        if is_current(&stored.name, stored.version) {
            let data = Json::of(&stored.data).map_err(|error| unreadable(event, error.to_string()))?;
            current.push(read(&stored.name, &data)?);
            continue;
        }
        let (name, version) = (stored.name.clone(), stored.version);
        let newer = A::upcast(stored);
        if newer.iter().any(|newer| newer.name == name && newer.version <= version) {
            return Err(unreadable(event, format!("this code has no upcast for {name} version {version}")));
        }
        // Popped from the back, so what an upcast returns is pushed in reverse to keep its order.
        pending.extend(newer.into_iter().rev());
    }
    Ok(current)
}

fn unreadable(event: &RecordedEvent, reason: String) -> UnreadableEvent {
    UnreadableEvent {
        seq_num: event.seq_num,
        event_type: event.event_type.clone(),
        event_version: event.event_version,
        reason,
    }
}

/// The names of an adjacently tagged enum's variants, read from its schema.
pub(crate) fn tags(schema: &Schema, tag: &str) -> Vec<String> {
    let variants = schema.get("oneOf").and_then(|variants| variants.as_array());
    variants
        .into_iter()
        .flatten()
        .filter_map(|variant| variant.pointer(&format!("/properties/{tag}/const"))?.as_str().map(str::to_owned))
        .collect()
}
