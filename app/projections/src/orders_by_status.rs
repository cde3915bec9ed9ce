//! The number and the total of the orders in each status.

use aggregates::Order;
use aggregates::order::{Event, Status};
use daybook::projection::{FollowedEvent, Follows, Projection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The projection `orders-by-status`. The key of a row is the status: `placed`, `paid`, `shipped`, `delivered` or
/// `refunded`.
pub struct OrdersByStatus;

/// The orders in one status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The number of orders.
    pub orders: i64,
    /// The price of all of them, in minor units.
    pub total: i64,
}

/// What an order adds to a row, or takes from it with negative numbers.
#[derive(Debug)]
pub struct Change {
    orders: i64,
    total: i64,
}

/// The status and the price with which an order is counted after its last event. For example, an `OrderShipped` event
/// holds neither the price of the order nor its previous status.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    status: Option<Status>,
    total: i64,
}

#[daybook::projection("orders-by-status", of = [Order])]
impl Projection for OrdersByStatus {
    fn apply(row: Option<Row>, change: &Change) -> Option<Row> {
        let Row { orders, total } = row.unwrap_or_default();
        let row = Row { orders: orders + change.orders, total: total + change.total };
        (row.orders > 0).then_some(row)
    }
}

impl Follows<Order> for OrdersByStatus {
    type State = Counted;

    fn advance(before: Counted, event: &FollowedEvent<'_, Event>) -> Counted {
        let status = match event.event {
            Event::Placed { total, .. } => return Counted { status: Some(Status::Placed), total: *total },
            Event::Paid { .. } => Status::Paid,
            Event::Shipped { .. } => Status::Shipped,
            Event::Delivered {} => Status::Delivered,
            Event::Refunded { .. } => Status::Refunded,
        };
        Counted { status: Some(status), ..before }
    }

    fn changes(before: &Counted, _event: &FollowedEvent<'_, Event>, after: &Counted) -> Vec<(String, Change)> {
        let leaves = before.status.map(|status| (key(status), Change { orders: -1, total: -before.total }));
        let enters = after.status.map(|status| (key(status), Change { orders: 1, total: after.total }));
        leaves.into_iter().chain(enters).collect()
    }
}

/// The key of the row of a status, which is the name of the status in the API.
fn key(status: Status) -> String {
    let name = match status {
        Status::Placed => "placed",
        Status::Paid => "paid",
        Status::Shipped => "shipped",
        Status::Delivered => "delivered",
        Status::Refunded => "refunded",
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use daybook::projection::given::given;

    use super::*;

    fn placed(total: i64) -> Event {
        Event::Placed { id: "1".into(), customer_id: "alice".into(), items: Vec::new(), total }
    }

    #[test]
    fn order_moves_from_status_to_status_with_its_total() {
        given::<OrdersByStatus>()
            .aggregate::<Order>("1", [placed(4500)])
            .aggregate::<Order>("2", [placed(100), Event::Paid { amount: 100 }])
            .aggregate::<Order>("3", [placed(50), Event::Paid { amount: 50 }, Event::Refunded { amount: 50 }])
            .shows("placed", Row { orders: 1, total: 4500 })
            .shows("paid", Row { orders: 1, total: 100 })
            .shows("refunded", Row { orders: 1, total: 50 })
            .shows_nothing_at("shipped");
    }

    #[test]
    fn row_that_the_last_order_leaves_disappears() {
        let shipped = Event::Shipped { tracking_number: "T-1".into() };
        given::<OrdersByStatus>()
            .aggregate::<Order>("1", [placed(4500), Event::Paid { amount: 4500 }, shipped, Event::Delivered {}])
            .shows("delivered", Row { orders: 1, total: 4500 })
            .shows_nothing_at("placed")
            .shows_nothing_at("paid")
            .shows_nothing_at("shipped");
    }
}
