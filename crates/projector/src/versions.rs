//! The order in which the versions of a projection are folded. It ensures that readers who are switched to another
//! version still see every event that they have seen before.
//!
//! Readers get one version, the version that is read. A version *leads* (`leads_since` in its mark) if readers may be
//! switched to it, because a rebuild has filled it, or because it was read before. The projector folds an event into
//! the leading versions first, then into the version that is read, and last into the versions that are still being
//! filled, so that readers do not wait for these. The version that is read therefore shows no event that a leading
//! version does not show, even if the invocation ends between the two.
//!
//! A release that does not register a leading version, such as the previous release after a rollback, folds events that
//! this version then lacks. Before that release folds an event, it therefore records in the mark that the version
//! misses events. The version then leads no longer, and readers cannot be switched to it before the next rebuild.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use daybook_event_store::{EventStore, StoreError};
use daybook_function_runtime::{FailureCounter, with_causes};
use daybook_projection::{ProjectionModel, Projections};
use daybook_table::{AggregateKey, Changed};
use daybook_view_store::{ProjectionVersions, View, ViewStore};
use futures_util::future::join_all;
use metrics::counter;
use tokio::time::Instant;

use crate::project::{EventRange, Projected, Projecting};

/// An instance whose code registers one version of a projection reads its mark again with the first invocation after this
/// time. For example, a rebuild marks version 2 as leading at 10:00:00. An invocation that begins at 10:00:24 may not know
/// it, and ends by 10:00:54, before the rebuild compares the aggregates for the second time at 10:01:00.
const CHECK_INTERVAL: Duration = Duration::from_secs(25);

/// When an instance last read the marks of each projection of which its code registers one version.
#[derive(Debug, Default)]
pub(crate) struct MarkChecks(Mutex<BTreeMap<&'static str, Instant>>);

impl MarkChecks {
    /// Whether the marks of this projection must be read again. If so, the caller reads them and calls `checked`.
    fn is_due(&self, name: &'static str) -> bool {
        let checks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        checks.get(name).is_none_or(|at| at.elapsed() >= CHECK_INTERVAL)
    }

    fn checked(&self, name: &'static str, at: Instant) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, at);
    }
}

#[derive(Clone, Copy)]
pub(crate) struct VersionsProjecting<'a> {
    pub(crate) projections: &'a Projections,
    pub(crate) name: &'static str,
    pub(crate) events: &'a EventStore,
    pub(crate) views: &'a ViewStore,
    pub(crate) checks: &'a MarkChecks,
    pub(crate) failures: &'a FailureCounter,
    pub(crate) cutoff: Instant,
}

struct Order<'a> {
    leading: Vec<&'a dyn ProjectionModel>,
    read: &'a dyn ProjectionModel,
    filling: Vec<&'a dyn ProjectionModel>,
}

impl<'a> VersionsProjecting<'a> {
    /// Projects the aggregates whose types the projection follows, each with the number of its last known event.
    /// Returns those whose events could not all be folded into all versions.
    pub(crate) async fn unfinished(self, changed: &BTreeMap<AggregateKey, Changed<String>>) -> BTreeSet<AggregateKey> {
        let versions = self.projections.versions(self.name);
        let followed = |model: &dyn ProjectionModel| -> BTreeMap<AggregateKey, EventRange> {
            let followed = changed.iter().filter(|(key, _)| model.follows().contains(&key.aggregate_type.as_str()));
            followed
                .map(|(key, changed)| (key.clone(), EventRange { known: changed.last, ..EventRange::default() }))
                .collect()
        };
        if versions.iter().all(|model| followed(*model).is_empty()) {
            return BTreeSet::new();
        }
        let Order { leading, read, filling } = match self.order(&versions).await {
            Ok(order) => order,
            Err(error) => {
                self.failures.count("ProjectionsFailed");
                tracing::error!(projection = self.name, error = with_causes(&error), "the projection failed");
                return versions.iter().flat_map(|model| followed(*model).into_keys()).collect();
            }
        };
        let mut unfinished = BTreeSet::new();
        let mut to_read = followed(read);
        for led in join_all(leading.iter().map(|model| self.project(*model, followed(*model)))).await {
            // Events that a leading version does not show yet must wait. Events that are appended in the meantime have
            // messages of their own.
            to_read.retain(|key, _| !led.unfinished.contains(key));
            for (key, reached) in led.reached {
                to_read.entry(key).and_modify(|range| range.through = reached.min(range.through));
            }
            unfinished.extend(led.unfinished);
        }
        unfinished.extend(self.project(read, to_read).await.unfinished);
        let filled = join_all(filling.iter().map(|model| self.project(*model, followed(*model)))).await;
        unfinished.extend(filled.into_iter().flat_map(|projected| projected.unfinished));
        unfinished
    }

