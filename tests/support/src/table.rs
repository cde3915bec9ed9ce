//! A table on the embedded engine.

use std::sync::LazyLock;

use crate::fault_proxy::FaultProxy;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_admin::AdminCalls;
use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::aws_config_at;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_local_aws::messaging::{Bus, Server};
use daybook_table::{AggregateKey, keys};
use daybook_view_store::ViewStore;

use crate::row::{Item, text};

/// The name of the tests' tables.
pub const TABLE: &str = "daybook-test";

/// The name of the tests' views tables.
pub const VIEWS_TABLE: &str = "daybook-test-views";

/// The name of the tests' tables with the keys of personal data.
pub const KEYS_TABLE: &str = "daybook-test-keys";

/// The default settings of production, for the table of a test.
pub fn settings() -> StoreSettings {
    StoreSettings::new(TABLE)
}

/// The table of one test, and a proxy in front of it that records calls and injects faults.
pub struct TestTable {
    /// The proxy, which the stores of [`store`](Self::store) call.
    pub proxy: FaultProxy,
    /// The engine itself.
    pub engine: LocalDynamoDb,
    /// A client of the engine. The proxy does not record its calls.
    pub raw: Client,
    /// The KMS of its stores, which records calls too.
    pub kms: FaultProxy,
    settings: StoreSettings,
    _kms: Server,
}

/// The KMS of all tests, whose key is always the same, so that each table can be opened again, also that of a release.
static KMS: LazyLock<Bus> = LazyLock::new(|| {
    let bus = Bus::in_memory();
    bus.set_kms_key([7; 32]).unwrap();
    bus
});

/// A store with the keys of personal data, and the KMS at this URL.
pub fn with_keys(store: EventStore, kms: &str) -> EventStore {
    let environment = [("KEYS_TABLE_NAME", KEYS_TABLE), ("PERSONAL_DATA_KEY", "local")].into_iter().collect();
    store.with_keys(&environment, &aws_config_at(kms)).unwrap()
}

impl TestTable {
    /// An empty table in memory.
    pub async fn new() -> Self {
        Self::with(settings()).await
    }

    /// An empty table in memory whose stores have these settings.
    pub async fn with(settings: StoreSettings) -> Self {
        Self::over(LocalDynamoDb::in_memory().await.unwrap(), settings).await
    }

    /// The table in an existing engine. Creates the table if it does not exist.
    pub async fn over(engine: LocalDynamoDb, settings: StoreSettings) -> Self {
        let proxy = FaultProxy::to(engine.url()).await.unwrap();
        let raw = Client::new(&aws_config_at(engine.url()));
        engine.create_table(KEYS_TABLE, "pk").unwrap();
        let server = Server::start(KMS.router()).await.unwrap();
        let kms = FaultProxy::to(server.url()).await.unwrap();
        let table = Self { proxy, engine, raw, kms, settings, _kms: server };
        table.direct_store().admin().create_table().await.unwrap();
        table
    }

    /// A store with an empty cache, whose calls go through the proxy.
    pub fn store(&self) -> EventStore {
        self.store_with(self.settings.clone())
    }

    /// A store with an empty cache and other settings, whose calls go through the proxy.
    pub fn store_with(&self, settings: StoreSettings) -> EventStore {
        self.store_at(self.proxy.url(), settings)
    }

    fn store_at(&self, url: &str, settings: StoreSettings) -> EventStore {
        with_keys(EventStore::new(&aws_config_at(url), settings), self.kms.url())
    }

    /// A store with an empty cache, whose calls the proxy neither records nor fails.
    pub fn direct_store(&self) -> EventStore {
        self.store_at(self.engine.url(), self.settings.clone())
    }

    /// A view store whose calls go through the proxy. Creates its table if it does not exist.
    pub async fn views(&self) -> ViewStore {
        self.direct_views().create_table().await.unwrap();
        ViewStore::new(&aws_config_at(self.proxy.url()), VIEWS_TABLE)
    }

    /// A view store whose calls the proxy neither records nor fails.
    pub fn direct_views(&self) -> ViewStore {
        ViewStore::new(&aws_config_at(self.engine.url()), VIEWS_TABLE)
    }

    /// The names of the calls since they were last taken, in alphabetical order, because concurrent calls arrive in any.
    pub fn operations(&self) -> Vec<String> {
        let mut names: Vec<_> = self.proxy.take_calls().into_iter().map(|call| call.operation).collect();
        names.sort();
        names
    }

    /// The rows of an aggregate whose sort keys begin with `prefix`.
    pub async fn rows(&self, key: &AggregateKey, prefix: &str) -> Vec<Item> {
        let pages = self
            .raw
            .query()
            .table_name(&self.settings.table_name)
            .key_condition_expression("pk = :pk AND begins_with(sk, :sk)")
            .expression_attribute_values(":pk", AttributeValue::S(keys::pk(key)))
            .expression_attribute_values(":sk", AttributeValue::S(prefix.to_owned()))
            .into_paginator()
            .items()
            .send();
        pages.collect::<Result<_, _>>().await.unwrap()
    }

    /// The row with a sort key, if there is one.
    pub async fn row(&self, key: &AggregateKey, sk: &str) -> Option<Item> {
        self.rows(key, sk).await.into_iter().find(|row| text(row, "sk") == sk)
    }

    /// All rows of all tables, as text.
    pub async fn stored(&self) -> String {
        let mut stored = String::new();
        for table in self.raw.list_tables().send().await.unwrap().table_names() {
            let rows = self.raw.scan().table_name(table).send().await.unwrap();
            assert!(rows.last_evaluated_key().is_none());
            stored += &format!("{:?}", rows.items());
        }
        stored
    }

    /// Writes a row.
    pub async fn put(&self, row: Item) {
        self.raw.put_item().table_name(&self.settings.table_name).set_item(Some(row)).send().await.unwrap();
    }

    /// Deletes a row.
    pub async fn delete(&self, key: &AggregateKey, sk: &str) {
        let deletion = self.raw.delete_item().table_name(&self.settings.table_name);
        let deletion = deletion.key("pk", AttributeValue::S(keys::pk(key))).key("sk", AttributeValue::S(sk.to_owned()));
        deletion.send().await.unwrap();
    }

    /// Replaces attributes of an existing row.
    pub async fn tamper<const N: usize>(&self, key: &AggregateKey, sk: &str, changes: [(&str, AttributeValue); N]) {
        let mut row = self.row(key, sk).await.unwrap();
        row.extend(changes.map(|(name, value)| (name.to_owned(), value)));
        self.put(row).await;
    }
}
