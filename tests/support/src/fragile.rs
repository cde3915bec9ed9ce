//! An aggregate whose code panics on request: in the method that a command or a stored event names.

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Message, StoredEvent, Upcast};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

/// The aggregate `fragile`.
#[derive(Debug)]
pub struct Fragile;

/// The sum of all touches, and the method that panics next.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct State {
    /// The sum.
    pub sum: i64,
    /// The method.
    #[serde(default)]
    pub panics: String,
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        panic_in("serialize", &self.panics);
        serde_json::json!({"sum": self.sum, "panics": self.panics}).serialize(serializer)
    }
}

/// What it can be asked for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub enum Command {
    /// Makes one.
    Make {},
    /// Adds to the sum.
    Touch {
        /// The method that panics; empty for none.
        panics: String,
        /// What is added.
        by: i64,
    },
}

/// What happens to it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    /// It was made.
    FragileMade {},
    /// It was touched.
    FragileTouched {
        /// The method that panics.
        panics: String,
        /// What is added.
        by: i64,
    },
}

fn panic_in(method: &str, asked: &str) {
    assert!(method != asked, "{method} of fragile breaks");
}

impl Aggregate for Fragile {
    const TYPE: &'static str = "fragile";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Make", update: Some("Touch"), delete: None };
    const EVENTS: &'static [EventType] =
        &[EventType::new("FragileMade", 1), EventType::new("FragileTouched", 1).reads(2)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![match command {
            Command::Make {} => Event::FragileMade {},
            Command::Touch { panics, by } => {
                panic_in("decide", &panics);
                Event::FragileTouched { panics, by }
            }
        }])
    }

    fn evolve(state: State, event: &Event) -> State {
        match event {
            Event::FragileMade {} => state,
            Event::FragileTouched { panics, by } => {
                panic_in("evolve", panics);
                State { sum: state.sum + by, panics: panics.clone() }
            }
        }
    }

    fn announce(_: &State, event: &Event, _: &State) -> Vec<Message> {
        if let Event::FragileTouched { panics, .. } = event {
            panic_in("announce", panics);
        }
        vec![Message::of(event)]
    }

    fn is_deleted(state: &State) -> bool {
        panic_in("is_deleted", &state.panics);
        false
    }

    fn upcast(event: StoredEvent) -> Upcast {
        panic_in("upcast", event.data["panics"].as_str().unwrap_or_default());
        Ok(vec![StoredEvent { version: 1, ..event }])
    }
}
