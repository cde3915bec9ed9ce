//! `daybook process suspended` and `resume`.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_cli::operator::{ErrorExit, Exit};
use daybook_event_store::{PositionMove, StoredPosition};
use daybook_table::{ChangedAggregates, keys};
use daybook_test_support::row::text;
use jiff::Timestamp;
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
    assert!(setup.store.move_position(&mut position, PositionMove::Suspend(0, "a bug")).await.unwrap());
    let since = position.item.gsi1sk.unwrap();
    format!("order/{id} fulfilment, event 1 since {since}: a bug")
}

/// A stack with a reactor, and two suspended positions, with their lines.
async fn stack() -> (Setup, Vec<String>) {
    let mut setup = Setup::new().await;
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
    assert_eq!(listed, [&first, &second, "2 positions are suspended, 0 unreadable"]);
    let listed = setup.daybook("process suspended order/2/fulfilment order/1/other").await.expect(Exit::Findings);
    assert_eq!(listed, [&second, "1 positions are suspended, 0 unreadable"]);
    let listed = setup.daybook("process suspended --limit 1").await.expect(Exit::Findings);
    assert_eq!(listed, [&first, "1 positions are suspended, 0 unreadable; there are more: raise --limit"]);

    let listed = setup.daybook("process suspended order/1 --json").await.expect(Exit::Findings);
    let found: Value = serde_json::from_str(&listed[0]).unwrap();
    let since = position(&setup, "1").await.item.gsi1sk;
    let expected = json!({
        "outcome": "suspended", "kind": "position", "aggregate": "order/1", "process": "fulfilment", "event": 1, "since": since,
        "error": "a bug",
    });
    assert_eq!(found, expected);

    let not_a_number = [("seqNum", AttributeValue::S("x".to_owned()))];
    setup.table.tamper(&key("order/1"), &keys::position_sk("fulfilment"), not_a_number).await;
    let listed = setup.daybook("process suspended").await.expect(Exit::Findings);
    assert!(listed[1].starts_with("unreadable AGGREGATE#order#1 POSITION#fulfilment: "), "{listed:?}");
    assert_eq!(setup.daybook("process resume").await.expect(Exit::Findings).len(), 2);
}

#[tokio::test]
async fn position_goes_on_after_the_event_is_repaired_and_it_is_resumed() {
    let (setup, _) = stack().await;
    place(&setup, "3").await;
    let (aggregate, event) = (key("order/3"), keys::event_sk(1));
    let data = text(&setup.table.row(&aggregate, &event).await.unwrap(), "data").to_owned();
    setup.table.tamper(&aggregate, &event, [("data", AttributeValue::S("{".to_owned()))]).await;
    let reactor = reactor(&setup, Timestamp::now());
    let changed = ChangedAggregates::messages(&[(aggregate.clone(), 1)].into()).remove(0).to_body();
    assert!(!receive(&reactor, 5, changed.clone()).await);
    let lines = setup.daybook("process suspended order/3").await.expect(Exit::Findings);
    assert!(lines[0].starts_with("suspended order/3 fulfilment, event 1 since "), "{lines:?}");

    setup.table.tamper(&aggregate, &event, [("data", AttributeValue::S(data))]).await;
    let lines = setup.daybook("process resume order/3").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("would-resume order/3 fulfilment, event 1 since "), "{lines:?}");
    assert_eq!(lines[1], "1 suspended positions, 0 unreadable; this was a dry run, --yes resumes them");
    assert!(position(&setup, "3").await.item.is_suspended() && queued(&setup).is_empty());
    let lines = setup.daybook("process resume order/3 --yes").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("resumed order/3 fulfilment, event 1 since "), "{lines:?}");
    assert_eq!(lines[1], "1 positions resumed; 0 were changed meanwhile, 0 are unreadable");
    assert_eq!(queued(&setup), [changed]);

    assert!(!receive(&reactor, 1, queued(&setup).remove(0)).await);
    let begun = setup.store.events(&key("fulfilment/3"), 0, 9).await.unwrap().items;
    assert_eq!((begun.len(), position(&setup, "3").await.item.seq_num), (1, 1));
    assert!(position(&setup, "1").await.item.is_suspended());
    // A dispatch is listed with the deadlines.
    let lines = setup.daybook("deadlines list fulfilment/3").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("pending fulfilment/3 request-payment, due "), "{lines:?}");
    assert!(lines[1].starts_with("pending fulfilment/3 payment, due "), "{lines:?}");
}

#[tokio::test]
async fn skipped_event_is_never_input() {
    let (setup, lines) = stack().await;
    place(&setup, "1").await;
    let unnamed = setup.daybook("process resume --skip --yes").await.ended.unwrap_err();
    assert_eq!((unnamed.exit_code(), position(&setup, "1").await.item.is_suspended()), (2, true));
    let printed = setup.daybook("process resume order/1 --skip").await.expect(Exit::Clean);
    assert_eq!(printed[0], format!("would-skip {}", lines[0]));
    let printed = setup.daybook("process resume order/1/fulfilment --skip --yes").await.expect(Exit::Clean);
    assert_eq!(
        printed,
        [&*format!("skipped {}", lines[0]), "1 positions skipped; 0 were changed meanwhile, 0 are unreadable"]
    );
    let item = position(&setup, "1").await.item;
    assert_eq!((item.seq_num, item.is_suspended()), (1, false));
    assert!(!receive(&reactor(&setup, Timestamp::now()), 1, queued(&setup).remove(0)).await);
    assert_eq!(setup.rows("fulfilment/1", "").await, []);
}

#[tokio::test]
async fn resume_leaves_nothing_without_its_message() {
    let (mut setup, _) = stack().await;
    setup.fail(json!({"sendMessage": [{"http": 403, "code": "AccessDenied", "forever": true}]}));
    assert_eq!(setup.daybook("process resume --yes").await.ended.unwrap_err().exit_code(), 3);
    for id in ["1", "2"] {
        let item = position(&setup, id).await.item;
        assert_eq!((item.seq_num, item.error.as_deref()), (0, Some("a bug")));
    }
    setup.fail(json!({}));
    let lines = setup.daybook_until("process resume --yes", 1).await.expect(Exit::Interrupted);
    assert!(lines[1].ends_with("stopped early, run it again"), "{lines:?}");
    assert_eq!(setup.daybook("process suspended").await.expect(Exit::Findings).len(), 2);
    setup.settings.retain(|(name, _)| *name != "REACTIONS_QUEUE_URL");
    assert_eq!(setup.daybook("process resume --yes").await.ended.unwrap_err().exit_code(), 2);
    assert_eq!(setup.daybook("process suspended").await.expect(Exit::Findings).len(), 2);
}
