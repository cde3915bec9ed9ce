//! `daybook republish`.

use aggregates::Order;
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_cli::operator::{Exit, OperatorError};
use daybook_table::OutboxItem;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::{Setup, samples_with};

const ALWAYS: &str = "republish --from 2020-01-01T00:00:00Z --to 2100-01-01T00:00:00Z --rate 1000000";

async fn setup() -> Setup {
    let setup = Setup::new().await;
    setup.todo("1", 12).await;
    setup.todo("2", 2).await;
    setup.command("account/1", "OpenAccount", json!({})).await;
    setup.command("account/1", "RecordTransaction", json!({"desc": "A", "amount": 5})).await;
    setup.command("account/1", "RecordTransaction", json!({"desc": "B", "amount": -9})).await;
    setup.table.proxy.take_calls();
    setup
}

/// A summary without the window, and without its note that the end of the window, which is in the future, may be incomplete.
#[track_caller]
fn without_note(summary: &str) -> String {
    let window = " from 2020-01-01T00:00:00.000Z to 2100-01-01T00:00:00.000Z:";
    assert!(summary.contains(window), "{summary}");
    let summary = summary.replace(window, ":");
    let (before, rest) = summary.split_once("; events from ").unwrap();
    let (_, after) = rest.split_once(" on may be missing").unwrap();
    format!("{before}{after}")
}

fn ids(rows: &[OutboxItem]) -> Vec<String> {
    rows.iter().map(|row| row.message_id.clone()).collect()
}

#[tokio::test]
async fn republish_sends_the_rows_of_the_window_unchanged() {
    let setup = setup().await;
    let lines = setup.daybook(ALWAYS).await.expect(Exit::Clean);
    assert_eq!(lines.len(), 16);
    // In the order of the events.
    assert!(lines[0].starts_with("would-send todo/1 1 TodoCreated "), "{lines:?}");
    assert!(lines[14].starts_with("would-send account/1 1 accountOverdrawn "), "{lines:?}");
    assert_eq!(
        without_note(&lines[15]),
        "17 events in the window: 15 messages would be sent, 0 unreadable, 0 no longer exist; this was a dry run, --yes sends them"
    );
    assert!(setup.bus.delivered().is_empty());

    let lines = setup.daybook(&format!("{ALWAYS} --yes")).await.expect(Exit::Clean);
    assert_eq!(
        without_note(&lines[15]),
        "17 events in the window: 15 messages sent, 0 rejected by the bus, 0 unreadable, 0 no longer exist"
    );
    let mut rows = Vec::new();
    for aggregate in ["account/1", "todo/1", "todo/2"] {
        rows.extend(setup.outbox(aggregate).await);
    }
    for row in &rows {
        let entries = setup.bus.delivered();
        let sent: Vec<_> = entries.iter().filter(|entry| entry.detail.contains(&row.message_id)).collect();
        assert_eq!(sent.len(), 1);
        assert_eq!((&sent[0].detail, &sent[0].detail_type), (&row.detail, &row.message_type));
        assert_eq!(sent[0].time.as_ref(), Some(&row.occurred_at));
        assert_eq!((sent[0].event_bus_name.as_str(), sent[0].source.as_str()), ("main", "daybook"));
    }
    let of_first: Vec<_> = setup.bus.delivered().into_iter().filter(|entry| entry.resources == ["todo/1"]).collect();
    let numbers = of_first
        .iter()
        .map(|entry| serde_json::from_str::<Value>(&entry.detail).unwrap()["metadata"]["messageSeq"].as_u64().unwrap());
    assert_eq!(numbers.collect::<Vec<_>>(), (1..=12).collect::<Vec<_>>());

    let operations = setup.table.operations();
    assert!(operations.iter().all(|operation| ["BatchGetItem", "Query"].contains(&&**operation)), "{operations:?}");
}

