//! The rows of each release (`tests/golden-rows`): this release reads all of them, and writes rows in the format of the newest.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::Method;
use daybook_admin::AdminCalls;
use daybook_event_store::{DeadlineMark, PositionMove};
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_projector::{EventRange, Projecting};
use daybook_table::{AggregateKey, DeadlineState, PositionItem, keys};
use daybook_test_support::golden_rows::{assert_format, releases};
use daybook_test_support::row::{Item, notation, sealed, text};
use daybook_test_support::table::{KEYS_TABLE, TABLE, VIEWS_TABLE};
use daybook_view_store::{Position, PositionWrite, View, ViewWrite, WriteOutcome};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::instance::{Instance, send, settings};
use crate::rolling::{published, relayed};

/// The rows of the table, of the views table, and of the table with the keys of personal data.
const FILES: [(&str, &str); 3] = [("table.json", TABLE), ("views.json", VIEWS_TABLE), ("keys.json", KEYS_TABLE)];

/// The transactions of account 1. The last is rejected, and the rejection is recorded.
const AMOUNTS: [i64; 4] = [200, -300, 50, -5000];

fn key(of: &str) -> AggregateKey {
    let (aggregate_type, id) = of.split_once('/').unwrap();
    AggregateKey::new(aggregate_type, id)
}

fn order(id: &str) -> Value {
    json!({"id": id, "customerId": "alice", "items": [{"productId": "coffee", "quantity": 2}], "total": 10})
}

fn orders_by_day() -> View {
    View::new("orders-by-day", 1)
}

async fn instance() -> Instance {
    let environment = [("SNAPSHOT_EVERY", "2")];
    let engine = LocalDynamoDb::in_memory().await.unwrap();
    Instance::with_environment(engine, aggregates::registry().unwrap(), settings(), &environment).await
}

/// Sends a request with an idempotency key, and headers of which events contain something.
async fn post(instance: &Instance, path: &str, idempotency_key: &str, body: Value) -> suite_tests::ApiResponse {
    let headers = [("idempotency-key", idempotency_key), ("x-correlation-id", "golden")];
    send(&instance.router, Method::POST, path, &headers, Some(body)).await
}

async fn snapshot(instance: &Instance, of: &str) {
    let registry = aggregates::registry().unwrap();
    let model = registry.get(&key(of).aggregate_type).unwrap();
    instance.table.store().take_snapshot(model, &key(of), Timestamp::now()).await.unwrap();
}

async fn project(instance: &Instance, of: &str) {
    let (events, views) = (instance.table.direct_store(), instance.table.direct_views());
    for model in projections::projections().unwrap().following(&key(of).aggregate_type) {
        let projecting = Projecting { model, events: &events, views: &views };
        let cutoff = tokio::time::Instant::now() + Duration::from_secs(60);
        let projected = projecting.project([(key(of), EventRange::default())].into(), cutoff).await.unwrap();
        assert_eq!(projected.unfinished, BTreeSet::new());
    }
}

fn transaction(amount: i64) -> Value {
    json!({"command": "RecordTransaction", "data": {"desc": "A", "amount": amount}})
}

