//! An order's life: placed, paid, shipped, delivered, and perhaps refunded. Every event is published with the whole order
//! as it then is, so that no consumer has to read it.
//!
//! The one whose events have changed: `earlier` still reads what it stored in earlier years.

mod earlier;

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Message, Rejection, StoredEvent, Upcast};
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

/// The order.
pub struct Order;

/// The order as its events leave it. Amounts are in minor units.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Order")]
pub struct State {
    /// The id that it was placed under.
    pub id: String,
    /// Who ordered.
    pub customer_id: String,
    /// What was ordered.
    pub items: Vec<Item>,
    /// What it costs.
    pub total: i64,
    /// How far it has come.
    pub status: Status,
    /// Known once it is shipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracking_number: Option<String>,
    /// Known once it is refunded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refunded: Option<i64>,
}

/// How far an order has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "OrderStatus")]
pub enum Status {
    /// Waiting for payment.
    #[default]
    Placed,
    /// Waiting to be shipped.
    Paid,
    /// On its way.
    Shipped,
    /// With the customer.
    Delivered,
    /// The money went back.
    Refunded,
}

/// A line of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "OrderItem")]
pub struct Item {
    /// What.
    #[schemars(example = &"coffee")]
    pub product_id: String,
    /// How many; at least one.
    #[schemars(example = 2)]
    pub quantity: u32,
}

/// What can be asked of an order.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", rename_all_fields = "camelCase", deny_unknown_fields)]
#[schemars(rename = "OrderCommand")]
pub enum Command {
    /// Place it.
    PlaceOrder {
        /// Who orders.
        #[schemars(example = &"alice")]
        customer_id: String,
        /// What; at least one line.
        items: Vec<Item>,
        /// What it costs; not negative.
        #[schemars(example = 4500)]
        total: i64,
    },
    /// Take the payment of a placed order.
    ProcessPayment {
        /// Must be the order's total.
        #[schemars(example = 4500)]
        amount: i64,
    },
    /// Send off a paid order.
    ShipOrder {
        /// The carrier's.
        #[schemars(example = &"T-1")]
        tracking_number: String,
    },
    /// Note that a shipped order arrived.
    DeliverOrder {},
    /// Give money back on a paid, shipped or delivered order.
    RefundOrder {
        /// From 1 up to the order's total.
        #[schemars(example = 4500)]
        amount: i64,
    },
}

/// What happened to an order. The names are a stored format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data", rename_all_fields = "camelCase")]
#[schemars(rename = "OrderEvent")]
pub enum Event {
    /// It was placed.
    #[serde(rename = "OrderPlaced")]
    Placed {
        /// Its id.
        id: String,
        /// Who ordered.
        customer_id: String,
        /// What was ordered.
        items: Vec<Item>,
        /// What it costs.
        total: i64,
    },
    /// It was paid.
    #[serde(rename = "PaymentProcessed")]
    Paid {
        /// How much.
        amount: i64,
    },
    /// It was sent off.
    #[serde(rename = "OrderShipped")]
    Shipped {
        /// The carrier's.
        tracking_number: String,
    },
    /// It arrived.
    #[serde(rename = "OrderDelivered")]
    Delivered {},
    /// Money was given back.
    #[serde(rename = "OrderRefunded")]
    Refunded {
        /// How much.
        amount: i64,
    },
}

