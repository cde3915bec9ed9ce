//! A standard queue against a FIFO queue with one group for each aggregate, as the queue of the projector: counted calls,
//! units and conflicts of the same changes.
//!
//! What AWS documents of FIFO queues: a message has one group, so it names one aggregate; a request sends up to ten
//! messages; Lambda processes one batch of a group at a time, and a batch of several groups only as the queue returns them,
//! which "first attempts to return as many messages with the same message group ID as possible".

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_admin::AdminCalls;
use daybook_event_store::{EventStore, StoreSettings};
use daybook_projector::{Projector, QueueBatch, QueueRecord, QueueResponse};
use daybook_table::{AggregateKey, ChangedAggregates};
use daybook_test_support::commands::execute;
use daybook_test_support::engine::Engine;
use daybook_view_store::ViewStore;
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::clock::{Clock, in_virtual_time};
use crate::database::TABLE;
use crate::dice::Dice;
use crate::network::{self, AwsCall, ConnectionLost, Reply, Service};
use crate::read_models::VIEWS_TABLE;

/// The time of a call from the client to the table, and back.
const ONE_WAY: Duration = Duration::from_millis(2);
/// The time for which a transaction holds its items.
const HELD: Duration = Duration::from_millis(2);
/// `MaximumConcurrency` in deploy/read-models.yaml.
const CONCURRENCY: usize = 10;
/// `BatchSize` in deploy/read-models.yaml.
const BATCH_SIZE: usize = 10;

const ACCOUNTS: usize = 40;
const ROUNDS: u64 = 10;
/// The shards of the stream, each with an invocation of the relay in each round.
const SHARDS: usize = 4;
/// The accounts that a round of a shard changes.
const CHANGED: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Standard,
    Fifo,
}

#[derive(Debug, Default)]
struct Counted {
    sqs_requests: usize,
    invocations: usize,
    calls: usize,
    read_units: f64,
    write_units: f64,
    /// Transactions that another one prevented.
    conflicts: usize,
}

/// Tables with latency, on which transactions conflict.
#[derive(Clone, Debug)]
pub(crate) struct CountedTables {
    engine: Arc<Engine>,
    held: Arc<Mutex<BTreeSet<String>>>,
    counted: Arc<Mutex<Counted>>,
    /// The time for which a transaction holds its items.
    held_for: Duration,
}

impl Service for CountedTables {
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>> {
        let tables = self.clone();
        async move {
            sleep(ONE_WAY.mul_f64(0.5 + fastrand::f64())).await;
            let mut request: Value = serde_json::from_str(&call.body).unwrap();
            request["ReturnConsumedCapacity"] = "TOTAL".into();
            let items = request["TransactItems"].as_array().cloned().unwrap_or_default();
            let keys: Vec<_> = items.iter().map(key_of).collect();
            if !tables.hold(&keys) {
                let reasons: Vec<_> = items.iter().map(|_| json!({"Code": "TransactionConflict"})).collect();
                let kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
                let body = json!({"__type": kind, "message": "", "CancellationReasons": reasons}).to_string();
                return Ok(Reply { status: 400, body });
            }
            if !keys.is_empty() {
                sleep(tables.held_for).await;
            }
            let response = tables.engine.call(&call.operation, &request.to_string());
            tables.release(&keys);
            tables.count(response.status, &response.body, !keys.is_empty());
            sleep(ONE_WAY.mul_f64(0.5 + fastrand::f64())).await;
            Ok(Reply { status: response.status, body: response.body })
        }
        .boxed()
    }
}

impl CountedTables {
    pub(crate) fn new(clock: Clock, held_for: Duration) -> Self {
        let engine = Arc::new(Engine::in_memory(move || clock.now()).unwrap());
        Self { engine, held: Arc::default(), counted: Arc::default(), held_for }
    }

    /// The number of transactions that another one prevented.
    pub(crate) fn conflicts(&self) -> usize {
        self.counted.lock().unwrap().conflicts
    }

    fn hold(&self, keys: &[String]) -> bool {
        let mut held = self.held.lock().unwrap();
        if keys.iter().any(|key| held.contains(key)) {
            let mut counted = self.counted.lock().unwrap();
            (counted.calls, counted.conflicts) = (counted.calls + 1, counted.conflicts + 1);
            return false;
        }
        held.extend(keys.iter().cloned());
        true
    }

    fn release(&self, keys: &[String]) {
        self.held.lock().unwrap().retain(|key| !keys.contains(key));
    }

    fn count(&self, status: u16, response: &str, is_write: bool) {
        let response: Value = serde_json::from_str(response).unwrap();
        let consumed = match &response["ConsumedCapacity"] {
            Value::Array(tables) => tables.as_slice(),
            one => std::slice::from_ref(one),
        };
        let units: f64 = consumed.iter().filter_map(|of| of["CapacityUnits"].as_f64()).sum();
        let mut counted = self.counted.lock().unwrap();
        counted.calls += 1;
        counted.conflicts += usize::from(status != 200);
        *if is_write { &mut counted.write_units } else { &mut counted.read_units } += units;
    }
}

fn key_of(item: &Value) -> String {
    let of = item.as_object().unwrap().values().next().unwrap();
    let key = if of["Key"].is_object() { &of["Key"] } else { &of["Item"] };
    format!("{} {}", key["pk"]["S"], key["sk"]["S"])
}

/// A message of the queue.
struct Message {
    at: Instant,
    aggregates: ChangedAggregates,
    /// Only one batch of a group is processed at a time.
    group: Option<AggregateKey>,
}

