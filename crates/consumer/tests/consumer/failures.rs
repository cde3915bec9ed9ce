//! A message that cannot be applied stops its aggregate only, and can be attempted again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use daybook_consumer::testing::message;
use daybook_consumer::{BusMessage, Changes, Consumer, ConsumerFunction, HandleError, Rows};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::database::{Process, TABLE};
use crate::journal::{POISON, Setup, batch, event, failures, first, noted, soon};

fn poison(number: u64) -> BusMessage {
    message("note/1", number, (POISON, 1), json!({}))
}

#[tokio::test(start_paused = true)]
async fn message_that_fails_is_attempted_a_few_times_and_then_stops_its_aggregate() {
    let setup = Setup::new(1).await;
    setup.journal.fails.store(true, Ordering::Relaxed);
    let (one, two, three) = (noted("note/1", 1), poison(2), noted("note/1", 3));
    // Only the message that fails is delivered again, and the third attempt is the last.
    assert_eq!(setup.deliver([&one, &two, &three, &noted("note/2", 1)]).await, [1]);
    assert_eq!(setup.deliver([&two]).await, [0]);
    assert_eq!(setup.deliver([&two]).await, [] as [usize; 0]);
    let report = setup.report().await;
    let failed = &report["aggregates"][0]["failed"];
    let expected = json!({
        "messageId": "note-1-1-2", "messageType": POISON, "number": {"epoch": 1, "messageSeq": 2}, "attempts": 3,
        "isStopped": true, "error": "it is poison",
    });
    assert_eq!((failed, &report["aggregates"][0]["missing"]), (&expected, &json!([])), "{report}");

    // Later messages wait, without further attempts.
    setup.journal.fails.store(false, Ordering::Relaxed);
    assert_eq!(setup.deliver([&two, &noted("note/1", 4)]).await, [] as [usize; 0]);
    assert_eq!((setup.applied("note/1").await, setup.applied("note/2").await), (first(1), first(1)));
    let resumed = setup.request(json!({"request": "resume", "aggregate": "note/1"})).await;
    assert_eq!(resumed, json!({"applied": 3, "failed": 0}));
    assert_eq!(setup.applied("note/1").await, first(4));
}

#[tokio::test(start_paused = true)]
async fn message_that_has_waited_is_attempted_again_with_the_deliveries_of_others() {
    let setup = Setup::new(1).await;
    setup.journal.fails.store(true, Ordering::Relaxed);
    assert_eq!(setup.deliver([&poison(2)]).await, [] as [usize; 0]);
    assert_eq!(setup.deliver([&noted("note/1", 1)]).await, [0]);
    assert_eq!(setup.deliver([&noted("note/1", 1), &noted("note/1", 3)]).await, [1]);
    assert_eq!(setup.deliver([&noted("note/1", 3)]).await, [] as [usize; 0]);
    assert_eq!(setup.report().await["aggregates"][0]["failed"]["isStopped"], true);
}

#[tokio::test(start_paused = true)]
async fn stopped_aggregate_goes_on_after_the_message_that_is_skipped() {
    let setup = Setup::new(1).await;
    setup.journal.fails.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        setup.deliver([&poison(1), &noted("note/1", 2)]).await;
    }
    setup.request(json!({"request": "resume", "aggregate": "note/1"})).await;
    // No delivery would repeat it, so the attempt is the last one again.
    assert_eq!(setup.report().await["aggregates"][0]["failed"]["isStopped"], true);
    setup.request(json!({"request": "skip", "aggregate": "note/1", "through": 1})).await;
    assert_eq!(setup.applied("note/1").await, [(1, 2)]);
    assert_eq!(setup.report().await["total"], 0);
}

