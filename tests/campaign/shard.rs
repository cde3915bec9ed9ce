//! A shard behind its event source mapping.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use daybook_event_source_mapping::{Batch, InvocationOutcome, Mapping, MappingSettings, Position, Step};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::dice::Dice;
use crate::lambda::Function;
use crate::ledger::Delivery;
use crate::log::Log;
use crate::services::{Effect, Services};
use crate::stream::{CampaignMessage, Content, MessageKind, Shard, ShardRecord};

/// The event source mapping of a shard, with everything that it needs.
pub(crate) struct Poller {
    pub(crate) clock: Clock,
    pub(crate) log: Arc<Log>,
    pub(crate) function: Function,
    pub(crate) services: Services,
    pub(crate) settings: MappingSettings,
    pub(crate) messages: Arc<Vec<CampaignMessage>>,
    pub(crate) dice: Dice,
    /// The times at which pollers start over: either at the mapping's position or at the first record.
    pub(crate) restarts: Vec<Duration>,
    /// The deadline of the delivery.
    pub(crate) deadline: Instant,
}

impl Poller {
    /// Delivers all records of the shard until all are settled.
    pub(crate) async fn run(mut self, shard: Arc<Shard>) {
        let entries: HashMap<String, Arc<ShardRecord>> = shard
            .records
            .iter()
            .map(|(_, entry)| (entry.record.sequence_number().to_string(), Arc::clone(entry)))
            .collect();
        let mut mapping = Mapping::new(self.settings.clone());
        let mut running: FuturesUnordered<BoxFuture<'static, (Batch, InvocationOutcome)>> = FuturesUnordered::new();
        let mut next = 0;
        loop {
            let now = self.clock.now();
            if self.restarts.first().is_some_and(|&at| at <= now) {
                self.restarts.remove(0);
                (mapping, next) = self.start_over(&mapping, &shard);
                // Running invocations are abandoned: they continue, and their outcomes are ignored.
                for batch in std::mem::take(&mut running) {
                    tokio::spawn(batch);
                }
            }
            while let Some((_, entry)) = shard.records.get(next).filter(|(arrival, _)| *arrival <= now) {
                mapping.push(entry.record.clone(), now).expect("numbers rise");
                next += 1;
            }
            let wake = loop {
                match mapping.poll(now) {
                    Step::Invoke(batch) => running.push(self.invoke(batch, &entries)),
                    Step::Discard(discarded) => {
                        self.log.count(&format!("discarded for {:?}", discarded.reason));
                        discarded.records.iter().for_each(|record| {
                            self.discard(&entries[&record.sequence_number().to_string()]);
                        });
                    }
                    Step::Wait { until } => break until,
                }
            };
            let arrival = shard.records.get(next).map(|(arrival, _)| *arrival);
            if arrival.is_none() && running.is_empty() && wake.is_none() {
                return;
            }
            if Instant::now() >= self.deadline {
                return self.log.violation("the shard is not done in time");
            }
            let restart = self.restarts.first().copied();
            let wake = [wake, arrival, restart].into_iter().flatten().min().map(|at| self.clock.instant(at));
            let wake = wake.map_or(self.deadline, |wake| wake.min(self.deadline));
            tokio::select! {
                biased;
                Some((batch, outcome)) = running.next(), if !running.is_empty() => {
                    mapping.settle(batch, outcome, self.clock.now());
                }
                () = sleep_until(wake) => {}
            }
        }
    }

    fn invoke(
        &self,
        batch: Batch,
        entries: &HashMap<String, Arc<ShardRecord>>,
    ) -> BoxFuture<'static, (Batch, InvocationOutcome)> {
        let deliveries = batch.records().iter().map(|record| Delivery {
            content: entries[&record.sequence_number().to_string()].content.clone(),
            json: record.json().clone(),
        });
        let deliveries = deliveries.collect();
        let function = self.function.clone();
        Box::pin(async move {
            let outcome = function.invoke(deliveries).await;
            (batch, outcome)
        })
    }

    fn discard(&self, entry: &ShardRecord) {
        match &entry.content {
            Content::SomethingElse => {}
            Content::Message(index) if self.messages[*index].kind != MessageKind::Unreadable => {
                self.services.add_effect(Effect::Discarded(*index));
            }
            Content::Message(_) | Content::Poison(_) => {
                self.services.add_effect(Effect::DiscardedRaw(entry.record.json().clone()));
            }
        }
    }

    /// A new mapping, and the record that it reads first.
    fn start_over(&mut self, mapping: &Mapping, shard: &Shard) -> (Mapping, usize) {
        let number = |at: usize| shard.records[at].1.record.sequence_number();
        let from = if self.dice.chance(0.2) {
            self.log.count("mapping restarts at the first record");
            0
        } else {
            self.log.count("mapping restarts at its position");
            let all = 0..shard.records.len();
            match mapping.position() {
                Position::Start => 0,
                Position::At(first) => all.clone().find(|&at| *number(at) == first).expect("it was pushed"),
                Position::After(last) => all.clone().find(|&at| *number(at) > last).unwrap_or(all.end),
            }
        };
        self.log.line(|| format!("a new mapping from record {from}"));
        (Mapping::new(self.settings.clone()), from)
    }
}