/// Projects some rounds of changes of the same accounts.
fn measure(kind: Kind) -> Counted {
    in_virtual_time(async {
        fastrand::seed(1);
        let clock = Clock::start();
        let tables = CountedTables::new(clock, HELD);
        let config = network::config(tables.clone());
        let store = EventStore::new(&config, StoreSettings::new(TABLE));
        store.admin().create_table().await.unwrap();
        ViewStore::new(&config, VIEWS_TABLE).create_table().await.unwrap();
        let registry = aggregates::registry().unwrap();
        let model = registry.get("account").unwrap();
        let mut accounts: Vec<_> = (0..ACCOUNTS).map(|id| AggregateKey::new("account", id.to_string())).collect();
        for key in &accounts {
            execute(&store, model, key, &[("OpenAccount", json!({}))]).await.unwrap();
        }
        let projector = Arc::new(Projector::new(
            projections::projections().unwrap(),
            EventStore::new(&config, StoreSettings::new(TABLE)),
            ViewStore::new(&config, VIEWS_TABLE),
        ));
        // The first invocation of an instance also reads the marks of the versions.
        project(&projector, vec![ChangedAggregates::one(AggregateKey::new("account", "none"), 0)]).await;
        let mut dice = Dice::new(1, "queue kinds");
        let mut all = Counted::default();
        for _ in 0..ROUNDS {
            let mut messages = Vec::new();
            for _ in 0..SHARDS {
                dice.shuffle(&mut accounts);
                let changed = &accounts[..CHANGED];
                for key in changed {
                    let payment = json!({"desc": "", "amount": 1});
                    execute(&store, model, key, &[("RecordTransaction", payment)]).await.unwrap();
                }
                let late = dice.milliseconds(0..=50);
                messages.extend(sent(kind, changed, late));
                all.sqs_requests += 1;
            }
            messages.sort_by_key(|message| message.at);
            *tables.counted.lock().unwrap() = Counted::default();
            let invocations = deliver(messages, &projector).await;
            let of_round = std::mem::take(&mut *tables.counted.lock().unwrap());
            all.invocations += invocations;
            // One request receives a batch, and one deletes it.
            all.sqs_requests += 2 * invocations;
            all.calls += of_round.calls;
            all.read_units += of_round.read_units;
            all.write_units += of_round.write_units;
            all.conflicts += of_round.conflicts;
        }
        all
    })
}

/// The messages of an invocation of the relay, which arrive this much later.
fn sent(kind: Kind, changed: &[AggregateKey], late: Duration) -> Vec<Message> {
    let at = Instant::now() + late;
    match kind {
        Kind::Standard => vec![Message {
            at,
            aggregates: ChangedAggregates::messages(&changed.iter().map(|key| (key.clone(), 0)).collect()).remove(0),
            group: None,
        }],
        Kind::Fifo => changed
            .iter()
            .map(|key| Message { at, aggregates: ChangedAggregates::one(key.clone(), 0), group: Some(key.clone()) })
            .collect(),
    }
}

/// Invokes projectors with the messages. Returns the number of invocations.
async fn deliver(messages: Vec<Message>, projector: &Arc<Projector>) -> usize {
    let mut waiting: VecDeque<_> = messages.into();
    let (mut running, mut busy, mut invocations) = (JoinSet::new(), BTreeSet::new(), 0);
    while !waiting.is_empty() || !running.is_empty() {
        let now = Instant::now();
        while running.len() < CONCURRENCY {
            let is_free = |message: &Message| {
                message.at <= now && message.group.as_ref().is_none_or(|group| !busy.contains(group))
            };
            let Some(first) = waiting.iter().position(is_free) else { break };
            let group = waiting[first].group.clone();
            let (mut batch, mut left) = (Vec::new(), VecDeque::new());
            for message in waiting {
                let fits = batch.len() < BATCH_SIZE && message.at <= now && message.group == group;
                if fits { batch.push(message) } else { left.push_back(message) }
            }
            waiting = left;
            busy.extend(group.clone());
            invocations += 1;
            let projector = Arc::clone(projector);
            running.spawn(async move {
                project(&projector, batch.into_iter().map(|message| message.aggregates).collect()).await;
                group
            });
        }
        let next = waiting.iter().map(|message| message.at).filter(|at| *at > now).min();
        tokio::select! {
            biased;
            Some(ended) = running.join_next(), if !running.is_empty() => {
                if let Some(group) = ended.unwrap() {
                    busy.remove(&group);
                }
            }
            () = sleep_until(next.unwrap_or(now)), if next.is_some() => {}
        }
    }
    invocations
}

async fn project(projector: &Projector, batch: Vec<ChangedAggregates>) {
    let record = |changed: ChangedAggregates| QueueRecord::new("m", changed.to_body());
    let batch = QueueBatch { records: batch.into_iter().map(record).collect() };
    let response = projector.handle(batch, Instant::now() + Duration::from_secs(30)).await;
    assert_eq!(response, QueueResponse::default());
}

#[test]
fn standard_queue_takes_fewer_calls_than_a_fifo_queue() {
    let (standard, fifo) = (measure(Kind::Standard), measure(Kind::Fifo));
    eprintln!("{} changes\nstandard: {standard:?}\nFIFO:     {fifo:?}", ROUNDS as usize * SHARDS * CHANGED);
    assert!(2 * standard.calls < fifo.calls && 2 * standard.sqs_requests < fifo.sqs_requests);
    assert!(standard.write_units < fifo.write_units);
}
