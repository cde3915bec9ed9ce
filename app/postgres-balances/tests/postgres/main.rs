//! The table has each event once, whatever fails.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;

use aggregates::Account;
use aggregates::account::{Event, State};
use daybook::jiff::Timestamp;
use daybook::projection::Projections;
use daybook::projector::{EventTarget, Projector, TargetError, TargetEvent};
use daybook::{Aggregate, Meta, Registry};
use daybook_projector::QueueBatch;
use daybook_table::AggregateKey;
use daybook_test_support::commands::execute;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::table::TestTable;
use fastrand::Rng;
use futures_util::future::{join, join_all};
use postgres_balances::Balances;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_postgres::{Config, NoTls};

use self::server::{Break, Proxy, Server};

/// The position and the balance of each account in the table.
async fn rows(server: &Server) -> BTreeMap<String, (i64, i64)> {
    let rows = server.connect().await.query("SELECT account, position, balance FROM balances", &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect()
}

fn target(database: Config) -> Balances {
    Balances::new(database, NoTls).unwrap()
}

/// Hands over the event `number` of account `a`, a transaction whose amount is its number.
async fn hand_over(target: &Balances, number: u64, position: u64) -> Result<(), TargetError> {
    let events = [Event::TransactionAccepted { desc: String::new(), amount: number.try_into().unwrap() }];
    let (occurred_at, meta) = (Timestamp::UNIX_EPOCH, &Meta::default());
    let event = TargetEvent { aggregate_id: "a", seq_num: number, occurred_at, meta, events: &events };
    target.handle(event, position).await
}

#[tokio::test]
async fn event_at_another_position_is_an_error_and_changes_nothing() {
    let server = Server::start().await;
    let target = target(server.database());
    // As if somebody had deleted the rows.
    assert!(hand_over(&target, 5, 4).await.is_err());
    assert_eq!((rows(&server).await, target.position("a").await.unwrap()), (BTreeMap::new(), 0));
    for number in 1..=3 {
        hand_over(&target, number, number - 1).await.unwrap();
    }
    for (number, position) in [(1, 0), (3, 2), (5, 4)] {
        let error = hand_over(&target, number, position).await.unwrap_err().to_string();
        assert!(error.contains(&format!("no longer {position}")), "{error}");
    }
    assert_eq!((rows(&server).await["a"], target.position("a").await.unwrap()), ((3, 6), 3));
}

#[tokio::test]
async fn one_of_two_instances_stores_an_event() {
    let server = Server::start().await;
    let (one, other) = (target(server.database()), target(server.database()));
    for number in 1..=50 {
        let both = join(hand_over(&one, number, number - 1), hand_over(&other, number, number - 1)).await;
        assert_ne!(both.0.is_ok(), both.1.is_ok(), "event {number}: {both:?}");
    }
    assert_eq!(rows(&server).await["a"], (50, (1..=50).sum()));
}

#[tokio::test]
async fn event_whose_connection_breaks_at_the_commit_is_stored_with_its_position_or_not_at_all() {
    let server = Server::start().await;
    let proxy = Proxy::to(&server);
    let target = target(proxy.database());
    hand_over(&target, 1, 0).await.unwrap();
    for (at, stored) in [(Break::Before, false), (Break::After, true)] {
        let (position, balance) = rows(&server).await["a"];
        proxy.break_next("COMMIT", at);
        let number = u64::try_from(position).unwrap() + 1;
        assert!(hand_over(&target, number, number - 1).await.is_err());
        let after = if stored { (position + 1, balance + position + 1) } else { (position, balance) };
        assert_eq!(rows(&server).await["a"], after, "{at:?}");
        let again = hand_over(&target, number, number - 1).await;
        assert_eq!((again.is_ok(), rows(&server).await["a"]), (!stored, (position + 1, balance + position + 1)));
    }
}

#[tokio::test]
async fn event_whose_connection_the_server_ends_in_the_transaction_is_handed_over_again() {
    let server = Server::start().await;
    let target = target(server.database());
    hand_over(&target, 1, 0).await.unwrap();
    let mut other = server.connect().await;
    let lock = other.transaction().await.unwrap();
    lock.execute("SELECT 1 FROM balances FOR UPDATE", &[]).await.unwrap();
    let end = async { while server.terminate("wait_event_type = 'Lock'").await == 0 {} };
    let (handed_over, ()) = join(hand_over(&target, 2, 1), end).await;
    assert!(handed_over.is_err());
    lock.rollback().await.unwrap();
    assert_eq!(rows(&server).await["a"], (1, 1));
    hand_over(&target, 2, 1).await.unwrap();
    assert_eq!(rows(&server).await["a"], (2, 3));
}

/// Accounts in the events table, and two instances of the projector.
struct Setup {
    table: TestTable,
    registry: Registry,
    keys: Vec<AggregateKey>,
    projectors: [Projector; 2],
}

impl Setup {
    async fn new(proxy: &Proxy) -> Self {
        let table = TestTable::new().await;
        let projectors = [(); 2].map(|()| {
            Projector::new(Projections::new(), table.store(), table.direct_views())
                .with_target("balances", target(proxy.database()))
        });
        let keys = ["a", "b", "c"].map(|id| AggregateKey::new("account", id)).into();
        Self { table, registry: aggregates::registry().unwrap(), keys, projectors }
    }

    async fn execute(&self, key: &AggregateKey, command: &str, data: Value) {
        let model = self.registry.get(Account::TYPE).unwrap();
        execute(&self.table.direct_store(), model, key, &[(command, data)]).await.unwrap();
    }

    /// Appends events to random accounts.
    async fn append(&self, rng: &mut Rng) {
        for _ in 0..rng.usize(1..8) {
            let key = &self.keys[rng.usize(..self.keys.len())];
            let (command, data) = match rng.u32(..6) {
                0 => ("UpdateOwner", json!({"ownerFirst": rng.u32(..).to_string(), "ownerLast": "Brown"})),
                // Rejected, which is an event too.
                1 => ("RecordTransaction", json!({"desc": "A", "amount": -1_000_000_000})),
                _ => ("RecordTransaction", json!({"desc": "A", "amount": rng.i64(1..1000)})),
            };
            self.execute(key, command, data).await;
        }
    }

    /// Delivers messages about all accounts to both instances at the same time. Returns whether both succeed.
    async fn deliver(&self) -> bool {
        let record = |key: &AggregateKey| {
            let body = json!({"changed": [["account", key.id, 0]]}).to_string();
            json!({"messageId": key.id, "body": body})
        };
        let records: Vec<_> = self.keys.iter().map(record).collect();
        let batch = || -> QueueBatch { serde_json::from_value(json!({ "Records": records })).unwrap() };
        // Later than the end of the test.
        let deadline = Instant::now() + Duration::from_secs(600);
        let responses = join_all(self.projectors.iter().map(|projector| projector.handle(batch(), deadline))).await;
        responses.iter().all(|response| response.batch_item_failures.is_empty())
    }

    /// What the table must contain: all events, each once.
    async fn folded(&self) -> BTreeMap<String, (i64, i64)> {
        let (store, model) = (self.table.direct_store(), self.registry.get(Account::TYPE).unwrap());
        let mut folded = BTreeMap::new();
        for key in &self.keys {
            let account = store.load(model, key).await.unwrap();
            let state: State = account.state.read().unwrap();
            folded.insert(key.id.clone(), (account.version().try_into().unwrap(), state.balance));
        }
        folded
    }
}

/// Returns how many deliveries were disturbed.
async fn run(server: &Server, seed: u64) -> u32 {
    let mut rng = Rng::with_seed(seed);
    let proxy = Proxy::to(server);
    let setup = Setup::new(&proxy).await;
    for key in &setup.keys {
        setup.execute(key, "OpenAccount", json!({})).await;
    }
    let disturbances = Cell::new(0);
    for _ in 0..12 {
        setup.append(&mut rng).await;
        for _ in 0..rng.usize(..3) {
            let at = if rng.bool() { Break::Before } else { Break::After };
            proxy.break_next(["SELECT", "INSERT", "UPDATE", "COMMIT"][rng.usize(..4)], at);
        }
        if rng.u32(..4) == 0 {
            setup.table.proxy.fail_next("Query", InjectedFault::BreakAfter);
        }
        let (statements, ends) = (rng.usize(1..150), rng.bool());
        // After some statements, either the server ends all connections, or both instances crash.
        let disturb = async {
            proxy.statements(statements).await;
            disturbances.update(|count| count + 1);
            if ends {
                server.terminate("true").await;
                pending::<()>().await;
            }
        };
        tokio::select! {
            // What has failed is delivered again.
            _ = setup.deliver() => {}
            () = disturb => {}
        }
    }
    proxy.take_breaks();
    setup.table.proxy.take_faults();
    let mut deliveries = 0;
    while !setup.deliver().await {
        deliveries += 1;
        assert!(deliveries < 100, "seed {seed}: the deliveries do not succeed");
    }
    assert_eq!(rows(server).await, setup.folded().await, "seed {seed}");
    disturbances.get()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn projectors_that_fail_and_compete_count_each_event_once() {
    let server = Server::start().await;
    let mut disturbances = 0;
    for seed in 0..10 {
        server.connect().await.execute("TRUNCATE balances", &[]).await.unwrap();
        disturbances += run(&server, seed).await;
    }
    assert!(disturbances > 20, "{disturbances}");
}
