//! The fulfilment of an order, a process: it begins with the order, requests the payment and then the shipment, and records both
//! in the order. If the payment is late, it gives up; if the shipment is late or lost, it pays the money back.
//!
//! A fulfilment, its payment and its shipment have the id of their order.

use daybook::jiff::{SignedDuration, Timestamp};
use daybook::{
    Access, Aggregate, Answer, Authorization, Caller, Context, Deadline, Decision, Dispatch, FollowedEvent, Reacts,
    Sources,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::order::Command::{ProcessPayment, RefundOrder, ShipOrder};
use crate::order::{self, Order};
use crate::payment::Command::{GiveUpPayment, RefundPayment, RequestPayment};
use crate::payment::{self, Payment};
use crate::shipment::Command::{AbandonShipment, RequestShipment};
use crate::shipment::{self, Shipment};

/// The time in which an order is paid.
const PAYMENT_TIME: SignedDuration = SignedDuration::from_hours(3 * 24);

/// The time in which a paid order is shipped.
const SHIPMENT_TIME: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The aggregate `fulfilment`.
pub struct Fulfilment;

/// The state of a fulfilment.
#[daybook::state]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The id of the order.
    pub order_id: String,
    /// The price of the order, in minor units.
    pub total: i64,
    /// What the fulfilment waits for, or how it has ended.
    pub status: Status,
    /// Until when it waits for the payment, or for the shipment.
    pub until: Timestamp,
    /// The carrier's tracking number, once the order is shipped.
    pub tracking_number: String,
}

/// What a fulfilment waits for, or how it has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    /// It waits for the payment.
    #[default]
    AwaitsPayment,
    /// It waits for the shipment.
    AwaitsShipment,
    /// It waits for the warehouse to keep a parcel that is late.
    AwaitsRecall,
    /// The order is shipped.
    Shipped,
    /// The order was not paid.
    Abandoned,
    /// The money was paid back.
    Refunded,
}

/// The commands of a fulfilment, which only the system sends.
#[daybook::commands(create = BeginFulfilment)]
#[serde(rename_all_fields = "camelCase")]
pub enum Command {
    /// Begins the fulfilment of an order.
    BeginFulfilment {
        /// The price of the order, in minor units.
        #[schemars(example = 4500)]
        total: i64,
    },
    /// Records the payment.
    RecordPayment {},
    /// Records the shipment.
    RecordShipment {
        /// The carrier's tracking number.
        #[schemars(example = &"T-1")]
        tracking_number: String,
    },
    /// Gives the order up, which is not paid.
    AbandonFulfilment {
        /// Why.
        #[schemars(example = &"the payment is late")]
        reason: String,
    },
    /// Asks the warehouse to keep the parcel.
    RecallShipment {},
    /// Pays the money back.
    RefundFulfilment {},
}

/// The events of a fulfilment. The names are a stored format.
#[daybook::events]
#[serde(rename_all_fields = "camelCase")]
pub enum Event {
    /// The order was placed.
    #[event("FulfilmentBegun")]
    Begun {
        /// The id of the order.
        order_id: String,
        /// The price of the order, in minor units.
        total: i64,
        /// When the payment is late.
        until: Timestamp,
    },
    /// The payment was received.
    #[event("FulfilmentPaid")]
    Paid {
        /// When the shipment is late.
        until: Timestamp,
    },
    /// The carrier has the parcel.
    #[event("FulfilmentShipped")]
    Shipped {
        /// The carrier's tracking number.
        tracking_number: String,
    },
    /// The order is given up.
    #[event("FulfilmentAbandoned")]
    Abandoned {
        /// Why.
        reason: String,
    },
    /// The shipment is late.
    #[event("FulfilmentRecalled")]
    Recalled {},
    /// The money is paid back.
    #[event("FulfilmentRefunded")]
    Refunded {},
}

#[daybook::aggregate("fulfilment")]
impl Aggregate for Fulfilment {
    fn sources() -> Sources<Self> {
        Sources::of::<Order>().and::<Payment>().and::<Shipment>()
    }