/// Writes a row of each kind.
async fn write_rows() -> Instance {
    let instance = instance().await;
    post(&instance, "/account", "open-1", json!({"id": "1"})).await.expect(201);
    let two: Value = AMOUNTS[..2].iter().map(|amount| transaction(*amount)).collect();
    post(&instance, "/account/1/commands", "two-1", two).await.expect(200);
    snapshot(&instance, "account/1").await;
    // The next snapshot replaces one of another release, which is kept.
    let mut other = instance.table.row(&key("account/1"), keys::SNAPSHOT).await.unwrap();
    other.insert("stateVersion".to_owned(), aws_sdk_dynamodb::types::AttributeValue::N("7".to_owned()));
    instance.table.put(sealed(other)).await;
    post(&instance, "/account/1/commands", "third-1", transaction(AMOUNTS[2])).await.expect(200);
    snapshot(&instance, "account/1").await;
    post(&instance, "/account/1/commands", "fourth-1", transaction(AMOUNTS[3])).await.expect_problem(422, "refused");

    // A large state, whose snapshot is compressed.
    instance.post("/account", json!({"id": "large"})).await.expect(201);
    let owner = json!({"ownerFirst": "x".repeat(9000), "ownerLast": "B"});
    instance.post("/account/large", owner).await.expect(200);
    snapshot(&instance, "account/large").await;
    instance.post("/account/large/commands", transaction(1)).await.expect(200);
    instance.post("/todo", json!({"id": "gone", "title": "A", "message": "B"})).await.expect(201);
    send(&instance.router, Method::DELETE, "/todo/gone", &[], None).await.expect(200);

    let customer = json!({"id": "1", "email": "Ann@example.com", "name": "Ann"});
    instance.post("/customer", customer).await.expect(201);
    for id in ["1", "2"] {
        let reserve = json!({"id": id, "concert": "fidelio", "seats": 2});
        post(&instance, "/reservation", &format!("reserve-{id}"), reserve).await.expect(201);
    }
    let store = instance.table.direct_store();
    let hold = store.deadline(&key("reservation/2"), "hold").await.unwrap().unwrap();
    assert!(store.mark_deadline(&hold, DeadlineMark::Failed("it panics")).await.unwrap());
    let mut position = store.position(&key("reservation/2"), "fulfilment").await.unwrap();
    assert!(
        store.move_position(&mut position, PositionMove::Suspend(PositionItem::ALL, 1, "it panics")).await.unwrap()
    );
    let both = json!([
        {"aggregate": "course/rust", "command": "CreateCourse", "data": {"seats": 20}},
        {"aggregate": "student/ann", "command": "Enrol"},
    ]);
    instance.post("/commands", both).await.expect(200);
    for id in ["1", "2"] {
        instance.post("/order", order(id)).await.expect(201);
    }
    for of in ["account/1", "order/1", "order/2"] {
        project(&instance, of).await;
    }
    let (views, view) = (instance.table.direct_views(), orders_by_day());
    views.begin_rebuild(&view, "{}", Timestamp::now()).await.unwrap();
    let before = views.projection_versions(&view.name).await.unwrap();
    views.switch(&view, &view, &before, Timestamp::now()).await.unwrap();
    let read = views.positions(&view, &[key("order/2")].into()).await.unwrap().remove(&key("order/2")).unwrap();
    let after = Position { suspended: Some("an error".to_owned()), ..read.clone() };
    let position = PositionWrite { before: Some(read.seq_num), resumed_at: read.resumed_at, after };
    let write = ViewWrite { positions: [(key("order/2"), position)].into(), ..ViewWrite::default() };
    assert_eq!(views.write(&view, &write).await.unwrap(), WriteOutcome::Written);
    instance
}

async fn rows(instance: &Instance, table: &str) -> Vec<Item> {
    let pages = instance.table.raw.scan().table_name(table).into_paginator().items().send();
    pages.collect::<Result<_, _>>().await.unwrap()
}

/// An instance over the rows of a release that `keep` selects.
async fn instance_with(release: &str, keep: impl Fn(&Item) -> bool) -> Instance {
    let instance = instance().await;
    for (name, table) in FILES {
        let (_, rows) = releases(name).into_iter().find(|(of, _)| of == release).unwrap();
        for row in rows {
            let mut row: Item = serde_json::from_value::<serde_dynamo::Item>(row).unwrap().into();
            if row.contains_key("ttl") && text(&row, "sk").starts_with(keys::IDEMPOTENCY_PREFIX) {
                // The golden row has expired long ago.
                let ttl = Timestamp::now().as_second() + 3600;
                row.insert("ttl".to_owned(), aws_sdk_dynamodb::types::AttributeValue::N(ttl.to_string()));
                row = sealed(row);
            }
            if table == KEYS_TABLE || keep(&row) {
                instance.table.raw.put_item().table_name(table).set_item(Some(row)).send().await.unwrap();
            }
        }
    }
    instance
}

fn table_releases() -> Vec<String> {
    releases("table.json").into_iter().map(|(release, _)| release).collect()
}

#[tokio::test]
async fn this_release_writes_the_format_of_the_newest_golden_rows() {
    let instance = write_rows().await;
    for (name, table) in FILES {
        assert_format(name, rows(&instance, table).await.iter().map(notation).collect());
    }
}

