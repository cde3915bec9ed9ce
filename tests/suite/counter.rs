use daybook::{Aggregate, Commands, Context, Decision, EventType, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A counter that counts down to zero.
pub struct Counter;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Counter")]
pub struct State {
    pub left: u32,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
#[schemars(rename = "CounterCommand")]
pub enum Command {
    Start { from: u32 },
    Tick {},
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
#[schemars(rename = "CounterEvent")]
pub enum Event {
    #[serde(rename = "CounterStarted")]
    Started { from: u32 },
    #[serde(rename = "CounterTicked")]
    Ticked {},
}

impl Aggregate for Counter {
    const TYPE: &'static str = "counter";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Start", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("CounterStarted", 1), EventType::new("CounterTicked", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(state: &State, command: Command, _context: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::Start { from } => Ok(vec![Event::Started { from }]),
            Command::Tick {} if state.left == 0 => Err(Rejection::new("AtZero", "there is nothing left to count")),
            Command::Tick {} => Ok(vec![Event::Ticked {}]),
        }
    }

    fn evolve(state: State, event: &Event) -> State {
        match event {
            Event::Started { from } => State { left: *from },
            Event::Ticked {} => State { left: state.left.saturating_sub(1) },
        }
    }
}

#[cfg(test)]
mod tests {
    use daybook::given::given;
    use daybook::{Access, Caller};

    use super::*;

    #[test]
    fn tick_counts_down_by_one() {
        given::<Counter>([Event::Started { from: 1 }])
            .when(Command::Tick {})
            .then([Event::Ticked {}])
            .announces(["CounterTicked"]);
    }

    #[test]
    fn tick_at_zero_is_rejected() {
        given::<Counter>([Event::Started { from: 0 }]).when(Command::Tick {}).then_rejected("AtZero", []);
    }

    #[test]
    fn everybody_may_read_a_counter() {
        given::<Counter>([Event::Started { from: 1 }]).by(Caller::named("ann")).allows(Access::Read);
    }
}
