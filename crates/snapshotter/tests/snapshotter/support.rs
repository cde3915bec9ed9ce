//! Shared code of the tests: a table, commands that write to it, its stream records, and the function.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::{CommandError, Model, Registry};
use daybook_event_store::{EventStore, LoadOptions, Loaded, StoreSettings};
use daybook_snapshotter::{BatchResponse, NoCheckpoint, Snapshotter, StreamBatch};
use daybook_table::{AggregateKey, keys};
use daybook_test_support::commands::{account_command, execute};
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::fragile::Fragile;
use daybook_test_support::log;
use daybook_test_support::notebook::Notebook;
use daybook_test_support::row::{Item, number};
use daybook_test_support::stream_record::{insert, inserted};
use daybook_test_support::table::{TestTable, settings};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The number of events between due snapshots.
pub(crate) const EVERY: u64 = 10;

/// The samples, the notebook, and the aggregate whose code panics.
fn registry() -> Registry {
    aggregates::registry().unwrap().with::<Notebook>().unwrap().with::<Fragile>().unwrap()
}

/// The lines that the function logged since this was last called on the thread. The first call only starts the capture.
pub(crate) fn take_log() -> Vec<Value> {
    log::take("daybook_snapshotter")
}

/// A table whose proxy only the function under test uses.
pub(crate) struct Setup {
    pub(crate) table: TestTable,
    registry: Registry,
    /// A store that does not use the proxy.
    pub(crate) store: EventStore,
}

impl Setup {
    pub(crate) async fn new() -> Self {
        Self::with(EVERY).await
    }

    /// A table whose writers mark a snapshot as due every `snapshot_every` events.
    pub(crate) async fn with(snapshot_every: u64) -> Self {
        let table = TestTable::with(StoreSettings { snapshot_every, ..settings() }).await;
        let store = table.direct_store();
        Self { table, registry: registry(), store }
    }

    /// The function on a new instance, whose cache is empty.
    pub(crate) fn snapshotter(&self) -> Snapshotter {
        self.snapshotter_with(registry())
    }

    /// A new instance that serves only these aggregates.
    pub(crate) fn snapshotter_with(&self, registry: Registry) -> Snapshotter {
        Snapshotter::new(registry, self.table.store())
    }

    /// A new instance whose calls the proxy neither records nor fails.
    pub(crate) fn direct_snapshotter(&self) -> Snapshotter {
        Snapshotter::new(registry(), self.table.direct_store())
    }

    pub(crate) fn model(&self, key: &AggregateKey) -> &dyn Model {
        self.registry.get(&key.aggregate_type).unwrap()
    }

    /// Loads an aggregate, decides a command on it and appends the result.
    pub(crate) async fn command(&self, key: &AggregateKey, command: &str, data: Value) {
        self.try_commands(key, &[(command, data)]).await.unwrap();
    }

    /// Does the same with several commands. Nothing is appended if one of them does not reach the rules.
    pub(crate) async fn try_commands(
        &self,
        key: &AggregateKey,
        commands: &[(&str, Value)],
    ) -> Result<Loaded, CommandError> {
        execute(&self.store, self.model(key), key, commands).await
    }

    /// An account at that version: the first event opens it, and each other event is a payment.
    pub(crate) async fn account(&self, id: &str, version: u64) -> AggregateKey {
        let key = AggregateKey::new("account", id);
        let before = self.store.load(self.model(&key), &key).await.unwrap().version();
        let commands: Vec<_> = (before + 1..=version).map(|number| account_command(number, "payment")).collect();
        self.try_commands(&key, &commands).await.unwrap();
        key
    }

    /// A notebook at version 5 whose state is too large for a snapshot.
    pub(crate) async fn large_notebook(&self, id: &str) -> AggregateKey {
        let key = AggregateKey::new("notebook", id);
        self.command(&key, "Start", json!({"lines": [""]})).await;
        // Random text does not compress to less than three quarters of its size.
        let page = || std::iter::repeat_with(fastrand::alphanumeric).take(150 * 1024).collect::<String>();
        for _ in 0..4 {
            self.command(&key, "Write", json!({"lines": [page()]})).await;
        }
        key
    }

    /// An aggregate with a stored event on which its code panics.
    pub(crate) async fn broken(&self, id: &str) -> AggregateKey {
        let key = AggregateKey::new("fragile", id);
        self.command(&key, "Make", json!({})).await;
        self.command(&key, "Touch", json!({"panics": "", "by": 1})).await;
        self.tamper(&key, 2, "data", &json!({"panics": "evolve", "by": 1}).to_string()).await;
        key
    }

