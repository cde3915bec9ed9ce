//! A whole table, exported and imported into an empty one by the binary. `MOVED_AGGREGATES=10000 cargo test -p operator
//! --test operator moving -- --nocapture` moves that many aggregates, and prints calls, units and times.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use aggregates::Order;
use daybook_event_store::LoadOptions;
use daybook_test_support::row::Item;
use serde_json::json;

use crate::support::{Setup, key};

/// The kinds of aggregates, each with the commands of its n-th instance.
async fn create(setup: &Setup, n: usize) -> String {
    let todo = |title: usize| ("UpdateTodo", json!({"title": title.to_string(), "message": "x".repeat(n % 300)}));
    match n % 4 {
        0 | 1 => {
            let aggregate = format!("todo/{n}");
            setup.command(&aggregate, "CreateTodo", json!({"title": "A", "message": ""})).await;
            if n.is_multiple_of(8) {
                let updates: Vec<_> = (0..=n % 40).map(todo).collect();
                setup.commands(&aggregate, &updates).await;
                setup.command(&aggregate, "DeleteTodo", json!({})).await;
            }
            aggregate
        }
        2 => {
            let aggregate = format!("account/{n}");
            let transaction = |amount: i64| ("RecordTransaction", json!({"desc": "é\n", "amount": amount}));
            let commands = [("OpenAccount", json!({})), transaction(700), transaction(-900), transaction(i64::MAX - 1)];
            setup.commands(&aggregate, &commands).await;
            setup.commands(&aggregate, &[transaction(i64::MIN)]).await;
            aggregate
        }
        _ => {
            let aggregate = format!("order/{n}");
            let item = json!({"productId": "coffee", "quantity": u32::MAX});
            let order = json!({"customerId": "ann", "items": [item], "total": 4500});
            setup.command(&aggregate, "PlaceOrder", order).await;
            setup.command(&aggregate, "ProcessPayment", json!({"amount": 4500})).await;
            aggregate
        }
    }
}

fn daybook(setup: &Setup, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
    command.args(words).args(["--rate", "1000000"]).env_clear().envs(setup.environment());
    let started = Instant::now();
    let output = tokio::task::block_in_place(|| command.output()).unwrap();
    let mut calls: BTreeMap<String, (usize, f64)> = BTreeMap::new();
    for call in setup.table.proxy.take_calls() {
        let of_operation = calls.entry(call.operation).or_default();
        of_operation.0 += 1;
        of_operation.1 += call.table_units + call.index_units;
    }
    eprintln!("{words:?}: {:?}; calls and units: {calls:?}", started.elapsed());
    eprintln!("  {}", String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    output
}

/// All rows of an aggregate but its outbox, without what depends on the transaction that wrote them.
async fn rows(setup: &Setup, aggregate: &str) -> Vec<Item> {
    let mut rows = setup.rows(aggregate, "").await;
    rows.retain(|row| !row["sk"].as_s().unwrap().starts_with("OUTBOX#"));
    for row in &mut rows {
        row.retain(|name, _| !["appendEnd", "sum", "notPublished"].contains(&name.as_str()));
    }
    rows
}

async fn state(setup: &Setup, aggregate: &str) -> (u64, u64, String) {
    let (registry, key) = (aggregates::registry().unwrap(), key(aggregate));
    let model = registry.get(&key.aggregate_type).unwrap();
    let loaded = setup.store.load_with(model, &key, LoadOptions::REBUILD).await.unwrap();
    (loaded.version(), loaded.folded.message_seq(), loaded.state.text().to_owned())
}

fn events(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let mut events: Vec<_> = text.lines().skip(1).map(str::to_owned).collect();
    events.pop();
    events.sort();
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_table_has_every_state_event_and_time() {
    let count = std::env::var("MOVED_AGGREGATES").map_or(40, |count| count.parse().unwrap());
    let (from, to) = (Setup::of::<Order>().await, Setup::of::<Order>().await);
    let mut aggregates = Vec::new();
    for n in 0..count {
        aggregates.push(create(&from, n).await);
    }
    let folder = tempfile::tempdir().unwrap();
    let [file, again] = ["all", "again"].map(|name| folder.path().join(name));
    let [name, of_copy] = [&file, &again].map(|file| file.to_str().unwrap());

    daybook(&from, &["export", name]);
    daybook(&to, &["import", name, "--no-publish", "--yes"]);
    daybook(&to, &["verify"]);
    daybook(&to, &["export", of_copy]);
    let summary = daybook(&to, &["import", name, "--no-publish", "--yes"]).stdout;
    let summary = String::from_utf8(summary).unwrap();
    assert!(summary.starts_with("imported and verified 0 aggregates"), "{summary}");
    assert_eq!(events(&again), events(&file));
    for aggregate in &aggregates {
        assert_eq!(state(&to, aggregate).await, state(&from, aggregate).await, "{aggregate}");
        assert_eq!(rows(&to, aggregate).await, rows(&from, aggregate).await, "{aggregate}");
    }
}
