//! Two concurrent releases over one table, as in every gradual deployment: which rows of the other release each of them reads.
//! The tests correspond to the table of `docs/evolving-events.md`, cell by cell.

mod instances;
mod parcel;

use std::pin::pin;

use axum::http::Method;
use daybook_event_store::{SnapshotOutcome, StoreError};
use daybook_local_aws::messaging::{Bus, Server};
use daybook_stream_relay::{Relay, RetryPolicy, clients};
use daybook_table::keys;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use self::instances::{EVERY, Item, Table, first_events, inserted, key};
use self::parcel::Release::{self, New, Old, Rash};
use crate::instance::request;

/// Pairs of a writing and a reading release.
const PAIRS: [(Release, Release); 4] = [(Old, Old), (New, Old), (Old, New), (New, New)];

/// More time than any operation needs.
fn in_time() -> Instant {
    Instant::now() + Duration::from_secs(300)
}

fn old_state(towns: &[&str]) -> Value {
    json!({"to": "Ann", "places": towns.iter().map(|town| format!("{town}, CH")).collect::<Vec<_>>()})
}

fn new_state(towns: &[&str]) -> Value {
    json!({"to": "Ann", "seen": towns.iter().map(|town| json!({"town": town, "country": "CH"})).collect::<Vec<_>>()})
}

/// The expected state in a release.
fn state_in(release: Release, towns: &[&str]) -> Value {
    if release == New { new_state(towns) } else { old_state(towns) }
}

// Events.

#[tokio::test]
async fn new_release_reads_events_of_the_old_one() {
    for writer in [Rash, Old] {
        let table = Table::new().await;
        let old = table.instance(writer);
        old.send("1", "Ann").await;
        old.scan("1", "Bern").await;
        assert_eq!(table.instance(New).state("1").await, new_state(&["Bern"]));
        assert_eq!(table.instance(writer).state("1").await, old_state(&["Bern"]));
    }
}

#[tokio::test]
async fn old_release_that_reads_ahead_reads_events_of_the_new_one() {
    let table = Table::new().await;
    let new = table.instance(New);
    new.send("1", "Ann").await;
    new.scan("1", "Bern").await;
    assert_eq!(table.instance(Old).state("1").await, old_state(&["Bern"]));
    assert_eq!(table.instance(New).state("1").await, new_state(&["Bern"]));
}

#[tokio::test]
async fn old_release_that_does_not_read_ahead_reports_events_of_a_newer_one() {
    let table = Table::new().await;
    table.instance(Rash).send("1", "Ann").await;
    table.instance(New).scan("1", "Bern").await;
    table.instance(New).send("2", "Ann").await;
    for (id, event) in [("1", "event 2 (ParcelScanned version 2)"), ("2", "event 1 (ParcelPosted version 1)")] {
        let error = table.instance(Rash).try_load(id).await.unwrap_err();
        let StoreError::Newer { item, source } = error else { panic!("{error:?}") };
        assert_eq!(item, format!("parcel/{id}"));
        assert!(source.to_string().starts_with(event), "{source}");
    }
    // The caller can retry: the next request may reach the new release.
    let answer = table.instance(Rash).get("/parcel/1").await.expect_problem(503, "newer-release");
    assert!(answer.headers.contains_key("retry-after"));
    let read = table.instance(New).get("/parcel/1").await.expect(200);
    assert_eq!(read.body["state"], new_state(&["Bern"]));
}

#[tokio::test]
async fn both_releases_append_to_one_stream_in_turn() {
    let table = Table::new().await;
    let (old, new) = (table.instance(Old), table.instance(New));
    old.send("1", "Ann").await;
    let towns = ["Bern", "Chur", "Genf", "Thun", "Visp", "Zug"];
    for (number, town) in (2..).zip(towns) {
        // Each instance has an outdated cached state, because the other one has written.
        let writer = if number % 2 == 0 { &new } else { &old };
        let after = writer.scan("1", town).await;
        assert_eq!((after.version(), after.folded.message_seq()), (number, number));
    }
    for (old, new) in [(&old, &new), (&table.instance(Old), &table.instance(New))] {
        assert_eq!((old.state("1").await, new.state("1").await), (old_state(&towns), new_state(&towns)));
    }
    let rows = table.rows("1", keys::EVENT_PREFIX).await;
    let versions: Vec<_> = rows.iter().map(|row| row["eventVersion"].as_n().unwrap().as_str()).collect();
    assert_eq!(versions, ["1", "2", "1", "2", "1", "2", "1"]);
}

