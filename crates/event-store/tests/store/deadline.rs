//! The end of a transaction whose time is over. Time is simulated, and so is DynamoDB.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use daybook_event_store::{EventStore, TransactError, TransactOptions};
use daybook_test_support::network::{self, AwsCall, ConnectionLost, Reply, Service};
use daybook_test_support::table::settings;
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::joint::{Request, command};
use crate::support::{Subject, Write};

/// How long the second append takes.
const SECOND_APPEND: Duration = Duration::from_millis(550);

/// A DynamoDB without a row. The connection of the first append breaks. The second append fails late, because the
/// metadata is at version 5.
#[derive(Debug, Default)]
struct EmptyTable {
    appends: AtomicUsize,
}

impl Service for EmptyTable {
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>> {
        let is_append = call.operation == "TransactWriteItems";
        let earlier = if is_append { self.appends.fetch_add(1, Ordering::Relaxed) } else { 0 };
        async move {
            match (is_append, earlier) {
                (true, 0) => Err(ConnectionLost),
                (true, _) => {
                    sleep(SECOND_APPEND).await;
                    Ok(Reply { status: 400, body: cancelled_at(5).to_string() })
                }
                (false, _) => Ok(Reply { status: 200, body: "{}".to_owned() }),
            }
        }
        .boxed()
    }
}

/// A DynamoDB in which another transaction holds an item for ever. A call takes 5 ms.
#[derive(Clone, Debug)]
struct BusyTable {
    /// The position of the item in an append.
    busy: usize,
    appends: Arc<AtomicUsize>,
}

impl BusyTable {
    fn new(busy: usize) -> Self {
        Self { busy, appends: Arc::default() }
    }
}

impl Service for BusyTable {
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>> {
        let (status, body) = if call.operation == "TransactWriteItems" {
            self.appends.fetch_add(1, Ordering::Relaxed);
            let code = |item| if item == self.busy { "TransactionConflict" } else { "None" };
            (400, cancelled(&json!([0, 1, 2].map(|item| json!({"Code": code(item)})))))
        } else {
            (200, json!({}))
        };
        async move {
            sleep(Duration::from_millis(5)).await;
            Ok(Reply { status, body: body.to_string() })
        }
        .boxed()
    }
}

/// The error of an append.
fn cancelled(reasons: &Value) -> Value {
    json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException", "CancellationReasons": reasons,
    })
}

/// The error of an append whose metadata is at another version.
fn cancelled_at(version: u64) -> Value {
    let metadata = json!({"currentSeqNum": {"N": version.to_string()}, "messageSeq": {"N": version.to_string()}});
    cancelled(&json!([{"Code": "ConditionalCheckFailed", "Item": metadata}, {"Code": "None"}, {"Code": "None"}]))
}

#[tokio::test(start_paused = true)]
async fn search_for_a_lost_append_ends_with_the_last_calls() {
    let store = EventStore::new(&network::config(EmptyTable::default()), settings());
    let todo = Subject::shipped("todo", "1");
    let creation = Write::new(&todo, "CreateTodo", json!({"title": "A", "message": ""}));
    let deadline = Instant::now() + Duration::from_millis(100);
    let error = creation.send_until(&store, deadline).await.unwrap_err();
    assert!(matches!(error, TransactError::OutcomeUnknown { after: 0, .. }), "{error:?}");
    assert_eq!(creation.decisions().len(), 2);
    let late = Instant::now() - deadline;
    assert!(late > SECOND_APPEND, "{late:?}");
    // The timer of the runtime rounds to milliseconds.
    assert!(late <= TransactOptions::LAST_CALLS + Duration::from_millis(5), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn append_that_is_always_busy_is_repeated_for_ten_seconds_also_with_an_expected_version() {
    let todo = Subject::shipped("todo", "1");
    for expected_version in [None, Some(0)] {
        let table = BusyTable::new(0);
        let store = EventStore::new(&network::config(table.clone()), settings());
        let creation =
            Write::new(&todo, "CreateTodo", json!({"title": "A", "message": ""})).expecting(expected_version);
        let began = Instant::now();
        let error = creation.send_until(&store, began + Duration::from_secs(25)).await.unwrap_err();
        assert!(matches!(error, TransactError::Contended), "{expected_version:?}: {error:?}");
        // Each attempt makes the next pauses longer.
        let appends = table.appends.load(Ordering::Relaxed);
        assert!(appends < 200 && began.elapsed() < Duration::from_secs(11), "{expected_version:?}: {appends} appends");
    }
}

#[tokio::test(start_paused = true)]
async fn race_on_an_aggregate_that_is_only_looked_at_is_repeated_after_pauses() {
    let table = BusyTable::new(1);
    let store = EventStore::new(&network::config(table.clone()), settings());
    let request = Request::new(vec![command("a", "Make", json!({"look": ["b"], "add": [1]}))]);
    let error = request.send(&store).await.unwrap_err();
    assert!(matches!(error, TransactError::Contended), "{error:?}");
    let appends = table.appends.load(Ordering::Relaxed);
    assert!((5..200).contains(&appends), "{appends} appends");
}
