//! Given/when/then: tests of a decision as a pure function.
//!
//! ```text
//! given::<Account>([opened("7")])
//!     .when(Command::RecordTransaction { desc: "A".into(), amount: -1 })
//!     .then([Event::TransactionAccepted { desc: "A".into(), amount: -1 }])
//!     .announces(["accountOverdrawn"]);
//! given::<Customer>([]).beside([Claim::new("personal-email", "a@example.com")]).when(create()).then_taken("personal-email");
//! given::<Todo>([created_by("ann")]).by(Caller::named("bob")).forbids(Access::Read);
//! given::<Reservation>([held()]).when_due("hold").then_no_deadline("hold").then([Event::Expired {}]);
//! given::<Subscription>([])
//!     .involving::<Course>("rust", [created(20)])
//!     .when(Command::Subscribe { course: "rust".into() })
//!     .then([Event::Subscribed { course: "rust".into() }])
//!     .sends::<Course>("rust", &course::Command::TakeSeat {});
//! given::<Fulfilment>([begun()])
//!     .when_event::<Payment>(ID, payment::Event::Received {})
//!     .then([Event::Paid {}])
//!     .dispatches([Dispatch::new::<Shipment>("request-shipment", ID, &shipment::Command::RequestShipment {})]);
//! ```

mod announced;
mod authorized;
mod process;

use std::any::TypeId;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use ulid::Ulid;

use crate::access::Access;
use crate::aggregate::{Aggregate, Context, Decision, Ids};
use crate::aggregate_key::AggregateKey;
use crate::caller::Caller;
use crate::claim::{Claim, ClaimChanges};
use crate::deadline::{DeadlineChanges, Declaration, DeclaredDeadline};
use crate::draft::AggregateState;
use crate::folded::{CommandRequest, Folded};
use crate::involved::{Exchange, Involved, SentCommand};
use crate::json::{Json, tagged};
use crate::record::Meta;
use crate::registry::Registry;

pub use announced::Announced;
use announced::{checked_id, require_deadline};

/// The id of the aggregate under test.
pub const ID: &str = "given-1";

/// Starts a test with an aggregate whose stream holds these events.
///
/// # Panics
///
/// When the aggregate cannot be registered.
#[track_caller]
pub fn given<A: Aggregate>(events: impl IntoIterator<Item = A::Event>) -> Given<A> {
    require_registration::<A>();
    let history: Vec<_> = events.into_iter().collect();
    let state = as_loaded::<A>(history.iter().fold(A::State::default(), A::evolve), ID);
    let (caller, id, now) = (Caller::anonymous(), ID.to_owned(), Timestamp::UNIX_EPOCH);
    Given { state, history, caller, id, now, taken: Vec::new(), involved: Involved::default() }
}

/// An aggregate under test, which [`given`] returns.
pub struct Given<A: Aggregate> {
    state: A::State,
    history: Vec<A::Event>,
    caller: Caller,
    id: String,
    now: Timestamp,
    /// The claims of other aggregates.
    taken: Vec<Claim>,
    involved: Involved,
}

impl<A: Aggregate> Given<A> {
    /// Sets the id of the aggregate, which is [`ID`] otherwise.
    ///
    /// # Panics
    ///
    /// When it is not an id.
    #[must_use]
    #[track_caller]
    pub fn with_id(self, id: impl Into<String>) -> Self {
        let id = checked_id(id.into());
        Self { state: as_loaded::<A>(self.state, &id), id, ..self }
    }

    /// Sets the time of the decision, in RFC 3339. It is the beginning of 1970 otherwise.
    ///
    /// # Panics
    ///
    /// When it is not a time.
    #[must_use]
    #[track_caller]
    pub fn at(self, time: &str) -> Self {
        Self { now: time.parse().expect("a time in RFC 3339"), ..self }
    }

