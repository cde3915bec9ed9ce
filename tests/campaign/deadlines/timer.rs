//! An aggregate with any deadlines. What the command of one does depends on its name.

use std::collections::BTreeMap;

use daybook_decider::{
    Access, Aggregate, Authorization, Caller, Commands, Context, Deadline, Decision, EventType, Message, Rejection,
};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The ids of all timers. Only the last one is ever stopped.
pub(crate) const TIMERS: [&str; 3] = ["b", "d", "f"];

/// The names of deadlines:
/// - `ring` fires once. `keep` stays declared after it has fired. `again` moves itself a few times. `pass` also sets one of
///   another timer, in the same append.
/// - The command of `refuse` is rejected, that of `record` too, with an event. `idle` has no effect.
/// - The command of `break` cannot be decided until the code is repaired; then it is like `ring`.
pub(crate) const NAMES: [&str; 8] = ["ring", "keep", "again", "pass", "refuse", "record", "idle", "break"];

/// The maximum of firings of `again`.
const ROUNDS: usize = 2;

/// The timer, with or without the defect.
pub(crate) struct Timer<const REPAIRED: bool>;

/// New times by name; without a time, the deadline is dropped.
type Times = BTreeMap<String, Option<Timestamp>>;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {
    pub(crate) at: BTreeMap<String, Timestamp>,
    rounds: usize,
    is_stopped: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    Start {},
    Set {
        at: Times,
        /// The times of another timer.
        #[serde(default)]
        other: Option<(String, Times)>,
    },
    Fire {
        name: String,
        due: Timestamp,
    },
    Stop {},
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum Event {
    TimesSet {
        at: Times,
    },
    TimerRang {
        name: String,
        due: Timestamp,
        /// The time that the deadline has from now on, if it is still declared.
        next: Option<Timestamp>,
    },
    TimerRefused {
        name: String,
        due: Timestamp,
    },
    TimerStopped {},
}

impl<const REPAIRED: bool> Aggregate for Timer<REPAIRED> {
    const TYPE: &'static str = "timer";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Start", update: Some("Set"), delete: Some("Stop") };
    const EVENTS: &'static [EventType] = &[
        EventType::new("TimesSet", 1),
        EventType::new("TimerRang", 1),
        EventType::new("TimerRefused", 1),
        EventType::new("TimerStopped", 1),
    ];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        let (name, due) = match command {
            Command::Start {} => return Ok(vec![Event::TimesSet { at: Times::new() }]),
            Command::Stop {} => return Ok(vec![Event::TimerStopped {}]),
            Command::Set { at, other } => {
                if let Some((id, at)) = other {
                    context.send::<Self>(id, &Command::Set { at, other: None });
                }
                return Ok(vec![Event::TimesSet { at }]);
            }
            Command::Fire { name, due } => (name, due),
        };
        let later = |seconds| Some(due + SignedDuration::from_secs(seconds));
        let next = match &*name {
            "keep" => Some(due),
            "again" => later(40).filter(|_| state.rounds < ROUNDS),
            "pass" => {
                let other = TIMERS[..2].iter().find(|id| **id != context.aggregate_id()).unwrap();
                let at = Times::from([("ring".to_owned(), later(20))]);
                context.send::<Self>(*other, &Command::Set { at, other: None });
                None
            }
            "refuse" => return Err(Rejection::new("Refused", "it is refused")),
            "record" => {
                let rejection = Rejection::new("Refused", "it is refused");
                return Err(rejection.recording(Event::TimerRefused { name, due }));
            }
            "idle" => return Ok(vec![]),
            // A deadline with this name cannot be stored.
            "break" if !REPAIRED => {
                return Ok(vec![Event::TimesSet { at: Times::from([("A B".to_owned(), later(0))]) }]);
            }
            _ => None,
        };
        Ok(vec![Event::TimerRang { name, due, next }])
    }

    fn evolve(mut state: State, event: &Event) -> State {
        let times = match event.clone() {
            Event::TimesSet { at } => at,
            Event::TimerRang { name, next, .. } => {
                state.rounds += usize::from(name == "again");
                Times::from([(name, next)])
            }
            Event::TimerRefused { .. } => Times::new(),
            Event::TimerStopped {} => return State { is_stopped: true, ..State::default() },
        };
        for (name, due) in times {
            match due {
                Some(due) => drop(state.at.insert(name, due)),
                None => drop(state.at.remove(&name)),
            }
        }
        state
    }

    fn announce(_: &State, _: &Event, _: &State) -> Vec<Message> {
        vec![]
    }

    fn deadlines(state: &State) -> Vec<Deadline<Command>> {
        let command = |name: &String, due: &Timestamp| Command::Fire { name: name.clone(), due: *due };
        state.at.iter().map(|(name, due)| Deadline::new(name.clone(), *due, &command(name, due))).collect()
    }

    fn is_deleted(state: &State) -> bool {
        state.is_stopped
    }

    fn authorize(caller: &Caller, access: Access<'_, Command>, _: Option<&str>, _: Option<&State>) -> Authorization {
        match access {
            Access::Command(Command::Fire { .. }) => caller.is_system().into(),
            _ => Authorization::Unrestricted,
        }
    }
}
