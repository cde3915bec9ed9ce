//! A stream begins with the first of `EVENTS`, from whose feed the aggregates of the type are listed.

use daybook_decider::given::given;
use daybook_decider::{Aggregate, CommandError, Commands, Context, Decision, EventType, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::support::{Subject, names};

/// An aggregate whose commands contain the events to append.
struct Door;

#[derive(Clone, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Build { events: Vec<Event> },
    Knock { events: Vec<Event> },
    Reject {},
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    DoorKnocked {},
    DoorBuilt {},
}

impl Aggregate for Door {
    const TYPE: &'static str = "door";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Build", update: Some("Knock"), delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("DoorBuilt", 1), EventType::new("DoorKnocked", 1)];

    type State = ();
    type Command = Command;
    type Event = Event;

    fn decide((): &(), command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::Build { events } | Command::Knock { events } => Ok(events),
            Command::Reject {} => Err(Rejection::new("Locked", "it is").recording(Event::DoorKnocked {})),
        }
    }

    fn evolve((): (), _: &Event) {}
}

const BUILT: &str = r#"{"type": "DoorBuilt", "data": {}}"#;
const KNOCKED: &str = r#"{"type": "DoorKnocked", "data": {}}"#;

fn command(command: &'static str, events: &[&str]) -> (&'static str, serde_json::Value) {
    let events: Vec<serde_json::Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    (command, json!({ "events": events }))
}

#[test]
fn stream_begins_with_the_first_of_events() {
    let door = Subject::of::<Door>();
    let decided = door.decide(&door.unborn(), &[command("Build", &[BUILT, KNOCKED, BUILT])]).unwrap();
    assert_eq!(names(&decided), ["DoorBuilt", "DoorKnocked", "DoorBuilt"]);
    // Later events may be of any type, and so may a recorded rejection.
    let decided = door.decide(&decided.after, &[command("Knock", &[KNOCKED])]).unwrap();
    assert_eq!(names(&decided), ["DoorKnocked"]);
    let rejected = door.decide(&decided.after, &[("Reject", json!({}))]).unwrap();
    assert_eq!(names(&rejected), ["DoorKnocked"]);
}

#[test]
fn creation_that_begins_with_another_event_is_an_error() {
    let door = Subject::of::<Door>();
    let error = door.decide(&door.unborn(), &[command("Build", &[KNOCKED, BUILT])]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "DoorKnocked cannot be written: a stream must begin with DoorBuilt, the first of EVENTS: list the event that \
         creates first"
    );
    assert!(matches!(error, CommandError::Unwritable { .. }));
}

#[test]
fn creation_without_an_event_is_an_error() {
    let door = Subject::of::<Door>();
    for batch in [vec![command("Build", &[])], vec![command("Build", &[]), command("Build", &[BUILT])]] {
        let error = door.decide(&door.unborn(), &batch).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a new door cannot be written: Build returned no event, and a new aggregate needs one"
        );
        assert!(matches!(error, CommandError::Unwritable { .. }));
    }
    // On an existing aggregate, a command without an event succeeds.
    let built = door.after(&[command("Build", &[BUILT])]);
    assert_eq!(names(&door.decide(&built, &[command("Knock", &[])]).unwrap()), [""; 0]);
}

#[test]
#[should_panic(expected = "a stream must begin with the first of EVENTS")]
fn creation_that_begins_with_another_event_fails_its_test() {
    let events = vec![Event::DoorKnocked {}];
    given::<Door>([]).when(Command::Build { events: events.clone() }).then(events);
}

#[test]
#[should_panic(expected = "there is no aggregate before its first event")]
fn creation_without_an_event_fails_its_test() {
    given::<Door>([]).when(Command::Build { events: vec![] }).then([]);
}