    /// Sets the caller, who is anonymous otherwise.
    #[must_use]
    pub fn by(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// Sets the claims of other aggregates. There are none otherwise.
    #[must_use]
    pub fn beside(self, claims: impl IntoIterator<Item = Claim>) -> Self {
        Self { taken: claims.into_iter().collect(), ..self }
    }

    /// Adds another aggregate with these events; one that is not added does not exist. Its claims are found by `involve_holder`.
    /// To have them taken for [`then_taken`](TestedDecision::then_taken), add them with [`beside`](Self::beside).
    ///
    /// # Panics
    ///
    /// When it is not an id.
    #[must_use]
    #[track_caller]
    pub fn involving<B: Aggregate>(mut self, id: &str, events: impl IntoIterator<Item = B::Event>) -> Self {
        let mut other = AggregateState::<B>::new(B::State::default());
        let mut version = 0;
        for event in events {
            other.apply(&event);
            version += 1;
        }
        let key = AggregateKey::new(B::TYPE, checked_id(id.to_owned()));
        self.involved.holders.extend(other.claims(version).into_iter().map(|claim| (claim, Some(key.clone()))));
        let is_deleted = version > 0 && other.is_deleted();
        let folded =
            Folded { version, message_seq: 0, history_bytes: 0, is_deleted, last_event: None, state: Arc::new(other) };
        self.involved.aggregates.insert(key, folded);
        self
    }

    /// Decides a command: on the state, and, as `then` compares, on the state as a snapshot stores it.
    pub fn when(self, command: A::Command) -> TestedDecision<A>
    where
        A::Command: Clone,
    {
        let restored = (!A::FULL_HISTORY).then(|| self.decide(&restored::<A>(&self.state), command.clone()).0);
        let (decision, sent) = self.decide(&self.state, command);
        let version = self.history.len() as u64;
        TestedDecision { id: self.id, state: self.state, version, decision, restored, taken: self.taken, sent }
    }

    /// Decides the command of a deadline of the state, as the system and at its time, or at the time of [`at`](Self::at) if that is
    /// later.
    ///
    /// # Panics
    ///
    /// When the state has no such deadline, or the system may not send its command.
    #[track_caller]
    pub fn when_due(self, name: &str) -> TestedDecision<A>
    where
        A::Command: Clone,
    {
        let deadlines = deadlines::<A>(&self.state, self.history.len() as u64);
        let found = deadlines.iter().find(|deadline| deadline.name == name).cloned();
        let Some(DeclaredDeadline { due: Some(due), command, .. }) = found else {
            panic!("the state has no deadline {name:?}, its deadlines are {deadlines:?}")
        };
        Self { now: self.now.max(due), ..self }.when_sent_by_the_system(&command)
    }

    /// Decides a command that the system sends.
    #[track_caller]
    fn when_sent_by_the_system(self, CommandRequest { command, data }: &CommandRequest) -> TestedDecision<A>
    where
        A::Command: Clone,
    {
        let read = tagged::join_command(command, data);
        let sent = read.unwrap_or_else(|reason| panic!("{command} cannot be read from its JSON form: {reason}"));
        let given = self.by(Caller::system());
        assert!(
            given.authorizes(Access::Command(&sent)),
            "the system may not send {command}: allow it in authorize, with caller.is_system()"
        );
        given.when(sent)
    }

    fn decide(&self, state: &A::State, command: A::Command) -> (Decision<A::Event>, Vec<SentCommand>) {
        let ids = Ids::from_seed(Ulid::from_parts(0, 0));
        let history = if A::FULL_HISTORY { self.history.as_slice() } else { &[] };
        let (now, meta) = (self.now, Meta::default());
        let (caller, exchange) = (&self.caller, Exchange { is_complete: true, ..Exchange::new(&self.involved) });
        let aggregate_id = &self.id;
        let context = Context { aggregate_id, now, meta: &meta, caller, history, ids: &ids, exchange: &exchange };
        let decision = A::decide(state, command, &context);
        let sent = exchange.sent.take().into_iter().map(|sent| sent.unwrap_or_else(|error| panic!("{error}")));
        let sent = if decision.is_ok() { sent.collect() } else { Vec::new() };
        (decision, sent)
    }

    /// The state that the events fold into.
    pub fn state(self) -> A::State {
        self.state
    }
}

/// The state as a snapshot stores and restores it.
fn restored<A: Aggregate>(state: &A::State) -> A::State {
    let json = Json::of(state).unwrap_or_else(|error| panic!("the state of {} has no JSON form: {error}", A::TYPE));
    let restored = serde_json::from_str(json.text());
    restored.unwrap_or_else(|error| panic!("the state of {} cannot be restored from {}: {error}", A::TYPE, json.text()))
}

/// The decision on a command, for the test to check.
pub struct TestedDecision<A: Aggregate> {
    id: String,
    state: A::State,
    /// The number of the events before the decision.
    version: u64,
    decision: Decision<A::Event>,
    /// The decision on the state as a snapshot stores it; `None` for a type without snapshots.
    restored: Option<Decision<A::Event>>,
    /// The claims of other aggregates.
    taken: Vec<Claim>,
    sent: Vec<SentCommand>,
}

impl<A: Aggregate> TestedDecision<A>
where
    A::Event: Debug + PartialEq,
{
    /// Expects exactly these events.
    ///
    /// # Panics
    ///
    /// When the decision differs, takes a claim of another aggregate, or creates an aggregate without an event, or with another
    /// one than the opening one first.
    #[track_caller]
    pub fn then(self, expected: impl IntoIterator<Item = A::Event>) -> Announced {
        self.require_equal_with_a_snapshot();
        assert_eq!(self.decision, Ok(expected.into_iter().collect()));
        self.require_opening_event();
        assert_eq!(self.taken_claim(), None, "another aggregate has the claim");
        self.announced()
    }

    /// Expects events that take a claim of another aggregate, with this name. Nothing is then appended.
    ///
    /// # Panics
    ///
    /// When the decision is a rejection that is not recorded, or takes no such claim.
    #[track_caller]
    pub fn then_taken(self, name: &str) {
        self.require_equal_with_a_snapshot();
        let taken = self.taken_claim();
        assert_eq!(taken.as_ref().map(Claim::name), Some(name), "{:?}", self.decision);
    }

    /// Expects that the aggregate has exactly these claims after the decision, in any order.
    ///
    /// # Panics
    ///
    /// When they differ.
    #[track_caller]
    pub fn claims(self, expected: impl IntoIterator<Item = Claim>) -> Self {
        let mut expected: Vec<_> = expected.into_iter().collect();
        expected.sort();
        assert_eq!(self.claims_after(), expected);
        self
    }

    /// Expects that the aggregate has the deadline after the decision, at this time in RFC 3339.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[track_caller]
    pub fn then_deadline(self, name: &str, due: &str) -> Self {
        require_deadline(&self.deadlines_after(), name, Some(due));
        self
    }

    /// Expects that the aggregate has no deadline of this name after the decision.
    ///
    /// # Panics
    ///
    /// When it has.
    #[track_caller]
    pub fn then_no_deadline(self, name: &str) -> Self {
        require_deadline(&self.deadlines_after(), name, None);
        self
    }

    #[track_caller]
    fn deadlines_after(&self) -> Vec<DeclaredDeadline> {
        let (state, version) = self.after();
        deadlines::<A>(&state, version)
    }

    fn after(&self) -> (A::State, u64) {
        let events = self.decision.as_ref().unwrap_or_else(|rejection| &rejection.recorded);
        let state = events.iter().fold(self.state.clone(), A::evolve);
        (as_loaded::<A>(state, &self.id), self.version + events.len() as u64)
    }

    fn claims_after(&self) -> Vec<Claim> {
        let (state, version) = self.after();
        claims::<A>(state, version)
    }

    /// The first claim of another aggregate that the decision takes.
    #[track_caller]
    fn taken_claim(&self) -> Option<Claim> {
        let had = claims::<A>(self.state.clone(), self.version);
        let changes = ClaimChanges::between(&had, &self.claims_after());
        let changes = changes.unwrap_or_else(|error| panic!("a claim that cannot be stored: {error}"));
        changes.taken.into_iter().find(|claim| self.taken.contains(claim))
    }

    /// Expects a rejection with that name that records exactly these events.
    ///
    /// # Panics
    ///
    /// When the decision differs.
    #[track_caller]
    pub fn then_rejected(self, name: &str, recorded: impl IntoIterator<Item = A::Event>) -> Announced {
        self.require_equal_with_a_snapshot();
        match &self.decision {
            Ok(events) => panic!("expected the rejection {name}, got {events:?}"),
            Err(rejection) => {
                assert_eq!(rejection.name, name, "{}", rejection.detail);
                assert_eq!(rejection.recorded, recorded.into_iter().collect::<Vec<_>>());
            }
        }
        self.announced()
    }

    #[track_caller]
    fn require_equal_with_a_snapshot(&self) {
        if let Some(restored) = &self.restored {
            assert_eq!(
                *restored, self.decision,
                "after a snapshot, the decision is the left one: `decide` reads something of the state that its JSON does \
                 not contain, such as a field with #[serde(skip)]"
            );
        }
    }

    #[track_caller]
    fn require_opening_event(&self) {
        if let (0, Ok(events)) = (self.version, &self.decision) {
            let first = events.first().expect(
                "there is no aggregate before its first event: a creation without one is a 500 of the API, and another command \
                 a 404",
            );
            let (name, _) = tagged::split(first).expect("an event can be written as JSON");
            assert_eq!(
                name,
                A::EVENTS[0].name,
                "a stream must begin with the first of EVENTS: return it first, or move its variant to the top of Event"
            );
        }
    }

    #[track_caller]
    fn announced(self) -> Announced {
        let had = deadlines::<A>(&self.state, self.version);
        let deadlines = self.deadlines_after();
        let mut dispatches = deadlines.clone();
        dispatches.retain(|new| new.due.is_none() && !had.iter().any(|old| old.due.is_none() && old.name == new.name));
        let events = self.decision.unwrap_or_else(|rejection| rejection.recorded);
        let mut state = self.state;
        let mut messages = Vec::new();
        for event in events {
            let after = A::evolve(state.clone(), &event);
            messages.extend(A::announce(&state, &event, &after));
            state = after;
        }
        let messages = messages.into_iter().map(|message| message.0.expect("a message can be written as JSON"));
        Announced { messages: messages.collect(), sent: self.sent, dispatches, deadlines }
    }
}

/// Panics if the aggregate cannot be registered. A process checks each type once.
#[track_caller]
fn require_registration<A: Aggregate>() {
    static REGISTRABLE: Mutex<BTreeSet<TypeId>> = Mutex::new(BTreeSet::new());
    let registrable = || REGISTRABLE.lock().unwrap_or_else(PoisonError::into_inner);
    if !registrable().contains(&TypeId::of::<A>()) {
        Registry::check_alone::<A>().unwrap_or_else(|error| panic!("{error}"));
        registrable().insert(TypeId::of::<A>());
    }
}

/// The state as the store returns it: without the personal values of an aggregate that is forgotten.
fn as_loaded<A: Aggregate>(state: A::State, id: &str) -> A::State {
    match A::is_forgotten(&state) {
        true => AggregateState::<A>::forgotten(&state, id).unwrap_or_else(|reason| panic!("the state: {reason}")),
        false => state,
    }
}

fn claims<A: Aggregate>(state: A::State, version: u64) -> Vec<Claim> {
    AggregateState::<A>::new(state).claims(version)
}

#[track_caller]
fn deadlines<A: Aggregate>(state: &A::State, version: u64) -> Vec<DeclaredDeadline> {
    let deadlines = AggregateState::<A>::new(state.clone()).deadlines(version);
    if let Err(error) = DeadlineChanges::between(&[], &deadlines) {
        panic!("a deadline or a dispatch that cannot be stored: {error}");
    }
    deadlines.into_iter().filter_map(Declaration::declared).collect()
}
