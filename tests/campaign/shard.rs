//! The shards of a stream behind the event source mapping of a function. A shard is read when its parent is finished, as
//! Lambda does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use daybook_event_source_mapping::{Batch, InvocationOutcome, Mapping, MappingSettings, RestartPoint, Step};
use futures_util::future::{BoxFuture, FutureExt, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::dice::Dice;
use crate::ledger::Delivery;
use crate::log::Log;
use crate::stream::{Shard, ShardRecord};

/// The function behind a mapping.
pub(crate) trait StreamFunction: Clone + Send + Sync + 'static {
    /// Executes one invocation.
    fn invoke(&self, records: Vec<Delivery>) -> impl Future<Output = InvocationOutcome> + Send;

    /// Receives a record that the mapping discards, as its on-failure destination does.
    fn discarded(&self, entry: &ShardRecord);
}

/// The event source mapping of a function.
#[derive(Clone)]
pub(crate) struct StreamReader<F> {
    pub(crate) seed: u64,
    /// Distinguishes the readers of a schedule.
    pub(crate) name: &'static str,
    pub(crate) clock: Clock,
    pub(crate) log: Arc<Log>,
    pub(crate) function: F,
    pub(crate) settings: MappingSettings,
    /// Whether pollers are sometimes replaced.
    pub(crate) restarts: bool,
    /// The deadline of the delivery.
    pub(crate) deadline: Instant,
}

impl<F: StreamFunction> StreamReader<F> {
    /// Delivers all records of the shards until all are settled.
    pub(crate) async fn run(self, shards: Vec<Arc<Shard>>) {
        let roots = (0..shards.len()).filter(|&number| shards[number].parent.is_none());
        let shards: Arc<[_]> = shards.iter().cloned().collect();
        let read: Vec<_> = roots.map(|root| tokio::spawn(self.clone().read(Arc::clone(&shards), root))).collect();
        join_all(read).await.into_iter().for_each(|ended| ended.unwrap());
    }

    /// Reads a shard, and then its children.
    fn read(self, shards: Arc<[Arc<Shard>]>, number: usize) -> BoxFuture<'static, ()> {
        async move {
            let mut dice = Dice::new(self.seed, &format!("{} shard {number}", self.name));
            let restarts = if self.restarts { dice.one_of(&[0, 0, 1, 3]) } else { 0 };
            let now = self.clock.now();
            let mut restarts: Vec<_> = (0..restarts).map(|_| now + dice.milliseconds(1..=60_000)).collect();
            restarts.sort_unstable();
            Poller { reader: self.clone(), dice, restarts }.run(&shards[number]).await;
            let children = (0..shards.len()).filter(|&child| shards[child].parent == Some(number));
            let read = children.map(|child| tokio::spawn(self.clone().read(Arc::clone(&shards), child)));
            join_all(read.collect::<Vec<_>>()).await.into_iter().for_each(|ended| ended.unwrap());
        }
        .boxed()
    }
}

/// The mapping's part for one shard.
struct Poller<F> {
    reader: StreamReader<F>,
    dice: Dice,
    /// The times at which pollers start over: either at the mapping's restart point or at the first record.
    restarts: Vec<Duration>,
}

impl<F: StreamFunction> Poller<F> {
    /// Delivers all records of the shard until all are settled.
    async fn run(mut self, shard: &Shard) {
        let entries: HashMap<String, Arc<ShardRecord>> = shard
            .records
            .iter()
            .map(|(_, entry)| (entry.record.sequence_number().to_string(), Arc::clone(entry)))
            .collect();
        let StreamReader { clock, deadline, .. } = self.reader;
        let mut mapping = Mapping::new(self.reader.settings.clone());
        let mut running: FuturesUnordered<BoxFuture<'static, (Batch, InvocationOutcome)>> = FuturesUnordered::new();
        let mut next = 0;
        loop {
            let now = clock.now();
            if self.restarts.first().is_some_and(|&at| at <= now) {
                self.restarts.remove(0);
                (mapping, next) = self.start_over(&mapping, shard);
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
                        self.reader.log.count(&format!("discarded for {:?}", discarded.reason));
                        discarded.records.iter().for_each(|record| {
                            self.reader.function.discarded(&entries[&record.sequence_number().to_string()]);
                        });
                    }
                    Step::Wait { until } => break until,
                }
            };
            let arrival = shard.records.get(next).map(|(arrival, _)| *arrival);
            if arrival.is_none() && running.is_empty() && wake.is_none() {
                return;
            }
            if Instant::now() >= deadline {
                return self.reader.log.violation(format!("{}: the shard is not done in time", self.reader.name));
            }
            let restart = self.restarts.first().copied();
            let wake = [wake, arrival, restart].into_iter().flatten().min().map(|at| clock.instant(at));
            let wake = wake.map_or(deadline, |wake| wake.min(deadline));
            tokio::select! {
                biased;
                Some((batch, outcome)) = running.next(), if !running.is_empty() => {
                    mapping.settle(batch, outcome, clock.now());
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
        let function = self.reader.function.clone();
        Box::pin(async move {
            let outcome = function.invoke(deliveries).await;
            (batch, outcome)
        })
    }

    /// A new mapping, and the record that it reads first.
    fn start_over(&mut self, mapping: &Mapping, shard: &Shard) -> (Mapping, usize) {
        let number = |at: usize| shard.records[at].1.record.sequence_number();
        let log = &self.reader.log;
        let from = if self.dice.chance(0.2) {
            log.count("mapping restarts at the first record");
            0
        } else {
            log.count("mapping restarts at its position");
            let all = 0..shard.records.len();
            match mapping.restart_point() {
                RestartPoint::Start => 0,
                RestartPoint::At(first) => all.clone().find(|&at| *number(at) == first).expect("it was pushed"),
                RestartPoint::After(last) => all.clone().find(|&at| *number(at) > last).unwrap_or(all.end),
            }
        };
        log.line(|| format!("a new mapping from record {from}"));
        (Mapping::new(self.reader.settings.clone()), from)
    }
}
