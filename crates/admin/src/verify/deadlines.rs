//! The deadlines: rows of those that the state declares, and no others.

use std::collections::BTreeMap;

use daybook_decider::record::timestamp;
use daybook_decider::{DeadlineChanges, Model};
use daybook_event_store::StoredDeadline;
use daybook_event_store::internal::Item;
use daybook_table::{DeadlineState, attributes, keys};

use super::events::Events;
use super::finding::{Discrepancy, Report};
use crate::correct::difference;

/// The rows so far, by name; `None` for one that cannot be read.
#[derive(Default)]
pub(super) struct Deadlines(BTreeMap<String, Option<StoredDeadline>>);

impl Deadlines {
    pub(super) fn row(&mut self, sk: String, row: Item, shards: u32, report: &mut Report<'_>) {
        let name = keys::deadline_name(&sk).to_owned();
        let stored = match StoredDeadline::read(row) {
            Ok(stored) => stored,
            Err(error) => {
                self.0.insert(name, None);
                return report.add(sk, Discrepancy::Unreadable { reason: error.to_string() });
            }
        };
        let expected = keys::deadline_gsi1sk(stored.due);
        if stored.item.gsi1sk != expected {
            report.add(sk.clone(), Discrepancy::differs(attributes::GSI1SK, &stored.item.gsi1sk, expected));
        }
        let partitions = keys::deadline_gsi1pks(shards);
        let is_pending = stored.item.state() == DeadlineState::Pending;
        if is_pending && !partitions.contains(&stored.item.gsi1pk) {
            // Nobody would find it when it is due.
            let expected = partitions.join(" or ");
            report.add(sk, Discrepancy::differs(attributes::GSI1PK, &stored.item.gsi1pk, expected));
        }
        self.0.insert(name, Some(stored));
    }

    /// Compares the rows with the events that set them, and with the state, if it is known.
    pub(super) fn compare(&self, model: &dyn Model, events: &Events<'_>, report: &mut Report<'_>) {
        for stored in self.0.values().flatten() {
            let set_by = stored.item.seq_num;
            let expected = events.fact(set_by).map(|event| event.event_id.to_string());
            if let Some(expected) = expected.filter(|expected| *expected != stored.item.event_id) {
                report.add(&*stored.item.sk, Discrepancy::differs("eventId", &stored.item.event_id, expected));
            } else if !(1..=events.last()).contains(&set_by) {
                let expected = format!("1 to {}, the last event", events.last());
                report.add(&*stored.item.sk, Discrepancy::differs("seqNum", set_by, expected));
            }
        }
        let Some(folded) = events.folded() else { return };
        let due = |stored: &Option<StoredDeadline>| stored.as_ref().map(|stored| stored.due);
        let rows = self.0.iter().map(|(name, stored)| (name.clone(), due(stored))).collect();
        let DeadlineChanges { set, dropped } = match difference(model, folded, rows) {
            Ok(difference) => difference,
            Err(panic) => return report.add(keys::METADATA, Discrepancy::Unreadable { reason: panic.to_string() }),
        };
        for (name, expected) in set {
            let expected = expected.to_string();
            let discrepancy = match self.0.get(&name).map(due) {
                None => Discrepancy::DeadlineMissing { due: expected },
                Some(Some(found)) => Discrepancy::differs("due", timestamp(found), expected),
                // It is reported.
                Some(None) => continue,
            };
            report.add(keys::deadline_sk(&name), discrepancy);
        }
        for name in dropped {
            report.add(keys::deadline_sk(&name), Discrepancy::DeadlineStale);
        }
    }
}