    /// The aggregate, folded from all its events.
    pub(crate) async fn rebuilt(&self, key: &AggregateKey) -> Loaded {
        self.store.load_with(self.model(key), key, LoadOptions::REBUILD).await.unwrap()
    }

    /// The aggregate as a new instance loads it: from its snapshot, if there is one.
    pub(crate) async fn loaded(&self, key: &AggregateKey) -> Loaded {
        self.table.direct_store().load(self.model(key), key).await.unwrap()
    }

    pub(crate) async fn snapshot(&self, key: &AggregateKey) -> Option<Item> {
        self.table.rows(key, keys::SNAPSHOT).await.pop()
    }

    /// The last event that is folded into an aggregate's snapshot.
    pub(crate) async fn snapshot_version(&self, key: &AggregateKey) -> Option<u64> {
        self.snapshot(key).await.map(|row| number(&row, "lastSeqNum"))
    }

    pub(crate) async fn delete_event(&self, key: &AggregateKey, seq_num: u64) {
        self.table.delete(key, &keys::event_sk(seq_num)).await;
    }

    /// Gives a text attribute of an event's row another value.
    pub(crate) async fn tamper(&self, key: &AggregateKey, seq_num: u64, attribute: &str, value: &str) {
        let change = (attribute, AttributeValue::S(value.to_owned()));
        self.table.tamper(key, &keys::event_sk(seq_num), [change]).await;
    }

    /// Stream records of all rows of the aggregate, as if all of them were new, with the sequence numbers `first`,
    /// `first + 1`, …
    pub(crate) async fn records(&self, key: &AggregateKey, first: u64) -> Vec<Value> {
        let rows = self.table.rows(key, "").await;
        rows.iter().zip(first..).map(|(row, sequence_number)| inserted(sequence_number, row)).collect()
    }

    /// The stream records of the rows that pass the mapping's filter, with the sequence numbers from `first` on.
    pub(crate) async fn due_records(&self, key: &AggregateKey, first: u64) -> Vec<Value> {
        let mut due = self.records(key, 0).await;
        due.retain(|record| record["dynamodb"]["NewImage"]["snapshotDue"]["BOOL"] == true);
        for (record, sequence_number) in due.iter_mut().zip(first..) {
            record["dynamodb"]["SequenceNumber"] = sequence_number.to_string().into();
        }
        due
    }

    /// Fails every call of an operation from now on.
    pub(crate) fn fail(&self, operation: &'static str, fault: &InjectedFault) {
        /// More calls than any retry loop makes.
        const ATTEMPTS: usize = 1_000;
        (0..ATTEMPTS).for_each(|_| self.table.proxy.fail_next(operation, fault.clone()));
    }

    /// How often an operation was called since the calls were last taken.
    pub(crate) fn take_count(&self, operation: &str) -> usize {
        self.table.proxy.take_calls().iter().filter(|call| call.operation == operation).count()
    }
}

/// A stream record that makes an aggregate due, whether or not the table contains the aggregate.
pub(crate) fn due(sequence_number: u64, key: &AggregateKey) -> Value {
    let image = json!({"pk": {"S": keys::pk(key)}, "sk": {"S": keys::event_sk(EVERY)}, "snapshotDue": {"BOOL": true}});
    insert(sequence_number, image)
}

/// The function's response to a batch, with more time than it needs.
pub(crate) async fn handle(snapshotter: &Snapshotter, records: &[Value]) -> Result<BatchResponse, NoCheckpoint> {
    handle_within(Duration::from_secs(300), snapshotter, records).await
}

/// The function's response to a batch, with this time until its deadline.
pub(crate) async fn handle_within(
    time: Duration,
    snapshotter: &Snapshotter,
    records: &[Value],
) -> Result<BatchResponse, NoCheckpoint> {
    let batch: StreamBatch = serde_json::from_value(json!({ "Records": records })).unwrap();
    snapshotter.handle(batch, Instant::now() + time).await
}

/// The sequence number from which a response requests a retry; `None` if it requests none.
pub(crate) fn checkpoint(response: Result<BatchResponse, NoCheckpoint>) -> Option<String> {
    response.unwrap().checkpoint().map(|number| number.as_str().to_owned())
}
