//! `daybook deadlines list`, `retry` and `drop`.

use std::time::Duration;

use aggregates::Reservation;
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_cli::operator::Exit;
use daybook_event_store::{DeadlineMark, StoredDeadline};
use daybook_function_runtime::{QueueBatch, QueueRecord, aws_config_at};
use daybook_queue::{Queue, SqsClient, Waits};
use daybook_reactor::{Reactor, ReactorEvent};
use daybook_table::{DueDeadline, DueDeadlines, keys};
use daybook_test_support::row::text;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{Setup, key, samples_with};

/// Holds seats, and returns when the reservation expires.
async fn reserve(setup: &Setup, id: &str) -> Timestamp {
    setup.command(&format!("reservation/{id}"), "Reserve", json!({"concert": "fidelio", "seats": 2})).await;
    hold(setup, id).await.due
}

async fn hold(setup: &Setup, id: &str) -> StoredDeadline {
    setup.store.deadline(&key(&format!("reservation/{id}")), "hold").await.unwrap().unwrap()
}

async fn fail(setup: &Setup, id: &str, error: &str) {
    assert!(setup.store.mark_deadline(&hold(setup, id).await, DeadlineMark::Failed(error)).await.unwrap());
}

fn line(state: &str, id: &str, due: Timestamp) -> String {
    format!("{state} reservation/{id} hold, due {due:.3}")
}

/// A reactor at this time, whose queue is on the bus.
pub(crate) fn reactor(setup: &Setup, now: Timestamp) -> Reactor {
    setup.bus.create_work_queue("reactions");
    let url = setup.queue_url().replace("/dlq", "/reactions");
    let client = SqsClient::new(&aws_config_at(url.split("/000000000000").next().unwrap()));
    let waits = Waits { first: Duration::from_millis(1), longest: Duration::from_millis(1) };
    let store = setup.table.direct_store().with_clock(move || now);
    Reactor::new(aggregates::registry().unwrap(), store, Queue { client, url, waits })
}

/// Invokes the reactor with a message. Returns whether it must come again.
pub(crate) async fn receive(reactor: &Reactor, body: String) -> bool {
    let batch = QueueBatch { records: vec![QueueRecord::new("m", body)] };
    let response = reactor.handle(ReactorEvent::Messages(batch), Instant::now() + Duration::from_secs(60)).await;
    !response.batch_item_failures.is_empty()
}

#[tokio::test]
async fn list_has_the_earliest_deadlines_first_or_those_of_an_aggregate() {
    let mut setup = Setup::with(&[("EVENT_TYPE_SHARDS", "4")]).await;
    setup.aggregates = samples_with::<Reservation>;
    let mut expected = Vec::new();
    for id in ["a", "b", "c", "d"] {
        expected.push(line("pending", id, reserve(&setup, id).await));
    }
    expected.push("4 deadlines and dispatches listed, 0 unreadable".to_owned());
    assert_eq!(setup.daybook("deadlines list").await.expect(Exit::Clean), expected);
    let lines = setup.daybook("deadlines list --limit 1").await.expect(Exit::Clean);
    assert_eq!(lines, [&expected[0], "1 deadlines and dispatches listed, 0 unreadable; there are more: raise --limit"]);

    setup.command("reservation/a", "Pay", json!({"amount": 8_000})).await;
    assert!(setup.store.mark_deadline(&hold(&setup, "b").await, DeadlineMark::Fired).await.unwrap());
    fail(&setup, "c", "a bug").await;
    let lines = setup.daybook("deadlines list").await.expect(Exit::Clean);
    assert_eq!(lines[..1], expected[3..4]);
    let lines =
        setup.daybook("deadlines list reservation/a reservation/b reservation/c/hold reservation/d/other").await;
    let lines = lines.expect(Exit::Clean);
    assert_eq!(lines[0], line("fired", "b", hold(&setup, "b").await.due));
    assert!(lines[1].starts_with("failed reservation/c hold") && lines[1].ends_with(": a bug"), "{lines:?}");
    assert_eq!(lines.len(), 3);

    let lines = setup.daybook("deadlines list --failed --json").await.expect(Exit::Clean);
    let failed: Value = serde_json::from_str(&lines[0]).unwrap();
    let item = hold(&setup, "c").await.item;
    let expected = json!({
        "outcome": "failed", "kind": "deadline", "aggregate": "reservation/c", "name": "hold", "due": item.due, "error": "a bug",
        "failedAt": item.failed_at.unwrap(),
    });
    assert_eq!(failed, expected);
    let summary: Value = serde_json::from_str(&lines[1]).unwrap();
    assert_eq!(summary, json!({"summary": {"deadlines": 1, "unreadable": 0, "more": false}}));

    let few = "EVENT_TYPE_SHARDS=1 deadlines list";
    assert_eq!(setup.daybook(few).await.ended.unwrap_err().exit_code(), 2);
}

#[tokio::test]
async fn row_that_cannot_be_read_hides_no_other() {
    let setup = Setup::of::<Reservation>().await;
    reserve(&setup, "1").await;
    reserve(&setup, "2").await;
    let never = [("due", AttributeValue::S("never".to_owned()))];
    setup.table.tamper(&key("reservation/1"), &keys::deadline_sk("hold"), never).await;
    let lines = setup.daybook("deadlines list").await.expect(Exit::Findings);
    assert!(lines[0].starts_with("pending reservation/2 hold"), "{lines:?}");
    assert!(lines[1].starts_with("unreadable reservation/1 DEADLINE#hold: its time \"never\""), "{lines:?}");
}