#[tokio::test]
async fn rollback_to_a_release_that_reads_ahead_loses_no_event() {
    let table = Table::new().await;
    table.instance(Old).send("1", "Ann").await;
    table.instance(New).scan("1", "Bern").await;
    table.instance(New).take_snapshot("1").await.unwrap();
    let back = table.instance(Old);
    back.scan("1", "Chur").await;
    back.take_snapshot("1").await.unwrap();
    let again = table.instance(New);
    again.scan("1", "Thun").await;
    assert_eq!(table.instance(Old).state("1").await, old_state(&["Bern", "Chur", "Thun"]));
    assert_eq!(again.state("1").await, new_state(&["Bern", "Chur", "Thun"]));
}

#[tokio::test]
async fn list_contains_aggregates_by_each_known_name_of_the_first_event() {
    let table = Table::new().await;
    for (id, writer) in [("a", Old), ("b", New), ("c", Old), ("d", New)] {
        table.instance(writer).send(id, "Ann").await;
    }
    for reader in [Old, New] {
        assert_eq!(listed(&table, reader).await, ["a", "b", "c", "d"], "{reader:?}");
        // The events of either name can be read.
        for (name, ids) in [("ParcelSent", ["a", "c"]), ("ParcelPosted", ["b", "d"])] {
            let feed = table.instance(reader).get(&format!("/events?type={name}")).await.body;
            let found: Vec<_> = feed["events"].as_array().unwrap().iter().map(|event| &event["aggregateId"]).collect();
            assert_eq!(found, ids);
        }
    }
    // A release that does not read ahead does not know the other name.
    assert_eq!(listed(&table, Rash).await, ["a", "c"]);
    table.instance(Rash).get("/events?type=ParcelPosted").await.expect_problem(404, "unknown-event-type");
}

/// The ids in the list of parcels, page by page.
async fn listed(table: &Table, reader: Release) -> Vec<Value> {
    let mut found = Vec::new();
    let mut path = "/parcel?limit=1".to_owned();
    loop {
        let page = table.instance(reader).get(&path).await;
        found.extend(page.body["aggregates"].as_array().unwrap().iter().map(|entry| entry["id"].clone()));
        let Some(next) = page.next() else { return found };
        path = next.to_owned();
    }
}

// Snapshots.

#[tokio::test]
async fn snapshot_is_used_only_by_releases_with_its_state_version() {
    for (writer, reader) in PAIRS {
        let table = Table::new().await;
        table.instance(Old).send("1", "Ann").await;
        let towns: Vec<_> = (0..2 * EVERY).map(|number| number.to_string()).collect();
        let towns: Vec<_> = towns.iter().map(String::as_str).collect();
        let instance = table.instance(Old);
        for town in &towns {
            instance.scan("1", town).await;
        }
        table.instance(writer).take_snapshot("1").await.unwrap();
        table.wire.take_calls();
        let state = table.instance(reader).state("1").await;
        assert_eq!(state, state_in(reader, &towns));
        let calls = table.wire.take_calls();
        let expected: &[String] = if writer == reader { &[] } else { &[keys::event_sk(1)] };
        assert_eq!(first_events(&calls), expected, "{writer:?} for {reader:?}");
    }
}

