//! Doors that close at a fixed time, also if they are opened again later. All have one lamp, which the first of them installs.

use daybook_decider::{
    Aggregate, Commands, Context, Deadline, Decision, EventType, RegistrationError, Registry, Rejection,
};
use daybook_simulation::{Random, Request, Simulation, simulate};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::find;
use crate::switches::{Lamp, LampCommand};

/// A minute after the begin of each simulation.
fn closing_time() -> Timestamp {
    "2030-01-01T00:01:00Z".parse().unwrap()
}

/// With the bug, a door is still open at the very moment of its closing time.
struct Door<const CLOSES_LATE: bool>;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Build { is_lit: bool },
    Open {},
    Close {},
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    #[serde(rename = "DoorOpened")]
    Opened {},
    #[serde(rename = "DoorClosed")]
    Closed {},
}

impl<const CLOSES_LATE: bool> Aggregate for Door<CLOSES_LATE> {
    const TYPE: &'static str = "door";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Build", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("DoorOpened", 1), EventType::new("DoorClosed", 1)];

    /// Whether it is open.
    type State = bool;
    type Command = Command;
    type Event = Event;

    fn decide(is_open: &bool, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::Build { is_lit } => {
                if is_lit {
                    context.send::<Lamp>("1", &LampCommand::Install {});
                }
                Ok(vec![Event::Opened {}])
            }
            Command::Open {} if *is_open => Err(Rejection::new("DoorIsOpen", "The door is open.")),
            Command::Open {} => Ok(vec![Event::Opened {}]),
            Command::Close {} if CLOSES_LATE && context.now() == closing_time() => Ok(Vec::new()),
            Command::Close {} => Ok(vec![Event::Closed {}]),
        }
    }

    fn evolve(_: bool, event: &Event) -> bool {
        matches!(event, Event::Opened {})
    }

    fn deadlines(is_open: &bool) -> Vec<Deadline<Command>> {
        is_open.then(|| Deadline::new("close", closing_time(), &Command::Close {})).into_iter().collect()
    }
}

fn registry<const CLOSES_LATE: bool>() -> Result<Registry, RegistrationError> {
    Registry::new().with::<Door<CLOSES_LATE>>()?.with::<Lamp>()
}

fn any_request<const CLOSES_LATE: bool>(random: &mut Random) -> Request {
    // With the bug, a door is opened only once, so only the very time of its deadline shows it.
    let command = match random.below(2) {
        number if CLOSES_LATE || number == 0 => Command::Build { is_lit: random.below(2) == 0 },
        _ => Command::Open {},
    };
    Request::to::<Door<CLOSES_LATE>>(*random.one_of(&["a", "b", "c"]), &command)
}

fn simulation<const CLOSES_LATE: bool>() -> Simulation {
    simulate(registry::<CLOSES_LATE>())
        .clients(3, any_request::<CLOSES_LATE>)
        .finally(|world| world.states::<Door<CLOSES_LATE>>().all(|is_open| !is_open))
}

/// Also a door that is opened after its closing time is closed, by a deadline of the same name and time. Of two doors that install
/// the lamp at once, one is not built.
#[test]
fn all_doors_are_closed_in_the_end() {
    simulation::<false>().seeds(1_000);
}

#[test]
fn deadline_that_has_no_effect_at_its_very_time_is_found() {
    find(&simulation::<true>(), &["the invariant at", "the deadline close of door/"]);
}

#[test]
fn requests_for_one_message_are_sent_in_their_order() {
    simulate(registry::<false>())
        .consumer_at_least_once("electrician", move |(): &mut (), message| {
            let requests = [LampCommand::Install {}, LampCommand::Show { light: "on".to_owned() }];
            // The messages of lamps have no answer.
            let is_of_door = message.aggregate.aggregate_type == Door::<false>::TYPE;
            let to_lamp = |command| Request::to::<Lamp>(&*message.aggregate.id, command);
            if is_of_door { requests.iter().map(to_lamp).collect() } else { vec![] }
        })
        .clients(2, |random| {
            let door = *random.one_of(&["a", "b", "c"]);
            Request::to::<Door<false>>(door, &Command::Build { is_lit: false })
        })
        .finally(|world| world.states::<Lamp>().all(|light| light == "on"))
        .seeds(300);
}

#[test]
#[should_panic(expected = "`simulate(…)` has no")]
fn invariant_over_another_type_of_the_same_name_panics() {
    simulate(registry::<false>())
        .starting_with([Request::to::<Door<false>>("a", &Command::Build { is_lit: false })])
        .clients(1, any_request::<false>)
        .always(|world| world.states::<Door<true>>().all(|is_open| *is_open))
        .seeds(1);
}
