//! Two concurrent releases over one table, as in every gradual deployment: which rows of the other release each of them reads.
//! The tests correspond to the table of `docs/evolving-events.md`, cell by cell.

mod instances;
mod owners;
mod parcel;

use std::pin::pin;

use axum::http::Method;
use daybook_event_store::{SnapshotOutcome, StoreError};
use daybook_local_aws::messaging::{Bus, Server};
use daybook_stream_relay::{Relay, RetryPolicy, clients};
use daybook_table::keys;
use daybook_test_support::row::Item;
use daybook_test_support::stream_record::inserted;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use self::instances::{EVERY, Setup, first_events, key};
use self::parcel::Release::{self, New, Old, Rash};
use crate::instance::request;

/// Pairs of a writing and a reading release.
const PAIRS: [(Release, Release); 4] = [(Old, Old), (New, Old), (Old, New), (New, New)];

/// A deadline that no test reaches.
fn deadline() -> Instant {
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
        let setup = Setup::new().await;
        let old = setup.instance(writer);
        old.send("1", "Ann").await;
        old.scan("1", "Bern").await;
        assert_eq!(setup.instance(New).state("1").await, new_state(&["Bern"]));
        assert_eq!(setup.instance(writer).state("1").await, old_state(&["Bern"]));
    }
}

#[tokio::test]
async fn old_release_that_reads_ahead_reads_events_of_the_new_one() {
    let setup = Setup::new().await;
    let new = setup.instance(New);
    new.send("1", "Ann").await;
    new.scan("1", "Bern").await;
    assert_eq!(setup.instance(Old).state("1").await, old_state(&["Bern"]));
    assert_eq!(setup.instance(New).state("1").await, new_state(&["Bern"]));
}

#[tokio::test]
async fn old_release_that_does_not_read_ahead_reports_events_of_a_newer_one() {
    let setup = Setup::new().await;
    setup.instance(Rash).send("1", "Ann").await;
    setup.instance(New).scan("1", "Bern").await;
    setup.instance(New).send("2", "Ann").await;
    for (id, event) in [("1", "event 2 (ParcelScanned version 2)"), ("2", "event 1 (ParcelPosted version 1)")] {
        let error = setup.instance(Rash).try_load(id).await.unwrap_err();
        let StoreError::Newer { item, source } = error else { panic!("{error:?}") };
        assert_eq!(item, format!("parcel/{id}"));
        assert!(source.to_string().starts_with(event), "{source}");
    }
    // The caller can retry: the next request may reach the new release.
    let response = setup.instance(Rash).get("/parcel/1").await.expect_problem(503, "newer-release");
    assert!(response.headers.contains_key("retry-after"));
    let read = setup.instance(New).get("/parcel/1").await.expect(200);
    assert_eq!(read.body["state"], new_state(&["Bern"]));
}

#[tokio::test]
async fn both_releases_append_to_one_stream_in_turn() {
    let setup = Setup::new().await;
    let (old, new) = (setup.instance(Old), setup.instance(New));
    old.send("1", "Ann").await;
    let towns = ["Bern", "Chur", "Genf", "Thun", "Visp", "Zug"];
    for (number, town) in (2..).zip(towns) {
        // Each instance has an outdated cached state, because the other one has written.
        let writer = if number % 2 == 0 { &new } else { &old };
        let after = writer.scan("1", town).await;
        assert_eq!((after.version(), after.folded.message_seq()), (number, number));
    }
    for (old, new) in [(&old, &new), (&setup.instance(Old), &setup.instance(New))] {
        assert_eq!((old.state("1").await, new.state("1").await), (old_state(&towns), new_state(&towns)));
    }
    let rows = setup.rows("1", keys::EVENT_PREFIX).await;
    let versions: Vec<_> = rows.iter().map(|row| row["eventVersion"].as_n().unwrap().as_str()).collect();
    assert_eq!(versions, ["1", "2", "1", "2", "1", "2", "1"]);
}

