//! An aggregate with any number of claims.

use daybook_decider::{Aggregate, Claim, Commands, Context, Decision, EventType, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An aggregate that has the values that it was given last. Without `CLAIMS`, it is that of an earlier release.
#[derive(Debug)]
pub struct Badge<const CLAIMS: bool = true>;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct State {
    pub values: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub enum Command {
    Give { values: Vec<String> },
    GiveAgain { values: Vec<String> },
    Refuse { values: Vec<String> },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    Given { values: Vec<String> },
}

impl<const CLAIMS: bool> Aggregate for Badge<CLAIMS> {
    const TYPE: &'static str = "badge";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Give", update: Some("GiveAgain"), delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Given", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::Give { values } | Command::GiveAgain { values } => Ok(vec![Event::Given { values }]),
            Command::Refuse { values } => Err(Rejection::new("Refused", "refused").recording(Event::Given { values })),
        }
    }

    fn evolve(_: State, event: &Event) -> State {
        let Event::Given { values } = event.clone();
        State { values }
    }

    fn claims(state: &State) -> Vec<Claim> {
        assert!(!state.values.contains(&"panic".to_owned()));
        let values = state.values.iter().filter(|_| CLAIMS);
        values.map(|value| Claim::new("badge", value.clone())).collect()
    }
}
