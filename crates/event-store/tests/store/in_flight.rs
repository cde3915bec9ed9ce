//! A feed without a delay skips no event of its own process: it ends before the oldest decision in flight.

use std::pin::pin;
use std::time::Duration;

use daybook_event_store::{ARRIVAL_TIME, EventStore, StoreSettings};
use daybook_test_support::clock::now;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::table::{TestTable, settings};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::time;

use crate::group::{APPEND, poll_once};
use crate::support::{Subject, Write, ledger};

/// A store without a delay, whose clock is that of the decisions.
fn store(table: &TestTable) -> EventStore {
    table.store_with(StoreSettings { feed_delay: Duration::ZERO, ..settings() }).with_clock(now)
}

fn payment(account: &Subject, amount: i64) -> Write<'_> {
    Write::new(account, "RecordTransaction", json!({"desc": "", "amount": amount}))
}

/// The time of a write's last decision.
fn decided_at(write: &Write<'_>) -> Timestamp {
    write.decisions().last().unwrap().events[0].occurred_at
}

fn assert_holds_back(store: &EventStore, time: Timestamp) {
    assert!(store.settled_up_to(now()) <= time, "an event of {time} may still become visible");
}

fn assert_holds_nothing_back(store: &EventStore) {
    let now = now();
    assert_eq!(store.settled_up_to(now), now);
}

async fn seen(store: &EventStore) -> Vec<Timestamp> {
    let page = store.feed(&["TransactionAccepted"], None, 100, store.settled_up_to(now())).await.unwrap();
    page.items.iter().map(|found| found.event.occurred_at).collect()
}

#[tokio::test]
async fn feed_ends_before_a_decision_in_flight() {
    let table = TestTable::new().await;
    let store = store(&table);
    let (a, b) = (ledger(&store, "a", 1).await, ledger(&store, "b", 1).await);
    let (earlier, later) = (payment(&a, 1), payment(&b, 1));
    let mut held = pin!(earlier.send(&store));
    table.proxy.take_calls();
    table.proxy.hold(&mut held, |calls| !calls.is_empty()).await;
    later.send(&store).await.unwrap();
    assert_holds_back(&store, decided_at(&earlier));
    // Also if the clock of the local stack is moved.
    assert!(store.settled_up_to(now() + SignedDuration::from_hours(1)) <= decided_at(&earlier));
    assert_eq!(seen(&store).await, []);
    held.await.unwrap();
    assert_eq!(seen(&store).await, [decided_at(&earlier), decided_at(&later)]);
    assert_holds_nothing_back(&store);
}

#[tokio::test]
async fn decision_that_is_not_stored_is_not_in_flight() {
    let table = TestTable::new().await;
    let store = store(&table);
    let account = ledger(&store, "a", 1).await;
    Write::new(&account, "OpenAccount", json!({})).send(&store).await.unwrap_err();
    assert_holds_nothing_back(&store);

    table.proxy.fail_next(APPEND, InjectedFault::Refuse { status: 400, code: "ThrottlingException" });
    let throttled = payment(&account, 1);
    throttled.send(&store).await.unwrap();
    assert_eq!(throttled.decisions().len(), 2);
    assert_holds_nothing_back(&store);

    // Another process is faster.
    payment(&account, 1).send(&table.store()).await.unwrap();
    payment(&account, 1).send(&store).await.unwrap();
    assert_holds_nothing_back(&store);
}

#[tokio::test]
async fn append_whose_response_does_not_arrive_is_in_flight_until_it_cannot_be_stored_any_more() {
    for is_cancelled in [true, false] {
        let table = TestTable::new().await;
        let store = store(&table);
        let account = ledger(&store, "a", 1).await;
        let write = payment(&account, 1);
        table.proxy.take_calls();
        if is_cancelled {
            let mut sent = Box::pin(write.send(&store));
            table.proxy.hold(&mut sent, |calls| !calls.is_empty()).await;
        } else {
            table.proxy.fail_next(APPEND, InjectedFault::BreakAfter);
            write.send(&store).await.unwrap();
        }
        time::pause();
        let first = write.decisions()[0].events[0].occurred_at;
        assert_holds_back(&store, first);
        time::advance(ARRIVAL_TIME / 2).await;
        assert_holds_back(&store, first);
        time::advance(ARRIVAL_TIME / 2).await;
        assert_holds_nothing_back(&store);
        time::resume();
    }
}

#[tokio::test]
async fn group_is_in_flight_although_its_first_request_is_cancelled() {
    let table = TestTable::new().await;
    let store = store(&table);
    let account = ledger(&store, "a", 1).await;
    let writes = [payment(&account, 1), payment(&account, 2), payment(&account, 3)];
    let [before, first, second] = &writes;
    let mut before = pin!(before.send(&store));
    table.proxy.take_calls();
    table.proxy.hold(&mut before, |calls| !calls.is_empty()).await;
    let (mut sent, mut rest) = (Box::pin(first.send(&store)), Box::pin(second.send(&store)));
    assert!(poll_once(&mut sent).await.is_pending() && poll_once(&mut rest).await.is_pending());
    before.await.unwrap();
    // The first request begins the group, the second joins it and sends the append.
    assert!(poll_once(&mut sent).await.is_pending() && poll_once(&mut rest).await.is_pending());
    assert!(decided_at(first) < decided_at(second));
    drop(sent);
    assert_holds_back(&store, decided_at(first));
    rest.await.unwrap();
    assert_eq!(seen(&store).await, writes.each_ref().map(decided_at));
    assert_holds_nothing_back(&store);
}