#[tokio::test]
async fn rollback_to_a_release_that_reads_ahead_loses_no_event() {
    let setup = Setup::new().await;
    setup.instance(Old).send("1", "Ann").await;
    setup.instance(New).scan("1", "Bern").await;
    setup.instance(New).take_snapshot("1").await.unwrap();
    let back = setup.instance(Old);
    back.scan("1", "Chur").await;
    back.take_snapshot("1").await.unwrap();
    let again = setup.instance(New);
    again.scan("1", "Thun").await;
    assert_eq!(setup.instance(Old).state("1").await, old_state(&["Bern", "Chur", "Thun"]));
    assert_eq!(again.state("1").await, new_state(&["Bern", "Chur", "Thun"]));
}

#[tokio::test]
async fn list_contains_aggregates_by_each_known_name_of_the_first_event() {
    let setup = Setup::new().await;
    for (id, writer) in [("a", Old), ("b", New), ("c", Old), ("d", New)] {
        setup.instance(writer).send(id, "Ann").await;
    }
    for reader in [Old, New] {
        assert_eq!(listed(&setup, reader).await, ["a", "b", "c", "d"], "{reader:?}");
        // The feed of either name can be read too.
        for (name, ids) in [("ParcelSent", ["a", "c"]), ("ParcelPosted", ["b", "d"])] {
            let feed = setup.instance(reader).get(&format!("/events?type={name}")).await.body;
            let found: Vec<_> = feed["events"].as_array().unwrap().iter().map(|event| &event["aggregateId"]).collect();
            assert_eq!(found, ids);
        }
    }
    // A release that does not read ahead does not know the other name.
    assert_eq!(listed(&setup, Rash).await, ["a", "c"]);
    setup.instance(Rash).get("/events?type=ParcelPosted").await.expect_problem(404, "unknown-event-type");
}

/// The ids in the list of parcels, read page by page.
async fn listed(setup: &Setup, reader: Release) -> Vec<Value> {
    let mut found = Vec::new();
    let mut path = "/parcel?limit=1".to_owned();
    loop {
        let page = setup.instance(reader).get(&path).await;
        found.extend(page.body["aggregates"].as_array().unwrap().iter().map(|entry| entry["id"].clone()));
        let Some(next) = page.next() else { return found };
        path = next.to_owned();
    }
}

// Snapshots.

#[tokio::test]
async fn snapshot_is_used_only_by_releases_with_its_state_version() {
    for (writer, reader) in PAIRS {
        let setup = Setup::new().await;
        setup.instance(Old).send("1", "Ann").await;
        let towns: Vec<_> = (0..2 * EVERY).map(|number| number.to_string()).collect();
        let towns: Vec<_> = towns.iter().map(String::as_str).collect();
        let instance = setup.instance(Old);
        for town in &towns {
            instance.scan("1", town).await;
        }
        setup.instance(writer).take_snapshot("1").await.unwrap();
        setup.table.proxy.take_calls();
        let state = setup.instance(reader).state("1").await;
        assert_eq!(state, state_in(reader, &towns));
        let calls = setup.table.proxy.take_calls();
        let expected: &[String] = if writer == reader { &[] } else { &[keys::event_sk(1)] };
        assert_eq!(first_events(&calls), expected, "{writer:?} for {reader:?}");
    }
}

/// Each state version has its own snapshot. So neither release folds from the first event again while both take
/// snapshots in turn, or after a rollback.
#[tokio::test]
async fn concurrent_state_versions_never_fold_from_the_first_event_again() {
    let setup = Setup::new().await;
    let (old, new) = (setup.instance(Old), setup.instance(New));
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
        setup.instance(release).take_snapshot("1").await.unwrap();
    }
    let read = async |towns: &[String]| {
        let towns: Vec<_> = towns.iter().map(String::as_str).collect();
        setup.table.proxy.take_calls();
        assert_eq!(setup.instance(Old).state("1").await, old_state(&towns));
        assert_eq!(setup.instance(New).state("1").await, new_state(&towns));
        let calls = setup.table.proxy.take_calls();
        assert!(!first_events(&calls).contains(&keys::event_sk(1).as_str()), "{calls:#?}");
    };
    // The releases during a gradual deployment and after its rollback.
    for release in [Old, New, New, Old, New, Old, Old, Old, Old] {
        write(&mut towns).await;
        read(&towns).await;
        let taken = setup.instance(release).take_snapshot("1").await.unwrap();
        assert_eq!(taken, SnapshotOutcome::Taken { version: towns.len() as u64 + 1 });
        let latest = setup.rows("1", keys::SNAPSHOT).await.pop().unwrap();
        assert_eq!(latest["lastSeqNum"].as_n().unwrap(), &(towns.len() + 1).to_string());
        read(&towns).await;
    }
    // Each snapshot that was set aside expires.
    let aside = setup.rows("1", keys::KEPT_SNAPSHOT_PREFIX).await;
    assert!(!aside.is_empty() && aside.iter().all(|row| row.contains_key("ttl")));
}

