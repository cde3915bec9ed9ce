//! Older and newer stored forms of events, read by the current code.

use std::cell::Cell;

use daybook_decider::{
    Aggregate, Commands, Context, Decision, EventType, StoredEvent, UnreadableEvent, UnreadableKind, Upcast,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{Subject, stored};

thread_local! {
    /// The number of upcasts in the test, so that a chain that never ends fails the test.
    static UPCASTS: Cell<usize> = const { Cell::new(0) };
}

/// A weather station with every kind of change to its stored events.
struct Station;

/// The values of all events, in order.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    readings: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Measure { celsius: i64 },
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Measured { celsius: i64 },
    Named { name: String },
}

impl Aggregate for Station {
    const TYPE: &'static str = "station";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Measure", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[
        EventType::new("Measured", 2).reads(5).also_stored_as(&[
            ("Read", 1),
            ("Ping", 1),
            ("Pong", 1),
            ("Split", 1),
            ("Splinter", 1),
            ("Endless", 1),
            ("Mistyped", 1),
            ("Lost", 2),
            ("Surveyed", 1),
            ("Audited", 1),
        ]),
        EventType::new("Named", 4).also_stored_as(&[("Installed", 1)]),
    ];
    const RETIRED: &'static [EventType] = &[EventType::new("Polled", 7)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, Command::Measure { celsius }: Command, _: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![Event::Measured { celsius }])
    }

    fn evolve(mut state: State, event: &Event) -> State {
        state.readings.push(match event {
            Event::Measured { celsius } => celsius.to_string(),
            Event::Named { name } => name.clone(),
        });
        state
    }

    fn upcast(event: StoredEvent) -> Upcast {
        UPCASTS.set(UPCASTS.get() + 1);
        assert!(UPCASTS.get() < 100_000, "the upcasts of {event:?} do not come to an end");
        let data = &event.data;
        match (event.name.as_str(), event.version) {
            // A renamed field.
            ("Measured", 1) => Ok(vec![to("Measured", 2, json!({"celsius": data["degrees"]}))]),
            // The forms that the next release will write, and the release after it.
            ("Measured", 3) => Ok(vec![to("Measured", 2, json!({"celsius": data["value"]}))]),
            ("Measured", 4) => Ok(vec![to("Measured", 3, json!({"value": data["values"][0]}))]),
            // A renamed event.
            ("Read", 1) => Ok(vec![to("Measured", 1, data.clone())]),
            // Two changes, one after the other.
            ("Named", 1) => Ok(vec![to("Named", 2, json!({"first": data["text"], "last": "Station"}))]),
            ("Named", 2) => {
                let Parts { first, last } = event.read()?;
                Ok(vec![StoredEvent::new("Named", 4, &json!({"name": format!("{first} {last}")}))?])
            }
            // One event that became three, two of which have changed since.
            ("Installed", 1) => Ok(vec![
                to("Named", 1, json!({"text": data["name"]})),
                to("Measured", 2, json!({"celsius": 0})),
                to("Read", 1, json!({"degrees": data["degrees"]})),
            ]),
            // An event that becomes retired events and a current one, and one that becomes a form that never existed.
            ("Surveyed", 1) => {
                Ok(vec![to("Polled", 3, json!({})), to("Measured", 1, data.clone()), to("Polled", 7, json!({}))])
            }
            ("Audited", 1) => Ok(vec![to("Polled", 8, json!({}))]),

            // Upcasts that contain a mistake.
            ("Measured", 5) => Ok(vec![to("Measured", 6, data.clone())]),
            ("Named", 3) => Ok(vec![to("Named", 5, data.clone())]),
            ("Polled", 1..=7) => panic!("what means nothing is not looked at"),
            ("Ping", 1) => Ok(vec![to("Pong", 1, data.clone())]),
            ("Pong", 1) => Ok(vec![to("Ping", 1, data.clone())]),
            ("Split", 1) => Ok(vec![to("Measured", 2, json!({"celsius": 1})), to("Splinter", 1, json!({}))]),
            ("Splinter", 1) => Ok(vec![to("Split", 1, json!({}))]),
            ("Endless", version) => Ok(vec![to("Endless", version + 1, json!({}))]),
            ("Mistyped", 1) => Ok(vec![to("Measured", 2, json!({"celsius": "warm"}))]),
            ("Lost", 2) => Ok(vec![to("Lost", 1, data.clone())]),
            _ => Ok(vec![event]),
        }
    }
}

/// Version 2 of `Named`.
#[derive(Deserialize)]
struct Parts {
    first: String,
    last: String,
}

fn to(name: &str, version: u32, data: Value) -> StoredEvent {
    StoredEvent { name: name.to_owned(), version, data }
}

/// The readings of one stored event.
fn read(name: &str, version: u32, data: &Value) -> Vec<String> {
    let station = Subject::of::<Station>();
    let folded = station.fold(&[stored(1, name, version, data)]);
    assert_eq!(folded.version(), 1, "a stored event is one in the count, whatever it is read as");
    serde_json::from_value(station.state(&folded)["readings"].clone()).unwrap()
}

/// The error of a stored event that cannot be read and that no newer release wrote.
fn unreadable(name: &str, version: u32, data: &Value) -> UnreadableEvent {
    let error = read_error(name, version, data);
    assert_eq!(error.kind, UnreadableKind::Corrupt, "{error}");
    error
}

