//! The dispatches of a process are sent in their order, each once, and their answers come back once.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_event_store::DeadlineMark;
use daybook_table::AggregateKey;
use daybook_test_support::fault_proxy::{InjectedFault, RecordedCall};
use daybook_test_support::log;
use serde_json::json;

use crate::process_setup::{errand, postbox};
use crate::setup::Setup;

/// More attempts than a call makes.
const ATTEMPTS: usize = 10;

#[tokio::test]
async fn dispatches_are_sent_in_their_order_and_answered() {
    let setup = Setup::new().await;
    setup.notes("box", &[]).await;
    // Sorted by name, they have another order.
    setup.begin("1", &[("z", "box"), ("quiet-y", "box"), ("full-x", "box"), ("w", "none"), ("open", "box")]).await;
    let reactor = setup.processes();
    assert!(!setup.hint(&reactor, "1", "w").await);
    assert_eq!(setup.texts(&postbox("box")).await, ["z", "quiet-y"]);
    let answers = ["z: accepted", "full-x: Full", "w: Missing", "open: Exists"];
    assert_eq!(setup.texts(&errand("1")).await, answers);
    // Those that the answers have ended are gone; the quiet one is still declared.
    assert_eq!(setup.rows_of("1").await, [("quiet-y".to_owned(), "FIRED".to_owned())]);

    let events = setup.table.direct_store().events(&postbox("box"), 1, 1).await.unwrap().items;
    let begun = setup.table.direct_store().events(&errand("1"), 0, 1).await.unwrap().items;
    assert_eq!(events[0].meta.causation_id, Some(begun[0].event_id.to_string()));
    assert_eq!(events[0].meta.actor.as_deref(), Some("daybook"));

    // Repeated messages change nothing, and a name that appears again is sent again.
    assert!(!setup.hint(&setup.processes(), "1", "z").await);
    setup.send(&errand("1"), "Ask", json!({"asks": [["z", "box"], ["quiet-y", "box"]]})).await;
    assert!(!setup.hint(&setup.processes(), "1", "z").await);
    assert_eq!(setup.texts(&postbox("box")).await, ["z", "quiet-y", "z"]);
}

#[tokio::test]
async fn deleted_target_missing_aggregate_and_taken_claim_are_answers() {
    let setup = Setup::new().await;
    setup.notes("one", &[]).await;
    setup.notes("other", &["claim"]).await;
    setup.notes("gone", &[]).await;
    setup.send(&postbox("gone"), "Remove", json!({})).await;
    setup.begin("1", &[("claim", "one"), ("b", "gone"), ("pass", "one")]).await;
    assert!(!setup.hint(&setup.processes(), "1", "claim").await);
    assert_eq!(setup.texts(&errand("1")).await, ["claim: ClaimTaken", "b: Deleted", "pass: Missing"]);
    assert!(setup.texts(&postbox("one")).await.is_empty());
}