#[tokio::test]
async fn late_run_of_the_old_release_does_not_replace_a_newer_snapshot_of_the_new_one() {
    let setup = Setup::new().await;
    let (old, new) = (setup.instance(Old), setup.instance(New));
    old.send("1", "Ann").await;
    let late = setup.instance(Old);
    setup.table.proxy.take_calls();
    let mut late = pin!(late.take_snapshot("1"));
    // The run has read, and has not written yet.
    setup.table.proxy.hold(&mut late, |calls| calls.len() == 2).await;
    old.scan("1", "Bern").await;
    assert_eq!(new.take_snapshot("1").await.unwrap(), SnapshotOutcome::Taken { version: 2 });
    let latest = setup.rows("1", keys::SNAPSHOT).await;

    assert_eq!(late.await.unwrap(), SnapshotOutcome::NotNewer);
    assert_eq!(setup.rows("1", keys::SNAPSHOT).await, latest);
    // A snapshot of the same event may replace that of the new release, which is set aside.
    assert_eq!(old.take_snapshot("1").await.unwrap(), SnapshotOutcome::Taken { version: 2 });
    let aside = setup.rows("1", keys::KEPT_SNAPSHOT_PREFIX).await.pop().unwrap();
    assert_eq!((&aside["state"], &aside["takenAt"]), (&latest[0]["state"], &latest[0]["takenAt"]));
}

#[tokio::test]
async fn snapshotter_takes_snapshots_of_events_of_either_release() {
    for (writer, reader) in PAIRS {
        let setup = Setup::new().await;
        let instance = setup.instance(writer);
        instance.send("1", "Ann").await;
        for _ in 1..EVERY {
            instance.scan("1", "Bern").await;
        }
        let mut due = setup.rows("1", keys::EVENT_PREFIX).await;
        due.retain(|row| row.contains_key("snapshotDue"));
        let batch = serde_json::from_value(json!({"Records": [inserted(1, &due[0])]})).unwrap();
        let response = setup.snapshotter(reader).handle(batch, deadline()).await.unwrap();
        assert_eq!(response.checkpoint(), None);
        let taken = setup.rows("1", keys::SNAPSHOT).await.pop().unwrap();
        let state: Value = serde_json::from_str(taken["state"].as_s().unwrap()).unwrap();
        assert_eq!(state, state_in(reader, &["Bern"; EVERY as usize - 1]), "{writer:?} for {reader:?}");
    }
}

#[tokio::test]
async fn snapshotter_that_does_not_read_ahead_skips_the_aggregate() {
    let setup = Setup::new().await;
    let rash = setup.instance(Rash);
    for id in ["1", "2"] {
        rash.send(id, "Ann").await;
        for _ in 1..EVERY {
            rash.scan(id, "Bern").await;
        }
    }
    setup.instance(New).scan("1", "Chur").await;
    let mut due = Vec::new();
    for id in ["1", "2"] {
        due.extend(
            setup.rows(id, keys::EVENT_PREFIX).await.iter().filter(|row| row.contains_key("snapshotDue")).cloned(),
        );
    }
    let records: Vec<_> = due.iter().zip(1..).map(|(row, number)| inserted(number, row)).collect();
    assert_eq!(records.len(), 2);
    let batch = serde_json::from_value(json!({ "Records": records })).unwrap();
    let response = setup.snapshotter(Rash).handle(batch, deadline()).await.unwrap();
    assert_eq!(response.checkpoint(), None, "the batch is not retried");
    let taken = async |id: &str| setup.rows(id, keys::SNAPSHOT).await.len();
    assert_eq!((taken("1").await, taken("2").await), (0, 1));
    // The new release takes the snapshot when it is next due.
    let batch = serde_json::from_value(json!({ "Records": records })).unwrap();
    assert_eq!(setup.snapshotter(New).handle(batch, deadline()).await.unwrap().checkpoint(), None);
    assert_eq!((taken("1").await, taken("2").await), (1, 1));
}

