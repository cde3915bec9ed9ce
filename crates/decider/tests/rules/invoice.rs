//! Invoices with consecutive numbers.

use daybook_decider::given::given;
use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A series of invoice numbers. Its id is the year, for example.
pub(crate) struct Series;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SeriesState {
    last: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum SeriesCommand {
    OpenSeries {},
    TakeNumber {},
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum SeriesEvent {
    #[serde(rename = "SeriesOpened")]
    Opened {},
    #[serde(rename = "NumberTaken")]
    Taken {},
}

impl Aggregate for Series {
    const TYPE: &'static str = "series";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "OpenSeries", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("SeriesOpened", 1), EventType::new("NumberTaken", 1)];

    type State = SeriesState;
    type Command = SeriesCommand;
    type Event = SeriesEvent;

    fn decide(_: &SeriesState, command: SeriesCommand, _: &Context<'_, SeriesEvent>) -> Decision<SeriesEvent> {
        match command {
            SeriesCommand::OpenSeries {} => Ok(vec![SeriesEvent::Opened {}]),
            SeriesCommand::TakeNumber {} => Ok(vec![SeriesEvent::Taken {}]),
        }
    }

    fn evolve(state: SeriesState, event: &SeriesEvent) -> SeriesState {
        match event {
            SeriesEvent::Opened {} => state,
            SeriesEvent::Taken {} => SeriesState { last: state.last + 1 },
        }
    }
}

/// An invoice.
pub(crate) struct Invoice;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {
    number: u64,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    CreateInvoice { series: String },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum Event {
    #[serde(rename = "InvoiceCreated")]
    Created { series: String, number: u64 },
}

impl Aggregate for Invoice {
    const TYPE: &'static str = "invoice";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "CreateInvoice", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("InvoiceCreated", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        let Command::CreateInvoice { series } = command;
        let Some(known) = context.involve::<Series>(&series)? else {
            return Err(Rejection::new("NoSuchSeries", format!("there is no series {series}")));
        };
        context.send::<Series>(&series, &SeriesCommand::TakeNumber {});
        Ok(vec![Event::Created { series, number: known.last + 1 }])
    }

    fn evolve(_: State, event: &Event) -> State {
        let Event::Created { number, .. } = *event;
        State { number }
    }
}

#[test]
fn invoice_gets_the_next_number_of_its_series() {
    let create = || Command::CreateInvoice { series: "2026".into() };
    for taken in [0, 1, 7] {
        let events = std::iter::once(SeriesEvent::Opened {}).chain((0..taken).map(|_| SeriesEvent::Taken {}));
        given::<Invoice>([])
            .involving::<Series>("2026", events)
            .when(create())
            .then([Event::Created { series: "2026".into(), number: taken + 1 }])
            .sends::<Series>("2026", &SeriesCommand::TakeNumber {});
    }
    given::<Invoice>([]).when(create()).then_rejected("NoSuchSeries", []).sends_nothing();
    given::<Series>([]).when(SeriesCommand::OpenSeries {}).then([SeriesEvent::Opened {}]);
    given::<Series>([SeriesEvent::Opened {}]).when(SeriesCommand::TakeNumber {}).then([SeriesEvent::Taken {}]);
}
