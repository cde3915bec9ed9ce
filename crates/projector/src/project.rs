//! Folds the events of some aggregates into one view, in as few transactions as possible, with random pauses between two
//! attempts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use daybook_event_store::{EventStore, StoreError};
use daybook_projection::ProjectionModel;
use daybook_table::AggregateKey;
use daybook_view_store::{View, ViewStore, WriteError, WriteOutcome, part_of};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::{Instant, sleep};

use crate::plan::{Plan, Planned, Unfolded, fold};

/// Maximum aggregates of one transaction. With a position and a row of its own for each aggregate, and some rows that
/// they share, they fit the 100 items of a transaction.
const MAX_AGGREGATES: usize = 45;

/// Maximum events of an aggregate that are read at a time.
const MAX_EVENTS: usize = 200;

/// Maximum aggregates whose events are read concurrently.
const CONCURRENCY: usize = 16;

/// Maximum length of the first pause after a failure. It doubles with each further one, [`MAX_DOUBLINGS`] times.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

pub(crate) const MAX_DOUBLINGS: u32 = 4;

/// Maximum length of the pause after the first conflict, and the length that it is divided down to.
const AFTER_CONFLICTS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(20));

/// Which new events of an aggregate are folded. `known: 5, through: 7`: at least those up to 5, and none after 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRange {
    /// Events up to this number exist. The projector waits for those that are not visible yet.
    pub known: u64,
    /// Events after this number are left, because a leading version of the projection does not show them yet.
    pub through: u64,
}

impl Default for EventRange {
    fn default() -> Self {
        Self { known: 0, through: u64::MAX }
    }
}

#[derive(Debug, Default)]
pub struct Projected {
    pub events: u64,
    pub transactions: u64,
    /// The number of transactions that failed because of another writer, or whose outcome is unknown. They are retried.
    pub retries: u64,
    /// The aggregates that are suspended now, each with the reason why its next event cannot be folded.
    pub suspended: BTreeMap<AggregateKey, String>,
    /// The aggregates whose events were not all folded, because the time was up, or because only a newer release can
    /// read an event.
    pub unfinished: BTreeSet<AggregateKey>,
    /// The number of the last event that the view shows, for each aggregate that is not suspended.
    pub reached: BTreeMap<AggregateKey, u64>,
}

impl Projected {
    fn suspend(&mut self, aggregate: &AggregateKey, reason: String) {
        self.reached.remove(aggregate);
        self.suspended.insert(aggregate.clone(), reason);
    }
}

#[derive(Clone, Copy)]
pub struct Projecting<'a> {
    pub model: &'a dyn ProjectionModel,
    pub events: &'a EventStore,
    pub views: &'a ViewStore,
}