// Cached states.

#[tokio::test]
async fn cached_state_is_continued_with_events_of_either_release() {
    for (writer, reader) in PAIRS {
        let setup = Setup::new().await;
        let warm = setup.instance(reader);
        warm.send("1", "Ann").await;
        setup.instance(writer).scan("1", "Bern").await;
        // The instance decides on its cached state, gets a conflict, and reads the newer events.
        setup.table.proxy.take_calls();
        let after = warm.scan("1", "Chur").await;
        let state: Value = after.state.read().unwrap();
        assert_eq!(state, state_in(reader, &["Bern", "Chur"]), "{writer:?} for {reader:?}");
        let calls = setup.table.proxy.take_calls();
        let operations: Vec<_> = calls.iter().map(|call| call.operation.as_str()).collect();
        assert_eq!(operations, ["TransactWriteItems", "Query", "TransactWriteItems"], "{writer:?} for {reader:?}");
        assert_eq!(first_events(&calls), [keys::event_sk(2)]);
    }
}

#[tokio::test]
async fn command_on_a_cached_state_with_unreadable_newer_events_appends_nothing() {
    let setup = Setup::new().await;
    let rash = setup.instance(Rash);
    rash.send("1", "Ann").await;
    setup.instance(New).scan("1", "Bern").await;
    for _ in 0..2 {
        let error = rash.command("1", "Scan", json!({"town": "Chur", "country": "CH"})).await.unwrap_err();
        assert!(matches!(error, StoreError::Newer { .. }), "{error:?}");
        // The cached state is unchanged and still correct.
        assert_eq!(rash.store.cached(&key("1")).unwrap().version(), 1);
    }
    assert_eq!(setup.rows("1", keys::EVENT_PREFIX).await.len(), 2);
}

#[tokio::test]
async fn stored_response_of_one_release_is_returned_by_the_other() {
    let post = || request(Method::POST, "/parcel", &[("idempotency-key", "k")], Some(json!({"id": "1", "to": "Ann"})));
    for (first, second) in PAIRS.into_iter().chain([(Rash, New), (New, Rash)]) {
        let setup = Setup::new().await;
        let original = setup.instance(first).ask(post()).await.expect(201);
        let replayed = setup.instance(second).ask(post()).await.expect(201);
        assert_eq!(replayed.body, original.body, "{first:?} then {second:?}");
        assert_eq!(replayed.header("idempotency-replayed"), "true");
        assert_eq!(setup.rows("1", keys::EVENT_PREFIX).await.len(), 1);
    }
}

#[tokio::test]
async fn etag_of_another_release_names_another_state() {
    let etag = |release: Release| if release == New { "\"1-2\"" } else { "\"1-1\"" };
    for (writer, reader) in PAIRS {
        let setup = Setup::new().await;
        let post =
            || request(Method::POST, "/parcel", &[("idempotency-key", "k")], Some(json!({"id": "1", "to": "Ann"})));
        let created = setup.instance(writer).ask(post()).await.expect(201);
        assert_eq!(created.header("etag"), etag(writer));
        // A state that another release folded is never taken for this one's.
        let get = request(Method::GET, "/parcel/1", &[("if-none-match", etag(writer))], None);
        let read = setup.instance(reader).ask(get).await;
        assert_eq!(
            (read.status.as_u16(), read.header("etag")),
            (if writer == reader { 304 } else { 200 }, etag(reader))
        );
        // A stored response contains the state of the release that stored it.
        assert_eq!(setup.instance(reader).ask(post()).await.expect(201).header("etag"), etag(writer));
        // The version decides on a write.
        let scan = json!({"town": "Bern", "country": "CH"});
        let scan = request(Method::POST, "/parcel/1", &[("if-match", etag(writer))], Some(scan));
        setup.instance(reader).ask(scan).await.expect(200);
    }
}

// Rows.

