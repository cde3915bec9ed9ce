//! An aggregate with personal values about others: a visit has the name of a customer, and of a guest who has no aggregate.

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Personal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A visit whose state has the version `STATE_VERSION`.
#[derive(Debug)]
pub struct Visit<const STATE_VERSION: u32 = 1>;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct State {
    pub host: Personal<String>,
    pub guest: Personal<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub enum Command {
    Visit { customer: String, host: Personal<String> },
    Bring { guest: Personal<String> },
    Leave {},
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    Visited { host: Personal<String> },
    Brought { guest: Personal<String> },
    Left {},
}

/// The value, about this aggregate.
pub fn about(of: &str, id: &str, value: &Personal<String>) -> Personal<String> {
    Personal::about(of, id, value.get().cloned().unwrap_or_default())
}

impl<const STATE_VERSION: u32> Aggregate for Visit<STATE_VERSION> {
    const TYPE: &'static str = "visit";
    const STATE_VERSION: u32 = STATE_VERSION;
    const COMMANDS: Commands = Commands { create: "Visit", update: Some("Bring"), delete: None };
    const EVENTS: &'static [EventType] =
        &[EventType::new("Visited", 1), EventType::new("Brought", 1), EventType::new("Left", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![match command {
            Command::Visit { customer, host } => Event::Visited { host: about("customer", &customer, &host) },
            Command::Bring { guest } => Event::Brought { guest: about("guest", &context.new_id().to_string(), &guest) },
            Command::Leave {} => Event::Left {},
        }])
    }

    fn evolve(state: State, event: &Event) -> State {
        match event.clone() {
            Event::Visited { host } => State { host, ..state },
            Event::Brought { guest } => State { guest, ..state },
            Event::Left {} => state,
        }
    }
}