#[tokio::test]
async fn window_includes_its_beginning_and_not_its_end() {
    let setup = setup().await;
    let times: Vec<Timestamp> =
        setup.outbox("todo/2").await.iter().map(|row| row.occurred_at.parse().unwrap()).collect();
    // One batch of commands wrote both events, so they have the same time.
    let (at, after) = (times[0], times[0] + jiff::SignedDuration::from_millis(1));
    let window = |from: Timestamp, to: Timestamp| format!("republish --from {from} --to {to} --aggregate todo/2");
    let count = async |line: String| setup.daybook(&line).await.expect(Exit::Clean).len() - 1;
    assert_eq!(count(window(at, after)).await, 2);
    assert_eq!(count(window(at - jiff::SignedDuration::from_secs(1), at)).await, 0);
    assert_eq!(count(window(after, after + jiff::SignedDuration::from_secs(1))).await, 0);
    assert!(matches!(setup.daybook(&window(after, at)).await.ended, Err(OperatorError::Usage(_))));
}

#[tokio::test]
async fn republish_sends_only_the_selected_types_and_aggregates() {
    let mut setup = setup().await;
    setup.aggregates = samples_with::<Order>;
    let count = async |more: &str| setup.daybook(&format!("{ALWAYS} {more}")).await.expect(Exit::Clean).len() - 1;
    assert_eq!(count("--type account").await, 1);
    assert_eq!(count("--type account --type todo").await, 15);
    assert_eq!(count("--aggregate todo/2 --aggregate account/1").await, 3);
    assert_eq!(count("--message-type accountOverdrawn").await, 1);
    assert_eq!(count("--message-type TodoCreated --message-type TodoUpdated").await, 14);
    assert_eq!(count("--aggregate todo/1 --message-type TodoCreated").await, 1);
    assert_eq!(count("--type order").await, 0);
    assert!(matches!(setup.daybook(&format!("{ALWAYS} --type ghost")).await.ended, Err(OperatorError::Usage(_))));
}

#[tokio::test]
async fn events_of_a_removed_type_are_found_by_its_name() {
    let setup = setup().await;
    let mut row = setup.rows("todo/1", "EVENT#000000000002").await.remove(0);
    row.insert("eventType".to_owned(), AttributeValue::S("TodoRetitled".to_owned()));
    row.insert("gsi1pk".to_owned(), AttributeValue::S("EVENT_TYPE#TodoRetitled".to_owned()));
    setup.table.put(row).await;
    let count = async |more: &str| setup.daybook(&format!("{ALWAYS} {more}")).await.expect(Exit::Clean).len() - 1;
    // The messages of the event after it are not reported as missing either, because they are counted correctly.
    assert_eq!(count("--aggregate todo/1").await, 11);
    assert_eq!(count("--aggregate todo/1 --event-type TodoRetitled").await, 12);
}

/// Three of these events fill a page of DynamoDB.
#[tokio::test]
async fn events_and_rows_are_read_to_the_last_page() {
    let setup = Setup::new().await;
    for id in 1..=4 {
        let data = |title: &str| json!({"title": format!("{title} {id}"), "message": "x".repeat(300 * 1024)});
        setup.command(&format!("todo/{id}"), "CreateTodo", data("created")).await;
        setup.command(&format!("todo/{id}"), "UpdateTodo", data("updated")).await;
        setup.command("todo/all", if id == 1 { "CreateTodo" } else { "UpdateTodo" }, data("all")).await;
    }
    assert_eq!(setup.daybook(ALWAYS).await.expect(Exit::Clean).len(), 13);
    setup.daybook(&format!("{ALWAYS} --yes")).await.expect(Exit::Clean);
    assert_eq!(setup.sent().len(), 12);
    for line in ["verify", "verify --scan"] {
        let lines = setup.daybook(line).await.expect(Exit::Clean);
        assert!(lines[0].starts_with("verified 5 aggregates: 12 events, 12 messages"), "{lines:?}");
    }
}