/// The entries that a relay sends for these outbox rows: detail types with details.
pub(crate) async fn relayed(rows: &[Item]) -> Vec<(String, String)> {
    let bus = Bus::with("main", "dlq");
    let server = Server::start(bus.router()).await.unwrap();
    let config = daybook_function_runtime::aws_config_at(server.url());
    let settings = daybook_stream_relay::RelaySettings {
        event_bus_name: "main".into(),
        event_source: "daybook".into(),
        dlq_url: "http://localhost/1/dlq".into(),
        retry: RetryPolicy::default(),
    };
    let relay = Relay::new(clients::eventbridge(&config), clients::sqs(&config), settings);
    let records: Vec<_> = rows.iter().zip(1..).map(|(row, number)| inserted(number, row)).collect();
    let batch = serde_json::from_str(&json!({ "Records": records }).to_string()).unwrap();
    let response = relay.handle(batch, Instant::now() + Duration::from_secs(60)).await.unwrap();
    assert_eq!(response.checkpoint(), None);
    assert!(bus.dead_letters().is_empty());
    bus.delivered().into_iter().map(|entry| (entry.detail_type, entry.detail)).collect()
}

/// The detail types with the details of these outbox rows.
pub(crate) fn published(rows: &[Item]) -> Vec<(String, String)> {
    let text = |row: &Item, name: &str| row[name].as_s().unwrap().clone();
    rows.iter().map(|row| (text(row, "messageType"), text(row, "detail"))).collect()
}

/// The relay does not use aggregates. Rows of different releases differ only in their attributes.
#[tokio::test]
async fn relay_sends_rows_of_older_and_of_newer_releases() {
    let setup = Setup::new().await;
    setup.instance(Old).send("1", "Ann").await;
    setup.instance(New).scan("1", "Bern").await;
    let rows = setup.rows("1", keys::OUTBOX_PREFIX).await;
    let names: Vec<_> = published(&rows).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["ParcelSent", "ParcelScanned"]);
    assert_eq!(relayed(&rows).await, published(&rows));

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
    assert_eq!(relayed(&newer).await, published(&rows));
    // A new relay reads rows without the attributes of later releases.
    let mut older = rows.clone();
    for row in &mut older {
        let first = ["pk", "sk", "messageId", "messageType", "messageSeq", "detail", "occurredAt", "seqNum", "ttl"];
        row.retain(|name, _| first.contains(&name.as_str()));
        assert_eq!(row.len(), first.len());
    }
    assert_eq!(relayed(&older).await, published(&rows));
}

#[tokio::test]
async fn store_reads_rows_of_older_and_of_newer_releases() {
    let setup = Setup::new().await;
    let old = setup.instance(Old);
    old.send("1", "Ann").await;
    old.scan("1", "Bern").await;
    old.take_snapshot("1").await.unwrap();
    old.scan("1", "Chur").await;
    for row in setup.rows("1", "").await {
        let mut newer = row.clone();
        newer.insert("later".into(), aws_sdk_dynamodb::types::AttributeValue::Bool(true));
        setup.table.put(newer).await;
    }
    for reader in [Old, New] {
        let instance = setup.instance(reader);
        let towns: &[&str] = &["Bern", "Chur"];
        assert_eq!(instance.state("1").await, state_in(reader, towns));
    }
    // An append leaves unknown attributes of the metadata unchanged.
    old.scan("1", "Thun").await;
    let metadata = setup.rows("1", keys::METADATA).await.pop().unwrap();
    assert_eq!(metadata["later"].as_bool(), Ok(&true));

    // Rows with all optional attributes of this release, and without them.
    for mut row in setup.rows("1", keys::EVENT_PREFIX).await {
        let other = aws_sdk_dynamodb::types::AttributeValue::S("course/rust@1".to_owned());
        row.insert("together".into(), aws_sdk_dynamodb::types::AttributeValue::L(vec![other]));
        setup.table.put(row).await;
    }
    assert_eq!(setup.instance(New).state("1").await, new_state(&["Bern", "Chur", "Thun"]));
    for mut row in setup.rows("1", keys::EVENT_PREFIX).await {
        row.retain(|name, _| !["appendEnd", "together", "snapshotDue", "later"].contains(&name.as_str()));
        row.insert("meta".into(), aws_sdk_dynamodb::types::AttributeValue::M(Item::new()));
        setup.table.put(row).await;
    }
    assert_eq!(setup.instance(New).state("1").await, new_state(&["Bern", "Chur", "Thun"]));
}