    /// A command that comes too late, or does not matter any more, has no effect.
    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        use Status::{Abandoned, AwaitsPayment, AwaitsRecall, AwaitsShipment, Shipped};
        Ok(match (command, state.status) {
            (Command::BeginFulfilment { total }, _) => {
                let (order_id, until) = (context.aggregate_id().to_owned(), context.now() + PAYMENT_TIME);
                vec![Event::Begun { order_id, total, until }]
            }
            (Command::RecordPayment {}, AwaitsPayment) => vec![Event::Paid { until: context.now() + SHIPMENT_TIME }],
            // It has come after all.
            (Command::RecordPayment {}, Abandoned) => vec![Event::Refunded {}],
            (Command::RecordShipment { tracking_number }, AwaitsShipment | AwaitsRecall) => {
                vec![Event::Shipped { tracking_number }]
            }
            (Command::AbandonFulfilment { reason }, AwaitsPayment) => vec![Event::Abandoned { reason }],
            (Command::RecallShipment {}, AwaitsShipment) => vec![Event::Recalled {}],
            (Command::RefundFulfilment {}, AwaitsShipment | AwaitsRecall | Shipped) => vec![Event::Refunded {}],
            _ => vec![],
        })
    }

    fn evolve(state: State, event: &Event) -> State {
        match event.clone() {
            Event::Begun { order_id, total, until } => State { order_id, total, until, ..state },
            Event::Paid { until } => State { status: Status::AwaitsShipment, until, ..state },
            Event::Shipped { tracking_number } => State { status: Status::Shipped, tracking_number, ..state },
            Event::Abandoned { .. } => State { status: Status::Abandoned, ..state },
            Event::Recalled {} => State { status: Status::AwaitsRecall, ..state },
            Event::Refunded {} => State { status: Status::Refunded, ..state },
        }
    }

    fn deadlines(state: &State) -> Vec<Deadline<Command>> {
        let late = || Command::AbandonFulfilment { reason: "the payment is late".to_owned() };
        match state.status {
            Status::AwaitsPayment => vec![Deadline::new("payment", state.until, &late())],
            Status::AwaitsShipment => vec![Deadline::new("shipment", state.until, &Command::RecallShipment {})],
            _ => vec![],
        }
    }

    fn dispatches(state: &State) -> Vec<Dispatch> {
        let (id, amount, tracking_number) = (&state.order_id, state.total, state.tracking_number.clone());
        match state.status {
            Status::AwaitsPayment => vec![Dispatch::new::<Payment>("request-payment", id, &RequestPayment { amount })],
            Status::AwaitsShipment => vec![
                Dispatch::new::<Order>("pay-order", id, &ProcessPayment { amount }),
                Dispatch::new::<Shipment>("request-shipment", id, &RequestShipment {}),
            ],
            Status::AwaitsRecall => vec![Dispatch::new::<Shipment>("abandon-shipment", id, &AbandonShipment {})],
            Status::Shipped => vec![Dispatch::new::<Order>("ship-order", id, &ShipOrder { tracking_number })],
            Status::Abandoned => vec![Dispatch::new::<Payment>("give-up-payment", id, &GiveUpPayment {})],
            Status::Refunded => vec![
                Dispatch::new::<Payment>("refund-payment", id, &RefundPayment {}),
                Dispatch::new::<Order>("refund-order", id, &RefundOrder { amount }),
            ],
        }
    }

    fn authorize(caller: &Caller, access: Access<'_, Command>, _: Option<&str>, _: Option<&State>) -> Authorization {
        (!matches!(access, Access::Command(_)) || caller.is_system()).into()
    }
}

impl Reacts<Order> for Fulfilment {
    fn input(event: &FollowedEvent<'_, order::Event>) -> Option<(String, Command)> {
        let order::Event::Placed { id, total, .. } = event.event else { return None };
        Some((id.clone(), Command::BeginFulfilment { total: *total }))
    }
}

impl Reacts<Payment> for Fulfilment {
    fn input(event: &FollowedEvent<'_, payment::Event>) -> Option<(String, Command)> {
        let payment::Event::Received {} = event.event else { return None };
        Some((event.aggregate_id.to_owned(), Command::RecordPayment {}))
    }

    fn answered(answer: &Answer<'_, payment::Command>) -> Option<Command> {
        let (RequestPayment { .. }, Some(rejection)) = (answer.command, answer.rejection) else { return None };
        Some(Command::AbandonFulfilment { reason: format!("the payment was rejected: {}", rejection.detail) })
    }
}

impl Reacts<Shipment> for Fulfilment {
    fn input(event: &FollowedEvent<'_, shipment::Event>) -> Option<(String, Command)> {
        let command = match event.event {
            shipment::Event::Requested {} => return None,
            shipment::Event::Collected { tracking_number } => {
                Command::RecordShipment { tracking_number: tracking_number.clone() }
            }
            shipment::Event::Lost {} | shipment::Event::Abandoned {} => Command::RefundFulfilment {},
        };
        Some((event.aggregate_id.to_owned(), command))
    }

    /// A shipment that was never requested cannot report that it is abandoned. One that was already collected reports that
    /// instead.
    fn answered(answer: &Answer<'_, shipment::Command>) -> Option<Command> {
        let is_missing = answer.rejection.is_some_and(|rejection| rejection.name == "Missing");
        (is_missing && matches!(answer.command, AbandonShipment {})).then_some(Command::RefundFulfilment {})
    }
}

