//! The table's stream while the writers go on, and the relay behind its mapping. Records of different items arrive in any
//! order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_event_source_mapping::{Batch, InvocationOutcome, Mapping, MappingSettings, Record, RecordFilter, Step};
use daybook_stream_relay::{BatchResponse, Relay, RelaySettings, SequenceNumber, StreamBatch, clients};
use daybook_table::{AggregateKey, ChangedAggregates, keys};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::database::TABLE;
use crate::dice::Dice;
use crate::hint_queue::{HintQueue, Hints, URL};
use crate::ledger::retry_policy;
use crate::network;
use crate::process::{Crash, Process};
use crate::stream::STREAM;
use crate::torn::TornTables;
use crate::writers::Work;

/// The filters of the template: of messages, of changes and of deadlines.
const FILTERS: [&str; 3] = [
    r#"{"eventName":["INSERT"],"dynamodb":{"Keys":{"sk":{"S":[{"prefix":"OUTBOX#"}]}}}}"#,
    r##"{"eventName":["INSERT","MODIFY"],"dynamodb":{"Keys":{"sk":{"S":["#METADATA"]}}}}"##,
    r##"{"eventName":["INSERT","MODIFY"],"dynamodb":{"Keys":{"sk":{"S":[{"prefix":"DEADLINE#"}]}},"NewImage":{"soon":{"BOOL":[true]}}}}"##,
];

/// The stream.
pub(crate) struct LiveStream {
    work: Arc<Work>,
    queue: HintQueue,
    /// The time at which the faults end.
    until: Instant,
    dice: Dice,
    settings: MappingSettings,
    /// Milliseconds for which a record may be late.
    lateness: u64,
    /// The share of invocations with a fault.
    rate: f64,
    timeout: Duration,
    tables: Arc<TornTables>,
    /// Where the stream goes on, and the number of records before.
    iterator: Option<Value>,
    taken: usize,
    /// Whether there may be new records.
    has_more: bool,
    /// By the time of their arrival.
    arriving: BTreeMap<(Duration, usize), Value>,
    /// The last time of arrival for each item.
    latest: BTreeMap<String, Duration>,
    relays: Arc<Mutex<Vec<Instance>>>,
}

/// A process with a relay.
struct Instance {
    process: Arc<Process>,
    relay: Relay,
    /// The event ids of the records whose hints the queue accepted from it.
    queued: BTreeSet<String>,
}

type Running = FuturesUnordered<BoxFuture<'static, (usize, Batch, InvocationOutcome)>>;

impl LiveStream {
    pub(crate) fn new(work: &Arc<Work>, queue: &HintQueue, tables: &Arc<TornTables>, until: Instant) -> Self {
        let mut dice = Dice::new(work.seed, "live stream");
        let mut filter = RecordFilter::default();
        let messages = if dice.chance(0.5) { Some(FILTERS[0]) } else { None };
        let hints = match queue.hints() {
            Hints::Changes => &FILTERS[1..2],
            Hints::Deadlines => &FILTERS[2..],
            Hints::Reactions => &FILTERS[1..],
        };
        messages.iter().chain(hints).for_each(|pattern| filter.add(pattern).unwrap());
        let timeout = Duration::from_millis(dice.one_of(&[1_500, 1_500, 10_000, 60_000]));
        // The messages of an aggregate are sent one after the other. An invocation must have time for a whole batch of them.
        let longest = if timeout < Duration::from_secs(10) { 5 } else { 100 };
        let settings = MappingSettings {
            batch_size: dice.one_of(&[1, 1, 3, 10, 100]).min(longest),
            bisect_batch_on_function_error: dice.chance(0.5),
            maximum_retry_attempts: if dice.chance(0.85) { None } else { Some(1) },
            report_batch_item_failures: true,
            filter,
            ..MappingSettings::default()
        };
        Self {
            lateness: dice.one_of(&[0, 5, 50, 1_000]),
            rate: dice.one_of(&[0.0, 0.2, 0.5]),
            timeout,
            work: Arc::clone(work),
            queue: queue.clone(),
            until,
            dice,
            settings,
            tables: Arc::clone(tables),
            iterator: None,
            taken: 0,
            has_more: true,
            arriving: BTreeMap::new(),
            latest: BTreeMap::new(),
            relays: Arc::default(),
        }
    }

