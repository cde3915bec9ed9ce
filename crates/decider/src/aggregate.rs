//! The [`Aggregate`] trait and its types. A new aggregate implements the trait in one file and is registered in one
//! line.

use std::cell::Cell;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, schema_for};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ulid::Ulid;

use crate::access::{Access, Authorization};
use crate::caller::Caller;
use crate::claim::Claim;
use crate::deadline::Deadline;
use crate::involved::Exchange;
use crate::json::{Json, tagged};
use crate::process::{Dispatch, Sources};
use crate::record::Meta;

/// A consistency boundary: a stream of events, the state they fold into, and the rules by which commands become events.
///
/// Everything is synchronous and pure. When another writer was faster, the command is decided again on the newer
/// state, so [`decide`](Self::decide) may run several times for one command.
pub trait Aggregate: Send + Sync + 'static {
    /// The type's name in keys and URLs, lower-kebab. Stored format: never change it.
    const TYPE: &'static str;

    /// Must be raised when [`State`](Self::State) or [`evolve`](Self::evolve) changes meaning: snapshots of another
    /// version are ignored and rebuilt.
    const STATE_VERSION: u32;

    /// The commands that create, update and delete.
    const COMMANDS: Commands;

    /// Every variant of [`Event`](Self::Event), with the version that is written and all other stored forms that are
    /// read. The first entry is the opening event of every stream: the create command returns it first, and the list
    /// of a type's aggregates is read from its feed. Stored format: the name or version of a deployed event is never
    /// used for another event.
    const EVENTS: &'static [EventType];

    /// Events that the table still holds and that no longer mean anything, each with its latest version. Reading skips
    /// them. Their names stay reserved.
    const RETIRED: &'static [EventType] = &[];

    /// Whether [`decide`](Self::decide) needs all earlier events in [`Context::history`]. Such an aggregate is always
    /// folded from its first event, so its streams should stay short.
    const FULL_HISTORY: bool = false;

    /// The command after which the aggregate [is forgotten](Self::is_forgotten). It has no data. `daybook forget` sends it.
    const FORGET: Option<&'static str> = None;

    /// The state that the events fold into. `Default` is the state before the first event.
    type State: Default + Clone + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;

    /// The commands: an enum with `#[serde(tag = "command", content = "data", deny_unknown_fields)]`. A struct in
    /// their data is read from an object only, not from an array of its fields. Within untagged and internally tagged
    /// enums and beside `#[serde(flatten)]`, serde accepts both.
    type Command: DeserializeOwned + JsonSchema;

    /// The events: an enum with `#[serde(tag = "type", content = "data")]`, each variant's name given explicitly.
    type Event: Clone + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;

    /// The rules: the events that a command causes, or its rejection.
    ///
    /// # Errors
    ///
    /// A [`Rejection`], which the caller receives with status 422. It may carry events that record the rejection.
    fn decide(state: &Self::State, command: Self::Command, context: &Context<'_, Self::Event>)
    -> Decision<Self::Event>;

    /// The state after one more event. Total: an event is a fact, so its fold cannot fail.
    fn evolve(state: Self::State, event: &Self::Event) -> Self::State;

    /// The messages to publish for one event: by default the event itself.
    fn announce(_before: &Self::State, event: &Self::Event, _after: &Self::State) -> Vec<Message> {
        vec![Message::of(event)]
    }

    /// The JSON Schema of the messages, `{"type", "data"}`: by default that of the events. An aggregate that overrides
    /// [`announce`](Self::announce) builds its messages from an enum with [`Message::of`] and returns the schema of
    /// that enum here.
    fn message_schema() -> Schema {
        schema_for!(Self::Event)
    }

    /// Whether the caller may do this with the aggregate of this id: by default everybody whom the API's authorizer admits.
    ///
    /// A command is checked on the state that it is decided on, a read on the state that it returns. `id` and `state` are
    /// `None` where there is none: see [`Access`]. For a page of events, the check is first made without a state.
    /// [`Authorization::Unrestricted`] then saves reading the state; after any other result, the check is made again
    /// with the current state, and only this second result counts.
    ///
    /// Pure, like [`decide`](Self::decide). For an aggregate that does not exist, only its creation is checked: every
    /// other request gets 404.
    fn authorize(
        _caller: &Caller,
        _access: Access<'_, Self::Command>,
        _id: Option<&str>,
        _state: Option<&Self::State>,
    ) -> Authorization {
        Authorization::Unrestricted
    }

    /// The JSON Schema of what [`authorize`](Self::authorize) returns as [`Authorization::Part`], for the OpenAPI document.
    fn part_schema() -> Option<Schema> {
        None
    }

    /// Whether the aggregate has been deleted. Its events stay readable, but it accepts no further command.
    fn is_deleted(_state: &Self::State) -> bool {
        false
    }

    /// Whether the [personal](crate::Personal) values about this aggregate are forgotten. The append of the event that makes it so
    /// ends the key of these values, wherever they are stored. Nothing brings them back: it stays so, whatever the state says
    /// later, and no value about this aggregate is stored any more.
    fn is_forgotten(_state: &Self::State) -> bool {
        false
    }

    /// The values that belong to this aggregate alone while it is in this state, at most [`Claim::MAX`]. A deleted aggregate
    /// has none. An append that takes a value of another aggregate fails, and the caller gets 409.
    ///
    /// Pure, like [`decide`](Self::decide), which rejects values that are too long. Values are compared byte by byte, so
    /// this function normalizes them: `state.email.to_lowercase()`. If it returns other claims for a state than before,
    /// `daybook claims rebuild` is needed after the deployment.
    fn claims(_state: &Self::State) -> Vec<Claim> {
        Vec::new()
    }

    /// What shall happen with this aggregate, and when, unless its state changes first: at most [`Deadline::MAX`] commands, each
    /// with its time. A deleted aggregate has none. When one is due, the system sends the command, as
    /// [`Caller::system`](crate::Caller::system), if the state still declares the same name and time. It comes once, and not
    /// again after a rejection.
    ///
    /// Pure, like [`decide`](Self::decide): times are those of events, such as [`Context::now`] of the command before, or
    /// computed from them. If it returns other deadlines for a state than before, `daybook deadlines rebuild` is needed
    /// after the deployment.
    fn deadlines(_state: &Self::State) -> Vec<Deadline<Self::Command>> {
        Vec::new()
    }

    /// The aggregate types whose events are input of this one, which makes it a process. It also implements
    /// [`Reacts`](crate::Reacts) for each of them. None by default.
    fn sources() -> Sources<Self>
    where
        Self: Sized,
    {
        Sources::none()
    }

    /// The commands to other aggregates that a process asks for in this state. Each is sent at once, once for each time that its
    /// name appears, those that appear together in this order, each after the answer to the one before. A state that still
    /// returns it does not send it again; one that does not return it any more withdraws it, if it was not sent. A deleted
    /// aggregate has none. At most [`Deadline::MAX`] together with the deadlines, whose names are others.
    ///
    /// What the other aggregate answers comes back to [`Reacts::answered`](crate::Reacts::answered); it undoes nothing. A command
    /// that `decide` [sends](Context::send) is another thing: it is decided in the same transaction, in which a rejection
    /// undoes all. Send where all must happen or nothing; dispatch where each step takes its time, and can be made good later.
    ///
    /// Pure, like [`decide`](Self::decide). If it returns other names for a state than before, `daybook deadlines rebuild` is
    /// needed after the deployment, which sends the new ones.
    fn dispatches(_state: &Self::State) -> Vec<Dispatch> {
        Vec::new()
    }

    /// Converts a stored event one step towards the form that this code writes: an older version up, a version that it
    /// [`reads`](EventType::reads) ahead down, another name to the current one. It is called until every returned
    /// event has the version in [`EVENTS`](Self::EVENTS). One stored event may become several.
    ///
    /// Pure, and only about form: its result for an event must stay right forever.
    ///
    /// # Errors
    ///
    /// When the data does not have that form. The aggregate then cannot be read: a wrong state would be worse.
    fn upcast(event: StoredEvent) -> Upcast {
        Ok(vec![event])
    }
}