#[tokio::test]
async fn failed_deadline_is_fired_after_its_cause_is_corrected_and_it_is_retried() {
    let setup = Setup::of::<Reservation>().await;
    let due = reserve(&setup, "1").await;
    let (aggregate, event) = (key("reservation/1"), keys::event_sk(1));
    let data = text(&setup.table.row(&aggregate, &event).await.unwrap(), "data").to_owned();
    let damaged = [("data", AttributeValue::S("{".to_owned()))];
    setup.table.tamper(&aggregate, &event, damaged).await;
    let at = |minutes| reactor(&setup, due + SignedDuration::from_mins(minutes));
    let message = DueDeadline { due, key: aggregate.clone(), name: "hold".to_owned() };
    let message = DueDeadlines::new(&[message]).to_body();
    assert!(receive(&at(1), message.clone()).await && !receive(&at(13), message).await);
    let reactor = at(14);

    let lines = setup.daybook("deadlines list --failed").await.expect(Exit::Clean);
    assert!(lines[0].starts_with(&line("failed", "1", due)) && lines[0].contains("is corrupt"), "{lines:?}");
    let repaired = [("data", AttributeValue::S(data))];
    setup.table.tamper(&aggregate, &event, repaired).await;

    let lines = setup.daybook("deadlines retry").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("would-retry reservation/1 hold"), "{lines:?}");
    assert_eq!(lines[1], "1 failed deadlines and dispatches, 0 unreadable; this was a dry run, --yes retries them");
    setup.daybook("deadlines retry reservation/2 --yes").await.expect(Exit::Clean);
    assert!(hold(&setup, "1").await.item.error.is_some());
    let lines = setup.daybook("deadlines retry --yes").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("retried reservation/1 hold"), "{lines:?}");
    let expected = "1 deadlines and dispatches retried: their commands are sent within a minute; 0 were changed meanwhile, 0 are unreadable";
    assert_eq!(lines[1], expected);

    reactor.handle(ReactorEvent::Tick { tick: true }, Instant::now() + Duration::from_secs(60)).await;
    let queued = setup.bus.queued();
    assert_eq!(queued.len(), 1);
    assert!(!receive(&reactor, queued[0].body.clone()).await);
    let events = setup.store.events(&aggregate, 1, 10).await.unwrap().items;
    assert_eq!(events[0].event_type, "ReservationExpired");
    let lines = setup.daybook("deadlines list reservation/1").await.expect(Exit::Clean);
    assert_eq!(lines, ["0 deadlines and dispatches listed, 0 unreadable"]);
    setup.daybook("verify reservation/1").await.expect(Exit::Clean);
}

#[tokio::test]
async fn dropped_deadline_is_never_fired() {
    let setup = Setup::of::<Reservation>().await;
    let due = reserve(&setup, "1").await;
    reserve(&setup, "2").await;
    fail(&setup, "1", "a bug").await;
    fail(&setup, "2", "a bug").await;
    let unnamed = setup.daybook("deadlines drop --yes").await.ended.unwrap_err();
    assert_eq!((unnamed.exit_code(), hold(&setup, "1").await.item.error.is_some()), (2, true));
    let lines = setup.daybook("deadlines drop reservation/1").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("would-drop reservation/1 hold"), "{lines:?}");
    assert!(hold(&setup, "1").await.item.error.is_some());
    let lines = setup.daybook("deadlines drop reservation/1/hold --yes").await.expect(Exit::Clean);
    assert_eq!(lines[1], "1 deadlines and dispatches dropped; 0 were changed meanwhile, 0 are unreadable");

    let reactor = reactor(&setup, due + SignedDuration::from_secs(1));
    reactor.handle(ReactorEvent::Tick { tick: true }, Instant::now() + Duration::from_secs(60)).await;
    assert_eq!(setup.bus.queued().len(), 0);
    let lines = setup.daybook("deadlines list reservation/1 reservation/2").await.expect(Exit::Clean);
    assert_eq!(lines[0], line("fired", "1", due));
    assert!(lines[1].starts_with("failed reservation/2"), "{lines:?}");
    setup.daybook("verify").await.expect(Exit::Clean);
}

#[tokio::test]
async fn retry_ends_with_an_interrupt_or_the_limit_and_the_next_run_goes_on() {
    let setup = Setup::of::<Reservation>().await;
    for id in ["1", "2", "3"] {
        reserve(&setup, id).await;
        fail(&setup, id, "a bug").await;
    }
    let lines = setup.daybook_until("deadlines retry --yes", 1).await.expect(Exit::Interrupted);
    assert!(
        lines[1].starts_with("1 deadlines and dispatches retried") && lines[1].ends_with("stopped early, run it again"),
        "{lines:?}"
    );
    let lines = setup.daybook("deadlines retry --yes --limit 1").await.expect(Exit::Findings);
    assert!(lines[0].starts_with("retried reservation/2 hold") && lines[1].ends_with("raise --limit"), "{lines:?}");
    let lines = setup.daybook("deadlines retry --yes --limit 1").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("retried reservation/3 hold"), "{lines:?}");
    assert_eq!(setup.daybook("deadlines list --failed").await.expect(Exit::Clean).len(), 1);
}
