//! Feeds and lists: no event is skipped, every page has a cursor to continue from, and a row that cannot be read does not hide
//! the others.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_table::{AggregateKey, keys};
use daybook_test_support::log;
use daybook_test_support::row::text;
use jiff::Timestamp;
use serde_json::{Value, json};
use suite_tests::{PATIENCE, Suite};
use tokio::time::Instant;
use ulid::Ulid;

use crate::instance::{Instance, settings};

/// The hold-back of the instances here, in milliseconds.
const DELAY: u64 = 1_500;

async fn instance() -> Instance {
    let engine = daybook_local_aws::dynamodb::LocalDynamoDb::in_memory().await.unwrap();
    let environment = [("FEED_DELAY_MS", DELAY.to_string())];
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
    Instance::with_environment(engine, aggregates::registry().unwrap(), settings(), &environment).await
}

async fn create(instance: &Instance, id: &str) {
    instance.post("/todo", json!({"id": id, "title": "x", "message": ""})).await.expect(201);
}

/// The ids on a page, and its cursor.
fn read(page: &Value) -> (Vec<String>, String) {
    let entries = page["events"].as_array().map(|events| (events, "aggregateId"));
    let (entries, name) = entries.unwrap_or_else(|| (page["aggregates"].as_array().unwrap(), "id"));
    let ids = entries.iter().map(|entry| entry[name].as_str().unwrap().to_owned()).collect();
    (ids, page["cursor"].as_str().unwrap().to_owned())
}

