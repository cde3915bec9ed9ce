//! One invocation: projects the aggregates whose keys a batch of messages contains.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use daybook_decider::Aggregate;
use daybook_event_store::EventStore;
use daybook_function_runtime::{FailureCounter, QueueBatch, QueueRecord, QueueResponse, with_causes};
use daybook_projection::Projections;
use daybook_table::{AggregateKey, Changed, ChangedAggregates, keys};
use daybook_view_store::ViewStore;
use futures_util::future::{join, join_all};
use futures_util::{StreamExt, stream};
use metrics::{Unit, counter, describe_counter, describe_histogram};
use tokio::time::Instant;

use crate::target::{EventTarget, Target};
use crate::versions::{MarkChecks, VersionsProjecting};

/// The time that an invocation leaves for its response.
const MARGIN: Duration = Duration::from_secs(1);

/// Maximum aggregates whose events are handed to targets concurrently.
const CONCURRENCY: usize = 8;

const OLDEST_FAILED: &str = "OldestChangeFailed";

pub struct Projector {
    projections: Projections,
    events: EventStore,
    views: ViewStore,
    targets: Vec<Target>,
    checks: MarkChecks,
    failures: FailureCounter,
}

impl Projector {
    pub fn new(projections: Projections, events: EventStore, views: ViewStore) -> Self {
        for name in [
            "EventsProjected",
            "ProjectionRetries",
            "ChangesFailed",
            "ProjectionsFailed",
            "AggregatesSuspended",
            "TargetsFailed",
        ] {
            describe_counter!(name, Unit::Count, "");
        }
        describe_histogram!(OLDEST_FAILED, Unit::Seconds, "");
        Self {
            projections,
            views: views.with_sealing(events.sealing()),
            events,
            targets: Vec::new(),
            checks: MarkChecks::default(),
            failures: FailureCounter::new("ChangesFailed"),
        }
    }

    /// Also counts failures under this version of the function, by which a deployment is rolled back.
    pub fn with_function_version(mut self, version: Option<String>) -> Self {
        self.failures.set_version(version);
        self
    }

    /// Adds a target, which gets the events of the aggregates of type `A`. The log contains the name.
    pub fn with_target<A: Aggregate>(mut self, name: &'static str, target: impl EventTarget<A>) -> Self {
        describe_counter!("EventsHandedOver", Unit::Count, "");
        self.targets.push(Target::new(name, target));
        self
    }

    /// Folds the new events of all aggregates whose keys the batch contains, in the time until `deadline`.
    pub async fn handle(&self, batch: QueueBatch, deadline: Instant) -> QueueResponse {
        let cutoff = deadline.checked_sub(MARGIN).unwrap_or(deadline);
        let mut failed = BTreeSet::new();
        let changed = read_changed(&batch.records, &mut failed);
        self.failures.count_of_version(failed.len() as u64);
        let (unprojected, unhandled) = join(self.unfinished(&changed, cutoff), self.unhandled(&changed, cutoff)).await;
        for key in unprojected.union(&unhandled) {
            failed.extend(changed[key].sources.iter().cloned());
        }
        batch.failed(failed, OLDEST_FAILED, self.events.now().into())
    }

    /// Projects the aggregates. Returns those whose events could not all be folded into all views.
    async fn unfinished(
        &self,
        changed: &BTreeMap<AggregateKey, Changed<String>>,
        cutoff: Instant,
    ) -> BTreeSet<AggregateKey> {
        let Self { projections, events, views, checks, failures, .. } = self;
        let project = projections.names().map(|name| {
            let projecting = VersionsProjecting { projections, name, events, views, checks, failures, cutoff };
            projecting.unfinished(changed)
        });
        join_all(project).await.into_iter().flatten().collect()
    }

    /// Hands the events of the aggregates to the targets. Returns the aggregates of which a target does not have all
    /// events yet.
    async fn unhandled(
        &self,
        changed: &BTreeMap<AggregateKey, Changed<String>>,
        cutoff: Instant,
    ) -> BTreeSet<AggregateKey> {
        let of_aggregate = |(key, &Changed { last, .. }): (&AggregateKey, &Changed<String>)| {
            let key = key.clone();
            let targets = self.targets.iter().filter(|target| target.aggregate_type == key.aggregate_type);
            targets.map(|target| self.hand_over(target, key.clone(), last, cutoff)).collect::<Vec<_>>()
        };
        let runs: Vec<_> = changed.iter().flat_map(of_aggregate).collect();
        stream::iter(runs).buffer_unordered(CONCURRENCY).filter_map(std::future::ready).collect().await
    }

    /// Hands the events of an aggregate to a target, up to at least number `last`. Returns the aggregate if the target
    /// does not have all events yet.
    async fn hand_over(&self, target: &Target, key: AggregateKey, last: u64, cutoff: Instant) -> Option<AggregateKey> {
        match (target.hand_over)(&self.events, &key, last, cutoff).await {
            Ok(handed_over) => {
                counter!("EventsHandedOver").increment(handed_over.events);
                (!handed_over.finished).then_some(key)
            }
            Err(error) => {
                self.failures.count("TargetsFailed");
                // A log line has the place in the code as `target`.
                let (target_name, error) = (target.name, with_causes(&*error));
                tracing::error!(aggregate = %key, target_name, error, "the target failed");
                Some(key)
            }
        }
    }
}

/// Reads messages. Adds the ids of those that cannot be read to `failed`.
fn read_changed(messages: &[QueueRecord], failed: &mut BTreeSet<String>) -> BTreeMap<AggregateKey, Changed<String>> {
    let mut changed = BTreeMap::<AggregateKey, Changed<String>>::new();
    for QueueRecord { message_id, body, .. } in messages {
        match serde_json::from_str::<ChangedAggregates>(body) {
            Ok(of_message) => {
                for (key, last) in of_message.with_last_events() {
                    // DynamoDB would reject the reads of the other aggregates together with those of this one.
                    if !keys::is_id(&key.id) {
                        tracing::error!(message_id, aggregate = %key, "the message names no aggregate");
                        failed.insert(message_id.clone());
                        continue;
                    }
                    changed.entry(key).or_default().add(last, message_id.clone());
                }
            }
            Err(error) => {
                tracing::error!(message_id, %error, "the message cannot be read");
                failed.insert(message_id.clone());
            }
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_with_an_id_that_no_aggregate_has_does_not_stop_the_others() {
        let long = "x".repeat(3_000);
        let body = format!(r#"{{"changed":[["account","{long}",1],["account","7",2]]}}"#);
        let mut failed = BTreeSet::new();
        let changed = read_changed(&[QueueRecord::new("m1", body)], &mut failed);
        assert_eq!((failed, changed.len()), (["m1".to_owned()].into(), 1));
        assert_eq!(changed[&AggregateKey::new("account", "7")].last, 2);
    }
}
