//! Whatever fails, and however often aggregates are projected: each event counts exactly once.

use std::collections::BTreeMap;
use std::pin::pin;
use std::slice;

use daybook_projector::{EventRange, Projecting};
use daybook_table::AggregateKey;
use daybook_test_support::fault_proxy::InjectedFault;
use fastrand::Rng;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::setup::{Setup, all, soon};

const VIEW_NAMES: [&str; 2] = ["account-balances", "orders-by-status"];

/// The next commands of an order by its number of events, and its status after them.
const LIFE: [(&str, &str); 4] =
    [("PlaceOrder", "placed"), ("ProcessPayment", "paid"), ("ShipOrder", "shipped"), ("DeliverOrder", "delivered")];

/// What the views must show.
#[derive(Default)]
struct Expected {
    balances: BTreeMap<AggregateKey, i64>,
    orders: BTreeMap<AggregateKey, usize>,
}

impl Expected {
    /// Appends something to a random aggregate.
    async fn append(&mut self, setup: &Setup, rng: &mut Rng) -> AggregateKey {
        let id = rng.u32(..4).to_string();
        if rng.bool() {
            let key = AggregateKey::new("account", id);
            if !self.balances.contains_key(&key) {
                self.balances.insert(key.clone(), 0);
                return setup.account(&key.id, &[]).await;
            }
            let amounts: Vec<i64> = (0..rng.usize(1..5)).map(|_| rng.i64(1..100)).collect();
            setup.transactions(&key, &amounts).await;
            *self.balances.get_mut(&key).unwrap() += amounts.iter().sum::<i64>();
            return key;
        }
        let key = AggregateKey::new("order", id);
        let events = self.orders.entry(key.clone()).or_default();
        if let Some((command, _)) = LIFE.get(*events) {
            let item = json!({"productId": "coffee", "quantity": 1});
            let data = match *command {
                "PlaceOrder" => json!({"customerId": "alice", "items": [item], "total": 10}),
                "ProcessPayment" => json!({"amount": 10}),
                "ShipOrder" => json!({"trackingNumber": "T-1"}),
                _ => json!({}),
            };
            setup.execute(&key, &[(command, data)]).await;
            *events += 1;
        }
        key
    }

    fn keys(&self) -> Vec<AggregateKey> {
        self.balances.keys().chain(self.orders.keys()).cloned().collect()
    }

    fn rows(&self, view: &str) -> BTreeMap<String, Value> {
        let mut rows: BTreeMap<String, Value> = BTreeMap::new();
        if view == "account-balances" {
            for (key, balance) in &self.balances {
                rows.insert(format!("account:{}", key.id), json!({"accounts": 1, "balance": balance}));
            }
            let total: i64 = self.balances.values().sum();
            if !self.balances.is_empty() {
                rows.insert("total".to_owned(), json!({"accounts": self.balances.len(), "balance": total}));
            }
            return rows;
        }
        let mut counts = BTreeMap::<&str, i64>::new();
        self.orders.values().for_each(|&events| *counts.entry(LIFE[events - 1].1).or_default() += 1);
        let row = |(status, orders): (&str, i64)| (status.to_owned(), json!({"orders": orders, "total": 10 * orders}));
        counts.into_iter().map(row).collect()
    }
}

/// A failure of one of the projector's calls.
fn fault(rng: &mut Rng) -> (&'static str, InjectedFault) {
    let operation = ["TransactWriteItems", "BatchGetItem", "Query"][rng.usize(..3)];
    let throttled = InjectedFault::Refuse { status: 400, code: "ThrottlingException" };
    let fault = match rng.u32(..5) {
        0 => InjectedFault::BreakBefore,
        1 | 2 => InjectedFault::BreakAfter,
        3 if operation == "TransactWriteItems" => InjectedFault::Cancel { codes: vec!["TransactionConflict", "None"] },
        4 if operation == "Query" => InjectedFault::ShortPage { items: 1 },
        _ => throttled,
    };
    (operation, fault)
}

async fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let setup = Setup::new(projections::projections().unwrap()).await;
    let mut expected = Expected::default();
    let (events, views) = (setup.table.store(), setup.views());
    for _ in 0..12 {
        let mut changed = Vec::new();
        for _ in 0..rng.usize(1..6) {
            changed.push(expected.append(&setup, &mut rng).await);
        }
        for _ in 0..rng.usize(..4) {
            let (operation, fault) = fault(&mut rng);
            setup.table.proxy.fail_next(operation, fault);
        }
        let project = |name: &'static str| {
            let projecting = Projecting { model: setup.model(name), events: &events, views: &views };
            let followed = projecting.model.follows();
            let keys = changed.iter().filter(|key| followed.contains(&key.aggregate_type.as_str())).cloned();
            projecting.project(all(keys), soon())
        };
        // Two projectors of each view at the same time. Sometimes all of them are killed after some calls.
        let mut runs = pin!(join_all(VIEW_NAMES.iter().cycle().take(4).map(|name| project(name))));
        if rng.u32(..3) == 0 {
            let calls = rng.usize(1..12);
            setup.table.proxy.advance(&mut runs, |made| made.len() >= calls).await;
        } else {
            // An unavailable store ends a run; its messages are delivered again.
            let _results = runs.await;
        }
    }
    for name in VIEW_NAMES {
        let followed = setup.model(name).follows();
        let keys = expected.keys().into_iter().filter(|key| followed.contains(&key.aggregate_type.as_str()));
        let keys: Vec<_> = keys.collect();
        while !setup.projects_cleanly(name, &keys).await {}
        assert_eq!(setup.rows(name).await, expected.rows(name), "seed {seed}: {name}");
    }
}

impl Setup {
    /// Whether a run ends without an error; those that still fail are left over from before.
    async fn projects_cleanly(&self, name: &str, keys: &[AggregateKey]) -> bool {
        let (events, views) = (self.table.store(), self.views());
        let projecting = Projecting { model: self.model(name), events: &events, views: &views };
        let projected = projecting.project(all(keys.iter().cloned()), soon()).await;
        projected.is_ok_and(|projected| projected.unfinished.is_empty())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn projectors_that_fail_and_compete_count_each_event_once() {
    for seed in 0..20 {
        run(seed).await;
    }
}

#[tokio::test]
async fn second_event_of_an_append_that_is_visible_before_the_first_is_not_folded_without_it() {
    let setup = Setup::new(projections::projections().unwrap()).await;
    let key = setup.account("1", &[]).await;
    setup.project("account-balances", slice::from_ref(&key)).await;
    setup.transactions(&key, &[5, 7]).await;
    let first = setup.table.row(&key, "EVENT#000000000002").await.unwrap();
    setup.table.delete(&key, "EVENT#000000000002").await;
    let projected = setup.project("account-balances", slice::from_ref(&key)).await;
    assert_eq!((projected.unfinished, projected.events), ([key.clone()].into(), 0));
    setup.table.put(first).await;
    let projected = setup.project("account-balances", slice::from_ref(&key)).await;
    assert_eq!((projected.unfinished.len(), projected.events), (0, 2));
    assert_eq!(setup.rows("account-balances").await["total"], json!({"accounts": 1, "balance": 12}));
}

#[tokio::test]
async fn message_that_arrives_before_the_rows_of_its_append_waits_for_them() {
    let setup = Setup::new(projections::projections().unwrap()).await;
    let key = setup.account("1", &[]).await;
    setup.project("account-balances", slice::from_ref(&key)).await;
    setup.transactions(&key, &[5]).await;
    let event = setup.table.row(&key, "EVENT#000000000002").await.unwrap();
    setup.table.delete(&key, "EVENT#000000000002").await;
    let (events, views) = (setup.table.store(), setup.views());
    let project = async |known| {
        let projecting = Projecting { model: setup.model("account-balances"), events: &events, views: &views };
        let range = EventRange { known, ..EventRange::default() };
        projecting.project([(key.clone(), range)].into(), soon()).await.unwrap()
    };
    assert_eq!(project(1).await.unfinished.len(), 0);
    assert_eq!(project(2).await.unfinished.len(), 1);
    setup.table.put(event).await;
    let projected = project(2).await;
    assert_eq!((projected.unfinished.len(), projected.events), (0, 1));
}