#[tokio::test]
async fn golden_rows_have_every_kind_of_row() {
    let (_, rows) = releases("table.json").pop().unwrap();
    let sort_keys: Vec<_> = rows.iter().map(|row| row["sk"]["S"].as_str().unwrap()).collect();
    for prefix in [
        keys::METADATA,
        keys::SNAPSHOT,
        keys::EVENT_PREFIX,
        keys::OUTBOX_PREFIX,
        keys::IDEMPOTENCY_PREFIX,
        keys::KEPT_SNAPSHOT_PREFIX,
        keys::CLAIM,
        keys::DEADLINE_PREFIX,
        keys::POSITION_PREFIX,
    ] {
        assert!(sort_keys.iter().any(|sk| sk.starts_with(prefix)), "{prefix} in {sort_keys:?}");
    }
    assert!(
        rows.iter().any(|row| row["state"]["B"].is_string() || row["state"]["B"].is_array()),
        "no compressed snapshot"
    );
    for attribute in ["appendEnd", "together", "snapshotDue", "deleted", "failedAt", "sum"] {
        assert!(rows.iter().any(|row| !row[attribute].is_null()), "no {attribute}");
    }
    let (_, rows) = releases("views.json").pop().unwrap();
    for prefix in ["VIEW#", "POSITION#", "PROJECTION#"] {
        assert!(rows.iter().any(|row| row["pk"]["S"].as_str().unwrap().starts_with(prefix)), "no {prefix}");
    }
    for sk in ["#POINTER", "VERSION#1"] {
        assert!(rows.iter().any(|row| row["sk"]["S"] == sk), "no {sk}");
    }
    assert!(rows.iter().any(|row| !row["suspended"].is_null()), "no suspended aggregate");
}

#[tokio::test]
async fn states_events_and_lists_of_each_release_are_read_and_appended_to() {
    for release in table_releases() {
        let instance = instance_with(&release, |_| true).await;
        for path in ["/account/1", "/account/1?rebuild=true"] {
            let read = instance.get(path).await.expect(200);
            assert_eq!((&read.body["version"], &read.body["state"]["balance"]), (&json!(5), &json!(-50)), "{release}");
        }
        assert_eq!(instance.get("/account/1?version=2").await.expect(200).body["state"]["balance"], 200);
        assert_eq!(instance.get("/account/large").await.expect(200).body["state"]["ownerFirst"], "x".repeat(9000));
        instance.get("/todo/gone").await.expect_problem(410, "deleted");
        let events = instance.get("/account/1/events").await.expect(200);
        let types: Vec<_> = events.body["events"].as_array().unwrap().iter().map(|event| &event["eventType"]).collect();
        let accepted = "TransactionAccepted";
        assert_eq!(types, ["AccountOpened", accepted, accepted, accepted, "TransactionFailed"], "{release}");
        assert_eq!(events.body["events"][1]["meta"]["correlationId"], "golden");
        instance.get("/customer?claim=personal-email:ann@example.com").await.expect(303);
        let (store, late) = (instance.table.direct_store(), Timestamp::MAX);
        for (state, id) in [(DeadlineState::Pending, "1"), (DeadlineState::Failed, "2")] {
            let found = store.deadlines(state, late, 10).await.unwrap();
            assert_eq!((&*found.items[0].aggregate.id, found.items.len()), (id, 1), "{release}");
        }
        let mut position = store.suspended_positions(10).await.unwrap().items.remove(0);
        let at = (position.source.to_string(), position.item.process_type(), position.item.seq_num);
        assert_eq!(at, ("reservation/2".to_owned(), "fulfilment", 1), "{release}");
        assert!(
            store.move_position(&mut position, PositionMove::Resume(PositionItem::ALL, 2)).await.unwrap(),
            "{release}"
        );
        assert_eq!(instance.get("/course/rust").await.expect(200).body["state"]["seats"], 20, "{release}");
        let listed = instance.get("/order").await.expect(200);
        assert_eq!(listed.body["aggregates"].as_array().unwrap().len(), 2, "{release}");
        let feed = instance.get("/events?type=TransactionAccepted").await.expect(200);
        assert_eq!(feed.body["events"].as_array().unwrap().len(), 4, "{release}");

        let appended = instance.post("/account/1/commands", transaction(-100)).await.expect(200);
        assert_eq!((&appended.body["version"], &appended.body["state"]["balance"]), (&json!(6), &json!(-150)));
    }
}