fn read_error(name: &str, version: u32, data: &Value) -> UnreadableEvent {
    let station = Subject::of::<Station>();
    let error = station.model().fold(station.unborn(), &[stored(1, name, version, data)]).unwrap_err();
    assert_eq!((error.seq_num, error.event_type.as_str(), error.event_version), (1, name, version));
    error
}

#[test]
fn current_form_is_read_without_an_upcast() {
    assert_eq!(read("Measured", 2, &json!({"celsius": 21})), ["21"]);
    assert_eq!(read("Named", 4, &json!({"name": "Säntis"})), ["Säntis"]);
}

#[test]
fn renamed_field_is_read_under_its_new_name() {
    assert_eq!(read("Measured", 1, &json!({"degrees": 21})), ["21"]);
}

#[test]
fn renamed_event_is_upcast_through_the_versions_of_its_new_name() {
    assert_eq!(read("Read", 1, &json!({"degrees": 21})), ["21"]);
}

#[test]
fn each_upcast_leads_only_to_the_next_version() {
    assert_eq!(read("Named", 1, &json!({"text": "Säntis"})), ["Säntis Station"]);
    assert_eq!(read("Named", 2, &json!({"first": "Säntis", "last": "Top"})), ["Säntis Top"]);
}

#[test]
fn event_that_is_upcast_to_several_preserves_their_order() {
    assert_eq!(read("Installed", 1, &json!({"name": "Säntis", "degrees": 21})), ["Säntis Station", "0", "21"]);
}

#[test]
fn retired_event_is_counted_and_has_no_effect() {
    for version in [1, 7] {
        assert_eq!(read("Polled", version, &json!({"whatever": 1})), Vec::<String>::new());
    }
}

#[test]
fn an_upcast_may_lead_to_a_retired_event() {
    assert_eq!(read("Surveyed", 1, &json!({"degrees": 21})), ["21"]);
    // But not to a form that the retired event never had.
    let error = unreadable("Audited", 1, &json!({}));
    assert_eq!(error.reason, "this code has no upcast for Polled version 8");
}

#[test]
fn version_that_is_read_ahead_is_converted_to_the_written_version() {
    assert_eq!(read("Measured", 3, &json!({"value": 21})), ["21"]);
    assert_eq!(read("Measured", 4, &json!({"values": [21, 22]})), ["21"]);
}

#[test]
fn old_and_new_forms_fold_in_one_stream() {
    let station = Subject::of::<Station>();
    let events = [
        stored(1, "Installed", 1, &json!({"name": "Säntis", "degrees": 21})),
        stored(2, "Polled", 7, &json!({})),
        stored(3, "Measured", 1, &json!({"degrees": 22})),
        stored(4, "Measured", 2, &json!({"celsius": 23})),
    ];
    let folded = station.fold(&events);
    assert_eq!(folded.version(), 4);
    assert_eq!(station.state(&folded)["readings"], json!(["Säntis Station", "0", "21", "22", "23"]));
    // A fold from a snapshot at any version has the same result.
    for taken_at in 0..=events.len() {
        let (head, tail) = events.split_at(taken_at);
        let snapshot = station.fold(head);
        let state = station.model().state(&snapshot).unwrap();
        let restored = station.model().restore(snapshot.version(), snapshot.message_seq(), &state).unwrap();
        assert_eq!(station.whole(&station.model().fold(restored, tail).unwrap()), station.whole(&folded));
    }
}

#[test]
fn new_events_are_written_in_the_current_version() {
    let station = Subject::of::<Station>();
    let decided = station.decide(&station.unborn(), &[("Measure", json!({"celsius": 21}))]).unwrap();
    assert_eq!((decided.events[0].event_type.as_str(), decided.events[0].event_version), ("Measured", 2));
}

#[test]
fn unknown_form_was_written_by_a_newer_release() {
    for (name, version) in [("Measured", 6), ("Named", 5), ("Installed", 2), ("Polled", 8), ("Invented", 1)] {
        let error = read_error(name, version, &json!({}));
        assert_eq!(error.kind, UnreadableKind::Newer, "{error}");
        assert_eq!(
            error.to_string(),
            format!("event 1 ({name} version {version}): this code does not know that form; a newer release wrote it")
        );
    }
}

#[test]
fn a_form_without_an_upcast_is_unreadable() {
    for (name, version) in [("Measured", 0), ("Lost", 1), ("Lost", 0)] {
        let error = unreadable(name, version, &json!({}));
        assert_eq!(error.reason, format!("this code has no upcast for {name} version {version}"));
    }
}

#[test]
fn upcast_that_does_not_approach_the_written_version_is_unreadable() {
    for (name, version) in [("Measured", 5), ("Named", 3), ("Lost", 2)] {
        let error = unreadable(name, version, &json!({"celsius": 21}));
        assert_eq!(error.reason, format!("this code has no upcast for {name} version {version}"));
    }
}

#[test]
fn data_that_an_upcast_cannot_read_is_unreadable() {
    let error = unreadable("Named", 2, &json!({"first": "Säntis"}));
    assert_eq!(error.reason, "as Named version 2, missing field `last`");
}

#[test]
fn upcasts_that_never_end_are_unreadable() {
    for name in ["Ping", "Pong", "Split", "Endless"] {
        let error = unreadable(name, 1, &json!({}));
        assert!(error.reason.contains("never"), "{error}");
    }
}

#[test]
fn upcast_to_data_that_does_not_fit_the_event_is_unreadable() {
    let error = unreadable("Mistyped", 1, &json!({}));
    assert!(error.reason.starts_with("data.celsius: invalid type"), "{error}");
}
