//! Records that are delivered again, because an earlier one is unsettled: what a service accepted is not sent to it again.

use serde_json::{Value, json};

use crate::support::{Setup, insert, insert_detail, moved, setup};

/// A message, and then 30 others.
fn records(first: Value) -> Vec<Value> {
    let others = (1..=30).map(|n| insert(100 + n, &format!("other{n}"), 1));
    [first].into_iter().chain(others).collect()
}

/// A message that stays unsettled, because it is too large for the bus and for the dead-letter queue.
fn unsettled() -> Value {
    insert_detail(1, "p", 1, &"x".repeat(1_200_000))
}

fn unreadable() -> Value {
    let mut record = insert(3, "b", 1);
    record["dynamodb"]["NewImage"]["messageSeq"] = json!({"S": "one"});
    record
}

/// Relays the records twice; the first stays unsettled. Returns how many entries the bus got, without those of the first.
async fn relayed_twice(setup: &Setup, records: &[Value]) -> usize {
    for _ in 0..2 {
        assert_eq!(setup.checkpoint(records).await.as_deref(), Some("1"));
    }
    setup.delivered().len()
}

#[tokio::test]
async fn accepted_message_is_not_sent_again() {
    let (setup, records) = (setup(json!({})).await, records(unsettled()));
    assert_eq!(relayed_twice(&setup, &records).await, 30);
    // A new process does not know it.
    let setup = setup.new_process();
    assert_eq!(relayed_twice(&setup, &records).await, 60);
}

#[tokio::test]
async fn batch_whose_response_is_lost_is_not_sent_again() {
    let setup = setup(json!({})).await;
    for _ in 0..2 {
        assert_eq!(setup.checkpoint(&records(insert(1, "p", 1))).await, None);
    }
    assert_eq!(setup.delivered().len(), 31);
}

#[tokio::test]
async fn message_that_the_dead_letter_queue_does_not_accept_is_sent_to_the_bus_once() {
    let setup = setup(json!({"sendMessage": [{"http": 503, "forever": true}]})).await;
    let records = records(insert_detail(1, "p", 1, "malformed"));
    assert_eq!(relayed_twice(&setup, &records).await, 30);
    setup.fail(json!({}));
    assert_eq!(setup.checkpoint(&records).await, None);
    assert_eq!(setup.calls().iter().sum::<usize>(), 31);
    let [dead_letter] = setup.dead_letters().try_into().unwrap();
    assert_eq!((&dead_letter["error"]["code"], &dead_letter["attempts"]), (&json!("MalformedDetail"), &json!(1)));
}

/// That the bus accepted others is known only from the first invocation.
#[tokio::test]
async fn rejected_messages_that_the_queue_did_not_accept_do_not_open_the_breaker_later() {
    let rejected: Vec<_> =
        (1..=5).map(|n| json!({"containing": format!("other{n}-1"), "code": "InvalidArgument"})).collect();
    let setup = setup(json!({"entries": rejected, "sendMessage": [{"http": 503, "forever": true}]})).await;
    let records = records(insert(1, "p", 1));
    assert_eq!(setup.checkpoint(&records).await.as_deref(), Some("101"));
    setup.fail(json!({"entries": rejected}));
    assert_eq!((setup.checkpoint(&records).await, setup.dead_letters().len()), (None, 5));
}

#[tokio::test]
async fn dead_letter_message_is_not_sent_again() {
    let setup = setup(json!({})).await;
    let records = [unsettled(), insert_detail(2, "a", 1, "malformed"), unreadable()];
    assert_eq!(relayed_twice(&setup, &records).await, 0);
    assert_eq!(setup.dead_letters().len(), 2);
}

/// The queue accepts one message for both. A message for the second, which the queue does not accept, would make the record
/// unsettled again.
#[tokio::test]
async fn unreadable_record_that_is_repeated_in_a_batch_is_dead_lettered_once() {
    let setup = setup(json!({"sendMessage": [{}, {"http": 503, "forever": true}]})).await;
    assert_eq!(setup.checkpoint(&[unreadable(), unreadable()]).await, None);
    assert_eq!(setup.dead_letters().len(), 1);
}

#[tokio::test]
async fn change_that_the_queue_accepted_is_not_sent_again() {
    let setup = setup(json!({})).await.with_changes_queue();
    relayed_twice(&setup, &[unsettled(), moved(2, "a"), moved(3, "b")]).await;
    assert_eq!(setup.bus.queued().len(), 1);
    relayed_twice(&setup, &[unsettled(), moved(2, "a"), moved(4, "c")]).await;
    let queued: Vec<_> = setup.bus.queued().into_iter().map(|message| message.body).collect();
    assert_eq!(queued[1..], [r#"{"changed":[["todo","c",7]]}"#]);
}
