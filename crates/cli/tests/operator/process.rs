//! `daybook process status`, `suspended`, `resume` and `catch-up`.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_cli::operator::Exit;
use daybook_event_store::{PositionMove, StoredPosition};
use daybook_function_runtime::aws_config_at;
use daybook_queue::{Queue, SqsClient, Waits};
use daybook_table::{ChangedAggregates, PositionItem, keys};
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::row::text;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::deadlines::{reactor, receive};
use crate::support::{Setup, key};

async fn place(setup: &Setup, id: &str) {
    let item = json!({"productId": "coffee", "quantity": 1});
    let order = json!({"customerId": "ann", "items": [item], "total": 4500});
    setup.command(&format!("order/{id}"), "PlaceOrder", order).await;
}

async fn position(setup: &Setup, id: &str) -> StoredPosition {
    setup.store.position(&key(&format!("order/{id}")), "fulfilment").await.unwrap()
}

async fn suspend(setup: &Setup, id: &str) -> String {
    let mut position = position(setup, id).await;
    assert!(
        setup.store.move_position(&mut position, PositionMove::Suspend(PositionItem::ALL, 0, "a bug")).await.unwrap()
    );
    let since = position.item.gsi1sk.unwrap();
    format!("order/{id}/fulfilment, event 1 since {since}: a bug")
}

/// A stack with a reactor, and two suspended positions, with their lines.
async fn stack() -> (Setup, Vec<String>) {
    let mut setup = Setup::with_process().await;
    setup.bus.create_work_queue("reactions");
    setup.settings.push(("REACTIONS_QUEUE_URL", setup.queue_url().replace("/dlq", "/reactions")));
    let lines = vec![suspend(&setup, "1").await, suspend(&setup, "2").await];
    (setup, lines)
}

fn queued(setup: &Setup) -> Vec<String> {
    setup.bus.queued().into_iter().map(|message| message.body).collect()
}

#[tokio::test]
async fn suspended_lists_those_that_are_selected() {
    let (setup, lines) = stack().await;
    let (first, second) = (format!("suspended {}", lines[0]), format!("suspended {}", lines[1]));
    let listed = setup.daybook("process suspended").await.expect(Exit::Findings);
    assert_eq!(listed, [&first, &second, "2 suspended processes, 0 unreadable"]);
    let listed = setup.daybook("process suspended order/2/fulfilment order/1/other").await.expect(Exit::Findings);
    assert_eq!(listed, [&second, "1 suspended processes, 0 unreadable"]);
    let listed = setup.daybook("process suspended --limit 1").await.expect(Exit::Findings);
    assert_eq!(listed, [&first, "1 suspended processes, 0 unreadable; there are more: raise --limit"]);

    // A process that is suspended alone has a name of its own, and is one of its type.
    let (mut both, alone) = (position(&setup, "2").await, PositionMove::Suspend("2", 4, "another bug"));
    assert!(setup.store.move_position(&mut both, alone).await.unwrap());
    for (selected, lines) in [("order/2/fulfilment/2", 2), ("order/2/fulfilment", 3), ("order/2/fulfilment/3", 1)] {
        let exit = if lines == 1 { Exit::Clean } else { Exit::Findings };
        let listed = setup.daybook(&format!("process suspended {selected}")).await.expect(exit);
        assert_eq!(listed.len(), lines, "{listed:?}");
    }
    let skipped = setup.daybook("process resume order/2/fulfilment/2 --skip --yes").await.expect(Exit::Clean);
    assert!(skipped[0].starts_with("skipped order/2/fulfilment/2, event 5 since "), "{skipped:?}");
    assert!(position(&setup, "2").await.item.is_suspended());

    let listed = setup.daybook("process suspended order/1 --json").await.expect(Exit::Findings);
    let found: Value = serde_json::from_str(&listed[0]).unwrap();
    let since = position(&setup, "1").await.item.gsi1sk;
    let expected = json!({
        "outcome": "suspended", "aggregate": "order/1", "process": "fulfilment", "event": 1, "since": since,
        "error": "a bug",
    });
    assert_eq!(found, expected);

    let not_a_number = [("seqNum", AttributeValue::S("x".to_owned()))];
    setup.table.tamper(&key("order/1"), &keys::position_sk("fulfilment"), not_a_number).await;
    let listed = setup.daybook("process suspended").await.expect(Exit::Findings);
    assert!(listed[1].starts_with("unreadable order/1 POSITION#fulfilment: "), "{listed:?}");
    assert_eq!(setup.daybook("process resume").await.expect(Exit::Findings).len(), 2);
}

