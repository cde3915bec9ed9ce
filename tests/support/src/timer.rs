//! An aggregate with any number of deadlines.

use std::collections::BTreeMap;

use daybook_decider::{
    Access, Aggregate, Authorization, Caller, Commands, Context, Deadline, Decision, EventType, Rejection,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An aggregate that rings at the times that it was given last. Without `DEADLINES`, it is that of an earlier release.
#[derive(Debug)]
pub struct Timer<const DEADLINES: bool = true>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct State {
    pub at: BTreeMap<String, Timestamp>,
    pub stopped: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub enum Command {
    Start {
        at: BTreeMap<String, Timestamp>,
    },
    Set {
        at: BTreeMap<String, Timestamp>,
    },
    SetBoth {
        other: String,
        at: BTreeMap<String, Timestamp>,
    },
    /// Rings at the time of the name, which it then has no more. It has no effect for the name `idle`, is rejected for `refuse` and
    /// for `record`, which is recorded, and panics for `panic`.
    Ring {
        name: String,
    },
    Stop {},
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    TimerSet { at: BTreeMap<String, Timestamp> },
    TimerStopped {},
}

impl<const DEADLINES: bool> Aggregate for Timer<DEADLINES> {
    const TYPE: &'static str = "timer";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Start", update: Some("Set"), delete: Some("Stop") };
    const EVENTS: &'static [EventType] = &[EventType::new("TimerSet", 1), EventType::new("TimerStopped", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::Start { at } | Command::Set { at } => Ok(vec![Event::TimerSet { at }]),
            Command::SetBoth { other, at } => {
                context.send::<Self>(other, &Command::Set { at: at.clone() });
                Ok(vec![Event::TimerSet { at }])
            }
            Command::Ring { name } => match &*name {
                "idle" => Ok(vec![]),
                "panic" => panic!("it rings"),
                "refuse" => Err(Rejection::new("Refused", "refused")),
                "record" => {
                    Err(Rejection::new("Refused", "refused").recording(Event::TimerSet { at: state.at.clone() }))
                }
                _ => {
                    let others = state.at.clone().into_iter().filter(|(other, _)| *other != name);
                    Ok(vec![Event::TimerSet { at: others.collect() }])
                }
            },
            Command::Stop {} => Ok(vec![Event::TimerStopped {}]),
        }
    }

    fn evolve(state: State, event: &Event) -> State {
        match event.clone() {
            Event::TimerSet { at } => State { at, ..state },
            Event::TimerStopped {} => State { stopped: true, ..state },
        }
    }

    fn deadlines(state: &State) -> Vec<Deadline<Command>> {
        let at = state.at.iter().filter(|_| DEADLINES);
        at.map(|(name, due)| Deadline::new(name.clone(), *due, &Command::Ring { name: name.clone() })).collect()
    }

    fn is_deleted(state: &State) -> bool {
        state.stopped
    }

    fn authorize(caller: &Caller, access: Access<'_, Command>, _: Option<&str>, _: Option<&State>) -> Authorization {
        match access {
            Access::Command(Command::Ring { .. }) => caller.is_system().into(),
            _ => Authorization::Unrestricted,
        }
    }
}
