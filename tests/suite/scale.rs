//! The simulation of `suite_tests::scale`: its figures for a command, a read and a projection are those of counted calls, and
//! docs/scale.md and tests/src/scale/tables.md have its tables. `tests/campaign/contention.rs` compares its races with those of
//! the event store.

use std::ops::RangeInclusive;

use aggregates::registry;
use daybook_event_store::StoreSettings;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_table::AggregateKey;
use jiff::Timestamp;
use serde_json::json;
use suite_tests::scale::{Command, Load, WriteUnits, document, feed_queries, page_tables, projection};
use suite_tests::workspace;

use crate::instance::{Instance, sharded};
use crate::{costs, read_model_budgets};

const LARGE: Command = Command::with_data(1_024);

fn read(file: &str) -> String {
    std::fs::read_to_string(workspace().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn scale_page_has_the_tables_of_the_simulation() {
    let page = read("docs/scale.md");
    let missing: Vec<_> = page_tables().into_iter().filter(|table| !page.contains(&format!("\n{table}\n"))).collect();
    assert!(missing.is_empty(), "docs/scale.md lacks these tables:\n\n{}\n", missing.join("\n\n"));
    let rules = page.lines().filter(|line| line.starts_with("|---")).count();
    // The tables of AWS's limits and of what to do are the only others.
    assert_eq!(rules, page_tables().len() + 2, "docs/scale.md has a table that the simulation does not compute");
}

#[test]
fn tables_of_the_simulation_are_up_to_date() {
    let path = workspace().join("tests/src/scale/tables.md");
    if std::env::var_os("WRITE_SCALE_TABLES").is_some() {
        std::fs::write(&path, document()).unwrap();
    }
    assert!(
        read("tests/src/scale/tables.md") == document(),
        "tests/src/scale/tables.md is not up to date: run this test with WRITE_SCALE_TABLES=1"
    );
}

/// A cell of tests/src/scale/tables.md: the column of the row that begins with these cells, in the table below the heading.
fn cell(tables: &str, heading: &str, begin: &str, column: usize) -> String {
    let table = tables.split(&format!("\n## {heading}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
    let row = table.lines().find(|line| line.starts_with(&format!("| {begin} | "))).unwrap();
    row.trim_matches('|').split(" | ").nth(column).unwrap().trim().to_owned()
}

#[test]
fn scale_page_has_the_figures_of_the_simulation() {
    let page = read("docs/scale.md");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let (smallest, largest) = (1_024 - Command::OUTBOX_ROW, 1_024 - Command::EVENT_ROW);
    assert_eq!(Command::with_data(smallest).append(1), WriteUnits { table: 6, index: 1 });
    assert_eq!(Command::with_data(largest + 1).append(1).index, 2);
    // The cost of a million events, if an invocation has those of this number of aggregates.
    let projected = |aggregates: u32| {
        let (_, read, written) = projection(aggregates);
        (f64::from(read) * 0.125 + f64::from(written) * 0.625) / f64::from(aggregates)
    };
    let tables = document();
    let group = |commands: &str, column| cell(&tables, "Commands that share a transaction", commands, column);
    let hot = |instances: &str, column| cell(&tables, "Instances that write to one aggregate", instances, column);
    let shards = |shards: &str, column| cell(&tables, "Shards of an event type", shards, column);
    let snapshot = |every: &str, column| cell(&tables, "Costs of `SnapshotEvery`", every, column);
    let small = |commands: &str| cell(&tables, "What each step needs, with 256 bytes of data", commands, 9);
    let most = Command::with_data(256).largest_group().to_string();
    let checks = |rate| Load::new(rate, LARGE).bus_checks();
    for figure in [
        format!(
            "{:.1} calls a second at 10,000 commands a second, and {:.0} at 1,000,000",
            checks(10_000),
            checks(1_000_000)
        ),
        format!("with data of up to {smallest} bytes each, takes six write units there, and one in the index"),
        format!("a partition accepts {} such commands a second", 1_000 / LARGE.append(1).table),
        format!("An event row takes {} bytes beside its data: above {largest} bytes of data", Command::EVENT_ROW),
        format!("{:.2} dollars if they arrive one by one, and {:.2} in tens", projected(1), projected(10)),
        format!("256 bytes of data, 1,000 commands a second cost {} dollars an hour", small("1,000")),
        format!("{} commands a second, and takes {} write units for each", group("1", 2), group("1", 1)),
        format!(
            "With {most} commands in each transaction, it accepts {}, at {} units",
            group(&most, 2),
            group(&most, 1)
        ),
        format!("Eight instances of Lambda together append {} commands a second", hot("8 | 1", 2)),
        format!(
            "{} transactions for each, and 64 instances {}, with {}",
            hot("8 | 1", 4),
            hot("64 | 1", 2),
            hot("64 | 1", 4)
        ),
        format!("p99 of {} and {}", hot("8 | 1", 7), hot("64 | 1", 7)),
        format!(
            "Three environments with 64 requests each append {}, and one with 64 appends {}",
            hot("3 | 64", 2),
            hot("1 | 64", 2)
        ),
        format!("accepts {} events a second with 1 KB of data, or {} with 256 bytes", shards("1", 1), shards("1", 2)),
        format!(
            "64 shards accept {} and {}, and a page of a feed then takes {} queries",
            shards("64", 1),
            shards("64", 2),
            shards("64", 3)
        ),
        format!("a load takes {} read units on average with `SnapshotEvery=10`", snapshot("10", 1)),
        format!("{} with 100 and {} with 1,000", snapshot("100", 1), snapshot("1,000", 1)),
        format!("{}, {} and {} dollars", snapshot("10", 4), snapshot("100", 4), snapshot("1,000", 4)),
        format!("The lowest is {} with 50", snapshot("50", 4)),
    ] {
        assert!(page.contains(&figure), "docs/scale.md lacks {figure:?}");
    }
}

#[test]
fn simulated_costs_are_those_of_the_costs_page() {
    let cost = format!("{:.2}", Load::new(1, LARGE).cost_of_a_million());
    assert!(read("docs/deploy.md").contains(&format!("| **together** | | | **{cost}** |")), "{cost}");
}

#[test]
fn simulated_defaults_are_those_of_the_template() {
    let template = read("template.yaml");
    let parsed: serde_yaml_ng::Value = serde_yaml_ng::from_str(&template).unwrap();
    let number = |parameter: &str, name: &str| parsed["Parameters"][parameter][name].as_f64().unwrap();
    assert_eq!(number("ThrottleRate", "Default"), Load::THROTTLE_RATE);
    assert_eq!(number("SnapshotEvery", "Default"), f64::from(Load::SNAPSHOT_EVERY));
    assert_eq!(number("EventTypeShards", "Default"), 1.0);
    assert_eq!(number("EventTypeShards", "MaxValue"), Load::MAX_EVENT_TYPE_SHARDS);
    let shards: RangeInclusive<u32> = StoreSettings::EVENT_TYPE_SHARDS;
    assert_eq!(f64::from(*shards.end()), Load::MAX_EVENT_TYPE_SHARDS);
    // One batch of a shard at a time for the relay, two for the snapshotter.
    let factors: Vec<_> = template.split("ParallelizationFactor: ").skip(1).map(|rest| &rest[..1]).collect();
    assert_eq!(factors, ["1", "2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_append_takes_the_units_of_stored_rows() {
    for data in [128, 256, 359, 360, 512, 1_024, 2_048, 4_096] {
        let stored = costs::create_with_data(data as usize).await;
        let beside_data = [stored.event, stored.outbox, stored.detail].map(|bytes| bytes - stored.data);
        let rows = [Command::EVENT_ROW, Command::OUTBOX_ROW, Command::MESSAGE].map(|bytes| bytes as usize);
        assert_eq!(beside_data, rows, "{data}");
        let counted = [stored.table_units, stored.index_units];
        let WriteUnits { table, index } = Command::with_data(data).append(1);
        assert_eq!(counted, [table, index].map(f64::from), "{data}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_load_takes_the_units_of_counted_calls() {
    for data in [256, 1_024] {
        let message = costs::message_for_data(data as usize).await;
        for events in [3, 5, 12, 25, 50, 100, 125] {
            let counted = costs::units_of_load(events, &message).await;
            let simulated = Command::with_data(data).load(u32::try_from(events).unwrap());
            assert_eq!(counted, f64::from(simulated), "{events} events of {data} bytes");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_snapshot_takes_the_units_of_counted_calls() {
    let instance = Instance::start().await;
    let body = json!({"id": "1", "title": "TODO", "message": "x".repeat(3_600)});
    instance.post("/todo", body).await.expect(201);
    instance.table.proxy.take_calls();
    let (registry, key) = (registry().unwrap(), AggregateKey::new("todo", "1"));
    let model = registry.get("todo").unwrap();
    instance.table.store().take_snapshot(model, &key, Timestamp::now()).await.unwrap();
    let units_of = |operation: &str| -> f64 {
        let calls = instance.table.proxy.take_calls();
        calls.iter().filter(|call| call.operation == operation).map(|call| call.table_units).sum()
    };
    let (_, write) = LARGE.snapshot(Load::SNAPSHOT_EVERY);
    assert_eq!(units_of("PutItem"), f64::from(write));
    // A load reads it with one unit.
    instance.table.store().load(model, &key).await.unwrap();
    assert_eq!(units_of("GetItem"), 1.0);
}

#[tokio::test]
async fn simulated_group_takes_the_units_of_counted_transactions() {
    let instance = Instance::start().await;
    instance.post("/todo", json!({"id": "1", "title": "TODO", "message": ""})).await.expect(201);
    instance.table.proxy.take_calls();
    let command = Command::with_data(256);
    let update = async |number: usize| {
        instance.post("/todo/1", json!({"title": "TODO", "message": number.to_string()})).await.expect(200)
    };
    // The other requests wait until the append of the first one has ended.
    let mut first = Box::pin(update(0));
    instance.table.proxy.hold(&mut first, |calls| !calls.is_empty()).await;
    let mut others = Box::pin(futures_util::future::join_all((1..128).map(update)));
    assert!(futures_util::poll!(&mut others).is_pending());
    futures_util::join!(first, others);
    let mut groups = Vec::new();
    for call in instance.table.proxy.take_calls() {
        // The metadata, and an event and a message for each command.
        let items = call.request["TransactItems"].as_array().unwrap().len();
        let commands = u32::try_from((items - 1) / 2).unwrap();
        let WriteUnits { table, index } = command.append(commands);
        assert_eq!([call.table_units, call.index_units], [table, index].map(f64::from), "{commands}");
        groups.push(commands);
    }
    assert_eq!(groups.iter().sum::<u32>(), 127);
    assert_eq!(groups.into_iter().max(), Some(command.largest_group()));
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_feed_takes_the_counted_queries() {
    for shards in [1, 2, 8] {
        let instance = sharded(LocalDynamoDb::in_memory().await.unwrap(), shards).await;
        instance.table.proxy.take_calls();
        instance.get("/events?type=TodoCreated").await.expect(200);
        let queries = vec!["Query".to_owned(); feed_queries(shards) as usize];
        assert_eq!(instance.table.operations(), queries, "{shards}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_projection_takes_the_counted_calls_and_units() {
    let instance = Instance::start().await;
    let ids = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];
    for id in ids {
        read_model_budgets::place(&instance, id).await;
    }
    for ids in [&ids[..1], &ids[1..]] {
        let (calls, read, written) = read_model_budgets::project(&instance, ids).await;
        let aggregates = u32::try_from(ids.len()).unwrap();
        let counted = [calls.len() as f64, read, written];
        let (calls, read, written) = projection(aggregates);
        assert_eq!(counted, [calls, read, written].map(f64::from), "{aggregates}");
    }
}
