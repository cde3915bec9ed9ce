//! Test support: a table behind a fault proxy, aggregates that write to it, and its stream records as the function receives them.

#[path = "../../../../tests/log.rs"]
pub(crate) mod log;
mod notebook;

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::{CommandError, CommandRequest, DecisionInput, Json, Meta, Model, Registry};
use daybook_event_store::{EventStore, LoadOptions, Loaded, StoreSettings};
use daybook_local_aws::dynamodb::{FaultProxy, InjectedFault, LocalDynamoDb, RecordedCall};
use daybook_snapshotter::{BatchResponse, NoCheckpoint, Snapshotter, StreamBatch};
use daybook_table::{AggregateKey, keys};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;
use ulid::Ulid;

use self::notebook::{Journal, Notebook};

const TABLE: &str = "daybook-test";

/// The number of events after which a snapshot is due.
pub(crate) const EVERY: u64 = 10;

pub(crate) type Item = HashMap<String, AttributeValue>;

/// The suite's aggregates, and additional ones for these tests.
fn registry() -> Registry {
    aggregates::registry().unwrap().with::<Notebook>().unwrap().with::<Journal>().unwrap()
}

fn settings(every: u64, keep: u64) -> StoreSettings {
    let snapshot_keep = usize::try_from(keep).unwrap();
    StoreSettings { snapshot_every: every, snapshot_keep, ..StoreSettings::new(TABLE) }
}

/// A table, and a fault proxy in front of it that only the function under test uses.
pub(crate) struct Bench {
    pub(crate) wire: FaultProxy,
    registry: Registry,
    /// Does not use the fault proxy.
    pub(crate) store: EventStore,
    /// Does not use the fault proxy.
    raw: Client,
    engine: LocalDynamoDb,
    settings: StoreSettings,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(EVERY, 0).await
    }

    /// A table where a snapshot is due every `every` events, and `keep` older snapshots stay.
    pub(crate) async fn with(every: u64, keep: u64) -> Self {
        let settings = settings(every, keep);
        let engine = LocalDynamoDb::in_memory().await.unwrap();
        let wire = FaultProxy::to(engine.url()).await.unwrap();
        let round_the_wire = daybook_function_runtime::aws_config_at(engine.url());
        let store = EventStore::new(&round_the_wire, settings.clone());
        store.admin().create_table().await.unwrap();
        Self { wire, registry: registry(), store, raw: Client::new(&round_the_wire), engine, settings }
    }

    /// The function on a new instance with an empty cache.
    pub(crate) fn snapshotter(&self) -> Snapshotter {
        Snapshotter::new(
            registry(),
            EventStore::new(&daybook_function_runtime::aws_config_at(self.wire.url()), self.settings.clone()),
        )
    }

    /// The same, with calls that the fault proxy neither records nor fails.
    pub(crate) fn snapshotter_round_the_wire(&self) -> Snapshotter {
        Snapshotter::new(
            registry(),
            EventStore::new(&daybook_function_runtime::aws_config_at(self.engine.url()), self.settings.clone()),
        )
    }

    pub(crate) fn model(&self, key: &AggregateKey) -> &dyn Model {
        self.registry.get(&key.aggregate_type).unwrap()
    }

    /// Decides a command on the current state, and appends its events.
    pub(crate) async fn command(&self, key: &AggregateKey, command: &str, data: Value) {
        self.commands(key, vec![(command, data)]).await;
    }

    async fn commands(&self, key: &AggregateKey, commands: Vec<(&str, Value)>) {
        self.try_commands(key, commands).await.unwrap();
    }

    /// The same for several commands. Returns an error if they are invalid or rejected without an event.
    pub(crate) async fn try_commands(
        &self,
        key: &AggregateKey,
        commands: Vec<(&str, Value)>,
    ) -> Result<(), CommandError> {
        let model = self.model(key);
        let before = self.store.load(model, key).await.unwrap();
        let request = |(command, data): (&str, Value)| CommandRequest {
            command: command.to_owned(),
            data: Json::of(&data).unwrap(),
        };
        let commands: Vec<_> = commands.into_iter().map(request).collect();
        let input = DecisionInput { now: Timestamp::now(), seed: Ulid::generate(), meta: Meta::default() };
        let decided = model.decide(&before.folded, &key.id, &commands, &input)?;
        let deadline = Instant::now() + Duration::from_secs(60);
        self.store.append(model, key, before.version(), &decided, None, deadline).await.unwrap();
        Ok(())
    }

    /// An account at this version: opened, then one payment per event.
    pub(crate) async fn account(&self, id: &str, version: u64) -> AggregateKey {
        let key = AggregateKey::new("account", id);
        let before = self.store.load(self.model(&key), &key).await.unwrap().version();
        let commands = (before + 1..=version).map(|number| match number {
            1 => ("OpenAccount", json!({})),
            _ => ("RecordTransaction", json!({"desc": "payment", "amount": number})),
        });
        self.commands(&key, commands.collect()).await;
        key
    }

    /// A notebook at version 5 whose state is too large for a snapshot.
    pub(crate) async fn large_notebook(&self, id: &str) -> AggregateKey {
        let key = AggregateKey::new("notebook", id);
        self.command(&key, "Begin", json!({})).await;
        // Random text compresses to at least three quarters of its size.
        let page = || std::iter::repeat_with(fastrand::alphanumeric).take(150 * 1024).collect::<String>();
        for _ in 0..4 {
            self.command(&key, "Write", json!({"page": page()})).await;
        }
        key
    }

    /// The aggregate, folded from all its events.
    pub(crate) async fn rebuilt(&self, key: &AggregateKey) -> Loaded {
        self.store.load_with(self.model(key), key, LoadOptions::REBUILD).await.unwrap()
    }

    /// The aggregate as a new instance loads it, from its snapshot if there is one.
    pub(crate) async fn loaded(&self, key: &AggregateKey) -> Loaded {
        let store = EventStore::new(&daybook_function_runtime::aws_config_at(self.engine.url()), self.settings.clone());
        store.load(self.model(key), key).await.unwrap()
    }

    /// The items of an aggregate whose sort keys begin with `prefix`.
    pub(crate) async fn rows(&self, key: &AggregateKey, prefix: &str) -> Vec<Item> {
        let pages = self
            .raw
            .query()
            .table_name(TABLE)
            .key_condition_expression("pk = :pk AND begins_with(sk, :sk)")
            .expression_attribute_values(":pk", AttributeValue::S(key.pk()))
            .expression_attribute_values(":sk", AttributeValue::S(prefix.to_owned()))
            .into_paginator()
            .items()
            .send();
        pages.collect::<Result<_, _>>().await.unwrap()
    }

    pub(crate) async fn snapshot(&self, key: &AggregateKey) -> Option<Item> {
        self.rows(key, keys::SNAPSHOT).await.pop()
    }

    /// The last event that is folded into an aggregate's snapshot.
    pub(crate) async fn snapshot_version(&self, key: &AggregateKey) -> Option<u64> {
        self.snapshot(key).await.map(|row| number(&row, "lastSeqNum"))
    }

    pub(crate) async fn delete_event(&self, key: &AggregateKey, seq_num: u64) {
        let deletion = self.raw.delete_item().table_name(TABLE).key("pk", AttributeValue::S(key.pk()));
        deletion.key("sk", AttributeValue::S(keys::event_sk(seq_num))).send().await.unwrap();
    }

    /// Replaces a text attribute of an event's row.
    pub(crate) async fn tamper(&self, key: &AggregateKey, seq_num: u64, attribute: &str, value: &str) {
        let mut row = self.rows(key, &keys::event_sk(seq_num)).await.remove(0);
        row.insert(attribute.to_owned(), AttributeValue::S(value.to_owned()));
        self.raw.put_item().table_name(TABLE).set_item(Some(row)).send().await.unwrap();
    }

    /// Stream records of all rows of the aggregate, as if they were new, with the sequence numbers `first`, `first + 1`, …
    pub(crate) async fn records(&self, key: &AggregateKey, first: u64) -> Vec<Value> {
        let image = |row: Item| serde_json::to_value(serde_dynamo::Item::from(row)).unwrap();
        let rows = self.rows(key, "").await.into_iter();
        rows.zip(first..).map(|(row, sequence_number)| insert(sequence_number, image(row))).collect()
    }

    /// Those of these records that the mapping's filter passes.
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
        /// More attempts than any retry loop makes.
        const ATTEMPTS: usize = 1_000;
        (0..ATTEMPTS).for_each(|_| self.wire.fail_next(operation, fault.clone()));
    }

    /// The number of calls of an operation since the calls were last taken.
    pub(crate) fn take_count(&self, operation: &str) -> usize {
        self.wire.take_calls().iter().filter(|call| call.operation == operation).count()
    }
}

