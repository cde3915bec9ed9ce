//! The limits of a transaction are checked before the call.

use daybook_consumer::testing::message;
use daybook_consumer::{BusMessage, Changes, Consumer, ConsumerFunction, HandleError, MAX_ROWS, RowKey, Rows};
use serde_json::{Value, json};

use crate::database::{Process, TABLE};
use crate::journal::{Setup, batch, failures, soon};

/// Writes as many rows of as many bytes as the message contains.
struct Writes;

impl Consumer for Writes {
    const NAME: &'static str = "writes";

    fn handle(&self, message: &BusMessage, _: &Rows<'_>) -> Result<Changes, HandleError> {
        let (rows, bytes): (usize, usize) = message.data()?;
        let mut changes = Changes::none();
        for row in 0..rows {
            changes.put(RowKey::new("rows", format!("{}-{row}", message.metadata.message_seq)), &"x".repeat(bytes))?;
        }
        Ok(changes)
    }
}

async fn function(setup: &Setup) -> ConsumerFunction<Writes> {
    ConsumerFunction::new(Writes, &setup.database.config(Process::reliable()), TABLE)
}

fn writes(number: u64, rows: usize, bytes: usize) -> BusMessage {
    message("note/1", number, ("Noted", 1), json!([rows, bytes]))
}

async fn error_of(message: BusMessage) -> Option<String> {
    let setup = Setup::new(1).await;
    let function = function(&setup).await;
    function.handle(batch([&message]), soon()).await.unwrap();
    let calls = setup.database.take_calls();
    let is_valid = |call: &crate::database::RecordedCall| {
        call.request["TransactItems"].as_array().is_none_or(|items| items.len() <= 100)
    };
    assert!(calls.iter().all(is_valid));
    let report = function.handle(json!({"request": "report"}), soon()).await.unwrap();
    report["aggregates"][0]["failed"]["error"].as_str().map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn message_that_exceeds_a_limit_fails_with_the_limit() {
    assert_eq!(error_of(writes(1, MAX_ROWS, 10)).await, None);
    // One that has not waited has one more row, but must not depend on that.
    let rows = "it reads and writes 99 rows, a transaction holds 97";
    assert_eq!(error_of(writes(1, 99, 10)).await.as_deref(), Some(rows));
    let large = error_of(writes(1, 1, 400 * 1024)).await.unwrap();
    assert!(large.starts_with("a row would take 4") && large.ends_with("bytes, an item holds 409600"), "{large}");
    assert!(error_of(writes(1, 12, 380_000)).await.unwrap().ends_with("bytes, a transaction holds 4194304"));
    assert_eq!(error_of(writes(1, 11, 380_000)).await, None);
}

#[tokio::test(start_paused = true)]
async fn messages_that_fit_only_alone_are_applied_one_by_one() {
    let setup = Setup::new(1).await;
    let function = function(&setup).await;
    let messages = [writes(2, 60, 10), writes(3, 0, 0), writes(1, 90, 10)];
    assert_eq!(failures(&function.handle(batch(&messages), soon()).await.unwrap()), [] as [usize; 0]);
    let rows = function.table().partition("rows").await.unwrap();
    assert_eq!(rows.len(), 150);
    let report = function.handle(json!({"request": "report"}), soon()).await.unwrap();
    assert_eq!(report["total"], 0);
}

#[tokio::test(start_paused = true)]
async fn message_that_is_too_large_to_be_stored_stays_in_the_queue_until_its_turn() {
    let setup = Setup::new(1).await;
    let function = function(&setup).await;
    let mut large = writes(2, 1, 1);
    large.metadata.correlation_id = Some("x".repeat(410_000));
    let small = writes(1, 1, 1);
    let deliver = async |messages: &[&BusMessage]| -> Value {
        function.handle(batch(messages.iter().copied()), soon()).await.unwrap()
    };
    assert_eq!(failures(&deliver(&[&large]).await), [0]);
    assert_eq!(failures(&deliver(&[&small]).await), [] as [usize; 0]);
    assert_eq!(failures(&deliver(&[&large]).await), [] as [usize; 0]);
}
