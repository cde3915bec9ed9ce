//! The events of an aggregate are input of processes: each once, in their order.

use std::pin::pin;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_event_store::PositionMove;
use daybook_table::{ChangedAggregates, PositionItem, keys};
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::log;
use futures_util::future::select;
use tokio::time::sleep;

use crate::process_setup::{errand, message, postbox, registry};
use crate::setup::{Setup, soon};
use crate::witness::Witness;

#[tokio::test]
async fn events_are_input_once_and_in_their_order() {
    let setup = Setup::new().await;
    // What is no input, what is rejected, and what is for nobody, is passed over.
    let notes = ["hello", "1/too early", "1/begin", "1/a", "1/reject", "nobody/a", "1/b", "1/begin"];
    setup.notes("box", &notes).await;
    let reactor = setup.processes();
    assert!(!setup.changed(&reactor, "box").await);
    assert_eq!(setup.texts(&errand("1")).await, ["a", "b"]);
    assert_eq!(setup.position("box").await.item.seq_num, 9);
    let event = setup.table.direct_store().events(&errand("1"), 1, 1).await.unwrap().items.remove(0);
    let cause = setup.table.direct_store().events(&postbox("box"), 4, 1).await.unwrap().items.remove(0);
    assert_eq!(
        (event.meta.causation_id, event.meta.actor.as_deref()),
        (Some(cause.event_id.to_string()), Some("daybook"))
    );

    // Repeated messages read the position and the events after it.
    setup.table.operations();
    assert!(!setup.changed(&reactor, "box").await);
    assert_eq!(setup.table.operations(), ["GetItem", "Query"]);
    setup.notes("box", &["1/c"]).await;
    assert!(!setup.changed(&setup.processes(), "box").await);
    assert_eq!(setup.texts(&errand("1")).await, ["a", "b", "c"]);
}

#[tokio::test]
async fn message_for_one_type_of_processes_reaches_no_other() {
    let setup = Setup::new().await;
    setup.notes("box", &["1/begin"]).await;
    for (process, handled) in [("other", 0), ("errand", 2)] {
        let mut changed = ChangedAggregates::one(postbox("box"), 2);
        changed.process = Some(process.to_owned());
        assert!(!message(&setup.processes(), changed.to_body(), soon()).await);
        assert_eq!(setup.position("box").await.item.seq_num, handled, "{process}");
    }
}

