//! The snapshotter as the second reader of the stream: while the writers go on, with any of the records so far, and later
//! behind a mapping of its own. Its processes crash, its calls of the table fail, and sometimes the table refuses all calls
//! of one aggregate in an invocation.
//!
//! A record that the function settles has its snapshot: [`check_settled`](SnapshotFunction::check_settled).

use daybook_table::keys;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_event_source_mapping::{InvocationOutcome, Record};
use daybook_event_store::{LoadOptions, StoreSettings};
use daybook_snapshotter::{BatchResponse, SequenceNumber, Snapshotter, StreamBatch};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::bell::registry;
use crate::database::{Database, TABLE};
use crate::dice::Dice;
use crate::ledger::Delivery;
use crate::process::{Crash, Process};
use crate::shard::StreamFunction;
use crate::stream::{Content, STREAM, ShardRecord};
use crate::writers::Work;

/// The time-out of the function. It is so long that no aggregate is skipped, whatever the faults of the table.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The maximum number of invocations while the writers go on.
const EARLY_INVOCATIONS: usize = 3;

/// The function.
#[derive(Clone)]
pub(crate) struct SnapshotFunction(Arc<Inner>);

struct Inner {
    work: Arc<Work>,
    /// The share of invocations with a fault.
    rate: f64,
    /// The time after which invocations have no faults.
    until: Mutex<Option<Instant>>,
    /// Whether the mapping discarded a record.
    discarded: AtomicBool,
    state: Mutex<State>,
}

struct State {
    dice: Dice,
    idle: Vec<Instance>,
}

struct Instance {
    process: Arc<Process>,
    snapshotter: Snapshotter,
}

impl SnapshotFunction {
    pub(crate) fn new(work: Arc<Work>) -> Self {
        let mut dice = Dice::new(work.seed, "snapshotter");
        let rate = dice.one_of(&[0.0, 0.5, 0.8]);
        let state = Mutex::new(State { dice, idle: Vec::new() });
        let (until, discarded) = (Mutex::default(), AtomicBool::default());
        Self(Arc::new(Inner { work, rate, until, discarded, state }))
    }

    pub(crate) fn database(&self) -> Database {
        self.0.work.database.clone()
    }

    /// Ends the faults of invocations at a time.
    pub(crate) fn end_faults_at(&self, until: Instant) {
        *self.0.until.lock().unwrap() = Some(until);
    }

    /// Invokes the function with some of the records so far, a few times. Never ends.
    pub(crate) async fn run_early(self) {
        let mut dice = Dice::new(self.0.work.seed, "early snapshots");
        for _ in 0..dice.size(1..=EARLY_INVOCATIONS) {
            sleep(dice.milliseconds(1..=400)).await;
            let records = self.0.work.database.stream();
            if records.is_empty() {
                continue;
            }
            let from = dice.size(0..=records.len() - 1);
            let count = dice.size(1..=20);
            let deliveries = records.into_iter().skip(from).take(count).map(|record| Delivery {
                content: Content::SomethingElse,
                json: Record::from_stream(record, STREAM).unwrap().json().clone(),
            });
            self.0.work.log.count("snapshots while writers go on");
            self.invoke(deliveries.collect()).await;
        }
        std::future::pending().await
    }

    /// Checks that each record that a response settles has a snapshot of its event or of a later one.
    fn check_settled(&self, records: &[Value], response: &BatchResponse) {
        let Work { database, registry, log, .. } = &*self.0.work;
        let number = |record: &Value| record["dynamodb"]["SequenceNumber"].as_str().and_then(SequenceNumber::parse);
        let is_settled =
            |record: &&Value| response.checkpoint().is_none_or(|first| number(record).as_ref() < Some(first));
        let mut due_events = BTreeMap::new();
        for (pk, event) in records.iter().filter(is_settled).filter_map(due) {
            due_events.entry(pk).and_modify(|last: &mut u64| *last = event.max(*last)).or_insert(event);
        }
        for (pk, event) in due_events {
            let (_, aggregate_type) = pk.split_once('#').unwrap();
            let model = registry.get(aggregate_type.split('#').next().unwrap()).unwrap();
            let key = json!({"pk": {"S": pk}, "sk": {"S": "#SNAPSHOT"}});
            let row = database.call("GetItem", &json!({"TableName": TABLE, "Key": key, "ConsistentRead": true}));
            let taken = number_of(&row["Item"], "lastSeqNum");
            log.expect(taken >= Some(event) || model.full_history(), || {
                format!("{pk}: the record of event {event} is settled, and the snapshot is {taken:?}")
            });
        }
    }

