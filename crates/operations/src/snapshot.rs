//! Takes snapshots ahead of time.

use std::io;

use daybook_admin::{AdminCalls, AggregateProgress, SnapshotProgress};
use daybook_decider::Model;
use daybook_event_store::{EventStore, SnapshotOutcome, StoreError};
use daybook_table::AggregateKey;
use jiff::Timestamp;
use serde::Serialize;

use crate::error::OperatorError;
use crate::pacing::Pacer;
use crate::selection::ListedAggregate;
use crate::stack::{SETTINGS_TO_TAKE_SNAPSHOTS, Stack};
use crate::walk::{WalkOptions, Walked};

/// What became of an aggregate. It is skipped if its snapshot is current, if it has few events and no snapshot, or if its rules
/// need the full history. If it failed, rows cannot be read, or are missing.
#[derive(Debug)]
pub enum SnapshotResult {
    Taken { version: u64 },
    Current,
    Short,
    TooLarge { bytes: usize },
    Missing,
    Failed(String),
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotCounts {
    pub taken: u64,
    pub current: u64,
    pub short: u64,
    pub too_large: u64,
    pub missing: u64,
    pub failed: u64,
}

/// Takes a snapshot of each selected aggregate with at least `min_events` events after its snapshot, by default as many as lie
/// between two snapshots, or one for aggregates that are named. With `force`, folds from the first event, and replaces current
/// snapshots too.
pub async fn rebuild_snapshots(
    stack: &Stack,
    options: &WalkOptions,
    min_events: Option<u64>,
    force: bool,
    mut report: impl FnMut(&str, &SnapshotResult) -> io::Result<()>,
) -> Result<Walked<SnapshotCounts>, OperatorError> {
    let store = stack.store(SETTINGS_TO_TAKE_SNAPSHOTS).await?;
    let named = !options.selection.aggregates.is_empty();
    let min_events = min_events.unwrap_or(if named { 1 } else { store.settings().snapshot_every });
    let pacer = Pacer::new(options.rate, stack.interrupt.clone());
    let visit = async |aggregate: &ListedAggregate, model: Option<&dyn Model>| match (&aggregate.key, model) {
        _ if let Some(row) = &aggregate.unreadable => {
            Some(Ok(SnapshotResult::Failed(format!("{}: {}", row.sk, row.reason))))
        }
        (Some(_), Some(model)) if model.full_history() && !named => Some(Ok(SnapshotResult::Short)),
        (Some(key), Some(model)) => {
            pacer.turn().await?;
            Some(rebuild_one(&store, model, key, min_events, force).await)
        }
        _ => Some(Ok(SnapshotResult::Current)),
    };
    let report = |counts: &mut SnapshotCounts, aggregate: &ListedAggregate, result| {
        counts.add(&result);
        report(&aggregate.name, &result)
    };
    options.walk(stack, &store, false).await?.run(visit, report).await
}

/// Takes a snapshot of an aggregate with at least `min_events` events after its last snapshot; with `force` in any case.
async fn rebuild_one(
    store: &EventStore,
    model: &dyn Model,
    key: &AggregateKey,
    min_events: u64,
    force: bool,
) -> Result<SnapshotResult, StoreError> {
    let AggregateProgress { version, snapshot } = store.admin().progress(key).await?;
    if model.full_history() {
        return Ok(if version == 0 { SnapshotResult::Missing } else { SnapshotResult::Short });
    }
    // A load ignores a snapshot of an event that does not exist.
    let is_usable = |snapshot: &SnapshotProgress| {
        snapshot.state_version == model.state_version() && (1..=version).contains(&snapshot.version)
    };
    let usable = snapshot.filter(is_usable);
    let is_useless = snapshot.is_some() && usable.is_none();
    let newer_events = version - usable.map_or(0, |snapshot| snapshot.version);
    // Without metadata, only the events show whether the aggregate exists.
    if newer_events < min_events && !is_useless && !force && version > 0 {
        return Ok(if usable.is_some() { SnapshotResult::Current } else { SnapshotResult::Short });
    }
    let taken = if force {
        store.rebuild_snapshot(model, key, Timestamp::now()).await
    } else {
        store.take_snapshot(model, key, Timestamp::now()).await
    };
    let lost = |last: u64| {
        SnapshotResult::Failed(format!("event {} is missing; the last event in the metadata is {version}", last + 1))
    };
    match taken {
        Ok(SnapshotOutcome::Taken { version: last }) if last < version => Ok(lost(last)),
        Ok(SnapshotOutcome::Taken { version }) => Ok(SnapshotResult::Taken { version }),
        // The snapshotter has taken it in the meantime.
        Ok(SnapshotOutcome::NotNewer) => Ok(SnapshotResult::Current),
        Ok(SnapshotOutcome::NotNeeded) => Ok(if version == 0 { SnapshotResult::Missing } else { lost(0) }),
        Ok(SnapshotOutcome::TooLarge { bytes }) => Ok(SnapshotResult::TooLarge { bytes }),
        Err(error @ (StoreError::Corrupt { .. } | StoreError::Newer { .. } | StoreError::Panicked { .. })) => {
            Ok(SnapshotResult::Failed(daybook_function_runtime::with_causes(&error)))
        }
        Err(error @ (StoreError::Unavailable { .. } | StoreError::InvalidRequest { .. })) => Err(error),
    }
}

impl SnapshotCounts {
    fn add(&mut self, result: &SnapshotResult) {
        let count = match result {
            SnapshotResult::Taken { .. } => &mut self.taken,
            SnapshotResult::Current => &mut self.current,
            SnapshotResult::Short => &mut self.short,
            SnapshotResult::TooLarge { .. } => &mut self.too_large,
            SnapshotResult::Missing => &mut self.missing,
            SnapshotResult::Failed(_) => &mut self.failed,
        };
        *count += 1;
    }
}
