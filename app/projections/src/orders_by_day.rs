//! The number and the total of the orders that were placed on each day, in UTC.

use aggregates::Order;
use aggregates::order::Event;
use daybook::projection::{FollowedEvent, Follows, Projection};
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The projection `orders-by-day`. The key of a row is the day: `2026-11-22`.
pub struct OrdersByDay;

/// The orders of one day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The number of orders.
    pub orders: u64,
    /// The price of all of them, in minor units.
    pub total: i64,
}

/// One more order, with its price.
#[derive(Debug)]
pub struct Placed {
    total: i64,
}

#[daybook::projection("orders-by-day", of = [Order])]
impl Projection for OrdersByDay {
    type Change = Placed;

    fn apply(row: Option<Row>, placed: &Placed) -> Option<Row> {
        let Row { orders, total } = row.unwrap_or_default();
        Some(Row { orders: orders + 1, total: total + placed.total })
    }
}

impl Follows<Order> for OrdersByDay {
    /// Nothing: the first event holds everything.
    type State = ();

    fn advance((): (), _event: &FollowedEvent<'_, Event>) {}

    fn changes((): &(), event: &FollowedEvent<'_, Event>, (): &()) -> Vec<(String, Placed)> {
        match event.event {
            Event::Placed { total, .. } => {
                let day = event.occurred_at.to_zoned(TimeZone::UTC).date();
                vec![(day.to_string(), Placed { total: *total })]
            }
            Event::Paid { .. } | Event::Shipped { .. } | Event::Delivered {} | Event::Refunded { .. } => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use daybook::projection::given::given;

    use super::*;

    fn placed(total: i64) -> Event {
        Event::Placed { id: "1".into(), customer_id: "alice".into(), items: Vec::new(), total }
    }

    #[test]
    fn order_counts_on_the_day_of_its_placement() {
        given::<OrdersByDay>()
            .at("2026-11-21T23:59:59Z")
            .aggregate::<Order>("1", [placed(4500)])
            .at("2026-11-22T00:00:00Z")
            .aggregate::<Order>("2", [placed(100), Event::Paid { amount: 100 }])
            .aggregate::<Order>("3", [placed(250)])
            .shows("2026-11-21", Row { orders: 1, total: 4500 })
            .shows("2026-11-22", Row { orders: 2, total: 350 })
            .shows_nothing_at("2026-11-23");
    }
}
