//! A state must equal what a snapshot stores of it.

use std::collections::BTreeMap;

use daybook_decider::given::given;
use daybook_decider::{Aggregate, CommandError, Commands, Context, Decision, EventType, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::support::Subject;

/// A lock that counts wrong codes.
struct Lock;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    opened: bool,
    #[serde(skip)]
    wrong: u32,
    /// A map with keys that are no text has no JSON form.
    #[serde(skip_deserializing)]
    #[schemars(skip)]
    by_place: BTreeMap<(u8, u8), u32>,
}

#[derive(Clone, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Install {},
    Open { code: u32 },
    Enter { place: (u8, u8) },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Installed {},
    Opened {},
    WrongCode {},
    WrongPlace { place: (u8, u8) },
}

impl Aggregate for Lock {
    const TYPE: &'static str = "lock";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Install", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[
        EventType::new("Installed", 1),
        EventType::new("Opened", 1),
        EventType::new("WrongCode", 1),
        EventType::new("WrongPlace", 1),
    ];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(state: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        let rejected = |event| Err(Rejection::new("Wrong", "it does not fit").recording(event));
        match command {
            Command::Install {} => Ok(vec![Event::Installed {}]),
            Command::Enter { place } => rejected(Event::WrongPlace { place }),
            Command::Open { code: 7 } if state.wrong < 2 => Ok(vec![Event::Opened {}]),
            Command::Open { .. } => rejected(Event::WrongCode {}),
        }
    }

    fn evolve(mut state: State, event: &Event) -> State {
        match event {
            Event::Installed {} => {}
            Event::Opened {} => state.opened = true,
            Event::WrongCode {} => state.wrong += 1,
            Event::WrongPlace { place } => {
                state.by_place.insert(*place, 1);
            }
        }
        state
    }
}

#[test]
fn decision_that_is_the_same_after_a_snapshot_passes() {
    given::<Lock>([Event::Installed {}]).when(Command::Open { code: 7 }).then([Event::Opened {}]);
}

#[test]
#[should_panic(expected = "such as a field with #[serde(skip)]")]
fn decision_that_is_another_after_a_snapshot_fails_its_test() {
    let events = [Event::Installed {}, Event::WrongCode {}, Event::WrongCode {}];
    given::<Lock>(events).when(Command::Open { code: 7 }).then_rejected("Wrong", [Event::WrongCode {}]);
}

#[test]
#[should_panic(expected = "the state of lock has no JSON form: key must be a string")]
fn state_without_json_form_fails_its_test() {
    let events = [Event::Installed {}, Event::WrongPlace { place: (1, 2) }];
    given::<Lock>(events).when(Command::Open { code: 7 }).then([Event::Opened {}]);
}

#[test]
fn recorded_rejection_whose_state_has_no_json_form_fails_the_command() {
    let lock = Subject::of::<Lock>();
    let installed = lock.decide(&lock.unborn(), &[("Install", json!({}))]).unwrap().after;
    let error = lock.decide(&installed, &[("Enter", json!({"place": [1, 2]}))]).unwrap_err();
    let CommandError::Unwritable { event, reason } = error else { panic!("{error}") };
    assert_eq!((event.as_str(), reason.as_str()), ("the state of lock", "key must be a string"));
}
