//! Orders as they were stored in earlier years. The table still holds them, so this stays for ever: each form as the
//! type that it was, frozen, and one step from it to the next.
//!
//! - `OrderPlaced` 1 knew one product an order, 2 called the items lines, 3 is today's.
//! - `OrderDispatched` was one event while the money was taken as the parcel left; now these are two.
//! - `PaymentReminded` meant nothing to the order and is retired: no step, `RETIRED` names it.

use daybook_decider::{StoredEvent, Upcast};
use serde::{Deserialize, Serialize};

pub(super) fn upcast(event: StoredEvent) -> Upcast {
    match (event.name.as_str(), event.version) {
        ("OrderPlaced", 1) => {
            let PlacedV1 { id, customer_id, product_id, quantity, total } = event.read()?;
            let lines = vec![Line { product_id, quantity }];
            Ok(vec![StoredEvent::new("OrderPlaced", 2, &PlacedV2 { id, customer_id, lines, total })?])
        }
        ("OrderPlaced", 2) => {
            let PlacedV2 { id, customer_id, lines: items, total } = event.read()?;
            Ok(vec![StoredEvent::new("OrderPlaced", 3, &PlacedV3 { id, customer_id, items, total })?])
        }
        ("OrderDispatched", 1) => {
            let DispatchedV1 { amount, tracking_number } = event.read()?;
            Ok(vec![
                StoredEvent::new("PaymentProcessed", 1, &PaidV1 { amount })?,
                StoredEvent::new("OrderShipped", 1, &ShippedV1 { tracking_number })?,
            ])
        }
        _ => Ok(vec![event]),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlacedV1 {
    id: String,
    customer_id: String,
    product_id: String,
    quantity: u32,
    total: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlacedV2 {
    id: String,
    customer_id: String,
    lines: Vec<Line>,
    total: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PlacedV3 {
    id: String,
    customer_id: String,
    items: Vec<Line>,
    total: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    product_id: String,
    quantity: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DispatchedV1 {
    amount: i64,
    tracking_number: String,
}

#[derive(Serialize)]
struct PaidV1 {
    amount: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShippedV1 {
    tracking_number: String,
}