/// Makes the creation of a to-do visible late: the same row as that of "1", decided 500 ms earlier.
async fn appear_late(instance: &Instance, id: &str) {
    let mut row = instance.table.row(&AggregateKey::new("todo", "1"), &keys::event_sk(1)).await.unwrap();
    let first = Ulid::from_string(text(&row, "eventId")).unwrap();
    let event_id = Ulid::from_parts(first.timestamp_ms() - 500, 7);
    let changes = [
        ("pk", keys::pk(&AggregateKey::new("todo", id))),
        ("eventId", event_id.to_string()),
        ("gsi1sk", keys::gsi1sk(event_id)),
    ];
    row.extend(changes.map(|(name, value)| (name.to_owned(), AttributeValue::S(value))));
    instance.table.put(row).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn feed_holds_back_unsettled_events_and_skips_no_late_event() {
    for beginning in ["/events?type=TodoCreated", "/todo?limit=10"] {
        let instance = instance().await;
        let before = Timestamp::now();
        create(&instance, "1").await;
        let page = instance.get(beginning).await.expect(200).body;
        assert_eq!(read(&page), (vec![], Ulid::nil().to_string()), "{beginning}: the event is held back");
        let settled: Timestamp = page["settledUpTo"].as_str().unwrap().parse().unwrap();
        assert!(settled < before, "{page}");

        let (mut seen, mut cursor) = (Vec::new(), read(&page).1);
        appear_late(&instance, "late").await;
        let end = Instant::now() + PATIENCE;
        while seen.len() < 2 && Instant::now() < end {
            let page = instance.get(&format!("{beginning}&after={cursor}")).await.expect(200);
            assert_eq!(page.next(), None);
            let (ids, next) = read(&page.body);
            assert!(!ids.is_empty() || next == cursor, "an empty page returns the cursor of the request");
            seen.extend(ids);
            cursor = next;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(seen, ["late", "1"], "{beginning}");
        // The last cursor leads to later events.
        create(&instance, "2").await;
        tokio::time::sleep(Duration::from_millis(DELAY + 100)).await;
        let page = instance.get(&format!("{beginning}&after={cursor}")).await.expect(200).body;
        assert_eq!(read(&page).0, ["2"], "{beginning}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_page_of_each_feed_has_the_cursor_of_its_last_entry() {
    let suite = Suite::start().await;
    for id in ["1", "2", "3"] {
        suite.post("/todo", &json!({"id": id, "title": "x", "message": ""})).await.expect(201);
    }
    for title in ["a", "b"] {
        suite.post("/todo/1", &json!({"title": title, "message": ""})).await.expect(200);
    }
    for (beginning, nothing) in [
        ("/events?type=TodoCreated&limit=2", json!(Ulid::nil().to_string())),
        ("/todo?limit=2", json!(Ulid::nil().to_string())),
        ("/todo/1/events?limit=2", json!(0)),
    ] {
        let value = |cursor: &Value| cursor.as_str().map_or_else(|| cursor.to_string(), str::to_owned);
        let after = |cursor: &Value| format!("{beginning}&after={}", value(cursor));
        let first = suite.get(beginning).await.expect(200);
        // The link of a page contains its cursor.
        assert_eq!(first.next().unwrap().split('&').next_back(), Some("limit=2"));
        assert!(first.next().unwrap().contains(&format!("after={}", value(&first.body["cursor"]))), "{first:?}");
        assert_eq!(suite.get(&after(&nothing)).await.expect(200).body["cursor"], first.body["cursor"]);
        let last = suite.get(&after(&first.body["cursor"])).await.expect(200);
        assert_eq!(last.next(), None);
        assert!(value(&last.body["cursor"]) > value(&first.body["cursor"]), "{}", last.body);
        let empty = suite.get(&after(&last.body["cursor"])).await.expect(200);
        assert_eq!((empty.next(), &empty.body["cursor"]), (None, &last.body["cursor"]));
        assert!(empty.body["settledUpTo"].is_string() != beginning.starts_with("/todo/1"), "{}", empty.body);
    }
    // A feed without any event has a cursor too.
    let empty = suite.get("/events?type=TodoDeleted").await.expect(200).body;
    assert_eq!(read(&empty), (vec![], Ulid::nil().to_string()));
}

#[tokio::test]
async fn unreadable_row_is_reported_and_hides_no_other() {
    log::take("daybook_command_handler");
    let instance = Instance::start().await;
    for id in ["1", "2", "3"] {
        create(&instance, id).await;
    }
    instance.post("/todo/2", json!({"title": "later", "message": ""})).await.expect(200);
    let (broken, sk) = (AggregateKey::new("todo", "2"), keys::event_sk(1));
    let secret = ("data", AttributeValue::S("{\"title\": \"secret\"".to_owned()));
    instance.table.tamper(&broken, &sk, [secret]).await;
    // A row that belongs to no aggregate, in the partition of the index.
    let row = instance.table.row(&AggregateKey::new("todo", "3"), &sk).await.unwrap();
    let after_last = keys::gsi1sk(keys::id_after(Ulid::from_string(text(&row, "eventId")).unwrap()).unwrap());
    let stray = [("pk", "STRAY"), ("sk", "ROW"), ("gsi1pk", text(&row, "gsi1pk")), ("gsi1sk", &after_last)];
    let stray = stray.map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_owned())));
    instance.table.put(stray.into()).await;

    let of_event = json!({"aggregateType": "todo", "aggregateId": "2", "seqNum": 1});
    for beginning in ["/events?type=TodoCreated", "/todo?limit=1000"] {
        let page = instance.get(beginning).await.expect(200);
        assert_eq!(read(&page.body).0, ["1", "3"], "{beginning}");
        assert_eq!(page.body["unreadable"], json!([of_event, {"key": "STRAY ROW"}]), "{beginning}");
        assert!(!page.text.contains("secret") && page.next().is_none(), "{}", page.text);
    }
    for beginning in ["/events?type=TodoCreated&limit=1", "/todo?limit=1"] {
        let (mut ids, mut unreadable, mut path) = (Vec::new(), Vec::new(), Some(beginning.to_owned()));
        while let Some(here) = path {
            let page = instance.get(&here).await.expect(200);
            ids.extend(read(&page.body).0);
            unreadable.extend(page.body["unreadable"].as_array().into_iter().flatten().cloned());
            path = page.next().map(str::to_owned);
        }
        assert_eq!((ids, unreadable.len()), (vec!["1".to_owned(), "3".to_owned()], 2), "{beginning}");
    }
    let events = instance.get("/todo/2/events").await.expect(200).body;
    assert_eq!((&events["events"][0]["seqNum"], &events["unreadable"]), (&json!(2), &json!([of_event])));
    assert_eq!(events["cursor"], 2);
    let lines = log::take("daybook_command_handler");
    let named = |item: &str| lines.iter().filter(|line| line["item"] == item && line["level"] == "WARN").count();
    assert_eq!((named("AGGREGATE#todo#2 EVENT#000000000001"), named("STRAY ROW")), (5, 4), "{lines:?}");
    assert!(instance.get("/todo/1/events").await.expect(200).body.get("unreadable").is_none());
    // A state without the unreadable event would be wrong, so the API returns none.
    for path in ["/todo/2?rebuild=true", "/todo/2?version=2"] {
        instance.get(path).await.expect_problem(500, "internal");
    }
}