/// The messages of an order: each event, with the whole order after it.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
#[schemars(rename = "OrderMessage")]
enum Announcement<'a> {
    /// It was placed.
    OrderPlaced(&'a State),
    /// It was paid.
    PaymentProcessed(&'a State),
    /// It was sent off.
    OrderShipped(&'a State),
    /// It arrived.
    OrderDelivered(&'a State),
    /// Money was given back.
    OrderRefunded(&'a State),
}

impl Aggregate for Order {
    const TYPE: &'static str = "order";
    const STATE_VERSION: u32 = 2;
    const COMMANDS: Commands = Commands { create: "PlaceOrder", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[
        EventType::new("OrderPlaced", 3),
        EventType::new("PaymentProcessed", 1),
        EventType::new("OrderShipped", 1).also_stored_as(&[("OrderDispatched", 1)]),
        EventType::new("OrderDelivered", 1),
        EventType::new("OrderRefunded", 1),
    ];
    const RETIRED: &'static [EventType] = &[EventType::new("PaymentReminded", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(order: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        use Status::{Delivered, Paid, Placed, Shipped};
        let event = match command {
            Command::PlaceOrder { customer_id, items, total } => {
                if items.is_empty() || items.iter().any(|item| item.quantity == 0) {
                    return Err(Rejection::new("NothingOrdered", "an order needs items, each at least once"));
                }
                if total < 0 {
                    return Err(Rejection::new("NegativeTotal", format!("an order cannot cost {total}")));
                }
                Event::Placed { id: context.aggregate_id().to_owned(), customer_id, items, total }
            }
            Command::ProcessPayment { amount } => {
                require(order, "pay", &[Placed])?;
                if amount != order.total {
                    return Err(Rejection::new(
                        "WrongAmount",
                        format!("the order costs {}, not {amount}", order.total),
                    ));
                }
                Event::Paid { amount }
            }
            Command::ShipOrder { tracking_number } => {
                require(order, "ship", &[Paid])?;
                Event::Shipped { tracking_number }
            }
            Command::DeliverOrder {} => {
                require(order, "deliver", &[Shipped])?;
                Event::Delivered {}
            }
            Command::RefundOrder { amount } => {
                require(order, "refund", &[Paid, Shipped, Delivered])?;
                if !(1..=order.total).contains(&amount) {
                    return Err(Rejection::new(
                        "WrongAmount",
                        format!("a refund is from 1 to {}, not {amount}", order.total),
                    ));
                }
                Event::Refunded { amount }
            }
        };
        Ok(vec![event])
    }

    fn evolve(order: State, event: &Event) -> State {
        match event.clone() {
            Event::Placed { id, customer_id, items, total } => State { id, customer_id, items, total, ..order },
            Event::Paid { .. } => State { status: Status::Paid, ..order },
            Event::Shipped { tracking_number } => {
                State { status: Status::Shipped, tracking_number: Some(tracking_number), ..order }
            }
            Event::Delivered {} => State { status: Status::Delivered, ..order },
            Event::Refunded { amount } => State { status: Status::Refunded, refunded: Some(amount), ..order },
        }
    }

    fn announce(_before: &State, event: &Event, after: &State) -> Vec<Message> {
        let announcement = match event {
            Event::Placed { .. } => Announcement::OrderPlaced(after),
            Event::Paid { .. } => Announcement::PaymentProcessed(after),
            Event::Shipped { .. } => Announcement::OrderShipped(after),
            Event::Delivered {} => Announcement::OrderDelivered(after),
            Event::Refunded { .. } => Announcement::OrderRefunded(after),
        };
        vec![Message::of(&announcement)]
    }

    fn message_schema() -> Schema {
        schema_for!(Announcement<'_>)
    }

    fn upcast(event: StoredEvent) -> Upcast {
        earlier::upcast(event)
    }
}

/// Rejects what the order's status does not allow.
fn require(order: &State, verb: &str, allowed: &[Status]) -> Result<(), Rejection<Event>> {
    if allowed.contains(&order.status) {
        return Ok(());
    }
    let status = format!("{:?}", order.status).to_lowercase();
    Err(Rejection::new("WrongStatus", format!("cannot {verb} an order that is {status}")))
}

#[cfg(test)]
mod tests {
    use daybook_decider::given::{ID, given};
    use serde_json::json;

    use super::*;

    fn items() -> Vec<Item> {
        vec![Item { product_id: "coffee".into(), quantity: 2 }]
    }

    fn placed() -> Event {
        Event::Placed { id: ID.into(), customer_id: "alice".into(), items: items(), total: 4500 }
    }

    fn paid() -> Event {
        Event::Paid { amount: 4500 }
    }

    fn shipped() -> Event {
        Event::Shipped { tracking_number: "T-1".into() }
    }

    #[test]
    fn placing_publishes_the_whole_order() {
        let announced = given::<Order>([])
            .when(Command::PlaceOrder { customer_id: "alice".into(), items: items(), total: 4500 })
            .then([placed()]);
        announced.announces(["OrderPlaced"]);
        assert_eq!(
            announced.data(0),
            json!({"id": ID, "customerId": "alice", "items": [{"productId": "coffee", "quantity": 2}], "total": 4500,
                   "status": "placed"})
        );
    }

    #[test]
    fn an_order_needs_items_and_a_price() {
        let place = |items, total| Command::PlaceOrder { customer_id: "alice".into(), items, total };
        let none = vec![Item { product_id: "coffee".into(), quantity: 0 }];
        given::<Order>([]).when(place(vec![], 0)).then_rejected("NothingOrdered", []);
        given::<Order>([]).when(place(none, 0)).then_rejected("NothingOrdered", []);
        given::<Order>([]).when(place(items(), -1)).then_rejected("NegativeTotal", []);
    }

    #[test]
    fn it_goes_from_placed_to_delivered() {
        let history = vec![placed()];
        given::<Order>(history.clone())
            .when(Command::ProcessPayment { amount: 4500 })
            .then([paid()])
            .announces(["PaymentProcessed"]);
        given::<Order>([placed(), paid()])
            .when(Command::ShipOrder { tracking_number: "T-1".into() })
            .then([shipped()])
            .announces(["OrderShipped"]);
        let announced =
            given::<Order>([placed(), paid(), shipped()]).when(Command::DeliverOrder {}).then([Event::Delivered {}]);
        announced.announces(["OrderDelivered"]);
        assert_eq!(announced.data(0)["status"], "delivered");
        assert_eq!(announced.data(0)["trackingNumber"], "T-1");
    }

    #[test]
    fn steps_come_in_their_order() {
        let rejected = |history: Vec<Event>, command: Command| {
            given::<Order>(history).when(command).then_rejected("WrongStatus", []);
        };
        rejected(vec![placed()], Command::ShipOrder { tracking_number: "T-1".into() });
        rejected(vec![placed()], Command::DeliverOrder {});
        rejected(vec![placed()], Command::RefundOrder { amount: 1 });
        rejected(vec![placed(), paid()], Command::ProcessPayment { amount: 4500 });
        rejected(vec![placed(), paid(), shipped()], Command::ShipOrder { tracking_number: "T-2".into() });
        rejected(vec![placed(), paid(), Event::Refunded { amount: 1 }], Command::RefundOrder { amount: 1 });
    }

    #[test]
    fn the_payment_is_the_total() {
        given::<Order>([placed()]).when(Command::ProcessPayment { amount: 1 }).then_rejected("WrongAmount", []);
    }

    #[test]
    fn a_refund_is_at_most_the_total() {
        for amount in [-1, 0, 4501] {
            given::<Order>([placed(), paid()]).when(Command::RefundOrder { amount }).then_rejected("WrongAmount", []);
        }
        given::<Order>([placed(), paid(), shipped(), Event::Delivered {}])
            .when(Command::RefundOrder { amount: 4500 })
            .then([Event::Refunded { amount: 4500 }])
            .announces(["OrderRefunded"]);
    }
}
