//! An aggregate with any deadlines. What happens at the time of one depends on its name.

use std::collections::BTreeMap;

use daybook_decider::{Aggregate, Claim, Commands, Context, Deadline, Decision, EventType, Rejection};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) struct Timer;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {
    deadlines: BTreeMap<String, Timestamp>,
    claimed: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    Start {
        deadlines: BTreeMap<String, Timestamp>,
    },
    /// Sets a deadline, or drops it without a time.
    Set {
        name: String,
        due: Option<Timestamp>,
    },
    Fire {
        name: String,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum Event {
    Started {
        deadlines: BTreeMap<String, Timestamp>,
    },
    Changed {
        name: String,
        due: Option<Timestamp>,
    },
    /// The deadline is not declared any more.
    Rang {
        name: String,
    },
    /// The deadline is still declared.
    Kept {
        name: String,
    },
    Claimed {},
    Refused {
        name: String,
    },
}

impl Aggregate for Timer {
    const TYPE: &'static str = "timer";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Start", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[
        EventType::new("Started", 1),
        EventType::new("Changed", 1),
        EventType::new("Rang", 1),
        EventType::new("Kept", 1),
        EventType::new("Claimed", 1),
        EventType::new("Refused", 1),
    ];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        let name = match command {
            Command::Start { deadlines } => return Ok(vec![Event::Started { deadlines }]),
            Command::Set { name, due } => return Ok(vec![Event::Changed { name, due }]),
            Command::Fire { name } => name,
        };
        assert!(context.caller().is_system(), "only the system fires");
        match name.split('-').next().unwrap() {
            "ring" => Ok(vec![Event::Rang { name }]),
            "keep" => Ok(vec![Event::Kept { name }]),
            "claim" => Ok(vec![Event::Claimed {}]),
            "idle" => Ok(vec![]),
            "send" => {
                context.send::<Self>("none", &Command::Fire { name: name.clone() });
                Ok(vec![Event::Rang { name }])
            }
            "refuse" => Err(Rejection::new("Refused", "it is refused")),
            "record" => Err(Rejection::new("Refused", "it is refused").recording(Event::Refused { name })),
            _ => panic!("{name} cannot be decided"),
        }
    }

    fn evolve(mut state: State, event: &Event) -> State {
        match event.clone() {
            Event::Started { deadlines } => State { deadlines, ..state },
            Event::Changed { name, due: Some(due) } => {
                state.deadlines.insert(name, due);
                state
            }
            Event::Changed { name, due: None } | Event::Rang { name } => {
                state.deadlines.remove(&name);
                state
            }
            Event::Claimed {} => State { claimed: true, ..state },
            Event::Kept { .. } | Event::Refused { .. } => state,
        }
    }

    fn claims(state: &State) -> Vec<Claim> {
        state.claimed.then(|| Claim::new("the-only-one", "timer")).into_iter().collect()
    }

    fn deadlines(state: &State) -> Vec<Deadline<Command>> {
        let deadline = |(name, due): (&String, &Timestamp)| {
            Deadline::new(name.clone(), *due, &Command::Fire { name: name.clone() })
        };
        state.deadlines.iter().map(deadline).collect()
    }
}
