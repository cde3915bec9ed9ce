//! A test aggregate: a bell that publishes its strokes. An event has several messages or none, and messages can be
//! large.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Json, Message, Registry};
use daybook_test_support::visit::Visit;
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

/// The suite's aggregates, the bell, and visits.
pub(crate) fn registry() -> Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(|| of_bells().with::<Visit<2>>().expect("its names are valid"));
    REGISTRY.clone()
}

/// The same aggregates in an earlier release, in which the state of visits has version 1.
pub(crate) fn earlier_registry() -> &'static Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(|| of_bells().with::<Visit<1>>().expect("its names are valid"));
    &REGISTRY
}

fn of_bells() -> Registry {
    aggregates::registry().unwrap().with::<Bell>().expect("its names are valid")
}

/// The bell.
pub(crate) struct Bell;

/// The number of strokes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {
    strokes: u64,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    /// Hang the bell.
    Hang {},
    /// Strike the bell.
    Ring {
        strokes: u64,
        /// Bytes of sound in each message.
        volume: usize,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum Event {
    #[serde(rename = "BellHung")]
    Hung {},
    #[serde(rename = "BellRung")]
    Rung { strokes: u64, volume: usize },
}

#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum BellMessage {
    #[serde(rename = "BellStruck")]
    Struck {
        stroke: u64,
        #[schemars(with = "String")]
        sound: Json,
    },
}

/// The sound of a stroke as JSON. Each is written once, because a large one takes long.
fn sound(volume: usize) -> Json {
    static SOUNDS: Mutex<BTreeMap<usize, Json>> = Mutex::new(BTreeMap::new());
    let mut sounds = SOUNDS.lock().unwrap();
    sounds.entry(volume).or_insert_with(|| Json::of(&"ding ".repeat(volume / 5)).unwrap()).clone()
}

impl Aggregate for Bell {
    const TYPE: &'static str = "bell";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Hang", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("BellHung", 1), EventType::new("BellRung", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_state: &State, command: Command, _context: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![match command {
            Command::Hang {} => Event::Hung {},
            Command::Ring { strokes, volume } => Event::Rung { strokes, volume },
        }])
    }

    fn evolve(state: State, event: &Event) -> State {
        match event {
            Event::Hung {} => state,
            Event::Rung { strokes, .. } => State { strokes: state.strokes + strokes },
        }
    }

    fn announce(before: &State, event: &Event, _after: &State) -> Vec<Message> {
        match event {
            Event::Hung {} => vec![],
            Event::Rung { strokes, volume } => (1..=*strokes)
                .map(|stroke| {
                    Message::of(&BellMessage::Struck { stroke: before.strokes + stroke, sound: sound(*volume) })
                })
                .collect(),
        }
    }

    fn message_schema() -> Schema {
        schema_for!(BellMessage)
    }
}