    /// Checks that every aggregate has the snapshots that its events made due, and that a load from a snapshot equals a
    /// load from the first event.
    pub(crate) async fn check(&self) {
        let Work { keys, database, registry, log, .. } = &*self.0.work;
        for key in keys {
            let model = registry.get(&key.aggregate_type).unwrap();
            let rows = database.rows(&keys::pk(key));
            let due = rows.iter().filter(|row| row["snapshotDue"]["BOOL"] == true);
            let due = due.filter_map(|row| number_of(row, "seqNum")).max();
            let snapshot = rows.iter().find(|row| row["sk"]["S"] == "#SNAPSHOT");
            let taken = snapshot.and_then(|row| number_of(row, "lastSeqNum"));
            let is_excused = model.full_history() || self.0.discarded.load(Ordering::Relaxed);
            log.expect(taken >= due || is_excused, || {
                format!("{key}: event {due:?} is due, and the snapshot {taken:?}")
            });
            if taken.is_none() {
                continue;
            }
            log.count("load from a snapshot");
            // Only the last event is read in addition to the snapshot.
            let settings = StoreSettings { snapshot_every: 1, ..StoreSettings::new(TABLE) };
            let store = || database.store(Arc::default(), settings.clone());
            let from_snapshot = store().load(model, key).await.unwrap();
            let from_events = store().load_with(model, key, LoadOptions::REBUILD).await.unwrap();
            let [one, other] = [&from_snapshot, &from_events]
                .map(|loaded| (loaded.version(), loaded.folded.message_seq(), loaded.state.text()));
            log.expect(one == other, || format!("{key}: from the snapshot {one:?}, from the events {other:?}"));
        }
    }
}

/// The aggregate and the event of a record that makes a snapshot due.
fn due(record: &Value) -> Option<(&str, u64)> {
    let row = &record["dynamodb"]["NewImage"];
    let is_due = record["eventName"] == "INSERT" && row["snapshotDue"]["BOOL"] == true;
    is_due.then(|| Some((row["pk"]["S"].as_str()?, number_of(row, "seqNum")?)))?
}

fn number_of(row: &Value, name: &str) -> Option<u64> {
    row[name]["N"].as_str().and_then(|text| text.parse().ok())
}

impl StreamFunction for SnapshotFunction {
    async fn invoke(&self, mut records: Vec<Delivery>) -> InvocationOutcome {
        let log = &self.0.work.log;
        let (mut crash, mut response_lost, mut unreachable) = (None, false, None);
        let instance = {
            let mut state = self.0.state.lock().unwrap();
            let until = *self.0.until.lock().unwrap();
            let State { dice, idle } = &mut *state;
            if until.is_none_or(|until| Instant::now() < until) {
                if dice.chance(self.0.rate) {
                    match dice.number(0..=4) {
                        0 => crash = Some(Crash::BeforeCall(dice.size(0..=5))),
                        1 => crash = Some(Crash::AfterCall(dice.size(0..=5))),
                        2 => crash = Some(Crash::AtPoll(dice.size(0..=12))),
                        3 => response_lost = true,
                        _ => (0..3).for_each(|_| {
                            let record = dice.one_of(&records);
                            records.insert(dice.size(0..=records.len()), record);
                        }),
                    }
                }
                let due: Vec<_> = records.iter().filter_map(|delivery| due(&delivery.json)).collect();
                if !due.is_empty() && dice.chance(self.0.rate) {
                    unreachable = Some(dice.one_of(&due).0.to_owned());
                }
            }
            idle.pop()
        };
        let instance = instance.unwrap_or_else(|| self.0.instance());
        instance.process.begin(crash);
        if let Some(pk) = unreachable.clone() {
            log.count("snapshotter cannot reach an aggregate");
            instance.process.lose_partition(pk);
        }
        let records: Vec<_> = records.into_iter().map(|delivery| delivery.json).collect();
        log.line(|| format!("snapshotter with {} records: {crash:?}, unreachable {unreachable:?}", records.len()));
        let batch: StreamBatch = serde_json::from_str(&json!({ "Records": records }).to_string()).unwrap();
        let deadline = Instant::now() + TIMEOUT;
        let Some(response) = instance.process.run(instance.snapshotter.handle(batch, deadline)).await else {
            log.count("snapshotter crash");
            return InvocationOutcome::FunctionError;
        };
        log.expect(Instant::now() < deadline, || "the snapshotter responds late".to_owned());
        self.0.state.lock().unwrap().idle.push(instance);
        if let Ok(response) = &response {
            self.check_settled(&records, response);
        }
        match response {
            Ok(_) if response_lost => InvocationOutcome::FunctionError,
            Ok(response) => InvocationOutcome::Returned(serde_json::to_string(&response).unwrap()),
            Err(_) => InvocationOutcome::FunctionError,
        }
    }

    fn discarded(&self, _: &ShardRecord) {
        self.0.discarded.store(true, Ordering::Relaxed);
    }
}

impl Inner {
    fn instance(&self) -> Instance {
        let process = Arc::new(Process::default());
        let store = self.work.database.store(Arc::clone(&process), StoreSettings::new(TABLE));
        Instance { process, snapshotter: Snapshotter::new(registry(), store) }
    }
}