    /// Runs writers, and delivers the records until all are settled. The faults of the table end with the writers.
    pub(crate) async fn run(self, writers: impl Future<Output = ()>) {
        let (written, database, until) = (Notify::new(), self.work.database.clone(), self.until);
        let write = async {
            writers.await;
            sleep_until(until).await;
            database.stop_faults();
            // Calls that were sent still arrive.
            sleep(Duration::from_secs(60)).await;
            written.notify_one();
        };
        tokio::join!(write, self.deliver(&written));
    }

    /// Delivers the records until `written` says that there are no more, and all are settled.
    async fn deliver(mut self, written: &Notify) {
        let clock = self.work.clock;
        let mut mappings: Vec<_> = (0..self.dice.size(1..=2)).map(|_| Mapping::new(self.settings.clone())).collect();
        let (mut running, mut ends, mut number) = (Running::new(), false, 0_u64);
        loop {
            self.take_records();
            let now = clock.now();
            while let Some(first) = self.arriving.first_entry().filter(|entry| entry.key().0 <= now) {
                number += 1;
                let mut record = first.remove();
                record["dynamodb"]["SequenceNumber"] = number.to_string().into();
                record["eventID"] = format!("live-{number}").into();
                let pk = record["dynamodb"]["Keys"]["pk"]["S"].as_str().unwrap();
                let shard = pk.bytes().map(usize::from).sum::<usize>() % mappings.len();
                mappings[shard].push(Record::from_stream(record, STREAM).unwrap(), now).unwrap();
            }
            let mut wake = self.arriving.first_key_value().map(|((at, _), _)| *at);
            for (shard, mapping) in mappings.iter_mut().enumerate() {
                let until = loop {
                    match mapping.poll(now) {
                        Step::Invoke(batch) => running.push(self.invoke(shard, batch)),
                        Step::Discard(discarded) => {
                            self.work.log.count("change discarded by the mapping");
                            // An operator sends them.
                            let moved = discarded.records.iter().filter_map(|record| moved_aggregate(record.json()));
                            for message in ChangedAggregates::messages(&moved.map(|key| (key, 0)).collect()) {
                                self.queue.send(message.to_body(), Duration::from_secs(20));
                            }
                        }
                        Step::Wait { until } => break until,
                    }
                };
                wake = [wake, until].into_iter().flatten().min();
            }
            let is_idle = running.is_empty() && mappings.iter().all(|mapping| mapping.outstanding().0 == 0);
            if ends && is_idle && self.arriving.is_empty() {
                return;
            }
            let wake = wake.map_or(Instant::now() + Duration::from_secs(60), |wake| clock.instant(wake));
            tokio::select! {
                biased;
                Some((shard, batch, outcome)) = running.next(), if !running.is_empty() => {
                    mappings[shard].settle(batch, outcome, clock.now());
                }
                () = self.tables.visible.notified() => self.has_more = true,
                () = written.notified(), if !ends => ends = true,
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Takes the new records, once all items of their transactions are visible. Each arrives after the earlier ones of its
    /// item.
    fn take_records(&mut self) {
        if !self.has_more || self.tables.hides_items_of(TABLE) {
            return;
        }
        self.has_more = false;
        let now = self.work.clock.now();
        for record in self.work.database.stream_from(&mut self.iterator) {
            self.taken += 1;
            if !self.settings.filter.matches(&record) {
                continue;
            }
            let item = self.latest.entry(record["dynamodb"]["Keys"].to_string()).or_default();
            *item = (*item).max(now + self.dice.milliseconds(0..=self.lateness));
            self.arriving.insert((*item, self.taken), record);
        }
    }

    fn invoke(&mut self, shard: usize, batch: Batch) -> BoxFuture<'static, (usize, Batch, InvocationOutcome)> {
        let is_faulty = Instant::now() < self.until && self.dice.chance(self.rate);
        let (mut crash, mut response_lost) = (None, false);
        let mut records: Vec<_> = batch.records().iter().map(|record| record.json().clone()).collect();
        if is_faulty {
            match self.dice.number(0..=5) {
                0 => crash = Some(Crash::BeforeCall(self.dice.size(0..=3))),
                1 => crash = Some(Crash::AfterCall(self.dice.size(0..=3))),
                2 => crash = Some(Crash::AtPoll(self.dice.size(0..=8))),
                3 => response_lost = true,
                4 => self.dice.shuffle(&mut records),
                _ => records.insert(self.dice.size(0..=records.len()), self.dice.one_of(&records)),
            }
        }
        let mut instance = self.relays.lock().unwrap().pop().unwrap_or_else(|| self.instance());
        let (work, queue) = (Arc::clone(&self.work), self.queue.clone());
        let (relays, timeout) = (Arc::clone(&self.relays), self.timeout);
        async move {
            instance.process.begin(crash);
            let began = Instant::now();
            let payload = json!({ "Records": records }).to_string();
            let payload: StreamBatch = serde_json::from_str(&payload).unwrap();
            let handled = instance.process.run(instance.relay.handle(payload, began + timeout));
            let outcome = match tokio::time::timeout(timeout, handled).await.ok().flatten() {
                Some(Ok(response)) => {
                    check_settled(&work, &queue, &records, &response, began, &mut instance.queued);
                    relays.lock().unwrap().push(instance);
                    match response_lost {
                        true => InvocationOutcome::FunctionError,
                        false => InvocationOutcome::Returned(serde_json::to_string(&response).unwrap()),
                    }
                }
                Some(Err(_)) => InvocationOutcome::FunctionError,
                None => {
                    work.log.count("ringing relay crash");
                    InvocationOutcome::FunctionError
                }
            };
            work.log.line(|| format!("relay with {} records: {outcome:?}", records.len()));
            (shard, batch, outcome)
        }
        .boxed()
    }

    fn instance(&self) -> Instance {
        let process = Arc::new(Process::default());
        let config = network::config(self.queue.connection(Arc::clone(&process)));
        let settings = RelaySettings {
            event_bus_name: "main".into(),
            event_source: "daybook".into(),
            dlq_url: "http://in.process/1/dlq".into(),
            retry: retry_policy(),
        };
        let relay = Relay::new(clients::eventbridge(&config), clients::sqs(&config), settings);
        let clock = self.work.clock;
        let (hints, sqs) = (self.queue.hints(), clients::sqs(&config));
        let relay =
            if hints == Hints::Deadlines { relay } else { relay.with_changes_queue(sqs.clone(), URL.to_owned()) };
        let relay = if hints == Hints::Changes { relay } else { relay.with_reactions_queue(sqs, URL.to_owned()) };
        let relay = relay.with_clock(daybook_table::Clock::new(move || clock.timestamp()));
        Instance { process, relay, queued: BTreeSet::new() }
    }
}

/// Checks that the queue has accepted the hint of each record that a response settles, from this process.
fn check_settled(
    work: &Work,
    queue: &HintQueue,
    records: &[Value],
    response: &BatchResponse,
    began: Instant,
    queued: &mut BTreeSet<String>,
) {
    let number = |record: &Value| record["dynamodb"]["SequenceNumber"].as_str().and_then(SequenceNumber::parse);
    let is_settled = |record: &&Value| response.checkpoint().is_none_or(|first| number(record).as_ref() < Some(first));
    for record in records {
        let Some(hint) = hint(record) else { continue };
        let event_id = record["eventID"].as_str().unwrap();
        if queue.accepted(&hint).is_some_and(|at| at >= began) {
            queued.insert(event_id.to_owned());
        }
        let is_queued = !is_settled(&record) || queued.contains(event_id);
        work.log.expect(is_queued, || format!("the record of {hint} is settled, and the queue has not accepted it"));
    }
}

/// The change or the deadline that a record is about.
fn hint(record: &Value) -> Option<String> {
    let row = &record["dynamodb"]["NewImage"];
    let name = keys::deadline_name(row["sk"]["S"].as_str()?);
    let key = keys::aggregate_of_pk(row["pk"]["S"].as_str()?)?;
    let deadline = || Some(format!("{key} {name} {}", row["due"]["S"].as_str()?.parse::<Timestamp>().unwrap()));
    moved_aggregate(record).map(|moved| moved.to_string()).or_else(deadline)
}

/// The aggregate whose metadata a record is about.
fn moved_aggregate(record: &Value) -> Option<AggregateKey> {
    let keys = &record["dynamodb"]["Keys"];
    (keys["sk"]["S"] == "#METADATA").then(|| keys::aggregate_of_pk(keys["pk"]["S"].as_str()?))?
}