    /// The order of the versions. Reads the pointer and the marks: each time if there are several versions, and
    /// otherwise only if the last read was [`CHECK_INTERVAL`] ago.
    async fn order(&self, versions: &[&'a dyn ProjectionModel]) -> Result<Order<'a>, StoreError> {
        if let [only] = versions {
            if self.checks.is_due(self.name) {
                let at = Instant::now();
                self.mark_others(&self.views.projection_versions(self.name).await?).await?;
                self.checks.checked(self.name, at);
            }
            return Ok(Order { leading: Vec::new(), read: *only, filling: Vec::new() });
        }
        let stored = self.views.projection_versions(self.name).await?;
        self.mark_others(&stored).await?;
        let pointer = stored.pointer.map(|pointer| pointer.version);
        let read = self.projections.read_version(self.name, pointer).expect("the name has versions");
        if pointer.is_some_and(|pointer| pointer != read.version()) {
            tracing::warn!(projection = self.name, pointer, read = read.version(), "the pointer names another version");
        }
        let others = versions.iter().copied().filter(|model| model.version() != read.version());
        let leads = |model: &&dyn ProjectionModel| {
            stored.marks.get(&model.version()).is_some_and(|mark| mark.leads_since.is_some())
        };
        let (leading, filling) = others.partition(leads);
        Ok(Order { leading, read, filling })
    }

    /// Records that versions which this code does not register may lack events: this code folds events into its own
    /// versions only.
    async fn mark_others(&self, stored: &ProjectionVersions) -> Result<(), StoreError> {
        for (&version, mark) in &stored.marks {
            let is_recorded = mark.missed_since.is_some() && mark.leads_since.is_none();
            if !is_recorded && self.projections.get(self.name, version).is_none() {
                tracing::warn!(
                    projection = self.name,
                    version,
                    "this release does not have the version, which may lack events"
                );
                self.views.miss_events(&View::new(self.name, version), self.events.now()).await?;
            }
        }
        Ok(())
    }

    /// Projects the aggregates into one version, and reports the result as metrics and log lines.
    async fn project(&self, model: &dyn ProjectionModel, aggregates: BTreeMap<AggregateKey, EventRange>) -> Projected {
        if aggregates.is_empty() {
            return Projected::default();
        }
        let (projection, version) = (model.name(), model.version());
        let projecting = Projecting { model, events: self.events, views: self.views };
        match projecting.project(aggregates.clone(), self.cutoff).await {
            Ok(projected) => {
                counter!("EventsProjected").increment(projected.events);
                counter!("ProjectionRetries").increment(projected.retries);
                for (aggregate, reason) in &projected.suspended {
                    self.failures.count("AggregatesSuspended");
                    tracing::error!(%aggregate, projection, version, reason, "suspended");
                }
                projected
            }
            Err(error) => {
                self.failures.count("ProjectionsFailed");
                tracing::error!(projection, version, error = with_causes(&error), "the projection failed");
                Projected { unfinished: aggregates.into_keys().collect(), ..Projected::default() }
            }
        }
    }
}
