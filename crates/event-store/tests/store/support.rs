//! What the tests share: a table of their own behind a wire, an aggregate to work on, and a clock that only goes on.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::{Aggregate, CommandRequest, Decided, DecisionInput, Folded, Json, Meta, Model, Registry};
use daybook_event_store::{AppendError, EventStore, LoadOptions, Loaded, StoreSettings};
use daybook_local_aws::dynamodb::{FaultProxy, LocalDynamoDb, RecordedCall};
use daybook_table::{AggregateKey, keys};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;
use ulid::Ulid;

pub(crate) const TABLE: &str = "daybook-test";

/// 2030-01-01, in milliseconds.
const BEGINNING: i64 = 1_893_456_000_000;

pub(crate) type Item = HashMap<String, AttributeValue>;

/// What the defaults are in production, on the table of the tests.
pub(crate) fn settings() -> StoreSettings {
    StoreSettings::new(TABLE)
}

/// A millisecond later at every call, so that ids sort in the order in which they were made.
pub(crate) fn now() -> Timestamp {
    static PASSED: AtomicI64 = AtomicI64::new(0);
    Timestamp::from_millisecond(BEGINNING + PASSED.fetch_add(1, Ordering::Relaxed)).unwrap()
}

pub(crate) fn circumstances() -> DecisionInput {
    let now = now();
    let milliseconds = u64::try_from(now.as_millisecond()).unwrap();
    DecisionInput { now, seed: Ulid::from_parts(milliseconds, fastrand::u128(..)), meta: Meta::default() }
}

/// Long enough for every retry that a test provokes.
pub(crate) fn in_time() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A table behind a wire.
pub(crate) struct Bench {
    pub(crate) wire: FaultProxy,
    pub(crate) engine: LocalDynamoDb,
    /// Goes round the wire.
    pub(crate) raw: Client,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::over(LocalDynamoDb::in_memory().await.unwrap()).await
    }

    pub(crate) async fn over(engine: LocalDynamoDb) -> Self {
        let wire = FaultProxy::to(engine.url()).await.unwrap();
        let raw = Client::new(&daybook_function_runtime::aws_config_at(engine.url()));
        let bench = Self { wire, engine, raw };
        bench.store().admin().create_table().await.unwrap();
        bench.wire.take_calls();
        bench
    }

    /// A store with a cold cache.
    pub(crate) fn store(&self) -> EventStore {
        self.store_with(settings())
    }

    pub(crate) fn store_with(&self, settings: StoreSettings) -> EventStore {
        EventStore::new(&daybook_function_runtime::aws_config_at(self.wire.url()), settings)
    }

    /// A store whose calls the wire neither sees nor fails.
    pub(crate) fn store_round_the_wire(&self) -> EventStore {
        EventStore::new(&daybook_function_runtime::aws_config_at(self.engine.url()), settings())
    }

    /// The names of the calls since the last time that they were taken, in alphabetical order: those that go side by
    /// side arrive in any.
    pub(crate) fn operations(&self) -> Vec<String> {
        let mut names: Vec<_> = self.wire.take_calls().into_iter().map(|call| call.operation).collect();
        names.sort();
        names
    }

    /// The items of an aggregate whose sort keys begin so.
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

    pub(crate) async fn row(&self, key: &AggregateKey, sk: &str) -> Option<Item> {
        self.rows(key, sk).await.into_iter().find(|row| text(row, "sk") == sk)
    }

    pub(crate) async fn put(&self, row: Item) {
        self.raw.put_item().table_name(TABLE).set_item(Some(row)).send().await.unwrap();
    }

    pub(crate) async fn delete(&self, key: &AggregateKey, sk: &str) {
        let deletion = self.raw.delete_item().table_name(TABLE);
        let deletion = deletion.key("pk", AttributeValue::S(key.pk())).key("sk", AttributeValue::S(sk.to_owned()));
        deletion.send().await.unwrap();
    }

    /// Replaces attributes of a row that is there.
    pub(crate) async fn tamper<const N: usize>(
        &self,
        key: &AggregateKey,
        sk: &str,
        changes: [(&str, AttributeValue); N],
    ) {
        let mut row = self.row(key, sk).await.unwrap();
        row.extend(changes.map(|(name, value)| (name.to_owned(), value)));
        self.put(row).await;
    }
}

/// What a row's attribute says, when it is a text.
pub(crate) fn text<'a>(row: &'a Item, name: &str) -> &'a str {
    row[name].as_s().unwrap()
}

/// What a row's attribute says, when it is a number.
pub(crate) fn number(row: &Item, name: &str) -> u64 {
    row[name].as_n().unwrap().parse().unwrap()
}

/// A row in the notation of DynamoDB's own documents: `{"seqNum": {"N": "1"}}`.
pub(crate) fn notation(row: &Item) -> Value {
    serde_json::to_value(serde_dynamo::Item::from(row.clone())).unwrap()
}

/// The calls that read the table itself.
pub(crate) fn reads(calls: &[RecordedCall]) -> impl Iterator<Item = &RecordedCall> {
    calls.iter().filter(|call| matches!(call.operation.as_str(), "GetItem" | "Query"))
}

