//! Readers of views, who read while transactions are in progress.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use daybook_table::AggregateKey;
use daybook_view_store::{ShownRow, View, ViewStore};
use tokio::time::sleep;

use crate::dice::Dice;
use crate::read_models::VIEWS_TABLE;
use crate::read_models::strokes::projections;
use crate::read_models::view_ledger::ViewLedger;
use crate::writers::Work;

/// Reads rows again and again, each reader in turn. Never ends.
pub(crate) async fn read_views(work: Arc<Work>, ledger: Arc<ViewLedger>, number: u64) {
    let mut dice = Dice::new(work.seed, &format!("reader {number}"));
    let store = ViewStore::new(&work.database.config(Arc::default()), VIEWS_TABLE);
    let projections = projections(true);
    let mut read = BTreeMap::new();
    for _ in 0..dice.size(0..=8) {
        sleep(dice.milliseconds(0..=150)).await;
        let rows = ledger.rows();
        if rows.is_empty() {
            continue;
        }
        let (name, key) = dice.one_of(&rows);
        let model = projections.read_version(name.split('@').next().unwrap(), None).unwrap();
        let view = View::new(model.name(), model.version());
        if dice.chance(0.5) {
            work.log.count("row read");
            if let Ok(row) = store.row(&view, model.part_count(), &key).await {
                ledger.check_read(&name, &key, &write_ids(row.as_ref()), &mut read);
            }
            continue;
        }
        let followed = work.keys.iter().filter(|key| model.follows().contains(&key.aggregate_type.as_str()));
        let followed: BTreeSet<AggregateKey> = followed.cloned().collect();
        let Ok(positions) = store.positions(&view, &followed).await else { continue };
        let seen: Vec<_> = positions.into_iter().filter(|(_, position)| position.seq_num > 0).collect();
        if seen.is_empty() {
            continue;
        }
        let (aggregate, position) = dice.one_of(&seen);
        work.log.count("row read after a position");
        if let Ok(row) = store.row_after(&view, model.part_count(), &key, &aggregate).await {
            let write_ids = write_ids(row.as_ref());
            ledger.check_seen(&name, &key, &write_ids, (&aggregate, position.seq_num));
            ledger.check_read(&name, &key, &write_ids, &mut read);
        }
    }
    std::future::pending().await
}

/// The writes of the parts of a row.
fn write_ids(row: Option<&ShownRow>) -> Vec<&str> {
    row.map(|row| row.etag.split('-').collect()).unwrap_or_default()
}
