//! The context of a decision: its input besides the state and the command.

use std::collections::BTreeSet;

use daybook_decider::{Aggregate, Commands, Context, Decision, DecisionInput, EventType, Meta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{ID, NOW_TEXT, Subject, decision_input};

/// Records everything that its context has.
struct Witness;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct State {}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Look {},
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Seen {
        id: String,
        now: String,
        actor: Option<String>,
        correlation: Option<String>,
        ids: [String; 2],
        history: usize,
    },
}

impl Aggregate for Witness {
    const TYPE: &'static str = "witness";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Look", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Seen", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, Command::Look {}: Command, context: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![Event::Seen {
            id: context.aggregate_id().to_owned(),
            now: context.now().to_string(),
            actor: context.meta().actor.clone(),
            correlation: context.meta().correlation_id.clone(),
            ids: [context.new_id().to_string(), context.new_id().to_string()],
            history: context.history().len(),
        }])
    }

    fn evolve(state: State, _: &Event) -> State {
        state
    }
}

#[test]
fn context_contains_the_id_the_time_and_the_origin_of_the_command() {
    let meta = Meta { actor: Some("alice".into()), correlation_id: Some("c-1".into()), ..Meta::default() };
    let input = DecisionInput { meta: meta.clone(), ..decision_input() };
    let witness = Subject::of::<Witness>();
    let decided = witness.decide_under(&input, &witness.unborn(), &[("Look", json!({}))]).unwrap();
    let seen: Value = decided.events[0].data.read().unwrap();
    assert_eq!(seen["id"], ID);
    assert_eq!(seen["now"], NOW_TEXT);
    assert_eq!((&seen["actor"], &seen["correlation"]), (&json!("alice"), &json!("c-1")));
    assert_eq!((&decided.events[0].meta, decided.events[0].occurred_at), (&meta, input.now));
}

#[test]
fn new_ids_of_the_context_are_unique() {
    let witness = Subject::of::<Witness>();
    let decided = witness.decide(&witness.unborn(), &[("Look", json!({}))]).unwrap();
    let seen: Value = decided.events[0].data.read().unwrap();
    let mut ids: BTreeSet<_> =
        seen["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect();
    ids.extend(decided.events.iter().map(|event| event.event_id.to_string()));
    ids.extend(decided.messages.iter().map(|message| message.message_id.to_string()));
    assert_eq!(ids.len(), 4);
}
