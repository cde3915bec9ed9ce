//! Seats that are held for ten minutes, and free again then, unless they are paid.

use daybook_decider::{
    Access, Aggregate, Authorization, Caller, Commands, Context, Deadline, Decision, EventType, RegistrationError,
    Registry, Rejection,
};
use daybook_simulation::{Random, Request, Simulation, simulate};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::find;

const HELD_FOR: SignedDuration = SignedDuration::from_mins(10);

/// With the bug, a payment relies on it that the deadline has freed a seat when its time is over.
struct Seat<const RELIES_ON_ORDER: bool>;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    held_until: Option<Timestamp>,
    paid_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Install {},
    Hold {},
    Pay {},
    Free {},
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    #[serde(rename = "SeatInstalled")]
    Installed {},
    #[serde(rename = "SeatHeld")]
    Held { until: Timestamp },
    #[serde(rename = "SeatPaid")]
    Paid { at: Timestamp },
    #[serde(rename = "SeatFreed")]
    Freed {},
}

impl<const RELIES_ON_ORDER: bool> Aggregate for Seat<RELIES_ON_ORDER> {
    const TYPE: &'static str = "seat";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Install", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[
        EventType::new("SeatInstalled", 1),
        EventType::new("SeatHeld", 1),
        EventType::new("SeatPaid", 1),
        EventType::new("SeatFreed", 1),
    ];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(seat: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        let now = context.now();
        match (command, seat.held_until) {
            (Command::Install {}, _) => Ok(vec![Event::Installed {}]),
            (Command::Hold {}, None) if seat.paid_at.is_none() => Ok(vec![Event::Held { until: now + HELD_FOR }]),
            (Command::Hold {}, _) => Err(Rejection::new("Taken", "the seat is held or paid")),
            (Command::Pay {}, Some(until)) if RELIES_ON_ORDER || now < until => Ok(vec![Event::Paid { at: now }]),
            (Command::Pay {}, _) => Err(Rejection::new("NotHeld", "the seat is not held, or not any more")),
            (Command::Free {}, Some(_)) => Ok(vec![Event::Freed {}]),
            (Command::Free {}, None) => Ok(vec![]),
        }
    }

    fn evolve(seat: State, event: &Event) -> State {
        match *event {
            Event::Installed {} => seat,
            Event::Held { until } => State { held_until: Some(until), paid_at: None },
            Event::Paid { at } => State { paid_at: Some(at), ..seat },
            Event::Freed {} => State::default(),
        }
    }

    fn deadlines(seat: &State) -> Vec<Deadline<Command>> {
        let held_until = seat.held_until.filter(|_| seat.paid_at.is_none());
        held_until.into_iter().map(|until| Deadline::new("hold", until, &Command::Free {})).collect()
    }

    fn authorize(caller: &Caller, access: Access<'_, Command>, _: Option<&str>, _: Option<&State>) -> Authorization {
        (!matches!(access, Access::Command(Command::Free {})) || caller.is_system()).into()
    }
}

fn registry<const RELIES_ON_ORDER: bool>() -> Result<Registry, RegistrationError> {
    Registry::new().with::<Seat<RELIES_ON_ORDER>>()
}

fn any_request<const RELIES_ON_ORDER: bool>(random: &mut Random) -> Request {
    let command = random.one_of(&[Command::Hold {}, Command::Pay {}, Command::Free {}]).clone();
    Request::to::<Seat<RELIES_ON_ORDER>>(*random.one_of(&["1", "2"]), &command)
}

fn simulation<const RELIES_ON_ORDER: bool>() -> Simulation {
    simulate(registry::<RELIES_ON_ORDER>())
        .starting_with(["1", "2"].map(|seat| Request::to::<Seat<RELIES_ON_ORDER>>(seat, &Command::Install {})))
        .clients(3, any_request::<RELIES_ON_ORDER>)
        .always(|world| {
            world.states::<Seat<RELIES_ON_ORDER>>().all(|seat| seat.paid_at.is_none_or(|at| Some(at) < seat.held_until))
        })
        .finally(|world| {
            world.states::<Seat<RELIES_ON_ORDER>>().all(|seat| seat.held_until.is_some() == seat.paid_at.is_some())
        })
}

#[test]
fn seat_that_is_paid_in_time_passes() {
    simulation::<false>().seeds(1_000);
}

/// Only the system may send `Free`, and it sends it when the seat was held for ten minutes.
#[test]
fn clients_do_not_free_a_seat() {
    let hold = [Command::Install {}, Command::Hold {}].map(|command| Request::to::<Seat<false>>("1", &command));
    let began = Timestamp::from_second(1_893_456_000).unwrap();
    simulate(registry::<false>())
        .starting_with(hold)
        .clients(8, |random| match random.below(8) {
            0 => Request::to::<Seat<false>>("2", &Command::Install {}),
            _ => Request::to::<Seat<false>>("1", &Command::Free {}).by(Caller::named("ann")),
        })
        .always(move |world| {
            let is_held = world.state::<Seat<false>>("1").is_some_and(|seat| seat.held_until.is_some());
            let is_installed = world.now() == began;
            is_held || is_installed || world.now() >= began + HELD_FOR
        })
        .seeds(100);
}

#[test]
fn deadline_that_assumes_order_is_found() {
    find(
        &simulation::<true>(),
        &[
            " sends Hold {} to seat/",
            " has the deadline hold at 2030-01-01T00:10:00",
            " pass, it is 2030-01-01T00:1",
            " sends Pay {} to seat/",
            "it saw\n  seat/",
        ],
    );
}