#[tokio::test]
async fn republish_reads_all_shards_of_an_event_type() {
    let setup = Setup::with(&[("EVENT_TYPE_SHARDS", "8")]).await;
    for id in 0..20 {
        setup.todo(&id.to_string(), 1).await;
    }
    let lines = setup.daybook(&format!("{ALWAYS} --yes")).await.expect(Exit::Clean);
    assert_eq!(lines.len(), 21);
    assert_eq!(setup.bus.put_events_calls().len(), 2);
}

#[tokio::test]
async fn republish_reports_events_whose_rows_no_longer_exist() {
    let setup = setup().await;
    for seq_num in [1, 2, 3, 7] {
        setup.delete("todo/1", &format!("OUTBOX#{seq_num:012}#0")).await;
    }
    setup.delete("account/1", "OUTBOX#000000000003#0").await;
    let lines = setup.daybook(&format!("{ALWAYS} --yes")).await.expect(Exit::Findings);
    for gone in ["todo/1 event 1", "todo/1 event 2", "todo/1 event 3", "todo/1 event 7", "account/1 event 3"] {
        assert!(lines.contains(&format!("gone {gone}: 1 of 1 messages no longer exist")), "{lines:?}");
    }
    assert_eq!(
        without_note(lines.last().unwrap()),
        "17 events in the window: 10 messages sent, 0 rejected by the bus, 0 unreadable, 5 no longer exist"
    );
    assert_eq!(setup.sent().len(), 10);
}

/// An event contains the number of messages up to it. The messages of the event alone are the difference to the
/// preceding event, which may be outside the window.
#[tokio::test]
async fn gone_messages_at_the_beginning_of_the_window_are_counted_from_the_preceding_event() {
    let setup = Setup::new().await;
    setup.todo("1", 2).await;
    let first = setup.outbox("todo/1").await[0].occurred_at.parse::<Timestamp>().unwrap();
    setup.command("todo/1", "UpdateTodo", json!({"title": "x", "message": ""})).await;
    setup.delete("todo/1", "OUTBOX#000000000003#0").await;
    setup.table.proxy.take_calls();
    let from = first + jiff::SignedDuration::from_millis(1);
    let line = format!("republish --from {from} --to 2100-01-01T00:00:00Z");
    let lines = setup.daybook(&line).await.expect(Exit::Findings);
    assert_eq!(lines[0], "gone todo/1 event 3: 1 of 1 messages no longer exist");
    // One call for the row, and one for the preceding event.
    let operations = setup.table.operations();
    assert_eq!(operations.iter().filter(|operation| *operation == "BatchGetItem").count(), 2);
}

#[tokio::test]
async fn unreadable_row_is_reported_and_the_others_are_sent() {
    let setup = setup().await;
    let mut row = setup.rows("todo/2", "OUTBOX#000000000001").await.remove(0);
    row.insert("messageSeq".to_owned(), AttributeValue::S("one".to_owned()));
    setup.table.put(row).await;
    let lines = setup.daybook(&format!("{ALWAYS} --aggregate todo/2 --yes")).await.expect(Exit::Findings);
    assert!(lines[0].starts_with("unreadable todo/2 OUTBOX#000000000001#0: "), "{lines:?}");
    assert_eq!(setup.sent(), ids(&setup.outbox_of("todo/2", 2).await));
    // The row exists, so it does not count as gone.
    assert_eq!(
        without_note(&lines[2]),
        "2 events in the window: 1 messages sent, 0 rejected by the bus, 1 unreadable, 0 no longer exist"
    );
}

#[tokio::test]
async fn unreadable_row_of_an_event_outside_the_selection_is_not_reported() {
    let setup = setup().await;
    let mut event = setup.rows("todo/1", "EVENT#000000000005").await.remove(0);
    event.insert("gsi1pk".to_owned(), AttributeValue::S("EVENT_TYPE#TodoRetitled".to_owned()));
    setup.table.put(event).await;
    let mut row = setup.rows("todo/1", "OUTBOX#000000000005").await.remove(0);
    row.insert("messageSeq".to_owned(), AttributeValue::S("five".to_owned()));
    setup.table.put(row).await;
    let lines = setup.daybook(&format!("{ALWAYS} --aggregate todo/1")).await.expect(Exit::Clean);
    assert_eq!(lines.len(), 12, "{lines:?}");
}

