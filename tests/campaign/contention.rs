//! Many writers to one aggregate: the time that each waits, in several processes and in one. The table takes about 5 ms for a call,
//! and cancels a transaction that overlaps another one of the same aggregate, as DynamoDB does and the engine does not.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_decider::{Caller, CommandRequest, Decided, DecisionInput, Folded, Json, Meta, Model, Registry};
use daybook_event_store::{
    CommandResponse, Decide, EventStore, LoadPolicy, ResponseDetail, StoreSettings, TransactError, TransactOptions,
};
use daybook_table::AggregateKey;
use daybook_test_support::engine::Engine;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use ulid::Ulid;

use crate::clock::{Clock, in_virtual_time};
use crate::database::TABLE;
use crate::network::{self, AwsCall, ConnectionLost, Reply, Service};

/// The time of a call from the client to the table, and back.
const ONE_WAY: Duration = Duration::from_millis(2);
/// The time for which a transaction holds its aggregate.
const HELD: Duration = Duration::from_millis(1);

/// A table with latency, on which transactions conflict.
#[derive(Clone, Debug)]
struct ContendedTable {
    engine: Arc<Engine>,
    /// The partitions on which a transaction is in progress.
    held: Arc<Mutex<BTreeSet<String>>>,
}

impl Service for ContendedTable {
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>> {
        let table = self.clone();
        async move {
            sleep(ONE_WAY.mul_f64(0.5 + fastrand::f64())).await;
            let reply =
                if call.operation == "TransactWriteItems" { table.transact(&call).await } else { table.call(&call) };
            sleep(ONE_WAY.mul_f64(0.5 + fastrand::f64())).await;
            Ok(reply)
        }
        .boxed()
    }
}

impl ContendedTable {
    fn new(clock: Clock) -> Self {
        Self { engine: Arc::new(Engine::in_memory(move || clock.now()).unwrap()), held: Arc::default() }
    }

    fn store(&self) -> EventStore {
        EventStore::new(&network::config(self.clone()), StoreSettings::new(TABLE))
    }

    fn call(&self, call: &AwsCall) -> Reply {
        let response = self.engine.call(&call.operation, &call.body);
        Reply { status: response.status, body: response.body }
    }

    async fn transact(&self, call: &AwsCall) -> Reply {
        let request: Value = serde_json::from_str(&call.body).unwrap();
        let items = request["TransactItems"].as_array().unwrap();
        let pk = items[0]["Update"]["Key"]["pk"]["S"].as_str().unwrap().to_owned();
        if !self.held.lock().unwrap().insert(pk.clone()) {
            let reasons: Vec<_> = items.iter().map(|_| json!({"Code": "TransactionConflict"})).collect();
            let kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
            let body = json!({"__type": kind, "message": "", "CancellationReasons": reasons});
            return Reply { status: 400, body: body.to_string() };
        }
        sleep(HELD).await;
        let reply = self.call(call);
        self.held.lock().unwrap().remove(&pk);
        reply
    }
}

/// A payment to an account.
struct Payment<'a> {
    clock: Clock,
    model: &'a dyn Model,
    id: &'a str,
    command: CommandRequest,
}

impl Decide for Payment<'_> {
    type Error = String;

    fn decide(&self, before: &Folded) -> Result<Decided, String> {
        let now = self.clock.timestamp();
        let milliseconds = u64::try_from(now.as_millisecond()).unwrap();
        let input = DecisionInput {
            now,
            seed: Ulid::from_parts(milliseconds, fastrand::u128(..)),
            meta: Meta::default(),
            epoch: 1,
            caller: Caller::anonymous(),
        };
        let commands = std::slice::from_ref(&self.command);
        self.model.decide(before, self.id, commands, &input).map_err(|error| error.to_string())
    }

    fn respond(&self, _: &Folded, decided: &Decided, _: ResponseDetail) -> Result<CommandResponse, String> {
        Ok(CommandResponse { status: 200, version: decided.after.version(), state_version: None, body: String::new() })
    }
}

/// The result of many payments.
#[derive(Debug)]
struct Measured {
    /// The times of the successful ones, in order.
    times: Vec<Duration>,
    /// The number of those that ended without success.
    contended: usize,
    /// The time of all.
    total: Duration,
}

impl Measured {
    fn percentile(&self, percent: usize) -> Duration {
        self.times[(self.times.len() - 1) * percent / 100]
    }

    fn report(&self, what: &str) {
        let throughput = self.times.len() as f64 / self.total.as_secs_f64();
        let (half, most, all) = (self.percentile(50), self.percentile(99), self.percentile(100));
        eprintln!("{what}: p50 {half:?}, p99 {most:?}, max {all:?}, {throughput:.0}/s, {} contended", self.contended);
    }
}

/// Runs clients, each of which sends a number of payments to the same account one after the other. Client `n` uses
/// process `n` modulo the number of processes.
fn measure(processes: usize, clients: usize, payments: usize, time: Duration) -> Measured {
    in_virtual_time(async {
        fastrand::seed(1);
        let clock = Clock::start();
        let table = ContendedTable::new(clock);
        let registry = aggregates::registry().unwrap();
        let key = AggregateKey::new("account", "hot");
        table.store().admin().create_table().await.unwrap();
        send(&table.store(), &registry, &key, clock, "OpenAccount", json!({}), time).await.unwrap();
        let stores: Vec<_> = (0..processes).map(|_| table.store()).collect();
        let started = Instant::now();
        let client = async |number: usize| {
            let mut times = Vec::new();
            for _ in 0..payments {
                let began = Instant::now();
                let payment = json!({"desc": "", "amount": 1});
                let store = &stores[number % processes];
                match send(store, &registry, &key, clock, "RecordTransaction", payment, time).await {
                    Ok(()) => times.push(began.elapsed()),
                    Err(TransactError::Contended | TransactError::Store(_)) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
            times
        };
        let mut times = join_all((0..clients).map(client)).await.concat();
        times.sort_unstable();
        Measured { contended: clients * payments - times.len(), times, total: started.elapsed() }
    })
}

async fn send(
    store: &EventStore,
    registry: &Registry,
    key: &AggregateKey,
    clock: Clock,
    command: &str,
    data: Value,
    time: Duration,
) -> Result<(), TransactError<String>> {
    let model = registry.get("account").unwrap();
    let command = CommandRequest { command: command.to_owned(), data: Json::of(&data).unwrap() };
    let options = TransactOptions {
        policy: LoadPolicy::Incremental,
        creates: command.command == "OpenAccount",
        expected_version: None,
        idempotency: None,
        deadline: Instant::now() + time,
    };
    let payment = Payment { clock, model, id: &key.id, command };
    store.transact(model, key, &payment, &options).await.map(drop)
}

#[test]
fn ten_processes_that_write_to_one_aggregate_all_make_progress() {
    let measured = measure(10, 10, 400, Duration::from_millis(26_500));
    measured.report("10 processes");
    assert_eq!(measured.contended, 0);
    assert!(measured.percentile(50) < Duration::from_millis(300), "{:?}", measured.percentile(50));
    assert!(measured.percentile(99) < Duration::from_millis(1_500), "{:?}", measured.percentile(99));
}

#[test]
fn requests_of_one_process_to_one_aggregate_go_by_arrival() {
    let measured = measure(1, 64, 40, Duration::from_millis(8_500));
    measured.report("64 clients of one process");
    assert_eq!(measured.contended, 0);
    // Each waits for the others, and for nothing else.
    assert!(measured.percentile(100) < 64 * 3 * (2 * ONE_WAY + HELD), "{:?}", measured.percentile(100));
}
