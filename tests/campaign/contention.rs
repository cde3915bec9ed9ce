//! Many writers to one aggregate: the time that each waits, in several processes and in one. The table takes about 5 ms for a
//! call, and cancels a transaction that overlaps another one of the same aggregate, as DynamoDB does and the engine does not.
//!
//! The store lets each process change its rate. What plain random pauses did instead, measured once:
//!
//! | | rates | pauses of 33 ms on average | of 100 ms |
//! |---|---|---|---|
//! | writes of a process whose calls take ten times as long, of those of the other | 61 % | 8 % | 31 % |
//! | transactions a write, eight processes | 1.39 | 2.03 | 1.39 |
//! | transactions a write, ten processes | 1.48 | – | 1.59 |
//! | appends a second, two processes | 15 | 37 | 19 |

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_admin::AdminCalls;
use daybook_event_store::{EventStore, StoreSettings, TransactError};
use daybook_test_support::engine::Engine;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use suite_tests::scale::{Command, HotAggregate};
use tokio::time::{Instant, interval, sleep, timeout};

use crate::account::Account;
use crate::clock::{Clock, in_virtual_time};
use crate::database::TABLE;
use crate::network::{self, AwsCall, ConnectionLost, Reply, Service};

/// The time of a call from the client to the table, and back.
const ONE_WAY: Duration = Duration::from_millis(2);
/// The time for which a transaction holds its aggregate.
const HELD: Duration = Duration::from_millis(1);

/// The idempotency keys of requests that are repeated.
const USED: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// A table with latency, on which transactions conflict.
#[derive(Clone, Debug)]
struct ContendedTable {
    engine: Arc<Engine>,
    /// The partitions on which a transaction is in progress.
    held: Arc<Mutex<BTreeSet<String>>>,
    cost: Arc<Mutex<Cost>>,
    /// How many times longer the calls of this process take than those of others.
    latency: u32,
}

/// What the transactions cost. Those that are cancelled cost the table's units too.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    transactions: usize,
    units: usize,
}

impl Service for ContendedTable {
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>> {
        let table = self.clone();
        // The table goes on with a call whose sender does not wait any more.
        let call = tokio::spawn(async move {
            sleep(table.one_way()).await;
            let reply =
                if call.operation == "TransactWriteItems" { table.transact(&call).await } else { table.call(&call) };
            sleep(table.one_way()).await;
            Ok(reply)
        });
        call.map(|reply| reply.expect("the table does not panic")).boxed()
    }
}

impl ContendedTable {
    fn new(clock: Clock) -> Self {
        Self {
            engine: Arc::new(Engine::in_memory(move || clock.now()).unwrap()),
            held: Arc::default(),
            cost: Arc::default(),
            latency: 1,
        }
    }

    fn store(&self) -> EventStore {
        EventStore::new(&network::config(self.clone()), StoreSettings::new(TABLE))
    }

    fn one_way(&self) -> Duration {
        let milliseconds = (self.latency * ONE_WAY).mul_f64(0.5 + fastrand::f64()).as_secs_f64() * 1_000.0;
        // In whole milliseconds with the same average: a timer of the runtime would round each up.
        Duration::from_millis((milliseconds + fastrand::f64()) as u64)
    }

    fn call(&self, call: &AwsCall) -> Reply {
        let response = self.engine.call(&call.operation, &call.body);
        Reply { status: response.status, body: response.body }
    }

    async fn transact(&self, call: &AwsCall) -> Reply {
        let request: Value = serde_json::from_str(&call.body).unwrap();
        let items = request["TransactItems"].as_array().unwrap();
        let pk = items[0]["Update"]["Key"]["pk"]["S"].as_str().unwrap().to_owned();
        let charge = |transactions, units| {
            let mut cost = self.cost.lock().unwrap();
            cost.transactions += transactions;
            cost.units += units;
        };
        // Every item is smaller than 1 KB.
        charge(1, 2 * items.len());
        if !self.held.lock().unwrap().insert(pk.clone()) {
            let reasons: Vec<_> = items.iter().map(|_| json!({"Code": "TransactionConflict"})).collect();
            let kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
            let body = json!({"__type": kind, "message": "", "CancellationReasons": reasons});
            return Reply { status: 400, body: body.to_string() };
        }
        sleep(HELD).await;
        let reply = self.call(call);
        if reply.status == 200 {
            // The index of the events.
            charge(0, items.len() - 1);
        }
        self.held.lock().unwrap().remove(&pk);
        reply
    }
}

/// A new table with an open account, to which all clients write. The seed decides on latencies and pauses.
async fn open_account(seed: u64) -> (ContendedTable, Account) {
    fastrand::seed(seed);
    let clock = Clock::start();
    let table = ContendedTable::new(clock);
    let store = table.store();
    store.admin().create_table().await.unwrap();
    let account = Account::open(&store, clock, "hot").await;
    *table.cost.lock().unwrap() = Cost::default();
    (table, account)
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
    cost: Cost,
}

