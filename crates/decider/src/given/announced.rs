//! What a decision publishes, sends and dispatches, and the deadlines after it.

use serde::Serialize;

use crate::aggregate::Aggregate;
use crate::aggregate_key::{ID_RULE, is_id};
use crate::deadline::DeclaredDeadline;
use crate::involve::sent_command;
use crate::involved::SentCommand;
use crate::json::Json;
use crate::process::Dispatch;

/// The messages to publish, and the commands to send and to dispatch, for the test to check.
pub struct Announced {
    pub(super) messages: Vec<(String, Json)>,
    pub(super) sent: Vec<SentCommand>,
    /// Those that the state before did not declare.
    pub(super) dispatches: Vec<DeclaredDeadline>,
    /// Those of the state after the decision, also its dispatches.
    pub(super) deadlines: Vec<DeclaredDeadline>,
}

impl Announced {
    /// Expects messages of these names, in this order.
    ///
    /// # Panics
    ///
    /// When they differ.
    #[track_caller]
    pub fn announces<const N: usize>(&self, names: [&str; N]) -> &Self {
        let announced: Vec<_> = self.messages.iter().map(|(name, _)| name.as_str()).collect();
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
        self.messages[index].1.read().expect("a message's data is JSON")
    }

    /// Expects that this command is sent to another aggregate. The test does not decide it there.
    ///
    /// # Panics
    ///
    /// When it is not, or the id is none.
    #[track_caller]
    pub fn sends<B: Aggregate>(&self, id: &str, command: &B::Command) -> &Self
    where
        B::Command: Serialize,
    {
        let expected = sent_command::<B>(checked_id(id.to_owned()), command).unwrap_or_else(|error| panic!("{error}"));
        assert!(self.sent.contains(&expected), "{expected:?} is none of {:?}", self.sent);
        self
    }

    /// Expects that the decision adds exactly these dispatches to those of the state before, in this order.
    ///
    /// # Panics
    ///
    /// When they differ, or one cannot be stored.
    #[track_caller]
    pub fn dispatches(&self, expected: impl IntoIterator<Item = Dispatch>) -> &Self {
        let mut declared = Vec::new();
        for Dispatch(expected) in expected {
            match expected.check() {
                Ok(()) => declared.extend(expected.declared()),
                Err(error) => panic!("a dispatch that cannot be stored: {error}"),
            }
        }
        assert_eq!(self.dispatches, declared);
        self
    }

    /// Expects that the aggregate has the deadline after the decision, at this time in RFC 3339.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[track_caller]
    pub fn then_deadline(&self, name: &str, due: &str) -> &Self {
        require_deadline(&self.deadlines, name, Some(due));
        self
    }

    /// Expects that the aggregate has no deadline of this name after the decision.
    ///
    /// # Panics
    ///
    /// When it has.
    #[track_caller]
    pub fn then_no_deadline(&self, name: &str) -> &Self {
        require_deadline(&self.deadlines, name, None);
        self
    }

    /// Expects that no command is sent to another aggregate.
    ///
    /// # Panics
    ///
    /// When one is.
    #[track_caller]
    pub fn sends_nothing(&self) -> &Self {
        assert_eq!(self.sent, []);
        self
    }
}

/// Expects a deadline at this time in RFC 3339, or none of this name.
#[track_caller]
pub(super) fn require_deadline(deadlines: &[DeclaredDeadline], name: &str, due: Option<&str>) {
    let due = due.map(|due| due.parse().expect("a time in RFC 3339"));
    assert_eq!(deadlines.iter().find(|deadline| deadline.name == name).and_then(|deadline| deadline.due), due);
}

#[track_caller]
pub(super) fn checked_id(id: String) -> String {
    assert!(is_id(&id), "{id:?} cannot be an id: {ID_RULE}");
    id
}
