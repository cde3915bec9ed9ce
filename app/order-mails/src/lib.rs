//! An example of a consumer: it writes the mails that customers get about their orders.
//!
//! A mail is a row. Another program sends the mails of new rows, for example one that reads the stream of the table.

use daybook_consumer::{BusMessage, Changes, Consumer, HandleError, RowKey, Rows};
use serde::{Deserialize, Serialize};

/// The consumer.
#[derive(Debug)]
pub struct OrderMails;

/// The data of a message about an order. It has more members, which this consumer does not need.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Order {
    id: String,
    customer_id: String,
    tracking_number: Option<String>,
}

/// The row of a customer.
#[derive(Default, Serialize, Deserialize)]
struct Customer {
    /// The number of orders.
    orders: u64,
}

/// The row of a mail.
#[derive(Serialize)]
struct Mail {
    to: String,
    text: String,
}

fn customer_key(order: &Order) -> RowKey {
    RowKey::new(format!("customer/{}", order.customer_id), "customer")
}

fn mail_key(order: &Order, message: &BusMessage) -> RowKey {
    RowKey::new(format!("customer/{}", order.customer_id), format!("mail/{}", message.metadata.message_id))
}

impl Consumer for OrderMails {
    const NAME: &'static str = "order-mails";

    fn reads(&self, message: &BusMessage) -> Result<Vec<RowKey>, HandleError> {
        match message.form() {
            ("OrderPlaced", 1..=3) => Ok(vec![customer_key(&message.data()?)]),
            _ => Ok(Vec::new()),
        }
    }

    fn handle(&self, message: &BusMessage, rows: &Rows<'_>) -> Result<Changes, HandleError> {
        let mut changes = Changes::none();
        match message.form() {
            ("OrderPlaced", 1..=3) => {
                let order: Order = message.data()?;
                let mut customer: Customer = rows.get(&customer_key(&order))?.unwrap_or_default();
                customer.orders += 1;
                let text = format!("Thank you for order {}, your number {}.", order.id, customer.orders);
                changes.put(customer_key(&order), &customer)?;
                changes.put(mail_key(&order, message), &Mail { to: order.customer_id, text })?;
            }
            ("OrderShipped", 1) => {
                let order: Order = message.data()?;
                let number = order.tracking_number.as_deref().unwrap_or("unknown");
                let text = format!("Order {} is on its way, its tracking number is {number}.", order.id);
                changes.put(mail_key(&order, message), &Mail { to: order.customer_id, text })?;
            }
            ("OrderPlaced" | "OrderShipped", _) => return Err(message.unknown()),
            _ => {}
        }
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use daybook_consumer::testing::{given, message};
    use serde_json::{Value, json};

    use super::*;

    fn placed(order: &str, version: u32) -> BusMessage {
        message(&format!("order/{order}"), 1, ("OrderPlaced", version), json!({"id": order, "customerId": "alice"}))
    }

    fn shipped(order: &str) -> BusMessage {
        let data = json!({"id": order, "customerId": "alice", "trackingNumber": "T-1"});
        message(&format!("order/{order}"), 2, ("OrderShipped", 1), data)
    }

    fn row(sort: &str, row: Value) -> (RowKey, Value) {
        (RowKey::new("customer/alice", sort), row)
    }

    #[test]
    fn customer_gets_a_mail_when_an_order_is_placed_and_when_it_is_shipped() {
        given(OrderMails).messages([placed("7", 3), shipped("7")]).writes([
            row("customer", json!({"orders": 1})),
            row("mail/order-7-1-1", json!({"to": "alice", "text": "Thank you for order 7, your number 1."})),
            row(
                "mail/order-7-1-2",
                json!({"to": "alice", "text": "Order 7 is on its way, its tracking number is T-1."}),
            ),
        ]);
    }

    #[test]
    fn orders_of_a_customer_are_counted() {
        let rows = [row("customer", json!({"orders": 4}))];
        given(OrderMails).rows(rows).messages([placed("8", 3)]).writes([
            row("customer", json!({"orders": 5})),
            row("mail/order-8-1-1", json!({"to": "alice", "text": "Thank you for order 8, your number 5."})),
        ]);
    }

    #[test]
    fn message_of_a_newer_version_stops_the_order() {
        given(OrderMails).messages([placed("7", 4)]).fails("OrderPlaced version 4 is unknown");
    }

    #[test]
    fn other_messages_change_nothing() {
        given(OrderMails).messages([message("order/7", 2, ("PaymentProcessed", 1), json!({}))]).writes([]);
    }
}