impl Measured {
    fn percentile(&self, percent: usize) -> Duration {
        self.times[(self.times.len() - 1) * percent / 100]
    }

    /// Write units for each accepted command.
    fn units(&self) -> f64 {
        self.cost.units as f64 / self.times.len() as f64
    }

    /// Transactions for each accepted command.
    fn transactions(&self) -> f64 {
        self.cost.transactions as f64 / self.times.len() as f64
    }

    /// Accepted commands in a second.
    fn throughput(&self) -> f64 {
        self.times.len() as f64 / self.total.as_secs_f64()
    }

    fn report(&self, what: &str) {
        let (half, most, all) = (self.percentile(50), self.percentile(99), self.percentile(100));
        let (throughput, transactions, units) = (self.throughput(), self.transactions(), self.units());
        let contended = self.contended;
        eprintln!(
            "{what}: p50 {half:?}, p99 {most:?}, max {all:?}, {throughput:.0}/s, {transactions:.2} transactions and \
             {units:.2} write units a command, {contended} contended"
        );
    }
}

/// Runs clients, each of which sends a number of payments to the same account one after the other. Client `n` uses
/// process `n` modulo the number of processes.
fn measure(processes: usize, clients: usize, payments: usize, time: Duration) -> Measured {
    measure_beside(0, processes, clients, payments, time)
}