/// Each state version has its own snapshot, so neither release folds from the first event again, neither while both take
/// snapshots in turn nor after a rollback.
#[tokio::test]
async fn concurrent_state_versions_never_fold_from_the_first_event_again() {
    let table = Table::new().await;
    let (old, new) = (table.instance(Old), table.instance(New));
    old.send("1", "Ann").await;
    let mut towns = Vec::new();
    let write = async |towns: &mut Vec<String>| {
        for number in 0..EVERY {
            let town = format!("town{}", towns.len());
            (if number % 2 == 0 { &old } else { &new }).scan("1", &town).await;
            towns.push(town);
        }
    };
    for _ in 0..3 {
        write(&mut towns).await;
    }
    for release in [Old, New] {
        table.instance(release).take_snapshot("1").await.unwrap();
    }
    let read = async |towns: &[String]| {
        let towns: Vec<_> = towns.iter().map(String::as_str).collect();
        table.wire.take_calls();
        assert_eq!(table.instance(Old).state("1").await, old_state(&towns));
        assert_eq!(table.instance(New).state("1").await, new_state(&towns));
        let calls = table.wire.take_calls();
        assert!(!first_events(&calls).contains(&keys::event_sk(1).as_str()), "{calls:#?}");
    };
    // The releases during a gradual deployment and after its rollback.
    for release in [Old, New, New, Old, New, Old, Old, Old, Old] {
        write(&mut towns).await;
        read(&towns).await;
        let taken = table.instance(release).take_snapshot("1").await.unwrap();
        assert_eq!(taken, SnapshotOutcome::Taken { version: towns.len() as u64 + 1 });
        let newest = table.rows("1", keys::SNAPSHOT).await.pop().unwrap();
        assert_eq!(newest["lastSeqNum"].as_n().unwrap(), &(towns.len() + 1).to_string());
        read(&towns).await;
    }
    // The kept snapshots of the other state version expire.
    let aside = table.rows("1", keys::KEPT_SNAPSHOT_PREFIX).await;
    assert!(!aside.is_empty() && aside.iter().all(|row| row.contains_key("ttl")));
}

#[tokio::test]
async fn late_run_of_the_old_release_does_not_replace_a_newer_snapshot_of_the_new_one() {
    let table = Table::new().await;
    let (old, new) = (table.instance(Old), table.instance(New));
    old.send("1", "Ann").await;
    let late = table.instance(Old);
    table.wire.take_calls();
    let mut late = pin!(late.take_snapshot("1"));
    // The late run has read the aggregate and not written the snapshot yet.
    table.wire.hold(&mut late, |calls| calls.len() == 2).await;
    old.scan("1", "Bern").await;
    assert_eq!(new.take_snapshot("1").await.unwrap(), SnapshotOutcome::Taken { version: 2 });
    let newest = table.rows("1", keys::SNAPSHOT).await;

    assert_eq!(late.await.unwrap(), SnapshotOutcome::NotNewer);
    assert_eq!(table.rows("1", keys::SNAPSHOT).await, newest);
    // A snapshot of the same event may replace it. The snapshot of the new release becomes a kept snapshot.
    assert_eq!(old.take_snapshot("1").await.unwrap(), SnapshotOutcome::Taken { version: 2 });
    let aside = table.rows("1", keys::KEPT_SNAPSHOT_PREFIX).await.pop().unwrap();
    assert_eq!((&aside["state"], &aside["takenAt"]), (&newest[0]["state"], &newest[0]["takenAt"]));
}

#[tokio::test]
async fn snapshotter_takes_snapshots_of_events_of_either_release() {
    for (writer, reader) in PAIRS {
        let table = Table::new().await;
        let instance = table.instance(writer);
        instance.send("1", "Ann").await;
        for _ in 1..EVERY {
            instance.scan("1", "Bern").await;
        }
        let mut due = table.rows("1", keys::EVENT_PREFIX).await;
        due.retain(|row| row.contains_key("snapshotDue"));
        let batch = serde_json::from_value(json!({"Records": [inserted(&due[0], 1)]})).unwrap();
        let answer = table.snapshotter(reader).handle(batch, in_time()).await.unwrap();
        assert_eq!(answer.checkpoint(), None);
        let taken = table.rows("1", keys::SNAPSHOT).await.pop().unwrap();
        let state: Value = serde_json::from_str(taken["state"].as_s().unwrap()).unwrap();
        assert_eq!(state, state_in(reader, &["Bern"; EVERY as usize - 1]), "{writer:?} for {reader:?}");
    }
}

