//! A deadline fires once, while it is declared, and not before its time.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::setup::{Setup, message, timer};

#[tokio::test]
async fn deadline_fires_at_its_time_with_its_cause_and_its_row_is_deleted() {
    let setup = Setup::new().await;
    let due = setup.after(60);
    setup.start("1", &[("ring", due)]).await;
    let reactor = setup.reactor();
    assert_eq!(
        (setup.tick_and_deliver(&reactor).await, setup.events("1").await),
        (0, vec![]),
        "its message is delayed"
    );
    setup.advance(61);
    assert_eq!((setup.deliver(&reactor).await, setup.events("1").await), (0, vec!["Rang ring".to_owned()]));

    let events = setup.table.direct_store().events(&timer("1"), 0, 10).await.unwrap().items;
    let [started, rang] = &events[..] else { panic!("{events:?}") };
    assert!(rang.occurred_at >= due);
    assert_eq!(rang.meta.actor.as_deref(), Some("daybook"));
    assert_eq!(rang.meta.causation_id, Some(started.event_id.to_string()));
    assert_eq!(rang.meta.correlation_id.as_deref(), Some("of-the-test"));
    assert_eq!((setup.row("1", "ring").await, setup.bus.queued()), (None, vec![]));
    assert_eq!(setup.tick_and_deliver(&reactor).await, 0);
    assert_eq!(setup.events("1").await.len(), 1);
}

#[tokio::test]
async fn deadline_that_stays_declared_fires_once_until_it_has_another_time() {
    let setup = Setup::new().await;
    let due = setup.after(1);
    // "send" sends a command to an aggregate that does not exist.
    let names = ["keep", "refuse", "record", "idle", "send"];
    setup.start("1", &names.map(|name| (name, due))).await;
    setup.advance(2);
    let reactor = setup.reactor();
    assert_eq!(setup.tick_and_deliver(&reactor).await, 0);
    for name in names {
        assert_eq!(setup.state("1", name).await.as_deref(), Some("fired"), "{name}");
    }
    let fired = ["Kept keep", "Refused record"].map(str::to_owned);
    let sorted = async || {
        let mut events = setup.events("1").await;
        events.sort();
        events
    };
    assert_eq!(sorted().await, fired);

    // The tick does not find them, and a late message changes nothing.
    setup.tick(&reactor).await;
    assert_eq!(setup.queued().len(), 0);
    for name in names {
        assert!(!message(&reactor, &[("1", name, due)]).await);
        assert!(!message(&setup.reactor(), &[("1", name, due)]).await);
    }
    assert_eq!(sorted().await, fired);

    setup.execute("1", "Set", json!({"name": "keep", "due": setup.after(1)})).await;
    setup.advance(2);
    assert_eq!(setup.tick_and_deliver(&reactor).await, 0);
    let kept = sorted().await.into_iter().filter(|event| event == "Kept keep").count();
    assert_eq!((kept, setup.state("1", "keep").await.as_deref()), (2, Some("fired")));
}

#[tokio::test]
async fn deadline_that_was_moved_or_dropped_after_its_message_does_not_fire() {
    let setup = Setup::new().await;
    let due = setup.after(1);
    setup.start("1", &[("ring-moved", due), ("ring-dropped", due)]).await;
    setup.advance(2);
    let reactor = setup.reactor();
    setup.tick(&reactor).await;
    let later = setup.after(600);
    setup.execute("1", "Set", json!({"name": "ring-moved", "due": later})).await;
    setup.execute("1", "Set", json!({"name": "ring-dropped"})).await;
    assert_eq!(setup.deliver(&reactor).await, 0);
    assert_eq!(setup.events("1").await, ["Changed ring-moved", "Changed ring-dropped"]);
    setup.advance(600);
    assert_eq!(setup.tick_and_deliver(&reactor).await, 0);
    assert_eq!(setup.events("1").await.last().unwrap(), "Rang ring-moved");
}

#[tokio::test]
async fn early_message_is_ignored_or_waited_for() {
    let setup = Setup::new().await;
    let (early, late) = (setup.clock.timestamp() + Duration::from_millis(300), setup.after(60));
    let early = Timestamp::from_millisecond(early.as_millisecond()).unwrap();
    setup.start("1", &[("ring-early", early), ("ring-late", late)]).await;
    let reactor = setup.reactor();
    assert!(!message(&reactor, &[("1", "ring-late", late), ("1", "ring-early", early)]).await);
    assert_eq!(setup.events("1").await, ["Rang ring-early"]);
    let rang = setup.table.direct_store().events(&timer("1"), 1, 10).await.unwrap().items.remove(0);
    assert!(rang.occurred_at >= early, "{}", rang.occurred_at);
    assert!(setup.state("1", "ring-late").await.unwrap().starts_with("DEADLINE"));
}

#[tokio::test]
async fn repeated_and_reordered_messages_fire_each_deadline_once_in_the_order_of_their_times() {
    let setup = Setup::new().await;
    let due: Vec<_> = (1..=3).map(|seconds| setup.after(seconds)).collect();
    let names = ["ring-c", "ring-b", "ring-a"];
    setup.start("1", &[(names[0], due[0]), (names[1], due[1]), (names[2], due[2])]).await;
    setup.advance(4);
    let reversed: Vec<_> = (0..3).rev().map(|n| ("1", names[n], due[n])).collect();
    let twice = [&reversed[..], &reversed[..]].concat();
    let (one, other) = (setup.reactor(), setup.reactor());
    let (again, again_too) = tokio::join!(message(&one, &twice), message(&other, &reversed));
    assert!(!again && !again_too);
    assert_eq!(setup.events("1").await, ["Rang ring-c", "Rang ring-b", "Rang ring-a"]);
}

#[tokio::test]
async fn message_about_what_does_not_exist_is_done() {
    let setup = Setup::new().await;
    let due = setup.after(-60);
    setup.start("1", &[("ring", setup.after(60))]).await;
    let reactor = setup.reactor();
    assert!(!message(&reactor, &[("nobody", "ring", due), ("1", "other", due), ("1", "ring", due)]).await);
    assert_eq!(setup.events("1").await, [""; 0]);
    // Nothing was read but the rows.
    assert_eq!(setup.table.operations(), ["GetItem"; 3]);
}

/// A release whose code declares no such deadline: the row is one of another release, or outdated until `daybook deadlines
/// rebuild`.
#[tokio::test]
async fn row_that_the_code_does_not_declare_waits_for_another_release_and_then_fails() {
    let setup = Setup::new().await;
    let due = setup.after(1);
    setup.start("1", &[("ring", due)]).await;
    setup.execute("1", "Set", json!({"name": "keep", "due": setup.after(1)})).await;
    let row = setup.row("1", "ring").await.unwrap();
    setup.execute("1", "Set", json!({"name": "ring"})).await;
    setup.table.put(row).await;
    setup.advance(2);
    assert!(message(&setup.reactor(), &[("1", "ring", due)]).await);
    assert_eq!(setup.state("1", "ring").await.as_deref(), Some("DEADLINE"));
    setup.advance(3600);
    assert!(message(&setup.reactor(), &[("1", "ring", due)]).await);
    setup.advance(720);
    assert!(!message(&setup.reactor(), &[("1", "ring", due)]).await);
    assert_eq!(setup.state("1", "ring").await.as_deref(), Some("DEADLINE_FAILED"));
    assert_eq!(setup.events("1").await, ["Changed keep", "Changed ring"]);
}