/// The commands behind the HTTP routes whose request names no command. The data of each is an object or absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commands {
    /// `POST /{type}`. The only command that an aggregate without events accepts.
    pub create: &'static str,
    /// `POST /{type}/{id}`.
    pub update: Option<&'static str>,
    /// `DELETE /{type}/{id}`.
    pub delete: Option<&'static str>,
}

/// An event's stored name, and every form in which the table may hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventType {
    /// The stored name, unique among all aggregates of the suite.
    pub name: &'static str,
    /// The version that is written, counted from 1.
    pub version: u32,
    /// The latest version that is read: `version`, or a later one that is read ahead.
    pub readable: u32,
    /// Other names under which it is stored, each with the latest version that is read.
    pub aliases: &'static [(&'static str, u32)],
}

impl EventType {
    /// The event `name`, written at `version`.
    pub const fn new(name: &'static str, version: u32) -> Self {
        Self { name, version, readable: version, aliases: &[] }
    }

    /// Also reads versions up to `readable`, which the next release will write: [`Aggregate::upcast`] converts them
    /// back to the version that this release writes. Once such a release is deployed, the next one can be deployed
    /// gradually and rolled back.
    #[must_use]
    pub const fn reads(self, readable: u32) -> Self {
        Self { readable, ..self }
    }

