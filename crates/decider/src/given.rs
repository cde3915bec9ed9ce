//! Given/when/then: tests of a decision as a pure function.
//!
//! ```text
//! given::<Account>([opened("7")])
//!     .when(Command::RecordTransaction { desc: "A".into(), amount: -1 })
//!     .then([Event::TransactionAccepted { desc: "A".into(), amount: -1 }])
//!     .announces(["accountOverdrawn"]);
//! ```

use std::fmt::Debug;

use jiff::Timestamp;
use ulid::Ulid;

use crate::aggregate::{Aggregate, Context, Decision, Ids};
use crate::json::Json;
use crate::record::Meta;

/// The id of the aggregate under test.
pub const ID: &str = "given-1";

/// Starts a test with an aggregate whose stream holds these events.
pub fn given<A: Aggregate>(events: impl IntoIterator<Item = A::Event>) -> Given<A> {
    let history: Vec<_> = events.into_iter().collect();
    let state = history.iter().fold(A::State::default(), A::evolve);
    Given { state, history }
}

/// An aggregate under test, which [`given`] returns.
pub struct Given<A: Aggregate> {
    state: A::State,
    history: Vec<A::Event>,
}

impl<A: Aggregate> Given<A> {
    /// Decides a command.
    pub fn when(self, command: A::Command) -> TestedDecision<A> {
        let ids = Ids::from_seed(Ulid::from_parts(0, 0));
        let history = if A::FULL_HISTORY { self.history.as_slice() } else { &[] };
        let (now, meta) = (Timestamp::UNIX_EPOCH, Meta::default());
        let context = Context { aggregate_id: ID, now, meta: &meta, history, ids: &ids };
        let decision = A::decide(&self.state, command, &context);
        TestedDecision { state: self.state, decision }
    }

    /// The state that the events fold into.
    pub fn state(self) -> A::State {
        self.state
    }
}

/// The decision on a command, for the test to check.
pub struct TestedDecision<A: Aggregate> {
    state: A::State,
    decision: Decision<A::Event>,
}

impl<A: Aggregate> TestedDecision<A>
where
    A::Event: Debug + PartialEq,
{
    /// Expects exactly these events.
    ///
    /// # Panics
    ///
    /// When the decision differs.
    #[track_caller]
    pub fn then(self, expected: impl IntoIterator<Item = A::Event>) -> Announced {
        assert_eq!(self.decision, Ok(expected.into_iter().collect()));
        self.announced()
    }

    /// Expects a rejection with that name that records exactly these events.
    ///
    /// # Panics
    ///
    /// When the decision differs.
    #[track_caller]
    pub fn then_rejected(self, name: &str, recorded: impl IntoIterator<Item = A::Event>) -> Announced {
        match &self.decision {
            Ok(events) => panic!("expected the rejection {name}, got {events:?}"),
            Err(rejection) => {
                assert_eq!(rejection.name, name, "{}", rejection.detail);
                assert_eq!(rejection.recorded, recorded.into_iter().collect::<Vec<_>>());
            }
        }
        self.announced()
    }

    fn announced(self) -> Announced {
        let events = self.decision.unwrap_or_else(|rejection| rejection.recorded);
        let mut state = self.state;
        let mut messages = Vec::new();
        for event in events {
            let after = A::evolve(state.clone(), &event);
            messages.extend(A::announce(&state, &event, &after));
            state = after;
        }
        Announced(messages.into_iter().map(|message| message.0.expect("a message can be written as JSON")).collect())
    }
}

/// The messages to publish, for the test to check.
pub struct Announced(Vec<(String, Json)>);

impl Announced {
    /// Expects messages of these names, in this order.
    ///
    /// # Panics
    ///
    /// When they differ.
    #[track_caller]
    pub fn announces<const N: usize>(&self, names: [&str; N]) -> &Self {
        let announced: Vec<_> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(announced, names);
        self
    }

    /// The data of the message at `index`.
    ///
    /// # Panics
    ///
    /// When there are fewer messages.
    #[track_caller]
    pub fn data(&self, index: usize) -> serde_json::Value {
        self.0[index].1.read().expect("a message's data is JSON")
    }
}
