//! The cost of the pages.

use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::Request;
use daybook_table::AggregateKey;
use daybook_test_support::commands::execute;
use jiff::Timestamp;
use serde_json::json;

use crate::Bench;

#[tokio::test]
async fn page_of_an_aggregate_with_many_events_costs_what_one_with_few_costs() {
    let bench = Bench::start().await;
    let mut costs = Vec::new();
    for (id, events) in [("few", 130), ("many", 3_030)] {
        let key = bench.fill_account(id, events - 30).await;
        let model = bench.registry.get("account").unwrap();
        bench.table.direct_store().take_snapshot(model, &key, Timestamp::now()).await.unwrap();
        bench.append(&key, events - 29..=events).await;
        bench.table.proxy.take_calls();
        let page = bench.get(&format!("/_console/aggregates/account/{id}")).await;
        assert!(page.body.contains(&format!("{events} of {events}")), "{}", page.body);
        let calls = bench.table.proxy.take_calls();
        let units: f64 = calls.iter().map(|call| call.table_units).sum();
        costs.push((calls.len(), units));
    }
    assert_eq!(costs[0].0, costs[1].0, "{costs:?}");
    assert!(costs[1].1 <= costs[0].1 + 1.0, "{costs:?}");
}

#[tokio::test]
async fn old_version_far_from_a_snapshot_is_folded_only_on_demand() {
    let bench = Bench::start().await;
    let key = bench.fill_account("1", 2_150).await;
    let model = bench.registry.get("account").unwrap();
    bench.table.direct_store().take_snapshot(model, &key, Timestamp::now()).await.unwrap();
    bench.table.proxy.take_calls();
    let page = bench.get("/_console/aggregates/account/1?version=2100").await;
    assert!(page.body.contains("Fold 2100 events"), "{}", page.body);
    let units: f64 = bench.table.proxy.take_calls().iter().map(|call| call.table_units).sum();
    assert!(units < 20.0, "{units}");
    let page = bench.get("/_console/aggregates/account/1?version=2100&fold=true").await;
    assert!(page.body.contains("<span class=\"name\">&quot;balance&quot;</span>: "), "{}", page.body);
}

#[tokio::test]
async fn each_page_calls_the_table_only_for_what_it_shows() {
    let bench = Bench::start().await;
    bench.fill_account("1", 60).await;
    bench.operations();
    let expected = [
        // The types have eleven opening events, each with one partition of the index.
        ("", "BatchGetItem 1, Query 11"),
        ("?type=account", "BatchGetItem 1, Query 1"),
        ("?type=todo", "Query 1"),
        // No aggregate is before this event, so no version is read.
        ("?before=00000000000000000000000001", "Query 11"),
        ("/search?q=", ""),
        ("/search?q=1", "BatchGetItem 1"),
        ("/search?q=no%20id", ""),
        // The last version, a page of events, and two queries for each of two states.
        ("/aggregates/account/1", "GetItem 2, Query 4"),
        ("/aggregates/account/none", "Query 1"),
        // A type without sources.
        ("/aggregates/account/1/process", ""),
        // The event, its messages, and the metadata.
        ("/aggregates/account/1/events/1", "Query 3"),
        ("/aggregates/account/1/test?version=3", "GetItem 1, Query 2"),
        // The deadlines that have failed, those that are pending, and the positions that are suspended.
        ("/stream", "Query 3"),
        // The first events of the types.
        ("/model", "Query 11"),
        ("/bus", ""),
        ("/bus/1", ""),
        ("/dead-letters", ""),
        ("/dead-letters/1", ""),
        ("/correlation", ""),
        ("/correlation?id=c", ""),
        ("/command/account?id=1", ""),
        ("/nothing", ""),
    ];
    let mut found = Vec::new();
    for (path, _) in expected {
        let page = bench.get(&format!("/_console{path}")).await;
        assert!(page.status.as_u16() < 500, "{path}: {}", page.body);
        found.push((path, bench.operations()));
    }
    assert_eq!(found, expected.map(|(path, operations)| (path, operations.to_owned())));
}

#[tokio::test]
async fn page_asks_the_stack_once_at_most() {
    let bench = Bench::start().await;
    let todo = AggregateKey::new("todo", "1");
    let command = ("CreateTodo", json!({"title": "t", "message": "m"}));
    execute(&bench.table.direct_store(), bench.registry.get("todo").unwrap(), &todo, &[command]).await.unwrap();
    let form = bench.get("/_console/faults").await.body;
    let token = form.split_once("name=\"token\" value=\"").unwrap().1.split('"').next().unwrap();
    bench.calls.store(0, Ordering::Relaxed);
    for (path, fields, expected) in [
        ("", None, 0),
        ("/search?q=none", None, 0),
        // The aggregate has a message.
        ("/aggregates/todo/1", None, 1),
        ("/command/todo", None, 0),
        ("/model", None, 1),
        ("/events", None, 0),
        ("/bus", None, 1),
        ("/bus/1", None, 1),
        ("/correlation?id=c", None, 1),
        ("/stream", None, 1),
        ("/faults", None, 1),
        ("/faults", Some("action=apply&on=bus"), 1),
        ("/faults", Some("action=clock&forward-by=1d"), 1),
        ("/faults", Some("action=idle"), 1),
        ("/dead-letters", None, 1),
        ("/dead-letters", Some("action=redrive-all"), 1),
        ("/dead-letters", Some("action=delete&id=1"), 1),
        ("/command/todo", Some("command=CreateTodo&id=2&title=t"), 0),
        ("/nothing", None, 0),
    ] {
        let request = Request::builder().uri(format!("/_console{path}")).header("host", "localhost:3000");
        let request = match fields {
            None => request.body(Body::empty()),
            Some(fields) => request
                .method("POST")
                .header("content-type", "application/x-www-form-urlencoded")
                .body(Body::from(format!("token={token}&{fields}"))),
        };
        let page = bench.send(request.unwrap()).await;
        let is_page = page.status.is_redirection() || page.body.contains("<html");
        assert!(page.status.as_u16() < 500 && is_page, "{path}: {}", page.body);
        assert_eq!(bench.calls.swap(0, Ordering::Relaxed), expected, "{path} {fields:?}");
    }
}
