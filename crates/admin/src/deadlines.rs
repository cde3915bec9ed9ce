//! Corrections of deadlines: the aggregate has a row for each of its state, and no others.

use std::collections::BTreeMap;

use daybook_decider::{AggregatePanic, DeadlineChanges, DeclaredDeadline, Folded, Model};
use daybook_event_store::{DeadlineMark, StoreError};
use daybook_table::{AggregateKey, DeadlineItem, DeadlineState, keys};
use jiff::Timestamp;

use crate::handle::{Admin, panicked};

impl Admin<'_> {
    /// The deadlines to set and to drop for an aggregate with this state.
    pub(crate) async fn deadlines_to_correct(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        folded: &Folded,
        sends: bool,
    ) -> Result<DeadlineChanges, StoreError> {
        let found = self.store.deadlines_of(key).await?;
        let readable = found.deadlines.iter().map(|stored| (stored.item.name().to_owned(), Some(stored.due)));
        let unreadable = found.unreadable.iter().map(|row| (keys::deadline_name(&row.sk).to_owned(), None));
        let rows = readable.chain(unreadable).collect();
        let (set, dropped) = difference(model, folded, rows).map_err(|panic| panicked(key, panic))?;
        let at_once = if sends { self.store.now() } else { DeadlineItem::NEVER };
        let set = set.into_iter().map(|declared| (declared.name, declared.due.unwrap_or(at_once)));
        Ok(DeadlineChanges { set: set.collect(), dropped })
    }

    /// Marks the dispatches that a correction has set without sending them.
    pub async fn mark_unsent(&self, key: &AggregateKey) -> Result<(), StoreError> {
        for stored in self.store.deadlines_of(key).await?.deadlines {
            if stored.due == DeadlineItem::NEVER && stored.item.state() == DeadlineState::Pending {
                self.store.mark_deadline(&stored, DeadlineMark::Fired).await?;
            }
        }
        Ok(())
    }
}

/// The deadlines and dispatches to set, and the names to drop, given the times of the rows: `None` for a row that cannot be read.
pub(crate) fn difference(
    model: &dyn Model,
    folded: &Folded,
    mut rows: BTreeMap<String, Option<Timestamp>>,
) -> Result<(Vec<DeclaredDeadline>, Vec<String>), AggregatePanic> {
    let mut set = model.deadlines(folded)?;
    set.retain(|declared| match rows.remove(&declared.name) {
        // The row of a dispatch has the time at which it was set.
        Some(Some(due)) => declared.due.is_some_and(|declared| declared != due),
        Some(None) | None => true,
    });
    Ok((set, rows.into_keys().collect()))
}