/// The same beside so many repetitions a second of requests whose idempotency keys were used, in the first process.
fn measure_beside(repetitions: u32, processes: usize, clients: usize, payments: usize, time: Duration) -> Measured {
    in_virtual_time(async {
        let (table, account) = open_account(1).await;
        let stores: Vec<_> = (0..processes).map(|_| table.store()).collect();
        let repeat = async |key| account.pay_with(Some(key), &stores[0], time).await.unwrap();
        let mut versions = Vec::new();
        for key in USED.into_iter().filter(|_| repetitions > 0) {
            versions.push((key, repeat(key).await));
        }
        *table.cost.lock().unwrap() = Cost::default();
        let repeating = async {
            let Some(every) = Duration::from_secs(1).checked_div(repetitions) else { return pending().await };
            let (mut interval, mut repeated, mut next) =
                (interval(every), FuturesUnordered::new(), versions.iter().cycle());
            loop {
                tokio::select! {
                    biased;
                    Some((version, first)) = repeated.next() => assert_eq!(version, first, "a request was executed again"),
                    _ = interval.tick() => {
                        let &(key, first) = next.next().expect("a key was used");
                        repeated.push(repeat(key).map(move |version| (version, first)));
                    }
                }
            }
        };
        let started = Instant::now();
        let client = async |number: usize| {
            let mut times = Vec::new();
            for _ in 0..payments {
                let began = Instant::now();
                match account.pay(&stores[number % processes], time).await {
                    Ok(_) => times.push(began.elapsed()),
                    Err(TransactError::Contended | TransactError::Store(_)) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
            times
        };
        let mut times = tokio::select! {
            biased;
            times = join_all((0..clients).map(client)) => times.concat(),
            () = repeating => unreachable!("it never ends"),
        };
        times.sort_unstable();
        let cost = *table.cost.lock().unwrap();
        Measured { contended: clients * payments - times.len(), times, total: started.elapsed(), cost }
    })
}

/// Compares the result with that of the simulation.
fn assert_as_simulated(measured: &Measured, processes: usize, clients: usize, payments: usize) {
    let parameters = HotAggregate {
        processes: u32::try_from(processes).unwrap(),
        requests: u32::try_from(clients / processes).unwrap(),
        commands: u32::try_from(payments).unwrap(),
        command: Command { data: 256, messages: 0 },
    };
    let simulated = parameters.simulate();
    let assert_near = |what: &str, measured: f64, simulated: f64, difference: f64| {
        let is_near = (measured - simulated).abs() <= difference * measured;
        assert!(is_near, "{what} of {processes} processes: measured {measured}, simulated {simulated}");
    };
    assert_near("transactions", measured.transactions(), simulated.transactions_per_command(), 0.08);
    assert_near("write units", measured.units(), simulated.units_per_command(), 0.08);
    // Two processes either slow each other down all the time, or have the aggregate in turns.
    if processes != 2 {
        assert_near("throughput", measured.throughput(), simulated.throughput(), 0.3);
    }
}

/// The part of one process in a time of writing.
#[derive(Clone, Debug, Default)]
struct Part {
    /// The requests of each client that were stored.
    stored: usize,
    refused: usize,
    longest: Duration,
}

/// The time that two processes take to notice each other.
const NOTICED: Duration = Duration::from_secs(2);
/// The time of writing afterwards. In less, their parts depend on chance.
const WRITING: Duration = Duration::from_secs(8);

/// Runs processes for a time after they have noticed each other. Each has a latency and a number of clients, which send one
/// payment after the other.
fn compete(processes: [(u32, usize); 2]) -> [Part; 2] {
    in_virtual_time(async {
        let (table, account) = &open_account(1).await;
        let begin = Instant::now() + NOTICED;
        let end = begin + WRITING;
        let run = async |(latency, clients): (u32, usize)| {
            let store = &ContendedTable { latency, ..table.clone() }.store();
            let part = Mutex::new(Part::default());
            let client = async || {
                while Instant::now() < end {
                    let began = Instant::now();
                    let sent = account.pay(store, Duration::from_millis(8_500)).await;
                    let mut part = part.lock().unwrap();
                    part.longest = part.longest.max(began.elapsed());
                    match sent {
                        Ok(_) => part.stored += usize::from(began > begin),
                        Err(TransactError::Contended) => part.refused += 1,
                        Err(error) => panic!("{error:?}"),
                    }
                }
            };
            join_all((0..clients).map(|_| client())).await;
            let part = part.into_inner().unwrap();
            Part { stored: part.stored / clients, ..part }
        };
        let [first, second] = processes;
        let (first, second) = tokio::join!(run(first), run(second));
        let transactions = table.cost.lock().unwrap().transactions;
        eprintln!("{processes:?}: {first:?}, {second:?}, {transactions} transactions");
        [first, second]
    })
}

#[test]
fn slow_process_gets_its_share_beside_a_fast_one_and_many_clients_beside_one() {
    // The latency and clients of each process, and the least share of the process with fewer writes.
    let cases = [
        ([(1, 1), (1, 1)], 0.6),
        ([(1, 1), (3, 1)], 0.5),
        ([(1, 1), (10, 1)], 0.25),
        ([(1, 1), (1, 16)], 0.5),
        ([(1, 16), (1, 16)], 0.5),
    ];
    for (processes, least) in cases {
        let [first, second] = compete(processes);
        let share = second.stored as f64 / first.stored as f64;
        assert!((least..=1.0 / least).contains(&share), "{processes:?}: {share}");
        assert_eq!(first.refused + second.refused, 0, "{processes:?}");
        let longest = first.longest.max(second.longest);
        assert!(longest < Duration::from_secs(4), "{processes:?}: {longest:?}");
    }
}

#[test]
fn processes_that_write_to_one_aggregate_waste_little_and_all_make_progress() {
    for (processes, payments, most_transactions) in
        [(1, 50, 1.0), (2, 200, 1.5), (8, 100, 1.5), (10, 100, 1.5), (64, 15, 3.5)]
    {
        let measured = measure(processes, processes, payments, Duration::from_millis(26_500));
        measured.report(&format!("{processes} processes"));
        assert_eq!(measured.contended, 0, "{processes}");
        let transactions = measured.transactions();
        assert!(transactions <= most_transactions, "{processes}: {transactions}");
        // Five units for the transaction that is stored, and four for each one that is cancelled.
        assert!((measured.units() - (5.0 + 4.0 * (transactions - 1.0))).abs() < 0.001, "{processes}");
        assert_as_simulated(&measured, processes, processes, payments);
        let (half, most) = (measured.percentile(50), measured.percentile(99));
        // Two processes have the aggregate for themselves for a while, in turns.
        assert!(processes < 8 || most <= 10 * half, "{processes}: {half:?}, {most:?}");
    }
}

#[test]
fn requests_of_one_process_to_one_aggregate_go_by_arrival() {
    let alone = measure(1, 1, 40, Duration::from_millis(8_500));
    alone.report("1 client");
    assert_eq!((alone.transactions(), alone.units()), (1.0, 5.0));
    let measured = measure(1, 64, 40, Duration::from_millis(8_500));
    measured.report("64 clients of one process");
    assert_eq!(measured.contended, 0);
    assert_as_simulated(&measured, 1, 64, 40);
    // Each waits for the append in progress, and is part of the next one.
    assert!(measured.percentile(100) < 3 * 3 * (2 * ONE_WAY + HELD), "{:?}", measured.percentile(100));
    assert!(measured.throughput() >= 10.0 * alone.throughput(), "{} {}", measured.throughput(), alone.throughput());
    assert!(measured.units() <= 3.4, "{}", measured.units());
}

#[test]
fn repeated_requests_leave_other_writers_of_the_aggregate_most_of_their_rate() {
    let measure = |repetitions| {
        let measured = measure_beside(repetitions, 1, 16, 200, Duration::from_millis(8_500));
        measured.report(&format!("16 clients of one process beside {repetitions} repetitions a second"));
        measured
    };
    let alone = measure(0).throughput();
    for repetitions in [100, 400, 800] {
        let beside = measure(repetitions);
        assert_eq!(beside.contended, 0);
        assert!(beside.throughput() >= 0.6 * alone, "{repetitions}: {} {alone}", beside.throughput());
        assert!(beside.units() <= 9.0, "{repetitions}: {}", beside.units());
    }
}

#[test]
fn cancelled_and_hurried_requests_of_one_process_take_no_other_with_them() {
    const REQUESTS: usize = 24;
    for seed in 0..100 {
        in_virtual_time(async {
            let (table, account) = open_account(seed).await;
            let store = table.store();
            let patient = Duration::from_secs(8);
            let request = async |number: usize| {
                sleep(Duration::from_micros(fastrand::u64(0..20_000))).await;
                let time = if number.is_multiple_of(3) { Duration::from_millis(fastrand::u64(0..10)) } else { patient };
                let sending = account.pay(&store, time);
                let limit = Duration::from_micros(fastrand::u64(0..15_000));
                match number % 4 {
                    0 => timeout(limit, sending).await.ok(),
                    _ => Some(sending.await),
                }
            };
            let sent = join_all((0..REQUESTS).map(request)).await;
            let mut versions = BTreeSet::new();
            for (number, sent) in sent.into_iter().enumerate() {
                match sent {
                    Some(Ok(version)) => assert!(versions.insert(version), "{seed}: {number} got {version} too"),
                    None => {}
                    Some(Err(TransactError::Contended)) if number.is_multiple_of(3) => {}
                    Some(Err(error)) => panic!("{seed}: {number}: {error:?}"),
                }
            }
            let stored = table.store().load(account.model(), &account.key).await.unwrap().version();
            assert!(versions.iter().all(|version| (2..=stored).contains(version)), "{seed}: {stored}, {versions:?}");
            // Only the cancelled requests may have been stored without a response.
            let without = usize::try_from(stored).unwrap() - 1 - versions.len();
            assert!(without <= REQUESTS / 4, "{seed}: {without}");
            assert!(table.cost.lock().unwrap().transactions < REQUESTS, "{seed}");
        });
    }
}

/// A table in which a request meets two commits of another process: appends on version 3 and later on version 4 fail, because
/// events are visible before the metadata. In between, DynamoDB throttles for longer than a transaction takes to commit.
#[derive(Debug)]
struct TwoCommits {
    table: ContendedTable,
    begun: Instant,
    attempts: Mutex<BTreeMap<String, usize>>,
}

impl TwoCommits {
    const THROTTLED: Duration = Duration::from_millis(1_200);

    /// The response to an append that fails.
    fn failure(&self, request: &Value) -> Option<(&'static str, Value)> {
        let before = request.pointer("/TransactItems/0/Update/ExpressionAttributeValues/:before/N")?.as_str()?;
        let mut attempts = self.attempts.lock().unwrap();
        let attempt = attempts.entry(before.to_owned()).or_default();
        *attempt += 1;
        match (before, *attempt) {
            ("3", 1..=2) | ("4", 1) => {
                let actual = if before == "3" { "2" } else { "3" };
                let metadata = json!({"currentSeqNum": {"N": actual}, "messageSeq": {"N": actual}});
                let reasons = json!([{"Code": "ConditionalCheckFailed", "Item": metadata}, {"Code": "None"}]);
                Some(("TransactionCanceledException", reasons))
            }
            ("3", _) if self.begun.elapsed() < Self::THROTTLED => Some(("ThrottlingException", json!([]))),
            _ => None,
        }
    }
}

impl Service for TwoCommits {
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>> {
        match self.failure(&serde_json::from_str(&call.body).unwrap()) {
            None => self.table.serve(call),
            Some((code, reasons)) => {
                let body = json!({"__type": code, "message": "", "CancellationReasons": reasons}).to_string();
                std::future::ready(Ok(Reply { status: 400, body })).boxed()
            }
        }
    }
}

#[test]
fn request_that_meets_two_commits_more_than_a_second_apart_reports_no_damage() {
    in_virtual_time(async {
        let (table, account) = open_account(1).await;
        let other = table.store();
        let pay = async |store: &EventStore| account.pay(store, Duration::from_secs(8)).await.unwrap();
        assert_eq!((pay(&other).await, pay(&other).await), (2, 3));
        let torn = TwoCommits { table, begun: Instant::now(), attempts: Mutex::default() };
        let store = EventStore::new(&network::config(torn), StoreSettings::new(TABLE));
        let later = async {
            sleep(TwoCommits::THROTTLED - Duration::from_millis(100)).await;
            pay(&other).await
        };
        assert_eq!(tokio::join!(pay(&store), later), (5, 4));
    });
}
