//! A process that withdraws a dispatch.

use daybook_decider::{
    Aggregate, Commands, Context, Decision, Dispatch, EventType, FollowedEvent, Reacts, Registry, Sources,
};
use daybook_simulation::{Request, simulate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A lamp, which shows the last light that it was switched to.
pub(crate) struct Lamp;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum LampCommand {
    Install {},
    Show { light: String },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum LampEvent {
    Installed {},
    Shown { light: String },
}

impl Aggregate for Lamp {
    const TYPE: &'static str = "lamp";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Install", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Installed", 1), EventType::new("Shown", 1)];

    type State = String;
    type Command = LampCommand;
    type Event = LampEvent;

    fn decide(_: &String, command: LampCommand, _: &Context<'_, LampEvent>) -> Decision<LampEvent> {
        Ok(vec![match command {
            LampCommand::Install {} => LampEvent::Installed {},
            LampCommand::Show { light } => LampEvent::Shown { light },
        }])
    }

    fn evolve(before: String, event: &LampEvent) -> String {
        if let LampEvent::Shown { light } = event { light.clone() } else { before }
    }
}

/// A switch, which is green, and red once it was pressed.
struct Switch;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Begin {},
    Press {},
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Begun {},
    Pressed {},
}

impl Aggregate for Switch {
    const TYPE: &'static str = "switch";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Begin", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Begun", 1), EventType::new("Pressed", 1)];

    type State = String;
    type Command = Command;
    type Event = Event;

    fn sources() -> Sources<Self> {
        Sources::of::<Lamp>()
    }

    fn decide(_: &String, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![if matches!(command, Command::Begin {}) { Event::Begun {} } else { Event::Pressed {} }])
    }

    fn evolve(_: String, event: &Event) -> String {
        if matches!(event, Event::Begun {}) { "green" } else { "red" }.to_owned()
    }

    fn dispatches(light: &String) -> Vec<Dispatch> {
        vec![Dispatch::new::<Lamp>(light.clone(), "1", &LampCommand::Show { light: light.clone() })]
    }
}

impl Reacts<Lamp> for Switch {
    fn input(_: &FollowedEvent<'_, LampEvent>) -> Option<(String, Command)> {
        None
    }
}

#[test]
fn withdrawn_dispatch_takes_no_effect_after_a_later_one() {
    let install = Request::to::<Lamp>("1", &LampCommand::Install {});
    simulate(Registry::new().with::<Lamp>().and_then(Registry::with::<Switch>))
        .starting_with([install, Request::to::<Switch>("1", &Command::Begin {})])
        .clients(1, |_| Request::to::<Switch>("1", &Command::Press {}))
        .finally(|world| world.state::<Lamp>("1") == world.state::<Switch>("1"))
        .seeds(300);
}