/// A record of a new item.
pub(crate) fn insert(sequence_number: u64, image: Value) -> Value {
    json!({
        "eventID": sequence_number.to_string(), "eventName": "INSERT", "eventVersion": "1.1",
        "eventSource": "aws:dynamodb", "awsRegion": "us-east-1",
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:000000000000:table/daybook-test/stream/1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_700_000_000, "Keys": {"pk": image["pk"], "sk": image["sk"]},
            "NewImage": image, "SequenceNumber": sequence_number.to_string(), "SizeBytes": 26,
            "StreamViewType": "NEW_IMAGE"
        }
    })
}

/// A due record of an aggregate, which may or may not exist in the table.
pub(crate) fn due(sequence_number: u64, key: &AggregateKey) -> Value {
    let image = json!({"pk": {"S": key.pk()}, "sk": {"S": keys::event_sk(EVERY)}, "snapshotDue": {"BOOL": true}});
    insert(sequence_number, image)
}

/// The function's response to a batch, with enough time.
pub(crate) async fn handle(snapshotter: &Snapshotter, records: &[Value]) -> Result<BatchResponse, NoCheckpoint> {
    handle_within(Duration::from_secs(300), snapshotter, records).await
}

/// The function's response to a batch, with this time limit.
pub(crate) async fn handle_within(
    time: Duration,
    snapshotter: &Snapshotter,
    records: &[Value],
) -> Result<BatchResponse, NoCheckpoint> {
    let batch: StreamBatch = serde_json::from_value(json!({ "Records": records })).unwrap();
    snapshotter.handle(batch, Instant::now() + time).await
}

/// The checkpoint in a response.
pub(crate) fn checkpoint(response: Result<BatchResponse, NoCheckpoint>) -> Option<String> {
    response.unwrap().checkpoint().map(|number| number.as_str().to_owned())
}

/// The names of the calls, in alphabetical order, because concurrent calls arrive in any order.
pub(crate) fn operations(calls: Vec<RecordedCall>) -> Vec<String> {
    let mut names: Vec<_> = calls.into_iter().map(|call| call.operation).collect();
    names.sort();
    names
}

pub(crate) fn text<'a>(row: &'a Item, name: &str) -> &'a str {
    row[name].as_s().unwrap()
}

pub(crate) fn number(row: &Item, name: &str) -> u64 {
    row[name].as_n().unwrap().parse().unwrap()
}