#[tokio::test(start_paused = true)]
async fn rows_that_the_table_leaves_unprocessed_are_read_again_after_pauses_until_the_time_is_up() {
    let setup = Setup::new(1).await;
    let reads = || setup.database.take_calls().iter().filter(|call| call.operation == "BatchGetItem").count();
    setup.database.leave_unprocessed(3);
    assert_eq!(setup.deliver([&noted("note/1", 1)]).await, [] as [usize; 0]);
    assert_eq!((reads(), setup.applied("note/1").await), (4, first(1)));

    setup.database.leave_unprocessed(usize::MAX);
    let begin = Instant::now();
    let handled = setup.function.handle(batch([&noted("note/1", 2)]), begin + Duration::from_secs(20));
    let response = timeout(Duration::from_secs(60), handled).await.expect("the invocation ends").unwrap();
    assert_eq!(failures(&response), [0]);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    // The pauses become longer, up to half a second.
    let reads = reads();
    assert!((40..150).contains(&reads), "{reads}");
    setup.database.leave_unprocessed(0);
    assert_eq!(setup.deliver([&noted("note/1", 2)]).await, [] as [usize; 0]);
    assert_eq!(setup.applied("note/1").await, first(2));
}

struct Panics;

impl Consumer for Panics {
    const NAME: &'static str = "panics";

    fn handle(&self, message: &BusMessage, _: &Rows<'_>) -> Result<Changes, HandleError> {
        assert!(message.metadata.aggregate_id != "1", "a defect");
        Ok(Changes::none())
    }
}

#[tokio::test(start_paused = true)]
async fn panic_is_an_error_of_its_message() {
    let setup = Setup::new(1).await;
    let function = ConsumerFunction::new(Panics, &setup.database.config(Process::reliable()), TABLE);
    let response = function.handle(batch([&noted("note/1", 1), &noted("note/2", 1)]), soon()).await.unwrap();
    assert_eq!(failures(&response), [0]);
    let report = function.handle(json!({"request": "report"}), soon()).await.unwrap();
    assert_eq!(report["aggregates"][0]["failed"]["error"], "`handle` panicked: a defect");
}

#[tokio::test(start_paused = true)]
async fn message_that_cannot_be_read_is_delivered_again_and_stops_nothing() {
    let setup = Setup::new(1).await;
    let bodies = ["{}", "no JSON", "[]", "\"text\"", "7", "true", "null", r#"{"detail": 1, "detail-type": {}}"#];
    let messages: Vec<_> = (1..=9).map(|number| noted("note/1", number)).collect();
    let mut payload = batch(&messages);
    for (record, body) in (1..).zip(bodies) {
        payload["Records"][record]["body"] = body.into();
    }
    assert_eq!(failures(&setup.function.handle(payload, soon()).await.unwrap()), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(setup.applied("note/1").await, first(1));
    for payload in [json!([]), json!("text"), json!(7), json!({"Records": 7})] {
        assert!(setup.function.handle(payload, soon()).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn event_of_a_rule_succeeds_when_it_is_settled_and_fails_otherwise() {
    let setup = Setup::new(1).await;
    let response = setup.function.handle(event(&noted("note/1", 1)), soon()).await.unwrap();
    assert_eq!((response, setup.applied("note/1").await), (Value::Null, first(1)));
    setup.journal.fails.store(true, Ordering::Relaxed);
    assert!(setup.function.handle(event(&poison(2)), soon()).await.is_err());
    assert!(setup.function.handle(json!({"detail-type": "Other", "detail": {}}), soon()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn messages_are_delivered_again_when_the_time_is_up_or_the_table_fails() {
    let setup = Setup::new(1).await;
    let one = noted("note/1", 1);
    let response = setup.function.handle(batch([&one]), tokio::time::Instant::now()).await.unwrap();
    assert_eq!(failures(&response), [0]);
    setup.database.set_fault_rate(1.0);
    assert_eq!(setup.deliver([&one]).await, [0]);
    setup.database.set_fault_rate(0.0);
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    assert_eq!(setup.deliver([&one]).await, [] as [usize; 0]);
    assert_eq!(setup.applied("note/1").await, first(1));
}