#[tokio::test]
async fn process_type_that_waits_delays_no_other() {
    let setup = Setup::new().await;
    setup.notes("box", &["1/begin", "1/a"]).await;
    let store = setup.table.direct_store();
    let position = async |of| store.position(&postbox("box"), of).await.unwrap().item.seq_num;
    // Errands append; witnesses only move their position.
    (0..99).for_each(|_| setup.table.proxy.fail_next("TransactWriteItems", InjectedFault::Hang));
    let reactor = setup.reactor_of(registry().with::<Witness>().unwrap());
    let witness_moves = async {
        while position("witness").await < 3 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    select(pin!(setup.changed(&reactor, "box")), pin!(witness_moves)).await;
    assert_eq!((position("errand").await, position("witness").await), (0, 3));
}

#[tokio::test]
async fn more_events_than_a_page_are_handled_in_their_order() {
    let setup = Setup::new().await;
    let notes: Vec<_> = (0..150).map(|n| format!("1/{n}")).collect();
    setup.notes("box", &["1/begin"]).await;
    setup.notes("box", &notes.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert!(!setup.changed(&setup.processes(), "box").await);
    let heard = setup.table.direct_store().events(&errand("1"), 1, 1_000).await.unwrap().items;
    assert_eq!((heard.len(), setup.position("box").await.item.seq_num), (150, 152));
}

/// The outcome of an event that had no effect stays, although the process would now accept it.
#[tokio::test]
async fn crash_before_the_position_moves_changes_no_outcome() {
    let setup = Setup::new().await;
    setup.notes("box", &["1/early", "1/begin", "1/after-x", "1/x"]).await;
    (0..10).for_each(|_| setup.table.proxy.fail_next("PutItem", InjectedFault::BreakBefore));
    assert!(setup.changed(&setup.processes(), "box").await);
    setup.table.proxy.take_faults();
    assert_eq!(setup.position("box").await.item.seq_num, 0);
    assert_eq!(setup.texts(&errand("1")).await, ["x"]);
    assert!(!setup.changed(&setup.processes(), "box").await);
    assert_eq!((setup.texts(&errand("1")).await, setup.position("box").await.item.seq_num), (vec!["x".into()], 5));
}

#[tokio::test]
async fn two_invocations_at_once_handle_each_event_once() {
    let setup = Setup::new().await;
    setup.notes("box", &["1/begin", "1/after-x", "1/x", "1/b", "1/c"]).await;
    let (one, other, third) = (setup.processes(), setup.processes(), setup.processes());
    let all = tokio::join!(setup.changed(&one, "box"), setup.changed(&other, "box"), setup.changed(&third, "box"));
    assert_eq!(all, (false, false, false));
    assert_eq!(setup.texts(&errand("1")).await, ["x", "b", "c"]);
    assert_eq!(setup.position("box").await.item.seq_num, 6);
}

#[tokio::test]
async fn event_of_no_known_process_suspends_all_of_its_type_after_twelve_minutes() {
    let setup = Setup::new().await;
    setup.notes("box", &["1/begin", "1/a", "1/unreadable", "1/b"]).await;
    setup.notes("other", &["1/c"]).await;
    let reactor = setup.processes();
    for _ in 1..=4 {
        assert!(setup.changed(&reactor, "box").await);
        let position = setup.position("box").await;
        assert_eq!((position.item.seq_num, position.item.is_suspended()), (3, false));
        setup.advance(180);
    }
    log::take("daybook_reactor");
    assert!(!setup.changed(&reactor, "box").await);
    let errors = log::take("daybook_reactor").into_iter().filter(|line| line["level"] == "ERROR").count();
    let mut position = setup.position("box").await;
    assert_eq!((position.item.seq_num, position.item.is_suspended(), errors), (3, true, 1));
    assert!(position.item.suspended[PositionItem::ALL].error.contains("cannot be"), "{position:?}");
    assert!(!setup.changed(&reactor, "other").await);
    assert_eq!(setup.texts(&errand("1")).await, ["a", "c"]);
    // Messages about it do nothing.
    setup.table.operations();
    assert!(!setup.changed(&reactor, "box").await);
    assert_eq!(setup.table.operations(), ["GetItem"]);

    // An operator skips the event.
    let store = setup.table.direct_store();
    assert!(store.move_position(&mut position, PositionMove::Resume(PositionItem::ALL, 4)).await.unwrap());
    assert!(!setup.changed(&reactor, "box").await);
    assert_eq!(setup.texts(&errand("1")).await, ["a", "c", "b"]);
}

#[tokio::test]
async fn event_that_a_process_cannot_handle_suspends_this_process_alone_after_twelve_minutes() {
    let setup = Setup::new().await;
    setup.notes("box", &["1/begin", "2/begin", "1/a", "1/panic", "2/b", "1/c"]).await;
    let (one, other) = (setup.processes(), setup.reactor_ahead(registry(), Duration::from_secs(1)));
    assert!(setup.changed(&one, "box").await);
    setup.advance(720);
    // The response is lost, and another invocation comes at the same time.
    setup.table.proxy.fail_next("PutItem", InjectedFault::BreakAfter);
    log::take("daybook_reactor");
    tokio::join!(setup.changed(&one, "box"), setup.changed(&other, "box"));
    setup.notes("box", &["1/d", "2/e"]).await;
    assert!(!setup.changed(&other, "box").await);
    let texts = async |id| setup.texts(&errand(id)).await;
    assert_eq!((texts("1").await, texts("2").await), (vec!["a".into()], vec!["b".into(), "e".into()]));
    let errors = log::take("daybook_reactor").into_iter().filter(|line| line["level"] == "ERROR").count();
    assert_eq!(errors, 1);
    let all = setup.position("box").await.item;
    assert_eq!((all.seq_num, all.is_suspended()), (9, false));
    let store = setup.table.direct_store();
    let mut found = store.suspended_positions(9).await.unwrap().items.remove(0);
    assert_eq!((found.item.suspended["1"].seq_num, found.item.suspended.len()), (4, 1));

    // An operator skips the event: the process gets those after it, also if that takes a second attempt.
    assert!(store.move_position(&mut found, PositionMove::Resume("1", 5)).await.unwrap());
    setup.notes("box", &["2/f", "1/g"]).await;
    setup.table.proxy.fail_next("TransactWriteItems", InjectedFault::BreakBefore);
    tokio::join!(setup.changed(&one, "box"), setup.changed(&other, "box"));
    assert!(!setup.changed(&one, "box").await);
    let texts = async |id| setup.texts(&errand(id)).await.join(" ");
    assert_eq!((texts("1").await, texts("2").await), ("a c d g".to_owned(), "b e f".to_owned()));
    assert_eq!(setup.position("box").await.item, PositionItem::new(&postbox("box"), "errand", 11));

    // An event that still cannot be handled suspends the process at once.
    setup.notes("box", &["1/panic", "2/g", "1/h"]).await;
    assert!(setup.changed(&one, "box").await);
    setup.advance(720);
    assert!(!setup.changed(&one, "box").await);
    let mut position = setup.position("box").await;
    assert!(store.move_position(&mut position, PositionMove::Resume("1", 11)).await.unwrap());
    assert!(!setup.changed(&one, "box").await);
    let item = setup.position("box").await.item;
    assert_eq!((item.seq_num, item.suspended["1"].seq_num, item.suspended["1"].is_resumed), (14, 11, false));
    assert_eq!((texts("1").await, texts("2").await), ("a c d g".to_owned(), "b e f g".to_owned()));
}

#[tokio::test]
async fn process_beyond_the_maximum_of_suspended_ones_suspends_all() {
    let setup = Setup::new().await;
    let notes: Vec<_> = (1..=21).flat_map(|id| [format!("{id}/begin"), format!("{id}/panic")]).collect();
    setup.notes("box", &notes.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let reactor = setup.processes();
    for _ in 1..=21 {
        assert!(setup.changed(&reactor, "box").await);
        setup.advance(720);
    }
    assert!(!setup.changed(&reactor, "box").await);
    let all = setup.position("box").await.item;
    assert_eq!((all.seq_num, all.is_suspended()), (42, true));
    assert_eq!(all.suspended.len(), 21);
}

#[tokio::test]
async fn damaged_row_of_an_event_suspends_and_an_outage_does_not() {
    let setup = Setup::new().await;
    setup.notes("box", &["1/begin", "1/a", "1/b", "1/c"]).await;
    for operation in ["GetItem", "Query", "TransactWriteItems"] {
        setup.throttle(operation);
        let soon = tokio::time::Instant::now() + std::time::Duration::from_secs(2);
        let body = ChangedAggregates::one(postbox("box"), 4).to_body();
        assert!(message(&setup.processes(), body, soon).await, "{operation}");
        setup.table.proxy.take_faults();
        assert!(!setup.position("box").await.item.is_suspended(), "{operation}");
    }
    let broken = AttributeValue::S("{".to_owned());
    setup.table.tamper(&postbox("box"), &keys::event_sk(4), [("data", broken)]).await;
    // The outage does not count as failures of the event.
    assert!(setup.changed(&setup.processes(), "box").await);
    setup.advance(720);
    assert!(!setup.changed(&setup.processes(), "box").await);
    assert_eq!(setup.texts(&errand("1")).await, ["a"]);
    let position = setup.position("box").await.item;
    assert_eq!((position.seq_num, position.is_suspended()), (3, true));
}

#[tokio::test]
async fn imported_events_that_are_not_published_are_no_input() {
    let setup = Setup::new().await;
    setup.notes("box", &["1/begin", "1/a", "1/b"]).await;
    setup.table.tamper(&postbox("box"), &keys::event_sk(3), [("notPublished", AttributeValue::Bool(true))]).await;
    assert!(!setup.changed(&setup.processes(), "box").await);
    assert_eq!(setup.texts(&errand("1")).await, ["b"]);
}

#[tokio::test]
async fn events_that_are_not_visible_yet_are_waited_for() {
    let setup = Setup::new().await;
    setup.notes("box", &["1/begin"]).await;
    let body = ChangedAggregates::one(postbox("box"), 3).to_body();
    assert!(message(&setup.processes(), body.clone(), soon()).await, "event 3 does not exist");
    setup.notes("box", &["1/a"]).await;
    assert!(!message(&setup.processes(), body, soon()).await);
    assert_eq!(setup.texts(&errand("1")).await, ["a"]);
}
