//! The tick finds what is due, and sends no more than the queue needs.

use std::time::Duration;

use daybook_event_store::StoreSettings;
use daybook_reactor::ReactorEvent;
use daybook_table::DueDeadlines;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::log;
use daybook_test_support::table::settings;
use serde_json::json;

use crate::setup::Setup;

#[tokio::test]
async fn tick_sends_what_is_due_within_two_minutes_to_become_visible_at_its_time() {
    let setup = Setup::new().await;
    let due = [-60, 0, 30, 119, 200].map(|seconds| setup.after(seconds));
    for (n, due) in due.iter().enumerate() {
        setup.start(&n.to_string(), &[("ring", *due)]).await;
    }
    setup.tick(&setup.reactor()).await;
    let ids: Vec<_> = setup.queued().concat().into_iter().map(|deadline| deadline.key.id).collect();
    assert_eq!(ids, ["0", "1", "2", "3"]);
    assert_eq!((setup.queued().len(), setup.bus.message_counts("reactions")), (3, (1, 2)));
    for (seconds, visible) in [(29, 1), (2, 2), (87, 2), (3, 3)] {
        setup.advance(seconds);
        assert_eq!(setup.bus.message_counts("reactions").0, visible, "after {seconds} s more");
    }
}

#[tokio::test]
async fn tick_without_anything_due_reads_the_queue_and_the_index_once() {
    let setup = Setup::new().await;
    setup.start("1", &[("ring", setup.after(600))]).await;
    setup.fail_queue(json!({"sendMessage": [{"http": 500, "forever": true}]}));
    setup.tick(&setup.reactor()).await;
    assert_eq!(setup.table.operations(), ["Query"]);
    let nothing = setup.reactor().handle(ReactorEvent::Tick { tick: false }, crate::setup::soon()).await;
    assert_eq!((nothing.batch_item_failures.len(), setup.table.operations().len()), (0, 0));
}

#[tokio::test]
async fn tick_finds_deadlines_in_each_index_partition() {
    let setup = Setup::with(StoreSettings { event_type_shards: 4, ..settings() }).await;
    for id in 0..20 {
        setup.start(&id.to_string(), &[("ring", setup.after(1))]).await;
    }
    setup.advance(2);
    let reactor = setup.reactor();
    setup.tick(&reactor).await;
    assert_eq!(setup.table.operations(), ["Query"; 5]);
    assert!(setup.queued().concat().is_sorted());
    assert_eq!(setup.deliver(&reactor).await, 0);
    for id in 0..20 {
        assert_eq!(setup.events(&id.to_string()).await, ["Rang ring"]);
    }
}

#[tokio::test]
async fn tick_fires_what_is_due_itself_while_a_hundred_messages_wait() {
    let setup = Setup::new().await;
    let soon = setup.after(62);
    setup.start("soon", &[("ring", soon)]).await;
    for id in 0..=DueDeadlines::MAX {
        setup.start(&id.to_string(), &[("ring", setup.after(1))]).await;
    }
    setup.advance(2);
    // Of an import, whose events take the processes a long time. Some are in flight.
    for _ in 0..100 {
        setup.queue().send(r#"{"changed":[]}"#, 1, None).await.unwrap();
    }
    setup.bus.receive("reactions", 10, Duration::from_secs(600)).await.unwrap();
    setup.tick(&setup.reactor()).await;
    for id in 0..=DueDeadlines::MAX {
        assert_eq!(setup.events(&id.to_string()).await, ["Rang ring"], "{id}");
    }
    assert_eq!(setup.events("soon").await, [""; 0]);
    setup.advance(60);
    setup.tick(&setup.reactor()).await;
    assert_eq!(setup.events("soon").await, ["Rang ring"]);
    // Not even in an outage, the tick makes the queue longer.
    assert_eq!(setup.bus.message_counts("reactions"), (90, 10));
}

#[tokio::test]
async fn failed_tick_is_logged_once_and_the_next_one_does_the_same() {
    let setup = Setup::new().await;
    setup.start("1", &[("ring", setup.after(1))]).await;
    setup.advance(2);
    let reactor = setup.reactor();
    let denied = InjectedFault::Refuse { status: 400, code: "AccessDeniedException" };
    log::take("daybook_reactor");
    setup.table.proxy.fail_next("Query", denied);
    setup.tick(&reactor).await;
    setup.fail_queue(json!({"sendMessage": [{"http": 403}, {"http": 403}, {"http": 403}]}));
    setup.tick(&reactor).await;
    let errors = log::take("daybook_reactor").into_iter().filter(|line| line["level"] == "ERROR");
    let messages: Vec<_> = errors.map(|line| line["message"].clone()).collect();
    assert_eq!(messages, ["the tick failed", "the tick failed"]);
    assert_eq!(setup.tick_and_deliver(&reactor).await, 0);
    assert_eq!(setup.events("1").await, ["Rang ring"]);
}
