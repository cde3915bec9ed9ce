//! A state is the fold of the stored events, even where their JSON contains less than the decided events.

use daybook_decider::{Aggregate, CommandError, Commands, Context, Decision, EventType};
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::support::Subject;

/// Divides one weight by another.
struct Scale;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    ratio: f64,
    by: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Weigh { left: f64, right: f64 },
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Weighed {
        ratio: f64,
        #[serde(skip)]
        by: String,
    },
}

impl Aggregate for Scale {
    const TYPE: &'static str = "scale";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Weigh", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Weighed", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, Command::Weigh { left, right }: Command, _: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![Event::Weighed { ratio: left / right, by: "nobody will know".to_owned() }])
    }

    fn evolve(_: State, Event::Weighed { ratio, by }: &Event) -> State {
        State { ratio: *ratio, by: by.clone() }
    }
}

proptest! {
    #[test]
    fn floats_are_read_as_they_were_decided(left in any::<f64>(), right in any::<f64>()) {
        let scale = Subject::of::<Scale>();
        let weigh = [("Weigh", json!({"left": left, "right": right}))];
        prop_assume!((left / right).is_finite());
        let decided = scale.decide(&scale.unborn(), &weigh).unwrap();
        let later = scale.fold(&decided.events);
        prop_assert_eq!(scale.whole(&decided.after), scale.whole(&later));
        let state: State = serde_json::from_str(scale.model().state(&later).unwrap().text()).unwrap();
        prop_assert_eq!(state.ratio.to_bits(), (left / right).to_bits());
        prop_assert_eq!(state.by, "");
    }
}

#[test]
fn number_without_json_form_fails_the_command() {
    let scale = Subject::of::<Scale>();
    let error = scale.decide(&scale.unborn(), &[("Weigh", json!({"left": 1.0, "right": 0.0}))]).unwrap_err();
    let CommandError::Unwritable { event, reason } = error else { panic!("{error}") };
    assert_eq!(event, "Weighed");
    assert!(reason.contains("could not be read back: data.ratio"), "{reason}");
}