#[tokio::test]
async fn snapshotter_that_does_not_read_ahead_skips_the_aggregate() {
    let table = Table::new().await;
    let rash = table.instance(Rash);
    for id in ["1", "2"] {
        rash.send(id, "Ann").await;
        for _ in 1..EVERY {
            rash.scan(id, "Bern").await;
        }
    }
    table.instance(New).scan("1", "Chur").await;
    let mut due = Vec::new();
    for id in ["1", "2"] {
        due.extend(
            table.rows(id, keys::EVENT_PREFIX).await.iter().filter(|row| row.contains_key("snapshotDue")).cloned(),
        );
    }
    let records: Vec<_> = due.iter().zip(1..).map(|(row, number)| inserted(row, number)).collect();
    assert_eq!(records.len(), 2);
    let batch = serde_json::from_value(json!({ "Records": records })).unwrap();
    let answer = table.snapshotter(Rash).handle(batch, in_time()).await.unwrap();
    assert_eq!(answer.checkpoint(), None, "the batch succeeds");
    let taken = async |id: &str| table.rows(id, keys::SNAPSHOT).await.len();
    assert_eq!((taken("1").await, taken("2").await), (0, 1));
    // The new release takes the snapshot when it is next due.
    let batch = serde_json::from_value(json!({ "Records": records })).unwrap();
    assert_eq!(table.snapshotter(New).handle(batch, in_time()).await.unwrap().checkpoint(), None);
    assert_eq!((taken("1").await, taken("2").await), (1, 1));
}

// Cached states.

#[tokio::test]
async fn cached_state_is_continued_with_events_of_either_release() {
    for (writer, reader) in PAIRS {
        let table = Table::new().await;
        let warm = table.instance(reader);
        warm.send("1", "Ann").await;
        table.instance(writer).scan("1", "Bern").await;
        // It decides on its cached state, detects the conflict, and reads the newer events.
        table.wire.take_calls();
        let after = warm.scan("1", "Chur").await;
        let state: Value = after.state.read().unwrap();
        assert_eq!(state, state_in(reader, &["Bern", "Chur"]), "{writer:?} for {reader:?}");
        let calls = table.wire.take_calls();
        let operations: Vec<_> = calls.iter().map(|call| call.operation.as_str()).collect();
        assert_eq!(operations, ["TransactWriteItems", "Query", "TransactWriteItems"], "{writer:?} for {reader:?}");
        assert_eq!(first_events(&calls), [keys::event_sk(2)]);
    }
}

#[tokio::test]
async fn command_on_a_cached_state_with_unreadable_newer_events_appends_nothing() {
    let table = Table::new().await;
    let rash = table.instance(Rash);
    rash.send("1", "Ann").await;
    table.instance(New).scan("1", "Bern").await;
    for _ in 0..2 {
        let error = rash.command("1", "Scan", json!({"town": "Chur", "country": "CH"})).await.unwrap_err();
        assert!(matches!(error, StoreError::Newer { .. }), "{error:?}");
        // The cached state is unchanged and still correct.
        assert_eq!(rash.store.cached(&key("1")).unwrap().version(), 1);
    }
    assert_eq!(table.rows("1", keys::EVENT_PREFIX).await.len(), 2);
}

#[tokio::test]
async fn stored_response_of_one_release_is_returned_by_the_other() {
    let post = || request(Method::POST, "/parcel", &[("idempotency-key", "k")], Some(json!({"id": "1", "to": "Ann"})));
    for (first, second) in PAIRS.into_iter().chain([(Rash, New), (New, Rash)]) {
        let table = Table::new().await;
        let answered = table.instance(first).ask(post()).await.expect(201);
        let replayed = table.instance(second).ask(post()).await.expect(201);
        assert_eq!(replayed.body, answered.body, "{first:?} then {second:?}");
        assert_eq!(replayed.header("idempotency-replayed"), "true");
        assert_eq!(table.rows("1", keys::EVENT_PREFIX).await.len(), 1);
    }
}

// Rows.

