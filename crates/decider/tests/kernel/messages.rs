//! The published messages and the text of their details.

use std::collections::BTreeMap;

use daybook_decider::{Aggregate, CommandError, Commands, Context, Decision, DecisionInput, EventType, Message, Meta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::counter::Counter;
use crate::support::{NOW_TEXT, Subject, decision_input};

/// Publishes the event itself, or for the text `as <name>` a message of that name. With `ODD`, the message has no JSON
/// form.
struct Herald<const ODD: bool>;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct State {}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Proclaim { text: String },
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Proclaimed { text: String },
}

impl<const ODD: bool> Aggregate for Herald<ODD> {
    const TYPE: &'static str = "herald";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Proclaim", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Proclaimed", 5)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, Command::Proclaim { text }: Command, _: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![Event::Proclaimed { text }])
    }

    fn evolve(state: State, _: &Event) -> State {
        state
    }

    fn announce(_: &State, event: &Event, _: &State) -> Vec<Message> {
        let unspeakable = BTreeMap::from([([1, 2], "a key that is not a text")]);
        let Event::Proclaimed { text } = event;
        match text.strip_prefix("as ") {
            Some(name) => vec![Message::new(name, &())],
            None if ODD => vec![Message::new("unspeakable", &unspeakable)],
            None => vec![Message::of(event)],
        }
    }
}

/// An aggregate with the default `announce` of the trait.
struct Quiet;

impl Aggregate for Quiet {
    const TYPE: &'static str = "quiet";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Herald::<false>::COMMANDS;
    const EVENTS: &'static [EventType] = Herald::<false>::EVENTS;

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        Herald::<false>::decide(state, command, context)
    }

    fn evolve(state: State, event: &Event) -> State {
        Herald::<false>::evolve(state, event)
    }
}

fn proclaim(text: &str) -> [(&'static str, Value); 1] {
    [("Proclaim", json!({ "text": text }))]
}

#[test]
fn by_default_a_message_is_the_event_itself() {
    for subject in [Subject::of::<Quiet>(), Subject::of::<Herald<false>>()] {
        let decided = subject.decide(&subject.unborn(), &proclaim("\"hear\" é\n")).unwrap();
        let [event] = decided.events.as_slice() else { panic!("one event") };
        let [message] = decided.messages.as_slice() else { panic!("one message") };
        assert_eq!(message.message_type, event.event_type);
        assert_eq!(message.data, event.data);
        assert_eq!(message.occurred_at, event.occurred_at);
    }
}

#[test]
fn a_message_that_has_no_json_form_fails_the_command() {
    let herald = Subject::of::<Herald<true>>();
    let error = herald.decide(&herald.unborn(), &proclaim("hear")).unwrap_err();
    assert_eq!(error, CommandError::Unwritable { event: "Proclaimed".into(), reason: "key must be a string".into() });
}

#[test]
fn message_name_that_the_bus_would_reject_fails_the_command() {
    let herald = Subject::of::<Herald<false>>();
    for (name, fits) in [("x", true), (&"é".repeat(128), true), ("", false), (&"x".repeat(129), false)] {
        let decided = herald.decide(&herald.unborn(), &proclaim(&format!("as {name}")));
        assert_eq!(decided.is_ok(), fits, "{name}");
    }
}

#[test]
fn detail_contains_every_member_in_order() {
    let meta = Meta {
        actor: Some("arn:aws:iam::1:user/\"alice\"".into()),
        source_ip: Some("192.0.2.1".into()),
        correlation_id: Some("cor-1".into()),
        causation_id: Some("cau-1".into()),
        traceparent: Some("00-1-2-01".into()),
        trace_header: Some("Root=1-2-3".into()),
    };
    let input = DecisionInput { meta, epoch: 2, ..decision_input() };
    let counter = Subject::of::<Counter>();
    let before = counter.after(&[("Start", json!({"at": 1}))]);
    let decided = counter.decide_under(&input, &before, &[("Add", json!({"amounts": [0, 2]}))]).unwrap();
    let message = &decided.messages[1];
    let (message_id, event_id) = (message.message_id, decided.events[1].event_id);
    assert_eq!(
        message.detail.text(),
        format!(r#"{{"metadata":{{"messageId":"{message_id}","aggregateType":"counter","aggregateId":"7","seqNum":3,"#)
            + &format!(
                r#""messageSeq":3,"epoch":2,"eventId":"{event_id}","eventVersion":4,"occurredAt":"{NOW_TEXT}","#
            )
            + r#""correlationId":"cor-1","causationId":"cau-1","actor":"arn:aws:iam::1:user/\"alice\"","#
            + r#""traceparent":"00-1-2-01","traceHeader":"Root=1-2-3"},"#
            + r#""data":{"from":1,"to":3}}"#
    );
    assert_eq!((message.message_type.as_str(), message.data.text()), ("counted", r#"{"from":1,"to":3}"#));
    assert_eq!(message.trace_header.as_deref(), Some("Root=1-2-3"));
}

#[test]
fn first_message_in_an_epoch_contains_the_epoch_of_the_message_before_it() {
    let input = DecisionInput { epoch: 4, ..decision_input() };
    let counter = Subject::of::<Counter>();
    let before = counter.after(&[("Start", json!({"at": 1}))]);
    let decided = counter.decide_under(&input, &before, &[("Add", json!({"amounts": [0, 2]}))]).unwrap();
    let [first, second] = [0, 1].map(|index| decided.messages[index].detail.text());
    assert!(first.contains(r#""messageSeq":2,"epoch":4,"previousEpoch":1,"eventId":"#), "{first}");
    assert!(second.contains(r#""messageSeq":3,"epoch":4,"eventId":"#), "{second}");
    assert_eq!(decided.after.last_event().map(|last| last.message_epoch), Some(4));
    // Message 1 is the first in any case.
    let created = counter.decide_under(&input, &counter.unborn(), &[("Start", json!({"at": 1}))]).unwrap();
    assert!(!created.messages[0].detail.text().contains("previousEpoch"));
}

#[test]
fn detail_omits_absent_metadata() {
    let counter = Subject::of::<Counter>();
    let decided = counter.decide(&counter.unborn(), &[("Start", json!({"at": 1}))]).unwrap();
    let (message_id, event_id) = (decided.messages[0].message_id, decided.events[0].event_id);
    assert_eq!(
        decided.messages[0].detail.read::<Value>().unwrap(),
        json!({
            "metadata": {
                "messageId": message_id.to_string(), "aggregateType": "counter", "aggregateId": "7", "seqNum": 1,
                "messageSeq": 1, "epoch": 1, "eventId": event_id.to_string(), "eventVersion": 1, "occurredAt": NOW_TEXT
            },
            "data": {"at": 1}
        })
    );
}
