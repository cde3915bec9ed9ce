//! The campaign's own projection: two aggregate types share its rows, each row has several parts, rows disappear, and the
//! code that was deployed first cannot fold some events.

use aggregates::{Order, order};
use daybook_projection::{FollowedEvent, Follows, Parts, Projection, Projections, Source};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bell;

/// The projections of an instance: those that ship, and the campaign's own, with or without its defect.
pub(crate) fn projections(is_repaired: bool) -> Projections {
    let shipped = projections::projections().unwrap();
    if is_repaired { shipped.with::<Strokes<true>>().unwrap() } else { shipped.with::<Strokes<false>>().unwrap() }
}

/// The bells by their number of strokes, and the strokes of all bells beside the number of orders.
pub(crate) struct Strokes<const IS_REPAIRED: bool>;

/// What the aggregates of a row add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Row {
    aggregates: i64,
    strokes: u64,
}

/// What an event adds to a row.
#[derive(Debug)]
pub(crate) struct Added {
    aggregates: i64,
    strokes: u64,
    cannot_be_applied: bool,
}

impl<const IS_REPAIRED: bool> Projection for Strokes<IS_REPAIRED> {
    const NAME: &'static str = "strokes";
    const VERSION: u32 = 1;
    const PARTS: Parts<Row> = Parts::merged(3, add);

    type Row = Row;
    type Change = Added;

    fn sources() -> Vec<Source<Self>> {
        vec![Source::of::<bell::Bell>(), Source::of::<Order>()]
    }

    fn apply(row: Option<Row>, added: &Added) -> Option<Row> {
        assert!(!added.cannot_be_applied, "no row can take it");
        let row = add(row.unwrap_or_default(), Row { aggregates: added.aggregates, strokes: added.strokes });
        (row != Row::default()).then_some(row)
    }
}

fn add(one: Row, other: Row) -> Row {
    Row { aggregates: one.aggregates + other.aggregates, strokes: one.strokes + other.strokes }
}

fn added(key: impl Into<String>, aggregates: i64, strokes: u64) -> (String, Added) {
    (key.into(), Added { aggregates, strokes, cannot_be_applied: false })
}

/// A bell so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Heard {
    hung: bool,
    strokes: u64,
}

impl Heard {
    fn key(&self) -> String {
        format!("strokes-{}", self.strokes % 4)
    }
}

impl<const IS_REPAIRED: bool> Follows<bell::Bell> for Strokes<IS_REPAIRED> {
    type State = Heard;

    fn advance(before: Heard, event: &FollowedEvent<'_, bell::Event>) -> Heard {
        let bell::Event::Rung { strokes, .. } = event.event else { return Heard { hung: true, ..before } };
        let after = Heard { strokes: before.strokes + strokes, ..before };
        assert!(IS_REPAIRED || *strokes == 0 || after.strokes % 9 != 6, "the sixth stroke is too much");
        after
    }

    fn changes(before: &Heard, event: &FollowedEvent<'_, bell::Event>, after: &Heard) -> Vec<(String, Added)> {
        let mut changes = Vec::new();
        match event.event {
            bell::Event::Hung {} if before.hung => {}
            bell::Event::Hung {} => changes.extend([added(after.key(), 1, 0), added("all", 1, 0)]),
            bell::Event::Rung { strokes: 0, .. } => {}
            bell::Event::Rung { strokes, .. } => {
                changes.extend([added(before.key(), -1, 0), added(after.key(), 1, 0), added("all", 0, *strokes)]);
                match after.strokes % 9 {
                    7 if !IS_REPAIRED => changes.push(added("", 1, 0)),
                    8 if !IS_REPAIRED => changes.iter_mut().for_each(|(_, change)| change.cannot_be_applied = true),
                    _ => {}
                }
            }
        }
        changes
    }
}

impl<const IS_REPAIRED: bool> Follows<Order> for Strokes<IS_REPAIRED> {
    type State = ();

    fn advance((): (), _: &FollowedEvent<'_, order::Event>) {}

    fn changes((): &(), event: &FollowedEvent<'_, order::Event>, (): &()) -> Vec<(String, Added)> {
        match event.event {
            order::Event::Placed { .. } => vec![added("all", 1, 0)],
            _ => vec![added("orders", 1, 0)],
        }
    }
}