impl Projecting<'_> {
    /// Folds the events of the aggregates, in their ranges, that the view does not show yet, in the time until `cutoff`.
    pub async fn project(
        self,
        aggregates: BTreeMap<AggregateKey, EventRange>,
        cutoff: Instant,
    ) -> Result<Projected, StoreError> {
        let view = View::new(self.model.name(), self.model.version());
        let mut projected = Projected::default();
        let mut pending: Vec<_> = aggregates.keys().cloned().collect();
        // Aggregates that change the same part of a row share a transaction, so that it writes fewer parts, and others
        // that are written at the same time change other parts.
        pending.sort_by_cached_key(|key| part_of(key, self.model.part_count()));
        while !pending.is_empty() {
            let rest = pending.split_off(pending.len().min(MAX_AGGREGATES));
            let group = std::mem::replace(&mut pending, rest).into_iter().collect();
            let left = self.project_group(&view, group, &aggregates, cutoff, &mut projected).await?;
            projected.unfinished.extend(left);
        }
        Ok(projected)
    }

    /// Folds the events of up to [`MAX_AGGREGATES`] aggregates. Returns the aggregates that are not finished.
    async fn project_group(
        &self,
        view: &View,
        mut pending: BTreeSet<AggregateKey>,
        ranges: &BTreeMap<AggregateKey, EventRange>,
        cutoff: Instant,
        projected: &mut Projected,
    ) -> Result<BTreeSet<AggregateKey>, StoreError> {
        let (mut conflicts, mut failures, mut max_events) = (0, 0, usize::MAX);
        let mut cannot_fold: BTreeMap<AggregateKey, (u64, String)> = BTreeMap::new();
        let mut newer = BTreeSet::new();
        while !pending.is_empty() && Instant::now() < cutoff {
            let mut unfolded = self.unfolded(view, &pending, ranges, projected).await?;
            for aggregate in &mut unfolded {
                let found = cannot_fold.get(&aggregate.key).cloned();
                aggregate.cannot_fold = found.into_iter().chain(aggregate.cannot_fold.take()).min();
            }
            pending = unfolded.iter().map(|aggregate| aggregate.key.clone()).collect();
            let plan = Plan::of(self.model, &unfolded, max_events);
            for (key, reason) in &plan.newer {
                tracing::warn!(aggregate = %key, projection = self.model.name(), reason, "left to the newer release");
                newer.insert(key.clone());
            }
            if plan.aggregates.is_empty() {
                let is_partly_visible = |aggregate: &Unfolded| aggregate.events.is_empty() && aggregate.more;
                if failures == MAX_DOUBLINGS || !unfolded.iter().any(is_partly_visible) {
                    break;
                }
                pause(&mut failures).await;
                continue;
            }
            let rows = self.views.rows(view, &plan.rows).await?;
            let write = match fold(self.model, &plan, rows) {
                Ok(write) => write,
                Err((aggregate, event_and_reason)) => {
                    cannot_fold.insert(aggregate, event_and_reason);
                    continue;
                }
            };
            match self.views.write(view, &write).await {
                Ok(WriteOutcome::Written) => {
                    (conflicts, failures, max_events) = (0, 0, usize::MAX);
                    projected.transactions += 1;
                    for Planned { aggregate: Unfolded { key, .. }, through, steps, suspended, more, .. } in
                        plan.aggregates
                    {
                        projected.events += steps.len() as u64;
                        projected.reached.insert(key.clone(), through);
                        if let Some(reason) = suspended {
                            projected.suspend(key, reason);
                        }
                        if !more {
                            pending.remove(key);
                        }
                    }
                }
                Ok(outcome) => {
                    projected.retries += 1;
                    match outcome {
                        WriteOutcome::Conflict => give_way(&mut conflicts).await,
                        _ => pause(&mut failures).await,
                    }
                }
                Err(WriteError::TooLarge(error)) => {
                    let planned: usize = plan.aggregates.iter().map(|aggregate| aggregate.steps.len()).sum();
                    max_events = planned / 2;
                    if planned <= 1
                        && let Some(Planned { aggregate, .. }) = plan.aggregates.first()
                    {
                        let seq_num = aggregate.shown() + 1;
                        cannot_fold.insert(aggregate.key.clone(), (seq_num, format!("event {seq_num}: {error}")));
                        max_events = usize::MAX;
                    }
                }
                Err(WriteError::Store(error)) => return Err(error),
            }
        }
        pending.extend(newer);
        Ok(pending)
    }

    /// The aggregates with events that the view does not show yet, without those that are suspended.
    async fn unfolded(
        &self,
        view: &View,
        aggregates: &BTreeSet<AggregateKey>,
        ranges: &BTreeMap<AggregateKey, EventRange>,
        projected: &mut Projected,
    ) -> Result<Vec<Unfolded>, StoreError> {
        let mut positions = self.views.positions(view, aggregates).await?;
        let mut to_read = Vec::new();
        for key in aggregates {
            let mut position = positions.remove(key);
            if let Some(reason) = position.as_mut().and_then(|position| position.suspended.take()) {
                tracing::debug!(aggregate = %key, projection = self.model.name(), "it is suspended");
                projected.suspend(key, reason);
                continue;
            }
            let (key, events) = (key.clone(), Vec::new());
            let unfolded = Unfolded { key, position, events, cannot_fold: None, more: false };
            projected.reached.insert(unfolded.key.clone(), unfolded.shown());
            to_read.push(unfolded);
        }
        let unfolded = stream::iter(to_read).map(async |unfolded| {
            let EventRange { known, through } = ranges.get(&unfolded.key).copied().unwrap_or_default();
            let after = unfolded.shown();
            if after >= through {
                return Ok(unfolded);
            }
            let mut page = self.events.events(&unfolded.key, after, MAX_EVENTS).await?;
            let has_later = page.items.last().is_some_and(|event| event.seq_num >= through);
            page.items.retain(|event| event.seq_num <= through);
            let unreadable = page.unreadable.iter().filter_map(|row| Some((row.seq_num()?, row)));
            let first = unreadable.filter(|(seq_num, _)| *seq_num <= through).min_by_key(|(seq_num, _)| *seq_num);
            let cannot_fold = first.map(|(seq_num, row)| (seq_num, format!("row {row}: {}", row.reason)));
            // During an append, a query may return the second event without the first, or none of them. The page is
            // then empty although more events follow.
            let more = !has_later && (page.more || page.cursor < known.min(through));
            Ok::<_, StoreError>(Unfolded { events: page.items, cannot_fold, more, ..unfolded })
        });
        let unfolded: Vec<_> = unfolded.buffered(CONCURRENCY).try_collect().await?;
        let is_behind =
            |aggregate: &Unfolded| !aggregate.events.is_empty() || aggregate.cannot_fold.is_some() || aggregate.more;
        Ok(unfolded.into_iter().filter(is_behind).collect())
    }
}

/// Waits until a call may succeed, or an event may be visible. `failures` is the number of pauses before this one.
pub(crate) async fn pause(failures: &mut u32) {
    let longest = FIRST_PAUSE * 2_u32.pow(*failures);
    *failures = (*failures + 1).min(MAX_DOUBLINGS);
    sleep(longest.mul_f64(fastrand::f64())).await;
}

/// Gives way to the other instances that change the same rows. An instance that has lost several times comes before the
/// others: with pauses that grow, rows would often be free while all instances wait, the longer the more instances there are.
async fn give_way(conflicts: &mut u32) {
    *conflicts += 1;
    let (longest, shortest) = AFTER_CONFLICTS;
    sleep((longest / *conflicts).max(shortest).mul_f64(fastrand::f64())).await;
}