/// Without the events that a snapshot contains, only the snapshot leads to the state.
#[tokio::test]
async fn snapshots_of_each_release_are_used() {
    for release in table_releases() {
        let is_in_snapshot = |row: &Item| {
            let last = match text(row, "pk") {
                "AGGREGATE#account#1" => 4,
                "AGGREGATE#account#large" => 2,
                _ => 0,
            };
            keys::event_seq_num(text(row, "sk")).is_some_and(|seq_num| seq_num <= last)
        };
        let instance = instance_with(&release, |row| !is_in_snapshot(row)).await;
        assert_eq!(instance.get("/account/1").await.expect(200).body["state"]["balance"], -50, "{release}");
        let large = instance.get("/account/large").await.expect(200);
        assert_eq!((&large.body["state"]["ownerLast"], &large.body["version"]), (&json!("B"), &json!(3)), "{release}");

        // After a rollback, the release that took the kept snapshot uses it: the latest one is of the other release.
        let is_before_kept = |row: &Item| {
            let is_event = keys::event_seq_num(text(row, "sk")).is_some_and(|seq_num| seq_num <= 3);
            is_event && text(row, "pk").ends_with("#account#1")
        };
        let instance = instance_with(&release, |row| !is_before_kept(row)).await;
        for (sk, version) in [(keys::SNAPSHOT, "7"), (&keys::kept_snapshot_sk(3), "1")] {
            let mut row = instance.table.row(&key("account/1"), sk).await.unwrap();
            row.insert("stateVersion".to_owned(), aws_sdk_dynamodb::types::AttributeValue::N(version.to_owned()));
            instance.table.put(sealed(row)).await;
        }
        assert_eq!(instance.get("/account/1").await.expect(200).body["state"]["balance"], -50, "{release}");
    }
}

#[tokio::test]
async fn requests_that_each_release_has_executed_get_their_first_response() {
    for release in table_releases() {
        let instance = instance_with(&release, |_| true).await;
        let repeated = post(&instance, "/account", "open-1", json!({"id": "1"})).await.expect(201);
        assert_eq!(
            (repeated.header("idempotency-replayed"), &repeated.body["version"]),
            ("true", &json!(1)),
            "{release}"
        );
        let rejected = post(&instance, "/account/1/commands", "fourth-1", transaction(AMOUNTS[3])).await;
        let rejected = rejected.expect_problem(422, "refused");
        assert_eq!(rejected.header("idempotency-replayed"), "true", "{release}");
        let other = post(&instance, "/account/1/commands", "third-1", transaction(51)).await;
        other.expect_problem(422, "key-reused");
        assert_eq!(instance.get("/account/1").await.expect(200).body["version"], 5, "{release}");
    }
}

#[tokio::test]
async fn messages_of_each_release_are_published_and_its_rows_verified() {
    for release in table_releases() {
        let instance = instance_with(&release, |_| true).await;
        let mut outbox = rows(&instance, TABLE).await;
        outbox.retain(|row| text(row, "sk").starts_with(keys::OUTBOX_PREFIX));
        outbox.sort_by_key(|row| (text(row, "pk").to_owned(), text(row, "sk").to_owned()));
        assert!(outbox.len() >= 5, "{release}");
        assert_eq!(sorted(relayed(&outbox).await), sorted(published(&outbox)), "{release}");

        let (registry, store) = (aggregates::registry().unwrap(), instance.table.direct_store());
        for of in ["account/1", "account/large", "todo/gone", "order/1", "reservation/1", "reservation/2", "customer/1"]
        {
            let model = registry.get(&key(of).aggregate_type).unwrap();
            let verified = store.admin().verify(model, &key(of), Timestamp::now()).await.unwrap();
            assert_eq!(verified.findings, vec![], "{release} {of}");
        }
    }
}

fn sorted(mut messages: Vec<(String, String)>) -> Vec<(String, String)> {
    messages.sort();
    messages
}

#[tokio::test]
async fn views_of_each_release_are_read_and_continued() {
    for release in table_releases() {
        let instance = instance_with(&release, |_| true).await;
        let balance =
            async || instance.get("/views/account-balances/account:1").await.expect(200).body["row"]["balance"].clone();
        assert_eq!(balance().await, -50, "{release}");
        project(&instance, "account/1").await;
        assert_eq!(balance().await, -50, "{release}: the events are folded twice");
        instance.post("/account/1/commands", transaction(-100)).await.expect(200);
        project(&instance, "account/1").await;
        assert_eq!(balance().await, -150, "{release}");

        let (views, view) = (instance.table.direct_views(), orders_by_day());
        let versions = views.projection_versions(&view.name).await.unwrap();
        assert_eq!(versions.pointer.map(|pointer| pointer.version), Some(1), "{release}");
        assert!(versions.marks.contains_key(&1), "{release}");
        let suspended: Vec<_> = views.suspended().await.unwrap().into_iter().map(|one| one.aggregate).collect();
        assert_eq!(suspended, [key("order/2")], "{release}");
        assert_eq!(views.resume(&view, &key("order/2"), Timestamp::now()).await.unwrap(), Some(2), "{release}");
    }
}
