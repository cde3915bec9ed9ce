//! Corrections of deadlines: the aggregate has a row for each of its state, and no others.

use std::collections::BTreeMap;

use daybook_decider::{AggregatePanic, DeadlineChanges, DeclaredDeadline, Due, Folded, Model};
use daybook_event_store::StoreError;
use daybook_table::{AggregateKey, keys};
use jiff::Timestamp;

use crate::handle::{Admin, panicked};

impl Admin<'_> {
    /// The deadlines to set and to drop for an aggregate with this state.
    pub(crate) async fn deadlines_to_correct(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        folded: &Folded,
    ) -> Result<DeadlineChanges, StoreError> {
        let found = self.store.deadlines_of(key).await?;
        let readable = found.deadlines.iter().map(|stored| (stored.item.name().to_owned(), Some(stored.due)));
        let unreadable = found.unreadable.iter().map(|row| (keys::deadline_name(&row.sk).to_owned(), None));
        let rows = readable.chain(unreadable).collect();
        difference(model, folded, rows).map_err(|panic| panicked(key, panic))
    }
}

/// The deadlines and dispatches to set, and the names to drop, given the times of the rows: `None` for a row that cannot be read.
pub(crate) fn difference(
    model: &dyn Model,
    folded: &Folded,
    mut rows: BTreeMap<String, Option<Timestamp>>,
) -> Result<DeadlineChanges, AggregatePanic> {
    let declared = model.deadlines(folded)?.into_iter().filter_map(DeclaredDeadline::into_row);
    let set = declared.filter(|(name, declared)| match rows.remove(name) {
        // The row of a dispatch has the time at which it was set.
        Some(Some(due)) => matches!(declared, Due::At(declared) if *declared != due),
        Some(None) | None => true,
    });
    Ok(DeadlineChanges { set: set.collect(), dropped: rows.into_keys().collect() })
}
