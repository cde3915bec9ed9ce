//! Deadlines that are due soon: the reactions queue gets them, to become visible at their time.

use std::time::Duration;

use daybook_table::{AggregateKey, DeadlineCause, DeadlineItem, DueDeadlines};
use daybook_test_support::stream_record;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use ulid::Ulid;

use crate::support::{Setup, insert, moved, setup};

fn after(seconds: i64) -> Timestamp {
    let time = Timestamp::now() + SignedDuration::from_secs(seconds);
    Timestamp::from_millisecond(time.as_millisecond()).unwrap()
}

fn item(id: &str, due: Timestamp) -> DeadlineItem {
    let cause = DeadlineCause { seq_num: 1, event_id: Ulid::nil(), correlation_id: None };
    DeadlineItem::new(&AggregateKey::new("todo", id), ("hold", due), cause, 1, Timestamp::now())
}

/// The stream record of a row, as the mapping passes it.
fn record(sequence_number: u64, item: DeadlineItem) -> Value {
    let image: serde_dynamo::Item = serde_dynamo::to_item(item).unwrap();
    stream_record::insert(sequence_number, serde_json::to_value(image).unwrap())
}

impl Setup {
    /// The ids of the aggregates whose deadlines each message of the queue contains.
    fn reactions(&self) -> Vec<Vec<String>> {
        let messages = self.bus.queued().into_iter().filter(|message| message.queue_url.ends_with("/reactions"));
        let deadlines = messages.map(|message| serde_json::from_str::<DueDeadlines>(&message.body).unwrap());
        let ids = deadlines.map(|of_message| of_message.into_deadlines().map(|deadline| deadline.key.id).collect());
        ids.collect()
    }
}

#[tokio::test]
async fn deadlines_that_are_due_soon_reach_the_reactor_at_their_time() {
    let setup = setup(json!({})).await.with_reactions_queue();
    let due = after(100);
    let mut changed = record(3, item("b", due));
    changed["eventName"] = "MODIFY".into();
    let records =
        [record(1, item("past", after(-1))), insert(2, "a", 1), changed, record(4, item("c", due)), moved(5, "a")];
    assert_eq!(setup.checkpoint(&records).await, None);
    assert_eq!(setup.delivered(), ["a-1"]);
    assert_eq!(setup.reactions(), [vec!["past"], vec!["b", "c"]]);
    assert_eq!(setup.bus.message_counts("reactions"), (1, 1));

    // Each once, and settled.
    assert_eq!(setup.checkpoint(&records).await, None);
    assert_eq!(setup.reactions().len(), 2);
}

#[tokio::test]
async fn deadlines_that_the_tick_finds_are_ignored() {
    let setup = setup(json!({})).await.with_reactions_queue();
    let soon = || item("a", after(60));
    let mut deleted = record(4, soon());
    deleted["eventName"] = "REMOVE".into();
    let mut unreadable = record(5, soon());
    unreadable["dynamodb"]["NewImage"]["due"]["S"] = "tomorrow".into();
    let records = [
        record(1, item("late", after(600))),
        record(2, soon().fired()),
        record(3, soon().failed("it is", after(0))),
        deleted,
        unreadable,
    ];
    assert_eq!(setup.checkpoint(&records).await, None);
    assert_eq!((setup.reactions().len(), setup.dead_letters().len()), (0, 0));
    // Without a reactor, too.
    let without = crate::support::setup(json!({})).await;
    assert_eq!(without.checkpoint(&[record(1, soon()), insert(2, "a", 1)]).await, None);
    assert_eq!((without.bus.queued().len(), without.delivered().len()), (0, 1));
}

#[tokio::test]
async fn deadline_that_the_queue_does_not_accept_is_unsettled() {
    let setup = setup(json!({"sendMessage": [{"http": 503, "forever": true}]})).await.with_reactions_queue();
    let records = [insert(1, "a", 1), record(2, item("b", after(60))), insert(3, "c", 1)];
    let response = setup.relay_within(Duration::from_millis(300), &records).await.unwrap();
    assert_eq!(response.checkpoint().unwrap().as_str(), "2");
    assert_eq!(setup.delivered(), ["a-1", "c-1"]);
    setup.fail(json!({}));
    assert_eq!(setup.checkpoint(&records[1..]).await, None);
    assert_eq!((setup.reactions(), setup.delivered().len()), (vec![vec!["b".to_owned()]], 2));
}
