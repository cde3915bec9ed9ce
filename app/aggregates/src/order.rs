//! An order: placed, paid, shipped, delivered, and possibly refunded. It publishes every event with the whole order as
//! it is after the event, so that no consumer has to request the order.
//!
//! The stored events of this example have changed over the years: `earlier` reads their earlier forms.

mod earlier;

use daybook::{Aggregate, Context, Decision, EventType, Message, Rejection, StoredEvent, Upcast};
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

/// The aggregate `order`.
pub struct Order;

/// The state of an order. Amounts are in minor units.
#[daybook::state]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Order")]
pub struct State {
    /// The id of the order.
    pub id: String,
    /// The id of the customer.
    pub customer_id: String,
    /// The ordered items.
    pub items: Vec<Item>,
    /// The price of the whole order, in minor units.
    pub total: i64,
    /// The progress of the order.
    pub status: Status,
    /// The carrier's tracking number; present once the order is shipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracking_number: Option<String>,
    /// The refunded amount; present once the order is refunded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refunded: Option<i64>,
}

/// The progress of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "OrderStatus")]
pub enum Status {
    /// The order waits for payment.
    #[default]
    Placed,
    /// The order is paid and waits for shipment.
    Paid,
    /// The order is on its way to the customer.
    Shipped,
    /// The customer has received the order.
    Delivered,
    /// The order was refunded.
    Refunded,
}

/// An ordered product and its quantity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "OrderItem")]
pub struct Item {
    /// The id of the product.
    #[schemars(example = &"coffee")]
    pub product_id: String,
    /// The quantity; at least 1.
    #[schemars(example = 2)]
    pub quantity: u32,
}

/// The commands of an order.
#[daybook::commands(create = PlaceOrder)]
#[serde(rename_all_fields = "camelCase")]
pub enum Command {
    /// Places the order.
    PlaceOrder {
        /// The id of the customer.
        #[schemars(example = &"alice")]
        customer_id: String,
        /// The ordered items; at least one.
        items: Vec<Item>,
        /// The price of the whole order, in minor units; not negative.
        #[schemars(example = 4500)]
        total: i64,
    },
    /// Records the payment of a placed order.
    ProcessPayment {
        /// The amount in minor units; must be the order's total.
        #[schemars(example = 4500)]
        amount: i64,
    },
    /// Ships a paid order.
    ShipOrder {
        /// The carrier's tracking number.
        #[schemars(example = &"T-1")]
        tracking_number: String,
    },
    /// Records the delivery of a shipped order.
    DeliverOrder {},
    /// Refunds a paid, shipped or delivered order.
    RefundOrder {
        /// The amount in minor units; from 1 to the order's total.
        #[schemars(example = 4500)]
        amount: i64,
    },
}

/// The events of an order. The names are a stored format.
#[daybook::events]
#[serde(rename_all_fields = "camelCase")]
pub enum Event {
    /// The order was placed.
    #[event("OrderPlaced", version = 3)]
    Placed {
        /// The id of the order.
        id: String,
        /// The id of the customer.
        customer_id: String,
        /// The ordered items.
        items: Vec<Item>,
        /// The price of the whole order, in minor units.
        total: i64,
    },
    /// The order was paid.
    #[event("PaymentProcessed")]
    Paid {
        /// The amount in minor units.
        amount: i64,
    },
    /// The order was shipped.
    #[event("OrderShipped", also = [("OrderDispatched", 1)])]
    Shipped {
        /// The carrier's tracking number.
        tracking_number: String,
    },
    /// The order was delivered.
    #[event("OrderDelivered")]
    Delivered {},
    /// The order was refunded.
    #[event("OrderRefunded")]
    Refunded {
        /// The amount in minor units.
        amount: i64,
    },
}

/// The messages of an order: each event, with the whole order after it.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Announcement<'a> {
    /// The order was placed.
    OrderPlaced(&'a State),
    /// The order was paid.
    PaymentProcessed(&'a State),
    /// The order was shipped.
    OrderShipped(&'a State),
    /// The order was delivered.
    OrderDelivered(&'a State),
    /// The order was refunded.
    OrderRefunded(&'a State),
}

#[daybook::aggregate("order", state_version = 2)]
impl Aggregate for Order {
    const RETIRED: &'static [EventType] = &[EventType::new("PaymentReminded", 1)];

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

/// Rejects a command unless the order's status is one of `allowed`.
fn require(order: &State, verb: &str, allowed: &[Status]) -> Result<(), Rejection<Event>> {
    if allowed.contains(&order.status) {
        return Ok(());
    }
    let status = format!("{:?}", order.status).to_lowercase();
    Err(Rejection::new("WrongStatus", format!("cannot {verb} an order that is {status}")))
}

#[cfg(test)]
mod tests {
    use daybook::given::{ID, given};
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
        let published = given::<Order>([])
            .when(Command::PlaceOrder { customer_id: "alice".into(), items: items(), total: 4500 })
            .then([placed()]);
        published.announces(["OrderPlaced"]);
        assert_eq!(
            published.data(0),
            json!({"id": ID, "customerId": "alice", "items": [{"productId": "coffee", "quantity": 2}], "total": 4500,
                   "status": "placed"})
        );
    }

    #[test]
    fn place_order_without_items_or_with_negative_total_is_rejected() {
        let place = |items, total| Command::PlaceOrder { customer_id: "alice".into(), items, total };
        let none = vec![Item { product_id: "coffee".into(), quantity: 0 }];
        given::<Order>([]).when(place(vec![], 0)).then_rejected("NothingOrdered", []);
        given::<Order>([]).when(place(none, 0)).then_rejected("NothingOrdered", []);
        given::<Order>([]).when(place(items(), -1)).then_rejected("NegativeTotal", []);
    }

    #[test]
    fn commands_in_sequence_take_the_order_to_delivered() {
        let history = vec![placed()];
        given::<Order>(history.clone())
            .when(Command::ProcessPayment { amount: 4500 })
            .then([paid()])
            .announces(["PaymentProcessed"]);
        given::<Order>([placed(), paid()])
            .when(Command::ShipOrder { tracking_number: "T-1".into() })
            .then([shipped()])
            .announces(["OrderShipped"]);
        let published =
            given::<Order>([placed(), paid(), shipped()]).when(Command::DeliverOrder {}).then([Event::Delivered {}]);
        published.announces(["OrderDelivered"]);
        assert_eq!(published.data(0)["status"], "delivered");
        assert_eq!(published.data(0)["trackingNumber"], "T-1");
    }

    #[test]
    fn commands_in_the_wrong_status_are_rejected() {
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
    fn payment_of_another_amount_than_the_total_is_rejected() {
        given::<Order>([placed()]).when(Command::ProcessPayment { amount: 1 }).then_rejected("WrongAmount", []);
    }

    #[test]
    fn refund_of_zero_or_more_than_the_total_is_rejected() {
        for amount in [-1, 0, 4501] {
            given::<Order>([placed(), paid()]).when(Command::RefundOrder { amount }).then_rejected("WrongAmount", []);
        }
        given::<Order>([placed(), paid(), shipped(), Event::Delivered {}])
            .when(Command::RefundOrder { amount: 4500 })
            .then([Event::Refunded { amount: 4500 }])
            .announces(["OrderRefunded"]);
    }
}