/// One aggregate.
pub(crate) struct Subject {
    registry: Registry,
    pub(crate) key: AggregateKey,
}

impl Subject {
    /// One of a type that ships.
    pub(crate) fn shipped(aggregate_type: &str, id: &str) -> Self {
        Self { registry: aggregates::registry().unwrap(), key: AggregateKey::new(aggregate_type, id) }
    }

    /// One of a type that does not.
    pub(crate) fn of<A: Aggregate>(id: &str) -> Self {
        Self { registry: Registry::new().with::<A>().unwrap(), key: AggregateKey::new(A::TYPE, id) }
    }

    pub(crate) fn model(&self) -> &dyn Model {
        self.registry.get(&self.key.aggregate_type).unwrap()
    }

    /// The aggregate before its first event.
    pub(crate) fn unborn(&self) -> Folded {
        self.model().before_first_event()
    }

    /// What commands come to on `before`; none of them may be invalid.
    pub(crate) fn decide(&self, before: &Folded, commands: &[(&str, Value)]) -> Decided {
        self.decide_under(&circumstances(), before, commands)
    }

    pub(crate) fn decide_under(
        &self,
        circumstances: &DecisionInput,
        before: &Folded,
        commands: &[(&str, Value)],
    ) -> Decided {
        let request = |(command, data): &(&str, Value)| CommandRequest {
            command: (*command).to_owned(),
            data: Json::of(data).unwrap(),
        };
        let commands: Vec<_> = commands.iter().map(request).collect();
        self.model().decide(before, &self.key.id, &commands, circumstances).unwrap()
    }

    /// Appends what was decided on `before`.
    pub(crate) async fn append(
        &self,
        store: &EventStore,
        before: &Folded,
        decided: &Decided,
    ) -> Result<Loaded, AppendError> {
        store.append(self.model(), &self.key, before.version(), decided, None, in_time()).await
    }

    /// Decides on what the store remembers, else on what it loads, and appends.
    pub(crate) async fn command(&self, store: &EventStore, command: &str, data: Value) -> Loaded {
        self.commands(store, &[(command, data)]).await
    }

    /// Several of them in one transaction.
    pub(crate) async fn commands(&self, store: &EventStore, commands: &[(&str, Value)]) -> Loaded {
        let before = match store.cached(&self.key) {
            Some(known) => known,
            None => self.load(store).await,
        };
        let decided = self.decide(&before.folded, commands);
        self.append(store, &before.folded, &decided).await.unwrap()
    }

    pub(crate) async fn load(&self, store: &EventStore) -> Loaded {
        store.load(self.model(), &self.key).await.unwrap()
    }

    pub(crate) async fn rebuild(&self, store: &EventStore) -> Loaded {
        self.load_with(store, LoadOptions::REBUILD).await
    }

    pub(crate) async fn load_at(&self, store: &EventStore, version: u64) -> Loaded {
        self.load_with(store, LoadOptions { at: Some(version), ..LoadOptions::default() }).await
    }

    pub(crate) async fn rebuild_at(&self, store: &EventStore, version: u64) -> Loaded {
        self.load_with(store, LoadOptions { at: Some(version), ..LoadOptions::REBUILD }).await
    }

    async fn load_with(&self, store: &EventStore, options: LoadOptions) -> Loaded {
        store.load_with(self.model(), &self.key, options).await.unwrap()
    }

    pub(crate) async fn metadata(&self, bench: &Bench) -> Item {
        bench.row(&self.key, keys::METADATA).await.unwrap()
    }
}

/// A state as JSON.
pub(crate) fn state(loaded: &Loaded) -> Value {
    loaded.state.read().unwrap()
}

/// An account in which every event from the second on is a payment of its own number, so that its balance tells which
/// events were folded.
pub(crate) async fn ledger(store: &EventStore, id: &str, version: u64) -> Subject {
    /// As many events as fit a transaction beside the metadata.
    const MOST: u64 = 99;
    let account = Subject::shipped("account", id);
    let mut loaded = account.load(store).await;
    while loaded.version() < version {
        let numbers = loaded.version() + 1..=version.min(loaded.version() + MOST);
        let commands: Vec<_> = numbers.map(|number| payment(number, "payment")).collect();
        loaded = account.commands(store, &commands).await;
    }
    account
}

/// A [`ledger`] whose payments are events of some 300 KB, so that three of them fill a page of 1 MB.
pub(crate) async fn large_ledger(store: &EventStore, id: &str, version: u64) -> Subject {
    let account = Subject::shipped("account", id);
    let desc = "A".repeat(300 * 1024);
    for number in account.load(store).await.version() + 1..=version {
        account.commands(store, &[payment(number, &desc)]).await;
    }
    account
}

fn payment(number: u64, desc: &str) -> (&'static str, Value) {
    match number {
        1 => ("OpenAccount", json!({})),
        _ => ("RecordTransaction", json!({"desc": desc, "amount": number})),
    }
}

/// The balance of a ledger after that many events.
pub(crate) fn balance(version: u64) -> u64 {
    if version == 0 { 0 } else { version * (version + 1) / 2 - 1 }
}