#[tokio::test]
async fn unreadable_row_of_the_index_is_reported_and_the_others_are_sent() {
    let setup = setup().await;
    setup.stray_row("TodoCreated").await;
    let lines = setup.daybook(&format!("{ALWAYS} --yes")).await.expect(Exit::Findings);
    assert_eq!(lines[0], "unreadable STRAY ROW: its keys are not those of an event");
    assert_eq!(
        without_note(lines.last().unwrap()),
        "17 events in the window: 15 messages sent, 0 rejected by the bus, 1 unreadable, 0 no longer exist"
    );
    assert_eq!(setup.sent().len(), 15);
    // The row belongs to no aggregate, so no selection leaves it out.
    setup.daybook(&format!("{ALWAYS} --aggregate todo/2")).await.expect(Exit::Findings);
}

#[tokio::test]
async fn republish_reports_the_part_of_the_window_that_may_be_incomplete() {
    let summary = async |setup: &Setup, from: Timestamp, to: Timestamp| {
        let line = format!("republish --type todo --from {from} --to {to}");
        let text = setup.daybook(&line).await.expect(Exit::Clean).pop().unwrap();
        let json = setup.daybook(&format!("{line} --json")).await.expect(Exit::Clean).pop().unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        let incomplete = json["summary"].get("incompleteFrom").map(|from| from.as_str().unwrap().parse().unwrap());
        assert_eq!(text.contains(" on may be missing"), incomplete.is_some(), "{text}");
        incomplete
    };
    let seconds = jiff::SignedDuration::from_secs;
    for (setting, delay) in [(None, 0), (Some(("FEED_DELAY_MS", "90000")), 90)] {
        let setup = Setup::with(setting.as_slice()).await;
        let before = Timestamp::now();
        assert_eq!(summary(&setup, before - seconds(200), before - seconds(100)).await, None);
        let incomplete: Timestamp = summary(&setup, before - seconds(200), before + seconds(60)).await.unwrap();
        let complete = incomplete + seconds(delay);
        assert!((before - seconds(1)..=Timestamp::now()).contains(&complete), "{incomplete} at {before}");
        // No part of this window is complete.
        let from: Timestamp = "2099-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(summary(&setup, from, from + seconds(1)).await, Some(from));
    }
}

