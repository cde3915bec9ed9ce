//! The aggregate of most tests: several events per command, zero to two messages per event, recorded rejections, and a
//! deletion.

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Message, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub(crate) struct Counter;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {
    pub(crate) total: i64,
    pub(crate) rejections: u64,
    #[serde(default)]
    pub(crate) closed: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    /// Starts at a number. A number below zero is rejected; a counter that exists would record the rejection.
    Start { at: i64 },
    /// Adds each amount with an event of its own.
    Add { amounts: Vec<i64> },
    /// Adds the total.
    Double {},
    /// Rejected, with an event for each reason.
    Reject { reasons: Vec<String> },
    /// Deletes the counter.
    Close,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum Event {
    #[serde(rename = "CounterStarted")]
    Started { at: i64 },
    #[serde(rename = "CounterAdded")]
    Added { amount: i64 },
    #[serde(rename = "CounterRejected")]
    Rejected { reason: String },
    #[serde(rename = "CounterClosed")]
    Closed,
}

impl Aggregate for Counter {
    const TYPE: &'static str = "counter";
    const STATE_VERSION: u32 = 3;
    const COMMANDS: Commands = Commands { create: "Start", update: Some("Add"), delete: Some("Close") };
    const EVENTS: &'static [EventType] = &[
        EventType::new("CounterStarted", 1),
        EventType::new("CounterAdded", 4),
        EventType::new("CounterRejected", 1),
        EventType::new("CounterClosed", 1),
    ];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(state: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::Start { at } if at < 0 => Err(Rejection::new("BelowZero", "a counter starts at zero or above")
                .recording(Event::Rejected { reason: "below zero".into() })),
            Command::Start { at } => Ok(vec![Event::Started { at }]),
            Command::Add { amounts } => Ok(amounts.into_iter().map(|amount| Event::Added { amount }).collect()),
            Command::Double {} => Ok(vec![Event::Added { amount: state.total }]),
            Command::Reject { reasons } => {
                let rejection = Rejection::new("Rejected", format!("at {}", state.total));
                let recorded = reasons.into_iter().map(|reason| Event::Rejected { reason });
                Err(recorded.fold(rejection, Rejection::recording))
            }
            Command::Close => Ok(vec![Event::Closed]),
        }
    }

    fn evolve(state: State, event: &Event) -> State {
        match event {
            Event::Started { at } => State { total: *at, ..state },
            Event::Added { amount } => State { total: state.total.wrapping_add(*amount), ..state },
            Event::Rejected { .. } => State { rejections: state.rejections + 1, ..state },
            Event::Closed => State { closed: true, ..state },
        }
    }

    /// An amount of 0, 1, 2, 3, … publishes 0, 1, 2, 0, … messages.
    fn announce(before: &State, event: &Event, after: &State) -> Vec<Message> {
        match event {
            Event::Started { .. } => vec![Message::of(event)],
            Event::Added { amount } => (0..amount.rem_euclid(3))
                .map(|_| Message::new("counted", &json!({"from": before.total, "to": after.total})))
                .collect(),
            Event::Rejected { reason } => {
                vec![Message::new("rejected", &json!({"reason": reason, "total": after.total}))]
            }
            Event::Closed => vec![],
        }
    }

    fn is_deleted(state: &State) -> bool {
        state.closed
    }
}