    /// Adds the names that the event had before, or will have from the next release on, each with its latest version.
    /// For the opening event, list every name that it ever had, so that the list of a type's aggregates is complete.
    #[must_use]
    pub const fn also_stored_as(self, aliases: &'static [(&'static str, u32)]) -> Self {
        Self { aliases, ..self }
    }

    /// All names under which it is stored, each with the latest version that is read; the current name comes first.
    pub fn forms(&self) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        std::iter::once((self.name, self.readable)).chain(self.aliases.iter().copied())
    }
}

/// An event's stored form: the input and output of [`Aggregate::upcast`].
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEvent {
    /// The stored name.
    pub name: String,
    /// The version that was written.
    pub version: u32,
    /// The data.
    pub data: serde_json::Value,
}

impl StoredEvent {
    /// The event `name` in the form of `version`.
    ///
    /// # Errors
    ///
    /// When the data has no JSON form.
    pub fn new(name: impl Into<String>, version: u32, data: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(Self { name: name.into(), version, data: serde_json::to_value(data)? })
    }

    /// Reads the data as the type that it had in this version.
    ///
    /// # Errors
    ///
    /// When the data does not fit that type.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, serde_json::Error> {
        serde_json::from_value(self.data)
    }
}

/// The result of one step of [`Aggregate::upcast`]: the converted events, or the error.
pub type Upcast = Result<Vec<StoredEvent>, serde_json::Error>;

/// The result of a decision. No events at all means that there is nothing to do: the command succeeds.
pub type Decision<E> = Result<Vec<E>, Rejection<E>>;

/// A rejection of a command by the aggregate's rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection<E> {
    /// Its name, in the style of an event: `InsufficientFunds`. Clients match on it.
    pub name: &'static str,
    /// The explanation for the caller.
    pub detail: String,
    /// Events that record the rejection: appended and published although the command is rejected.
    pub recorded: Vec<E>,
}

impl<E> Rejection<E> {
    /// A rejection that is not recorded.
    pub fn new(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, detail: detail.into(), recorded: Vec::new() }
    }

    /// Adds an event that records the rejection. An aggregate that does not exist yet records nothing: its stream
    /// begins with its creation.
    #[must_use]
    pub fn recording(mut self, event: E) -> Self {
        self.recorded.push(event);
        self
    }
}

/// A message to publish: its name (the `DetailType` on the bus) and its data.
#[derive(Clone, Debug, PartialEq)]
pub struct Message(pub(crate) Result<(String, Json), String>);

impl Message {
    /// A message with this name and data.
    pub fn new(name: impl Into<String>, data: &impl Serialize) -> Self {
        Self(Json::of(data).map(|data| (name.into(), data)).map_err(|error| error.to_string()))
    }

    /// A message from a value of an enum with `#[serde(tag = "type", content = "data")]`, such as the event itself.
    pub fn of(tagged: &impl Serialize) -> Self {
        Self(tagged::split(tagged).map_err(|error| error.to_string()))
    }
}

/// The input of a decision besides the state and the command.
#[derive(Debug)]
pub struct Context<'a, E> {
    pub(crate) aggregate_id: &'a str,
    pub(crate) now: Timestamp,
    pub(crate) meta: &'a Meta,
    pub(crate) caller: &'a Caller,
    pub(crate) history: &'a [E],
    pub(crate) ids: &'a Ids,
    pub(crate) exchange: &'a Exchange<'a>,
}

impl<E> Context<'_, E> {
    /// The id of the aggregate that decides.
    pub fn aggregate_id(&self) -> &str {
        self.aggregate_id
    }

    /// The time at which the events will have occurred.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The metadata that the events are recorded with: the name of the sender, correlation and trace ids.
    pub fn meta(&self) -> &Meta {
        self.meta
    }

    /// The caller of the request, also for a command that another aggregate sends.
    pub fn caller(&self) -> &Caller {
        self.caller
    }

    /// A new id, unique on every call and sortable by time.
    pub fn new_id(&self) -> Ulid {
        self.ids.next()
    }

    /// All events so far, those of earlier commands in the same batch included, when [`Aggregate::FULL_HISTORY`] asks
    /// for them; otherwise empty.
    pub fn history(&self) -> &[E] {
        self.history
    }
}

/// The ids of one decision, counted up from a seed of time and randomness.
#[derive(Debug)]
pub(crate) struct Ids(Cell<Ulid>);

impl Ids {
    pub(crate) fn from_seed(seed: Ulid) -> Self {
        Self(Cell::new(seed))
    }

    pub(crate) fn next(&self) -> Ulid {
        let id = self.0.get();
        // The random part overflows once in 2^80 seeds; the next ids then start over within the same millisecond.
        self.0.set(id.increment().unwrap_or_else(|_| Ulid::from_parts(id.timestamp_ms(), 0)));
        id
    }
}