/// A page ends within the rows of one event, whose sort keys are in the order 0, 1, 10, 11, 2 and so on. A batch ends there too.
#[tokio::test]
async fn messages_of_an_event_on_two_pages_are_sent_in_order() {
    let setup = Setup::new().await;
    setup.todo("0", 490).await;
    setup.todo("large", 1).await;
    let mut event = setup.rows("todo/large", "EVENT#").await.remove(0);
    event.insert("messageSeq".to_owned(), AttributeValue::N("12".to_owned()));
    setup.table.put(event).await;
    let first = setup.outbox("todo/large").await.remove(0);
    for index in 0..12_usize {
        let mut detail: Value = serde_json::from_str(&first.detail).unwrap();
        detail["metadata"]["messageId"] = index.to_string().into();
        detail["padding"] = "x".repeat(100 * 1024).into();
        let row = OutboxItem {
            sk: daybook_table::keys::outbox_sk(1, index),
            message_seq: index as u64 + 1,
            message_id: index.to_string(),
            detail: detail.to_string(),
            ..first.clone()
        };
        setup.table.put(serde_dynamo::to_item(row).unwrap()).await;
    }
    let lines = setup.daybook(&format!("{ALWAYS} --yes")).await.expect(Exit::Clean);
    assert_eq!(
        without_note(lines.last().unwrap()),
        "491 events in the window: 502 messages sent, 0 rejected by the bus, 0 unreadable, 0 no longer exist"
    );
    let entries = setup.bus.delivered().into_iter().filter(|entry| entry.resources == ["todo/large"]);
    let ids = entries.map(|entry| {
        let detail: Value = serde_json::from_str(&entry.detail).unwrap();
        detail["metadata"]["messageId"].as_str().unwrap().parse::<usize>().unwrap()
    });
    assert_eq!(ids.collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
}

#[tokio::test]
async fn republish_after_a_failed_bus_continues_from_the_printed_time() {
    let setup = setup().await;
    setup.fail(json!({"putEvents": [{}, {"http": 403, "code": "AccessDeniedException", "forever": true}]}));
    let printed = setup.daybook(&format!("{ALWAYS} --yes")).await;
    let error = printed.ended.unwrap_err();
    assert!(
        matches!(&error, OperatorError::Bus { cause, .. } if cause.starts_with("AccessDeniedException")),
        "{error}"
    );
    assert_eq!(error.exit_code(), 3);
    let summary = printed.lines.last().unwrap();
    // The first message of each aggregate is sent, so the first event is done.
    let window = summary.split_once("go on with ").unwrap().1;
    let first = setup.outbox("todo/1").await.remove(0).occurred_at;
    assert_eq!(window, format!("--from {first} --to 2100-01-01T00:00:00.000Z"));

    setup.fail(json!({}));
    setup.daybook(&format!("republish {window} --rate 1000000 --yes")).await.expect(Exit::Clean);
    let mut expected = Vec::new();
    for aggregate in ["account/1", "todo/1", "todo/2"] {
        expected.extend(ids(&setup.outbox(aggregate).await));
    }
    let sent = setup.sent();
    assert!(expected.iter().all(|id| sent.contains(id)), "{sent:?}");
}

#[tokio::test]
async fn republish_sends_nothing_after_an_unsent_message() {
    let setup = Setup::new().await;
    // More rows than one batch contains.
    setup.todo("long", 700).await;
    setup.fail(json!({"putEvents": [{"http": 403, "code": "AccessDeniedException"}]}));
    let printed = setup.daybook(&format!("{ALWAYS} --yes")).await;
    assert_eq!(printed.ended.unwrap_err().exit_code(), 3);
    assert!(printed.lines[0].starts_with("0 events in the window from "), "{:?}", printed.lines);
    assert!(printed.lines[0].contains(": 0 messages sent, "), "{:?}", printed.lines);
    assert!(setup.sent().is_empty());
}

#[tokio::test]
async fn republish_of_a_failed_table_ends_with_status_3_and_can_be_repeated() {
    let setup = setup().await;
    setup.table.proxy.fail_next(
        "BatchGetItem",
        daybook_test_support::fault_proxy::InjectedFault::Refuse { status: 400, code: "AccessDeniedException" },
    );
    let printed = setup.daybook(&format!("{ALWAYS} --yes")).await;
    let error = printed.ended.unwrap_err();
    assert_eq!(error.exit_code(), 3);
    let text = daybook_function_runtime::with_causes(&error);
    // Several reads run at the same time, so the first one may have succeeded.
    let (how, cause) = text.split_once(": ").unwrap();
    assert!(how.starts_with("stopped early, ") && cause.contains("AccessDenied"), "{text}");
    assert!(printed.lines.last().unwrap().ends_with(&format!("; {how}")), "{:?}", printed.lines);

    setup.daybook(&format!("{ALWAYS} --yes")).await.expect(Exit::Clean);
    let sent: std::collections::BTreeSet<_> = setup.sent().into_iter().collect();
    assert_eq!(sent.len(), 15);
}

/// At this rate, a batch contains the messages of 20 to 40 events.
const SLOWLY: &str = "republish --from 2020-01-01T00:00:00Z --to 2100-01-01T00:00:00Z --rate 20 --yes";

/// Two to-dos with 30 messages each, in turn.
async fn two_todos() -> Setup {
    let setup = Setup::new().await;
    for n in 0..30 {
        for id in ["x", "y"] {
            let command = if n == 0 { "CreateTodo" } else { "UpdateTodo" };
            setup.command(&format!("todo/{id}"), command, json!({"title": n.to_string(), "message": ""})).await;
        }
    }
    setup
}

/// Expects that all messages of the two to-dos are sent, some of them repeatedly, and none before the one before it.
#[track_caller]
fn expect_all_in_order(setup: &Setup) {
    for id in ["todo/x", "todo/y"] {
        let of_aggregate = setup.bus.delivered().into_iter().filter(|entry| entry.resources == [id]);
        let mut last = 0;
        for entry in of_aggregate {
            let detail: Value = serde_json::from_str(&entry.detail).unwrap();
            let number = detail["metadata"]["messageSeq"].as_u64().unwrap();
            assert!(number <= last + 1, "{id}: {number} after {last}");
            last = number;
        }
        assert_eq!(last, 30);
    }
}

#[tokio::test]
async fn interrupted_republish_prints_the_time_that_continues_it_and_reports_nothing_as_gone() {
    let setup = two_todos().await;
    let mut printed = setup.daybook_until(SLOWLY, 1).await;
    assert!(matches!(printed.ended, Ok(Exit::Interrupted)), "{printed:?}");
    let summary = printed.lines.pop().unwrap();
    assert!(printed.lines.iter().all(|line| line.starts_with("sent ")), "{printed:?}");
    assert!(setup.sent().len() < 60);
    let (_, window) = summary.split_once("; stopped early, go on with ").unwrap();
    setup.daybook(&format!("republish {window} --rate 1000000 --yes")).await.expect(Exit::Clean);
    expect_all_in_order(&setup);
}

#[tokio::test]
async fn relative_times_are_resolved_once_and_printed() {
    let setup = setup().await;
    let lines = setup.daybook("republish --from 2h --json").await.expect(Exit::Clean);
    let summary: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    let time = |name: &str| summary["summary"][name].as_str().unwrap().parse::<Timestamp>().unwrap();
    assert_eq!(time("from") + jiff::SignedDuration::from_hours(2), time("to"));
    assert!(time("to") > Timestamp::now() - jiff::SignedDuration::from_mins(1));
    // The events of the tests are later.
    assert_eq!(lines.len(), 1);
}

#[tokio::test]
async fn republish_retries_transient_failures_and_reports_rejected_messages() {
    let setup = setup().await;
    setup.fail(json!({
        "putEvents": [{"http": 500}],
        "entries": [{"containing": "accountOverdrawn", "code": "MalformedDetail"}],
    }));
    let lines = setup.daybook(&format!("{ALWAYS} --yes --json")).await.expect(Exit::Findings);
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rejected: Vec<_> = lines.iter().filter(|line| line["outcome"] == "rejected").collect();
    assert_eq!(rejected.len(), 1);
    assert_eq!(rejected[0]["aggregate"], "account/1");
    assert_eq!(lines.last().unwrap()["summary"]["sent"], 14);
}

impl Setup {
    async fn outbox_of(&self, aggregate: &str, seq_num: u64) -> Vec<OutboxItem> {
        let rows = self.rows(aggregate, &format!("OUTBOX#{seq_num:012}")).await;
        rows.into_iter().map(|row| serde_dynamo::from_item(row).unwrap()).collect()
    }
}

#[tokio::test]
async fn republish_to_a_bus_that_does_not_exist_sends_nothing() {
    let setup = setup().await;
    let printed = setup.daybook(&format!("EVENT_BUS_NAME=nope {ALWAYS} --yes")).await;
    assert_eq!(printed.lines, [""; 0]);
    let error = printed.ended.unwrap_err();
    assert!(error.to_string().starts_with("the event bus \"nope\" does not exist"), "{error}");
    assert!(setup.bus.put_events_calls().is_empty());
}