#[tokio::test]
async fn position_goes_on_after_the_event_is_repaired_and_it_is_resumed() {
    let (setup, _) = stack().await;
    place(&setup, "3").await;
    let (aggregate, event) = (key("order/3"), keys::event_sk(1));
    let data = text(&setup.table.row(&aggregate, &event).await.unwrap(), "data").to_owned();
    setup.table.tamper(&aggregate, &event, [("data", AttributeValue::S("{".to_owned()))]).await;
    let at = |minutes| reactor(&setup, Timestamp::now() + SignedDuration::from_mins(minutes));
    let mut changed = ChangedAggregates::one(aggregate.clone(), 1);
    assert!(receive(&at(0), changed.to_body()).await && !receive(&at(12), changed.to_body()).await);
    let lines = setup.daybook("process suspended order/3").await.expect(Exit::Findings);
    assert!(lines[0].starts_with("suspended order/3/fulfilment, event 1 since "), "{lines:?}");

    setup.table.tamper(&aggregate, &event, [("data", AttributeValue::S(data))]).await;
    let lines = setup.daybook("process resume order/3").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("would-resume order/3/fulfilment, event 1 since "), "{lines:?}");
    assert_eq!(lines[1], "1 suspended processes, 0 unreadable; this was a dry run, --yes resumes them");
    assert!(position(&setup, "3").await.item.is_suspended() && queued(&setup).is_empty());
    let lines = setup.daybook("process resume order/3 --yes").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("resumed order/3/fulfilment, event 1 since "), "{lines:?}");
    assert_eq!(lines[1], "1 processes resumed; 0 were changed meanwhile, 0 are unreadable");
    changed.process = Some("fulfilment".to_owned());
    assert_eq!(queued(&setup), [changed.to_body()]);

    assert!(!receive(&at(13), queued(&setup).remove(0)).await);
    let begun = setup.store.events(&key("fulfilment/3"), 0, 9).await.unwrap().items;
    assert_eq!((begun.len(), position(&setup, "3").await.item.seq_num), (1, 1));
    assert!(position(&setup, "1").await.item.is_suspended());
    // A dispatch is listed with the deadlines.
    let lines = setup.daybook("deadlines list fulfilment/3").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("pending fulfilment/3 request-payment, due "), "{lines:?}");
    assert!(lines[1].starts_with("pending fulfilment/3 payment, due "), "{lines:?}");

    let due = |line: &str| line.split(", due ").nth(1).unwrap().to_owned();
    let (dispatch, deadline) = (due(&lines[0]), due(&lines[1]));
    let counted = setup.daybook("process status").await.expect(Exit::Findings);
    let expected = format!(
        "fulfilment: 1 dispatches are pending, the first since {dispatch}; 1 deadlines are pending, the first is due {deadline}; \
         0 have failed; 2 suspensions"
    );
    assert!(counted.contains(&expected), "{counted:?}");
    let json = setup.daybook("process status --json --limit 1").await.expect(Exit::Findings);
    let found: Vec<Value> = json.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let fulfilment = found.iter().find(|line| line["process"] == "fulfilment").unwrap();
    let expected = json!({
        "process": "fulfilment", "sources": ["order", "payment", "shipment"], "dispatches": 1, "firstDispatch": dispatch,
        "deadlines": 0, "firstDeadline": null, "failed": 0, "suspended": 1,
    });
    assert_eq!(fulfilment, &expected);
    assert!(json.last().unwrap().contains(r#""more":true"#), "{json:?}");
}

#[tokio::test]
async fn status_of_processes_that_wait_for_nothing_is_clean() {
    let setup = Setup::with_process().await;
    let lines = setup.daybook("process status").await.expect(Exit::Clean);
    let nothing = "0 dispatches are pending; 0 deadlines are pending; 0 have failed; 0 suspensions";
    assert!(lines.contains(&format!("fulfilment: {nothing}")), "{lines:?}");
}

#[tokio::test]
async fn skipped_event_is_never_input() {
    let (setup, lines) = stack().await;
    place(&setup, "1").await;
    let unnamed = setup.daybook("process resume --skip --yes").await.ended.unwrap_err();
    assert_eq!((unnamed.exit_code(), position(&setup, "1").await.item.is_suspended()), (2, true));
    let error = setup.daybook("process resume order/1 --skip --yes").await.ended.unwrap_err().to_string();
    assert_eq!(error, "order/1 can mean several: name each to skip an event of, as order/1/NAME");
    let printed = setup.daybook("process resume order/1/fulfilment --skip").await.expect(Exit::Clean);
    assert_eq!(printed[0], format!("would-skip {}", lines[0]));
    let printed = setup.daybook("process resume order/1/fulfilment --skip --yes").await.expect(Exit::Clean);
    assert_eq!(
        printed,
        [&*format!("skipped {}", lines[0]), "1 processes skipped; 0 were changed meanwhile, 0 are unreadable"]
    );
    let item = position(&setup, "1").await.item;
    assert_eq!((item.seq_num, item.is_suspended()), (1, false));
    assert!(!receive(&reactor(&setup, Timestamp::now()), queued(&setup).remove(0)).await);
    assert_eq!(setup.rows("fulfilment/1", "").await, []);
}

#[tokio::test]
async fn resume_leaves_nothing_without_its_message() {
    let (mut setup, _) = stack().await;
    setup.fail(json!({"sendMessage": [{"http": 403, "code": "AccessDenied", "forever": true}]}));
    assert_eq!(setup.daybook("process resume --yes").await.ended.unwrap_err().exit_code(), 3);
    for id in ["1", "2"] {
        let item = position(&setup, id).await.item;
        assert_eq!((item.seq_num, &*item.suspended[PositionItem::ALL].error), (0, "a bug"));
    }
    setup.fail(json!({}));
    assert_eq!(queued(&setup), [""; 0]);
    // The message is there before the position goes on, so nothing is lost if the command ends in between.
    (0..10).for_each(|_| setup.table.proxy.fail_next("PutItem", InjectedFault::BreakBefore));
    assert_eq!(setup.daybook("process resume order/1 --yes").await.ended.unwrap_err().exit_code(), 3);
    setup.table.proxy.take_faults();
    assert!(position(&setup, "1").await.item.is_suspended());
    // It arrives when the position has moved.
    assert_eq!((queued(&setup).len(), setup.bus.message_counts("reactions")), (1, (0, 1)));
    let lines = setup.daybook_until("process resume --yes", 1).await.expect(Exit::Interrupted);
    assert!(lines[1].ends_with("stopped early, run it again"), "{lines:?}");
    assert_eq!(setup.daybook("process suspended").await.expect(Exit::Findings).len(), 2);
    setup.settings.retain(|(name, _)| *name != "REACTIONS_QUEUE_URL");
    assert_eq!(setup.daybook("process resume --yes").await.ended.unwrap_err().exit_code(), 2);
    assert_eq!(setup.daybook("process suspended").await.expect(Exit::Findings).len(), 2);
}

#[tokio::test]
async fn position_is_suspended_again_if_its_message_was_too_early_and_cannot_be_sent_again() {
    let (setup, _) = stack().await;
    setup.fail(json!({"sendMessage": [{"delayMs": 5_100}, {"http": 403, "code": "AccessDenied"}]}));
    assert_eq!(setup.daybook("process resume order/1 --yes").await.ended.unwrap_err().exit_code(), 3);
    let item = position(&setup, "1").await.item;
    assert_eq!((item.seq_num, &*item.suspended[PositionItem::ALL].error), (0, "a bug"));
    setup.daybook("process resume order/1 --yes").await.expect(Exit::Clean);
    assert!(!position(&setup, "1").await.item.is_suspended());
}

/// A row of the metadata as if the aggregate had last changed long ago.
async fn age(setup: &Setup, id: &str) {
    let long_ago = AttributeValue::S("2020-01-01T00:00:00.000Z".to_owned());
    setup.table.tamper(&key(&format!("order/{id}")), keys::METADATA, [("updatedAt", long_ago)]).await;
}

#[tokio::test]
async fn catch_up_sends_those_that_are_behind_and_not_those_that_are_handled() {
    let (setup, _) = stack().await;
    for id in ["1", "3", "4", "5"] {
        place(&setup, id).await;
    }
    age(&setup, "5").await;
    let mut handled = position(&setup, "3").await;
    assert!(setup.store.move_position(&mut handled, PositionMove::To(1)).await.unwrap());
    let catch_up = "process catch-up fulfilment --since 2026-01-01T00:00:00Z";
    let printed = setup.daybook(catch_up).await.expect(Exit::Clean);
    let older = "1 more have not changed since 2026-01-01T00:00:00.000Z, 1 are suspended, 0 unreadable";
    let dry_run = format!("1 of 4 aggregates are behind; {older}; this was a dry run, --yes sends them");
    assert_eq!(printed, ["would-send order/4, events 1 to 1", &dry_run]);
    assert_eq!(queued(&setup), [""; 0]);

    let printed = setup.daybook(&format!("{catch_up} --yes")).await.expect(Exit::Clean);
    let sent = format!("1 of 4 aggregates were behind, and sent to the reactor; {older}");
    assert_eq!(printed, ["sent order/4, events 1 to 1", &sent]);
    assert_eq!(queued(&setup), [r#"{"changed":[["order","4",1]],"process":"fulfilment"}"#]);
    assert!(!receive(&reactor(&setup, Timestamp::now()), queued(&setup).remove(0)).await);
    assert_eq!(setup.store.events(&key("fulfilment/4"), 0, 9).await.unwrap().items.len(), 1);

    // Only the old one is left, which is input with another time.
    let printed = setup.daybook(&format!("{catch_up} --yes")).await.expect(Exit::Clean);
    assert!(printed[0].starts_with("0 of 4 aggregates were behind"), "{printed:?}");
    let printed = setup.daybook("process catch-up fulfilment --since 2019-12-31T00:00:00Z --json").await;
    let printed: Vec<Value> =
        printed.expect(Exit::Clean).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(printed[0], json!({"outcome": "would-send", "aggregate": "order/5", "first": 1, "last": 1}));
    let counts = json!({
        "dryRun": true, "since": "2019-12-31T00:00:00.000Z", "compared": 4, "behind": 1, "older": 0, "suspended": 1,
        "unreadable": 0,
    });
    assert_eq!(printed[1], json!({ "summary": counts }));
}

#[tokio::test]
async fn catch_up_sends_a_hundred_in_a_message_and_waits_for_the_reactor() {
    let (setup, _) = stack().await;
    for id in 100..201 {
        place(&setup, &id.to_string()).await;
    }
    setup.daybook("process catch-up fulfilment --yes --rate 10000").await.expect(Exit::Clean);
    let aggregates = |body: &String| serde_json::from_str::<ChangedAggregates>(body).unwrap().keys().count();
    let mut sizes: Vec<_> = queued(&setup).iter().map(aggregates).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 100]);

    let queue = setup.queue_url().replace("/dlq", "/reactions");
    let client = SqsClient::new(&aws_config_at(queue.split("/000000000000").next().unwrap()));
    let queue = Queue { client, url: queue, waits: Waits::default() };
    for _ in 2..50 {
        queue.send_delayed("{}", Duration::ZERO, 1, None).await.unwrap();
    }
    let line = "process catch-up fulfilment --yes --rate 10000";
    let lines = setup.daybook_interrupted(line, Duration::from_millis(1_500)).await.expect(Exit::Interrupted);
    assert!(lines[0].starts_with("0 of 0 aggregates were behind") && lines[0].ends_with("run it again"), "{lines:?}");
    assert_eq!(queued(&setup).len(), 50);
}

#[tokio::test]
async fn catch_up_reports_what_it_cannot_read_and_needs_a_process_and_its_queue() {
    let (mut setup, _) = stack().await;
    place(&setup, "3").await;
    place(&setup, "4").await;
    setup.delete("order/3", keys::METADATA).await;
    setup.stray_row("OrderPlaced").await;
    let mut lines = setup.daybook("process catch-up fulfilment").await.expect(Exit::Findings);
    lines.sort();
    assert!(lines[0].starts_with("1 of 2 aggregates are behind; 0 more"), "{lines:?}");
    assert!(lines[0].contains("2 unreadable; this was a dry run"), "{lines:?}");
    assert!(lines[1].starts_with("unreadable STRAY: "), "{lines:?}");
    assert_eq!(lines[2], "unreadable order/3: it has no metadata; check it with `daybook verify`");
    assert_eq!(lines[3], "would-send order/4, events 1 to 1");
    // A reactor of deadlines alone would never get them from the relay, either.
    setup.settings.push(("REACTOR", "deadlines".to_owned()));
    for wrong in ["fulfilment --yes", "order", "none"] {
        let ended = setup.daybook(&format!("process catch-up {wrong}")).await.ended;
        assert_eq!(ended.unwrap_err().exit_code(), 2, "{wrong}");
    }
    setup.settings.retain(|(name, _)| !["REACTIONS_QUEUE_URL", "REACTOR"].contains(name));
    assert_eq!(setup.daybook("process catch-up fulfilment --yes").await.ended.unwrap_err().exit_code(), 2);
}
