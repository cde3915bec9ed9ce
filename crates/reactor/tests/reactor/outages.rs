//! Outages delay a deadline, lose none, and repeat no effect.

use std::time::Duration;

use daybook_test_support::fault_proxy::InjectedFault;
use tokio::time::Instant;

use crate::setup::{Setup, message, message_until};

const THROTTLED: InjectedFault = InjectedFault::Refuse { status: 400, code: "ThrottlingException" };

/// More attempts than a call makes.
const ATTEMPTS: usize = 10;

#[tokio::test]
async fn crash_between_append_and_mark_fires_once() {
    let setup = Setup::new().await;
    let due = setup.after(1);
    setup.start("1", &[("keep", due)]).await;
    setup.advance(2);
    let deadline = [("1", "keep", due)];
    (0..ATTEMPTS).for_each(|_| setup.table.proxy.fail_next("PutItem", InjectedFault::BreakBefore));
    assert!(message(&setup.reactor(), &deadline).await);
    setup.table.proxy.take_faults();
    assert_eq!(setup.events("1").await, ["Kept keep"]);
    assert!(setup.state("1", "keep").await.unwrap().starts_with("DEADLINE"));
    // Another instance, without a cache.
    assert!(!message(&setup.reactor(), &deadline).await);
    assert_eq!(setup.events("1").await, ["Kept keep"]);
    assert_eq!(setup.state("1", "keep").await.as_deref(), Some("fired"));
}

#[tokio::test]
async fn lost_responses_fire_once() {
    let setup = Setup::new().await;
    let due = setup.after(1);
    setup.start("1", &[("keep", due), ("ring", due)]).await;
    setup.advance(2);
    setup.table.proxy.fail_next("TransactWriteItems", InjectedFault::BreakAfter);
    setup.table.proxy.fail_next("PutItem", InjectedFault::BreakAfter);
    assert!(!message(&setup.reactor(), &[("1", "keep", due), ("1", "ring", due)]).await);
    assert_eq!(setup.events("1").await, ["Kept keep", "Rang ring"]);
    assert_eq!((setup.state("1", "keep").await.as_deref(), setup.state("1", "ring").await), (Some("fired"), None));
}

#[tokio::test]
async fn outage_of_the_table_never_marks_a_deadline_as_failed() {
    for (operation, fault) in [
        ("GetItem", THROTTLED),
        ("Query", THROTTLED),
        ("TransactWriteItems", THROTTLED),
        ("TransactWriteItems", InjectedFault::Refuse { status: 500, code: "InternalServerError" }),
        ("TransactWriteItems", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" }),
    ] {
        let setup = Setup::new().await;
        let due = setup.after(1);
        setup.start("1", &[("ring", due)]).await;
        setup.advance(2);
        (0..1_000).for_each(|_| setup.table.proxy.fail_next(operation, fault.clone()));
        let deadline = [("1", "ring", due)];
        let soon = Instant::now() + Duration::from_secs(3);
        assert!(message_until(&setup.reactor(), &deadline, soon).await, "{operation}");
        setup.table.proxy.take_faults();
        assert!(setup.state("1", "ring").await.unwrap() == "DEADLINE", "{operation}");
        assert!(!message(&setup.reactor(), &deadline).await, "{operation}");
        assert_eq!(setup.events("1").await, ["Rang ring"], "{operation}");
    }
}

#[tokio::test]
async fn invocation_without_time_returns_its_messages() {
    let setup = Setup::new().await;
    let due = setup.after(1);
    setup.start("1", &[("ring", due)]).await;
    setup.advance(2);
    assert!(message_until(&setup.reactor(), &[("1", "ring", due)], Instant::now()).await);
    assert_eq!((setup.events("1").await.len(), setup.table.operations().len()), (0, 0));
}

#[tokio::test]
async fn deadlines_that_are_overdue_after_an_outage_fire_the_oldest_first() {
    let setup = Setup::new().await;
    let ids: Vec<_> = (0..230).map(|n| n.to_string()).collect();
    for (n, id) in ids.iter().enumerate() {
        setup.start(id, &[("ring", setup.after(i64::try_from(1_000 - n).unwrap()))]).await;
    }
    setup.advance(24 * 60 * 60);
    let reactor = setup.reactor();
    setup.tick(&reactor).await;
    let messages = setup.queued();
    assert_eq!(messages.iter().map(Vec::len).collect::<Vec<_>>(), [100, 100, 30]);
    assert!(messages.concat().is_sorted() && messages[0][0].key.id == "229");
    assert_eq!(setup.deliver(&reactor).await, 0);
    for id in &ids {
        assert_eq!(setup.events(id).await, ["Rang ring"]);
    }
}
