//! Applies the changes of a plan to the rows.

use std::collections::BTreeMap;

use daybook_projection::{Change, ProjectionModel};
use daybook_table::AggregateKey;
use daybook_view_store::{Position, PositionWrite, RowKey, RowWrite, StoredRow, ViewWrite};

use crate::plan::{Plan, Planned};

/// A change that cannot be applied to its row.
#[derive(Debug)]
pub(crate) struct Inapplicable {
    pub(crate) aggregate: AggregateKey,
    pub(crate) seq_num: u64,
    pub(crate) reason: String,
}

/// The write that carries out the plan: its rows and positions, before and after.
pub(crate) fn fold(
    model: &dyn ProjectionModel,
    plan: &Plan<'_>,
    mut stored: BTreeMap<RowKey, StoredRow>,
) -> Result<ViewWrite, Inapplicable> {
    let mut changes: BTreeMap<&RowKey, Vec<(&Change, &AggregateKey, u64)>> = BTreeMap::new();
    let rows: BTreeMap<(&str, u32), &RowKey> =
        plan.rows.iter().map(|key| ((key.key.as_str(), key.shard), key)).collect();
    for planned in &plan.aggregates {
        for step in &planned.steps {
            for (key, change) in &step.changes {
                let row = rows[&(key.as_str(), planned.shard)];
                changes.entry(row).or_default().push((change, &planned.aggregate.key, step.seq_num));
            }
        }
    }
    let mut write = ViewWrite::default();
    for (key, changes) in changes {
        let before = stored.remove(key);
        let of_row: Vec<_> = changes.iter().map(|(change, ..)| *change).collect();
        let after = model.apply(before.as_ref().map(|row| &row.row), &of_row).map_err(|error| {
            let (_, aggregate, seq_num) = changes[error.index];
            Inapplicable { aggregate: aggregate.clone(), seq_num, reason: format!("row {:?}: {error}", key.key) }
        })?;
        write.rows.insert(key.clone(), RowWrite { before: before.map(|row| row.write_id), after });
    }
    for Planned { aggregate, through, state, suspended, .. } in &plan.aggregates {
        let after =
            Position { seq_num: *through, state: state.clone(), suspended: suspended.clone(), resumed_at: None };
        let resumed_at = aggregate.resumed_at.clone();
        write.positions.insert(aggregate.key.clone(), PositionWrite { before: aggregate.before, resumed_at, after });
    }
    Ok(write)
}
