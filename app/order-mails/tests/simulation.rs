//! Simulates orders with the consumer of their messages.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use aggregates::{Order, order};
use daybook::consumer::testing::apply;
use daybook::consumer::{BusMessage, RowKey};
use daybook::simulation::{Message, Random, Request, simulate};
use daybook_order_mails::OrderMails;
use serde_json::Value;

type Rows = BTreeMap<RowKey, Value>;

fn any_request(random: &mut Random) -> Request {
    let items = vec![order::Item { product_id: "coffee".to_owned(), quantity: 1 }];
    let customer_id = (*random.one_of(&["ann", "bob"])).to_owned();
    let command = match random.below(3) {
        0 => order::Command::PlaceOrder { customer_id, items, total: 100 },
        1 => order::Command::ProcessPayment { amount: 100 },
        _ => order::Command::ShipOrder { tracking_number: "T-1".to_owned() },
    };
    Request::to::<Order>(random.below(4).to_string(), &command)
}

fn receive(rows: &mut Rows, message: &Message<'_>) -> Vec<Request> {
    let detail = message.outbox.detail.read().unwrap();
    let message = BusMessage::new(&message.outbox.message_type, detail).unwrap();
    apply(&OrderMails, rows, &message).unwrap();
    Vec::new()
}

#[test]
fn each_order_leads_to_a_mail_when_it_is_placed_and_when_it_is_shipped() {
    simulate(aggregates::registry())
        .consumer("order-mails", receive)
        .clients(4, any_request)
        .finally(|world| {
            let rows = world.consumer::<Rows>("order-mails");
            ["ann", "bob"].iter().all(|customer| {
                let orders = || world.states::<Order>().filter(|order| order.customer_id == *customer);
                let shipped = orders().filter(|order| order.tracking_number.is_some()).count();
                let of_customer = rows.iter().filter(|(key, _)| key.partition == format!("customer/{customer}"));
                let (counted, mails): (Vec<_>, Vec<_>) = of_customer.partition(|(key, _)| key.sort == "customer");
                let counted = counted.first().map_or(0, |(_, row)| row["orders"].as_u64().unwrap());
                counted == orders().count() as u64 && mails.len() == orders().count() + shipped
            })
        })
        .seeds(300);
}