#[tokio::test]
async fn value_about_a_forgotten_subject_is_left_out_of_the_event() {
    let setup = Setup::new().await;
    setup.notes("box", &["sign"]).await;
    let store = setup.table.direct_store();
    store.end_key(&AggregateKey::new("guest", "1")).await.unwrap();
    setup.begin("1", &[("sign-again", "box"), ("by", "box")]).await;
    assert!(!setup.hint(&setup.processes(), "1", "sign-again").await);
    // That of a command is left out before it is decided.
    assert_eq!(setup.texts(&errand("1")).await, ["sign-again: accepted", "by: Forgotten"]);
    setup.notes("box", &["1/guest", "1/end"]).await;
    assert!(!setup.changed(&setup.processes(), "box").await);
    assert_eq!(setup.texts(&errand("1")).await[2..], ["end"]);
    let events = store.events(&postbox("box"), 2, 1).await.unwrap().items;
    assert_eq!(events[0].data.text(), r#"{"by":{"$personal":{"of":"guest/1"}}}"#);
}

#[tokio::test]
async fn withdrawn_dispatch_is_not_sent() {
    let setup = Setup::new().await;
    setup.notes("box", &[]).await;
    setup.begin("1", &[("a", "box"), ("b", "box")]).await;
    setup.send(&errand("1"), "Ask", json!({"asks": [["b", "box"]]})).await;
    assert!(!setup.hint(&setup.processes(), "1", "a").await);
    assert_eq!(setup.texts(&postbox("box")).await, ["b"]);
}

/// Whether the next call of an attempt is that of the target: the rows, the process and the target are read.
fn is_before_the_append(calls: &[RecordedCall]) -> bool {
    calls.iter().filter(|call| call.operation == "Query").count() == 3
}

#[tokio::test]
async fn dispatch_that_is_withdrawn_while_it_is_sent_takes_no_effect() {
    // Its target would accept it, or reject it, or has a claim of another aggregate.
    for name in ["a", "full-a", "claim"] {
        let setup = Setup::new().await;
        setup.notes("one", &[]).await;
        setup.notes("other", &["claim"]).await;
        setup.begin("1", &[(name, "one")]).await;
        let (reactor, another) = (setup.processes(), setup.processes());
        let mut run = Box::pin(setup.hint(&reactor, "1", name));
        setup.table.proxy.hold(&mut run, is_before_the_append).await;
        setup.send(&errand("1"), "Ask", json!({"asks": [["b", "one"]]})).await;
        assert!(!setup.hint(&another, "1", "b").await);
        assert!(!run.await, "{name}");
        assert_eq!(setup.texts(&postbox("one")).await, ["b"], "{name}");
        // The first is the withdrawal.
        assert_eq!(setup.texts(&errand("1")).await, ["-", "b: accepted"], "{name}");
        // Its outcome is not stored either.
        assert_eq!(setup.table.rows(&postbox("one"), "IDEMPOTENCY#").await.len(), 1, "{name}");
    }
}

#[tokio::test]
async fn dispatch_that_is_set_again_while_it_is_sent_is_sent_as_the_new_one() {
    // The row is read and not yet the state; or nothing is left but the append.
    let is_row_read: fn(&[RecordedCall]) -> bool = |calls| calls.iter().any(|call| call.operation == "Query");
    for moment in [is_row_read, is_before_the_append] {
        let setup = Setup::new().await;
        setup.notes("one", &[]).await;
        setup.notes("other", &[]).await;
        setup.begin("1", &[("quiet-a", "one")]).await;
        let reactor = setup.processes();
        let mut run = Box::pin(setup.hint(&reactor, "1", "quiet-a"));
        setup.table.proxy.hold(&mut run, moment).await;
        setup.send(&errand("1"), "Ask", json!({"asks": []})).await;
        setup.send(&errand("1"), "Ask", json!({"asks": [["quiet-a", "other"]]})).await;
        assert!(!run.await);
        assert_eq!(setup.texts(&postbox("one")).await, [""; 0]);
        assert_eq!(setup.texts(&postbox("other")).await, ["quiet-a"]);
    }
}

#[tokio::test]
async fn dispatch_that_an_operator_drops_while_it_is_sent_takes_no_effect() {
    let setup = Setup::new().await;
    setup.notes("one", &[]).await;
    setup.begin("1", &[("a", "one")]).await;
    let reactor = setup.processes();
    let mut run = Box::pin(setup.hint(&reactor, "1", "a"));
    setup.table.proxy.hold(&mut run, is_before_the_append).await;
    // Another invocation has marked it as failed before.
    let store = setup.table.direct_store();
    for mark in [DeadlineMark::Failed("a bug"), DeadlineMark::Fired] {
        let stored = store.deadline(&errand("1"), "a").await.unwrap().unwrap();
        assert!(store.mark_deadline(&stored, mark).await.unwrap());
    }
    assert!(!run.await);
    assert_eq!(setup.texts(&postbox("one")).await, [""; 0]);
}

#[tokio::test]
async fn row_that_becomes_visible_late_is_not_overtaken() {
    let setup = Setup::new().await;
    setup.notes("box", &[]).await;
    setup.begin("1", &[("b", "box"), ("a", "box")]).await;
    let row = setup.table.row(&errand("1"), "DEADLINE#b").await.unwrap();
    setup.table.delete(&errand("1"), "DEADLINE#b").await;
    let reactor = setup.processes();
    let mut run = Box::pin(setup.hint(&reactor, "1", "a"));
    let reads_rows = |call: &&RecordedCall| !call.request["ExpressionAttributeValues"][":deadline"].is_null();
    setup.table.proxy.hold(&mut run, |calls| calls.iter().filter(reads_rows).count() == 3).await;
    setup.table.put(row).await;
    assert!(!run.await);
    assert_eq!(setup.texts(&postbox("box")).await, ["b", "a"]);
}

#[tokio::test]
async fn crash_between_the_target_and_the_answer_sends_once_and_has_the_same_answer() {
    let setup = Setup::new().await;
    // The target does not exist yet.
    setup.begin("1", &[("a", "box")]).await;
    let reactor = setup.processes();
    // The answer cannot be stored.
    let is_second =
        |calls: &[RecordedCall]| calls.iter().filter(|call| call.operation == "TransactWriteItems").count() == 1;
    let mut run = Box::pin(setup.hint(&reactor, "1", "a"));
    setup.table.proxy.hold(&mut run, is_second).await;
    drop(run);
    assert_eq!(setup.texts(&errand("1")).await, [""; 0]);
    // Meanwhile, it is opened: the outcome stays that of the first attempt.
    setup.notes("box", &[]).await;
    assert!(!setup.hint(&setup.processes(), "1", "a").await);
    assert_eq!(setup.texts(&errand("1")).await, ["a: Missing"]);
    assert_eq!(setup.texts(&postbox("box")).await, [""; 0]);
}

#[tokio::test]
async fn crash_between_the_answer_and_the_mark_answers_once() {
    let setup = Setup::new().await;
    setup.notes("box", &[]).await;
    setup.begin("1", &[("a-keep", "box")]).await;
    (0..ATTEMPTS).for_each(|_| setup.table.proxy.fail_next("PutItem", InjectedFault::BreakBefore));
    assert!(setup.hint(&setup.processes(), "1", "a-keep").await);
    setup.table.proxy.take_faults();
    assert_eq!(setup.rows_of("1").await, [("a-keep".to_owned(), "DEADLINE".to_owned())]);
    assert!(!setup.hint(&setup.processes(), "1", "a-keep").await);
    assert_eq!(setup.texts(&errand("1")).await, ["a-keep: accepted"]);
    assert_eq!(setup.texts(&postbox("box")).await, ["a-keep"]);
    assert_eq!(setup.rows_of("1").await, [("a-keep".to_owned(), "FIRED".to_owned())]);
}

#[tokio::test]
async fn command_with_a_map_in_another_order_is_the_same() {
    let setup = Setup::new().await;
    setup.notes("box", &[]).await;
    setup.begin("1", &[("map-keep", "box")]).await;
    (0..ATTEMPTS).for_each(|_| setup.table.proxy.fail_next("PutItem", InjectedFault::BreakBefore));
    assert!(setup.hint(&setup.processes(), "1", "map-keep").await);
    setup.table.proxy.take_faults();
    assert!(!setup.hint(&setup.processes(), "1", "map-keep").await);
    assert_eq!(setup.rows_of("1").await, [("map-keep".to_owned(), "FIRED".to_owned())]);
    assert_eq!(setup.texts(&postbox("box")).await, ["map-keep"]);
}

/// An earlier release, which has set the row, may have sent it to the first target.
#[tokio::test]
async fn dispatch_whose_target_a_release_changes_is_not_sent_to_the_other_one() {
    let setup = Setup::new().await;
    setup.notes("box", &[]).await;
    setup.begin("1", &[("a", "box"), ("b", "box")]).await;
    let first = [("to", AttributeValue::S("postbox/first".to_owned()))];
    setup.table.tamper(&errand("1"), "DEADLINE#a", first).await;
    let reactor = setup.processes();
    assert!(setup.hint(&reactor, "1", "a").await);
    setup.advance(720);
    assert!(!setup.hint(&reactor, "1", "a").await);
    let error = setup.table.direct_store().deadline(&errand("1"), "a").await.unwrap().unwrap().item.error.unwrap();
    assert!(error.starts_with("its target was postbox/first, and is postbox/box in this release"), "{error}");
    assert_eq!(setup.texts(&postbox("box")).await, ["b"]);
}

#[tokio::test]
async fn two_invocations_at_once_send_each_dispatch_once_and_in_order() {
    let setup = Setup::new().await;
    setup.notes("box", &[]).await;
    setup.begin("1", &[("c", "box"), ("b", "box"), ("a", "box")]).await;
    let (one, other) = (setup.processes(), setup.processes());
    let (again, again_too) = tokio::join!(setup.hint(&one, "1", "a"), setup.hint(&other, "1", "c"));
    assert!(!again && !again_too);
    assert_eq!(setup.texts(&postbox("box")).await, ["c", "b", "a"]);
    assert_eq!(setup.texts(&errand("1")).await, ["c: accepted", "b: accepted", "a: accepted"]);
}

#[tokio::test]
async fn dispatch_that_cannot_be_executed_fails_after_twelve_minutes_and_the_next_goes_on() {
    let setup = Setup::new().await;
    setup.notes("box", &[]).await;
    setup.begin("1", &[("boom", "box"), ("b", "box")]).await;
    let reactor = setup.processes();
    for _ in 1..=4 {
        assert!(setup.hint(&reactor, "1", "boom").await);
        // It waits for the other, whose message comes again.
        assert!(!setup.hint(&reactor, "1", "b").await);
        assert_eq!(setup.texts(&postbox("box")).await, [""; 0]);
        setup.advance(180);
    }
    assert!(!setup.hint(&reactor, "1", "boom").await);
    assert_eq!(setup.rows_of("1").await, [("boom".to_owned(), "DEADLINE_FAILED".to_owned())]);
    assert_eq!(setup.texts(&postbox("box")).await, ["b"]);
    assert_eq!(setup.texts(&errand("1")).await, ["b: accepted"]);
}

#[tokio::test]
async fn dispatch_that_the_target_forbids_is_logged_with_the_target_and_the_next_step() {
    let setup = Setup::new().await;
    setup.notes("box", &[]).await;
    setup.begin("1", &[("denied", "box")]).await;
    log::take("daybook_reactor");
    assert!(setup.hint(&setup.processes(), "1", "denied").await);
    let lines = log::take("daybook_reactor");
    let line = lines.iter().find(|line| line["level"] == "WARN").unwrap();
    let error = "the system may not send Put to postbox/box: allow it in authorize, with caller.is_system()";
    assert_eq!((&line["to"], &line["error"]), (&json!("postbox/box"), &json!(error)));
}

#[tokio::test]
async fn outage_marks_no_dispatch() {
    for operation in ["Query", "TransactWriteItems", "GetItem"] {
        let setup = Setup::new().await;
        setup.notes("box", &[]).await;
        setup.begin("1", &[("a", "box")]).await;
        setup.throttle(operation);
        let reactor = setup.processes();
        let due = setup.table.direct_store().deadline(&errand("1"), "a").await.unwrap().unwrap().due;
        let due = daybook_table::DueDeadline { due, key: errand("1"), name: "a".to_owned() };
        let body = daybook_table::DueDeadlines::new(&[due]).to_body();
        let soon = tokio::time::Instant::now() + std::time::Duration::from_secs(3);
        let again = crate::process_setup::message(&reactor, body, soon).await;
        setup.table.proxy.take_faults();
        assert_eq!(setup.rows_of("1").await, if again { vec![("a".into(), "DEADLINE".into())] } else { vec![] });
        assert!(again || operation == "GetItem", "{operation}");
        assert!(!setup.hint(&setup.processes(), "1", "a").await, "{operation}");
        assert_eq!(setup.texts(&postbox("box")).await, ["a"]);
    }
}