#[cfg(test)]
mod tests {
    use daybook::given::{Given, ID, given};

    use super::*;

    const NOW: &str = "2026-11-28T10:00:00Z";

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn begun() -> Event {
        Event::Begun { order_id: ID.into(), total: 4500, until: time("2026-12-01T10:00:00Z") }
    }

    fn paid() -> Event {
        Event::Paid { until: time("2026-12-05T10:00:00Z") }
    }

    fn shipped() -> Event {
        Event::Shipped { tracking_number: "T-1".into() }
    }

    fn abandoned(reason: &str) -> Event {
        Event::Abandoned { reason: reason.into() }
    }

    fn after(events: impl IntoIterator<Item = Event>) -> Given<Fulfilment> {
        given::<Fulfilment>(events).at(NOW)
    }

    fn refund() -> [Dispatch; 2] {
        [
            Dispatch::new::<Payment>("refund-payment", ID, &RefundPayment {}),
            Dispatch::new::<Order>("refund-order", ID, &RefundOrder { amount: 4500 }),
        ]
    }

    fn give_up() -> [Dispatch; 1] {
        [Dispatch::new::<Payment>("give-up-payment", ID, &GiveUpPayment {})]
    }

    fn collected() -> shipment::Event {
        shipment::Event::Collected { tracking_number: "T-1".into() }
    }

    #[test]
    fn placed_order_begins_with_its_payment() {
        let placed = order::Event::Placed { id: ID.into(), customer_id: "alice".into(), items: vec![], total: 4500 };
        after([]).when_event::<Order>(ID, placed).then([begun()]).dispatches([Dispatch::new::<Payment>(
            "request-payment",
            ID,
            &RequestPayment { amount: 4500 },
        )]);
        after([begun()]).ignores_event::<Order>(ID, order::Event::Delivered {});
    }

    #[test]
    fn paid_order_is_shipped() {
        after([begun()]).when_event::<Payment>(ID, payment::Event::Received {}).then([paid()]).dispatches([
            Dispatch::new::<Order>("pay-order", ID, &ProcessPayment { amount: 4500 }),
            Dispatch::new::<Shipment>("request-shipment", ID, &RequestShipment {}),
        ]);
        let ship_order = ShipOrder { tracking_number: "T-1".into() };
        for recalled in [vec![], vec![Event::Recalled {}]] {
            after([vec![begun(), paid()], recalled].concat())
                .when_event::<Shipment>(ID, collected())
                .then([shipped()])
                .dispatches([Dispatch::new::<Order>("ship-order", ID, &ship_order)]);
        }
    }

    #[test]
    fn rejected_payment_abandons_the_order() {
        after([begun()])
            .when_answered::<Payment>(ID, &RequestPayment { amount: 4500 }, Err("WrongAmount"))
            .then([abandoned("the payment was rejected: WrongAmount")])
            .dispatches(give_up());
    }

    #[test]
    fn payment_after_the_end_is_paid_back() {
        after([begun(), abandoned("the payment is late")])
            .when_event::<Payment>(ID, payment::Event::Received {})
            .then([Event::Refunded {}])
            .dispatches(refund());
    }

    #[test]
    fn late_payment_abandons_the_order() {
        after([begun()])
            .when_due("payment")
            .then_no_deadline("payment")
            .then([abandoned("the payment is late")])
            .dispatches(give_up());
    }

    #[test]
    fn late_shipment_is_recalled() {
        after([begun(), paid()])
            .when_due("shipment")
            .then_no_deadline("shipment")
            .then([Event::Recalled {}])
            .dispatches([Dispatch::new::<Shipment>("abandon-shipment", ID, &AbandonShipment {})]);
    }

    #[test]
    fn shipment_that_stays_or_is_lost_is_paid_back() {
        after([begun(), paid(), Event::Recalled {}])
            .when_answered::<Shipment>(ID, &AbandonShipment {}, Err("Missing"))
            .then([Event::Refunded {}]);
        after([begun(), paid(), Event::Recalled {}])
            .when_event::<Shipment>(ID, shipment::Event::Abandoned {})
            .then([Event::Refunded {}])
            .dispatches(refund());
        after([begun(), paid(), shipped()])
            .when_event::<Shipment>(ID, shipment::Event::Lost {})
            .then([Event::Refunded {}])
            .dispatches(refund());
        after([begun(), paid(), Event::Refunded {}]).when_event::<Shipment>(ID, collected()).then([]).dispatches([]);
    }

    #[test]
    fn only_the_system_sends_commands() {
        given::<Fulfilment>([begun()]).by(Caller::named("ann")).forbids(Access::Command(&Command::RefundFulfilment {}));
        given::<Fulfilment>([begun()]).by(Caller::named("ann")).allows(Access::Read);
    }
}
