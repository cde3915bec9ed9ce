//! A deadline whose command cannot be executed is marked as failed, and stops no other.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::Registry;
use daybook_event_store::DeadlineMark;
use daybook_function_runtime::{QueueBatch, QueueRecord};
use daybook_reactor::{Reactor, ReactorEvent};
use daybook_table::keys;
use daybook_test_support::log;
use daybook_test_support::row::text;
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use crate::setup::{Setup, message, message_until, soon, timer};

/// Delivers a message for some minutes, during which the deadline is pending, and twelve minutes later, when it fails. Returns the
/// error.
async fn fails(setup: &Setup, reactor: &Reactor, id: &str, name: &str, due: Timestamp) -> String {
    for time in 1..=4 {
        assert!(message(reactor, &[(id, name, due)]).await, "{name}: {time}");
        assert_eq!(setup.state(id, name).await.as_deref(), Some("DEADLINE"), "{name}: {time}");
        setup.advance(180);
    }
    assert!(!message(reactor, &[(id, name, due)]).await, "{name}");
    assert_eq!(setup.state(id, name).await.as_deref(), Some("DEADLINE_FAILED"), "{name}");
    text(&setup.row(id, name).await.unwrap(), "error").to_owned()
}

#[tokio::test]
async fn command_that_cannot_be_executed_fails_after_twelve_minutes() {
    let setup = Setup::new().await;
    let due = setup.after(1);
    setup.start("1", &[("boom", due), ("ring", due), ("claim", due)]).await;
    setup.start("2", &[("claim", due)]).await;
    setup.advance(2);
    let reactor = setup.reactor();
    assert!(message(&reactor, &[("1", "boom", due), ("1", "ring", due), ("2", "claim", due)]).await);
    assert_eq!((setup.events("1").await, setup.events("2").await), (vec!["Rang ring".into()], vec!["Claimed ".into()]));

    log::take("daybook_reactor");
    let error = fails(&setup, &reactor, "1", "boom", due).await;
    assert!(error.contains("boom cannot be decided"), "{error}");
    let lines = log::take("daybook_reactor");
    let errors: Vec<_> = lines.iter().filter(|line| line["level"] == "ERROR").collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(
        (&errors[0]["message"], &errors[0]["name"]),
        (&json!("the deadline or dispatch failed"), &json!("boom"))
    );

    let error = fails(&setup, &reactor, "1", "claim", due).await;
    assert!(error.contains("timer/2 has the claim"), "{error}");

    // Neither the tick nor a late message tries it again.
    setup.tick(&reactor).await;
    assert_eq!(setup.queued().len(), 0);
    assert!(!message(&reactor, &[("1", "boom", due), ("1", "claim", due)]).await);
    assert_eq!(setup.events("1").await, ["Rang ring"]);
}

#[tokio::test]
async fn time_of_an_outage_does_not_count() {
    let setup = Setup::new().await;
    let due = setup.after(1);
    setup.start("1", &[("boom", due)]).await;
    setup.advance(2);
    setup.throttle("GetItem");
    for _ in 0..2 {
        let soon = Instant::now() + Duration::from_secs(2);
        assert!(message_until(&setup.reactor(), &[("1", "boom", due)], soon).await);
        setup.advance(3_600);
    }
    setup.table.proxy.take_faults();
    fails(&setup, &setup.reactor(), "1", "boom", due).await;
    // Nor does the time before it is retried.
    let store = setup.table.direct_store();
    let failed = store.deadline(&timer("1"), "boom").await.unwrap().unwrap();
    assert!(store.mark_deadline(&failed, DeadlineMark::Pending).await.unwrap());
    fails(&setup, &setup.reactor(), "1", "boom", due).await;
}

#[tokio::test]
async fn time_begins_anew_after_a_failure_that_passes() {
    let setup = Setup::new().await;
    let due = setup.after(1);
    setup.start("1", &[("boom", due)]).await;
    setup.advance(2);
    assert!(message(&setup.reactor(), &[("1", "boom", due)]).await);
    // The row can be read and marked, and the state cannot be read.
    setup.throttle("Query");
    let soon = Instant::now() + Duration::from_secs(10);
    assert!(message_until(&setup.reactor(), &[("1", "boom", due)], soon).await);
    setup.table.proxy.take_faults();
    setup.advance(1_800);
    fails(&setup, &setup.reactor(), "1", "boom", due).await;
}

#[tokio::test]
async fn deadline_of_an_unknown_type_and_of_a_damaged_aggregate_fails() {
    let setup = Setup::new().await;
    let due = setup.after(1);
    setup.start("1", &[("ring", due)]).await;
    setup.start("2", &[("ring", due)]).await;
    setup.advance(2);
    // At first, another release may have set it.
    let other = setup.reactor_of(Registry::new());
    assert!(message(&other, &[("1", "ring", due)]).await);
    setup.advance(3600);
    let error = fails(&setup, &other, "1", "ring", due).await;
    assert!(error.contains("no aggregate type timer"), "{error}");
    setup.table.tamper(&timer("2"), &keys::event_sk(1), [("data", AttributeValue::S("{".to_owned()))]).await;
    let error = fails(&setup, &setup.reactor(), "2", "ring", due).await;
    assert!(error.contains("EVENT#000000000001 is corrupt"), "{error}");
}

#[tokio::test]
async fn deadline_that_was_moved_while_it_failed_is_not_marked() {
    let setup = Setup::new().await;
    let due = setup.after(1);
    setup.start("1", &[("boom", due)]).await;
    setup.advance(2);
    setup.execute("1", "Set", json!({"name": "boom", "due": setup.after(600)})).await;
    assert!(!message(&setup.reactor(), &[("1", "boom", due)]).await);
    assert_eq!(setup.state("1", "boom").await.as_deref(), Some("DEADLINE"));
}

#[tokio::test]
async fn messages_that_cannot_be_read_come_again_and_stop_no_other() {
    let setup = Setup::new().await;
    let due = setup.after(1);
    setup.start("1", &[("ring", due)]).await;
    setup.advance(2);
    let long = "x".repeat(3_000);
    let bodies = [
        "{".to_owned(),
        json!({"changed": [["timer", "a b", 1]]}).to_string(),
        json!({"deadlines": [["timer", long, "ring", due]]}).to_string(),
        json!({"deadlines": [["timer", "1", "a b", due], ["timer", "1", "ring", due]]}).to_string(),
    ];
    let records = bodies.iter().enumerate().map(|(n, body)| QueueRecord::new(n.to_string(), body)).collect();
    let batch = ReactorEvent::Messages(QueueBatch { records });
    let response = setup.reactor().handle(batch, soon()).await;
    let failed: Vec<_> = response.batch_item_failures.iter().map(|failure| &*failure.item_identifier).collect();
    assert_eq!(failed, ["0", "1", "2", "3"]);
    assert_eq!(setup.events("1").await, ["Rang ring"]);
}