/// The entries that a relay sends for these outbox rows: detail types with details.
async fn relayed(rows: &[Item]) -> Vec<(String, String)> {
    let bus = Bus::new();
    let server = Server::start(bus.router()).await.unwrap();
    let config = daybook_function_runtime::aws_config_at(server.url());
    let settings = daybook_stream_relay::RelaySettings {
        event_bus_name: "main".into(),
        event_source: "daybook".into(),
        dlq_url: "http://localhost/1/dlq".into(),
        retry: RetryPolicy::default(),
    };
    let relay = Relay::new(clients::eventbridge(&config), clients::sqs(&config), settings);
    let records: Vec<_> = rows.iter().zip(1..).map(|(row, number)| inserted(row, number)).collect();
    let batch = serde_json::from_str(&json!({ "Records": records }).to_string()).unwrap();
    let answer = relay.handle(batch, Instant::now() + Duration::from_secs(60)).await.unwrap();
    assert_eq!(answer.checkpoint(), None);
    assert!(bus.dead_letters().is_empty());
    bus.delivered().into_iter().map(|entry| (entry.detail_type, entry.detail)).collect()
}

fn told(rows: &[Item]) -> Vec<(String, String)> {
    let text = |row: &Item, name: &str| row[name].as_s().unwrap().clone();
    rows.iter().map(|row| (text(row, "messageType"), text(row, "detail"))).collect()
}

/// The relay does not use aggregates. Rows of different releases differ only in their attributes.
#[tokio::test]
async fn relay_sends_rows_of_older_and_of_newer_releases() {
    let table = Table::new().await;
    table.instance(Old).send("1", "Ann").await;
    table.instance(New).scan("1", "Bern").await;
    let rows = table.rows("1", keys::OUTBOX_PREFIX).await;
    let names: Vec<_> = told(&rows).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["ParcelSent", "ParcelScanned"]);
    assert_eq!(relayed(&rows).await, told(&rows));

    let with = |more: &[&str]| {
        let mut rows = rows.clone();
        for row in &mut rows {
            for name in more {
                row.insert((*name).to_owned(), aws_sdk_dynamodb::types::AttributeValue::S("later".into()));
            }
        }
        rows
    };
    // An old relay reads rows with unknown attributes.
    let newer = with(&["priority", "schema"]);
    assert_eq!(relayed(&newer).await, told(&rows));
    // A new relay reads rows without the attributes of later releases.
    let mut older = rows.clone();
    for row in &mut older {
        let first = ["pk", "sk", "messageId", "messageType", "messageSeq", "detail", "occurredAt", "seqNum", "ttl"];
        row.retain(|name, _| first.contains(&name.as_str()));
        assert_eq!(row.len(), first.len());
    }
    assert_eq!(relayed(&older).await, told(&rows));
}

#[tokio::test]
async fn store_reads_rows_of_older_and_of_newer_releases() {
    let table = Table::new().await;
    let old = table.instance(Old);
    old.send("1", "Ann").await;
    old.scan("1", "Bern").await;
    old.take_snapshot("1").await.unwrap();
    old.scan("1", "Chur").await;
    for row in table.rows("1", "").await {
        let mut newer = row.clone();
        newer.insert("later".into(), aws_sdk_dynamodb::types::AttributeValue::Bool(true));
        table.raw.put_item().table_name("daybook-test").set_item(Some(newer)).send().await.unwrap();
    }
    for reader in [Old, New] {
        let instance = table.instance(reader);
        let towns: &[&str] = &["Bern", "Chur"];
        assert_eq!(instance.state("1").await, state_in(reader, towns));
    }
    // An append leaves unknown attributes of the metadata unchanged.
    old.scan("1", "Thun").await;
    let metadata = table.rows("1", keys::METADATA).await.pop().unwrap();
    assert_eq!(metadata["later"].as_bool(), Ok(&true));

    // Rows of the first release have none of the attributes that are now optional.
    for mut row in table.rows("1", keys::EVENT_PREFIX).await {
        row.retain(|name, _| !["appendEnd", "snapshotDue", "later"].contains(&name.as_str()));
        row.insert("meta".into(), aws_sdk_dynamodb::types::AttributeValue::M(Item::new()));
        table.raw.put_item().table_name("daybook-test").set_item(Some(row)).send().await.unwrap();
    }
    assert_eq!(table.instance(New).state("1").await, new_state(&["Bern", "Chur", "Thun"]));
}
