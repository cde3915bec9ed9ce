//! The order of turns.

use daybook_decider::Registry;
use daybook_function_runtime::aws_config_at;
use daybook_test_support::notebook::Notebook;

use super::*;
use crate::{EventStore, StoreSettings};

fn key(id: &str) -> AggregateKey {
    AggregateKey::new("todo", id)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(20)
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[tokio::test]
async fn turns_of_one_aggregate_come_in_the_order_of_arrival() {
    let (turns, hot, order) = (Turns::default(), key("hot"), Mutex::new(Vec::new()));
    let first = turns.enter(&hot);
    assert!(first.turn(later()).await.is_some());
    let request = async |number: usize| {
        let place = turns.enter(&hot);
        assert!(place.turn(later()).await.is_some());
        tokio::task::yield_now().await;
        order.lock().unwrap().push(number);
    };
    let release = async { drop(first) };
    tokio::join!(request(1), request(2), request(3), release, request(4));
    assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4]);
    assert_eq!(turns.lock().len(), 0);
}

#[tokio::test]
async fn request_that_leaves_late_does_not_take_the_place_of_another_one() {
    let (turns, hot) = (Turns::default(), key("hot"));
    let first = turns.enter(&hot);
    assert!(first.turn(later()).await.is_some());
    // The queue is removed when the first request leaves. The place of that request is dropped later.
    turns.with(&hot, |queue| queue.leave(first.number));
    assert_eq!(turns.lock().len(), 0);
    let second = turns.enter(&hot);
    drop(first);
    assert!(second.turn(soon()).await.is_some());
}

#[tokio::test]
async fn turn_of_another_aggregate_does_not_wait() {
    let (turns, one, other) = (Turns::default(), key("1"), key("2"));
    let held = turns.enter(&one);
    assert!(held.turn(later()).await.is_some());
    assert!(turns.enter(&other).turn(Instant::now()).await.is_some());
    assert_eq!(turns.lock().len(), 1);
    drop(held);
    assert_eq!(turns.lock().len(), 0);
}

#[tokio::test]
async fn request_that_waits_too_long_or_is_cancelled_leaves_the_queue() {
    let (turns, hot) = (Turns::default(), key("hot"));
    let held = turns.enter(&hot);
    assert!(held.turn(later()).await.is_some());
    assert!(turns.enter(&hot).turn(soon()).await.is_none());
    let waiting = turns.enter(&hot);
    let cancelled = tokio::time::timeout_at(soon(), waiting.turn(later())).await;
    assert!(cancelled.is_err());
    drop(waiting);
    assert_eq!(turns.lock().len(), 1);
    drop(held);
    assert_eq!(turns.lock().len(), 0);
    assert!(turns.enter(&hot).turn(Instant::now()).await.is_some(), "a free turn is taken even after the deadline");
}

#[tokio::test]
async fn decision_after_a_group_does_not_join_the_next_group() {
    let (turns, hot) = (Turns::default(), AggregateKey::new("notebook", "hot"));
    let registry = Registry::new().with::<Notebook>().unwrap();
    let model = registry.get("notebook").unwrap();
    let store = EventStore::new(&aws_config_at("http://unused.invalid"), StoreSettings::new("unused"));
    let stream = store.stream(model, &hot);
    let group = || Arc::new(Group::new(model.before_first_event(), stream.call(0, later())));
    let after = || stream.loaded(model.before_first_event()).unwrap();
    let (failed, next) = (group(), group());

    let (first, slow) = (turns.enter(&hot), turns.enter(&hot));
    assert!(matches!(first.turn(later()).await, Some(Turn::First)));
    first.begin_group(&failed, AppendBatch::default(), after());
    assert!(matches!(slow.turn(later()).await, Some(Turn::After(..))));
    // While the slow request decides, the group is closed and fails, and its member begins another one.
    turns.with(&hot, |queue| queue.close_group(&failed));
    first.end_group(&failed, &Err(Arc::new(AppendError::Busy)), |_| {});
    assert!(matches!(first.turn(later()).await, Some(Turn::First)));
    first.begin_group(&next, AppendBatch::default(), after());
    assert_eq!(slow.join(&failed, Some((AppendBatch::default(), after()))), None);
    assert!(matches!(slow.turn(soon()).await, Some(Turn::After(group, _)) if Arc::ptr_eq(&group, &next)));
    assert_eq!(slow.join(&next, Some((AppendBatch::default(), after()))), Some(0));
}
