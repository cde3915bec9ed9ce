//! Helpers for all tests: one registered aggregate, with its decisions and folds.

use daybook_decider::record::timestamp;
use daybook_decider::{
    Aggregate, Caller, CommandError, CommandRequest, Decided, DecisionInput, Folded, Json, Meta, Model, RecordedEvent,
    Registry,
};
use jiff::Timestamp;
use serde_json::Value;
use ulid::Ulid;

/// The id of the aggregate under test.
pub(crate) const ID: &str = "7";

/// The time of all decisions and events, in milliseconds: [`NOW_TEXT`].
pub(crate) const NOW: u64 = 1_795_255_200_123;
pub(crate) const NOW_TEXT: &str = "2026-11-21T10:00:00.123Z";

pub(crate) fn at(milliseconds: u64, random: u128) -> DecisionInput {
    let now = Timestamp::from_millisecond(i64::try_from(milliseconds).unwrap()).unwrap();
    DecisionInput::new(now, Ulid::from_parts(milliseconds, random), Meta::default(), Caller::anonymous(), 1)
}

pub(crate) fn decision_input() -> DecisionInput {
    at(NOW, 42)
}

/// An event as the table holds it.
pub(crate) fn stored(seq_num: u64, event_type: &str, event_version: u32, data: &Value) -> RecordedEvent {
    RecordedEvent {
        seq_num,
        event_id: Ulid::from_parts(NOW, seq_num.into()),
        event_type: event_type.to_owned(),
        event_version,
        data: Json::of(data).unwrap(),
        meta: Meta::default(),
        occurred_at: decision_input().now,
        message_seq: seq_num,
        message_epoch: 1,
        together: Vec::new(),
    }
}

pub(crate) fn request(command: &str, data: &Value) -> CommandRequest {
    CommandRequest { command: command.to_owned(), data: Json::of(data).unwrap() }
}

/// One aggregate.
pub(crate) struct Subject(Registry, &'static str);

impl Subject {
    pub(crate) fn of<A: Aggregate>() -> Self {
        Self::beside::<A>(Registry::new())
    }

    pub(crate) fn beside<A: Aggregate>(others: Registry) -> Self {
        Self(others.with::<A>().unwrap(), A::TYPE)
    }

    pub(crate) fn model(&self) -> &dyn Model {
        self.0.get(self.1).unwrap()
    }

    pub(crate) fn unborn(&self) -> Folded {
        self.model().before_first_event()
    }

    pub(crate) fn decide(&self, before: &Folded, commands: &[(&str, Value)]) -> Result<Decided, CommandError> {
        self.decide_under(&decision_input(), before, commands)
    }

    pub(crate) fn decide_under(
        &self,
        input: &DecisionInput,
        before: &Folded,
        commands: &[(&str, Value)],
    ) -> Result<Decided, CommandError> {
        let commands: Vec<_> = commands.iter().map(|(command, data)| request(command, data)).collect();
        self.model().decide(before, ID, &commands, input)
    }

    /// The aggregate after these commands, of which the first one creates it.
    pub(crate) fn after(&self, commands: &[(&str, Value)]) -> Folded {
        let decided = self.decide(&self.unborn(), commands).unwrap();
        assert_eq!(decided.rejection, None);
        decided.after
    }

    /// The aggregate after these events, folded from the first one.
    pub(crate) fn fold(&self, events: &[RecordedEvent]) -> Folded {
        self.model().fold(self.unborn(), events).unwrap()
    }

    pub(crate) fn state(&self, folded: &Folded) -> Value {
        self.model().state(folded).unwrap().read().unwrap()
    }

    /// The version, the number of messages and the state of an aggregate.
    pub(crate) fn whole(&self, folded: &Folded) -> (u64, u64, String) {
        (folded.version(), folded.message_seq(), self.model().state(folded).unwrap().text().to_owned())
    }
}

/// The events' names.
pub(crate) fn names(decided: &Decided) -> Vec<&str> {
    decided.events.iter().map(|event| event.event_type.as_str()).collect()
}

#[test]
fn test_time_constant_matches_its_text() {
    assert_eq!(timestamp(decision_input().now), NOW_TEXT);
}
