//! Reads order events in their earlier stored forms. The table still contains such events, so this module stays
//! forever. Each earlier form has a type that never changes, and one step to the next form.
//!
//! - `OrderPlaced`: version 1 had one product, version 2 called the items lines, version 3 is the current form.
//! - `OrderDispatched` was one event for payment and shipment, which then happened together. It is now read as two
//!   events.
//! - `PaymentReminded` had no effect on the order. It is retired: it has no step, and `RETIRED` lists it.

use daybook::{StoredEvent, Upcast};
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
