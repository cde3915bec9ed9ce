//! Instances of several releases over one table.

use axum::body::Body;
use axum::http::{Method, Request};
use daybook_command_handler::{Api, router};
use daybook_decider::{Folded, Registry};
use daybook_event_store::{EventStore, Loaded, SnapshotOutcome, StoreError, StoreSettings, TransactError};
use daybook_function_runtime::aws_config_at;
use daybook_snapshotter::Snapshotter;
use daybook_table::AggregateKey;
use daybook_test_support::clock::TestClock;
use daybook_test_support::commands::{appended, requests, transact};
use daybook_test_support::fault_proxy::RecordedCall;
use daybook_test_support::row::Item;
use daybook_test_support::table::{TABLE, TestTable};
use jiff::Timestamp;
use serde_json::{Value, json};
use suite_tests::ApiResponse;

use super::parcel::Release;
use crate::instance::{answer, request, settings, whole};

/// A clock in the past, so that feeds do not hold the events back.
static CLOCK: TestClock = TestClock::starting_at(1_767_225_600_000);

/// The number of events between due snapshots.
pub(crate) const EVERY: u64 = 10;

/// One table for all releases.
pub(crate) struct Setup {
    pub(crate) table: TestTable,
}

/// One process of a release, with its own cache.
pub(crate) struct Instance {
    registry: Registry,
    pub(crate) store: EventStore,
    url: String,
    release: Release,
}

pub(crate) fn key(id: &str) -> AggregateKey {
    AggregateKey::new("parcel", id)
}

fn store_settings() -> StoreSettings {
    StoreSettings { snapshot_every: EVERY, ..StoreSettings::new(TABLE) }
}

impl Setup {
    pub(crate) async fn new() -> Self {
        Self { table: TestTable::with(store_settings()).await }
    }

    /// A new instance with an empty cache.
    pub(crate) fn instance(&self, release: Release) -> Instance {
        let (registry, store, url) = (release.registry(), self.table.store(), self.table.proxy.url().to_owned());
        Instance { registry, store, url, release }
    }

    pub(crate) fn snapshotter(&self, release: Release) -> Snapshotter {
        Snapshotter::new(release.registry(), self.table.store())
    }

    pub(crate) async fn rows(&self, id: &str, prefix: &str) -> Vec<Item> {
        self.table.rows(&key(id), prefix).await
    }
}

impl Instance {
    pub(crate) async fn try_load(&self, id: &str) -> Result<Loaded, StoreError> {
        self.store.load(self.registry.get("parcel").unwrap(), &key(id)).await
    }

    pub(crate) async fn state(&self, id: &str) -> Value {
        self.try_load(id).await.unwrap().state.read().unwrap()
    }

    pub(crate) async fn take_snapshot(&self, id: &str) -> Result<SnapshotOutcome, StoreError> {
        self.store.take_snapshot(self.registry.get("parcel").unwrap(), &key(id), Timestamp::now()).await
    }

    /// Decides on the cached state, as a warm function does, and after a conflict on the loaded state.
    pub(crate) async fn command(&self, id: &str, command: &str, data: Value) -> Result<Loaded, StoreError> {
        let (model, key) = (self.registry.get("parcel").unwrap(), key(id));
        let requests = requests(&[(command, data)]);
        let decide = |before: &Folded| model.decide(before, id, &requests, &CLOCK.next_input());
        match transact(&self.store, model, &key, decide).await {
            Ok(decided) => Ok(appended(decided)),
            Err(TransactError::Store(error)) => Err(error),
            Err(error) => panic!("{error:?}"),
        }
    }

    pub(crate) async fn send(&self, id: &str, to: &str) {
        self.command(id, "Send", json!({ "to": to })).await.unwrap();
    }

    pub(crate) async fn scan(&self, id: &str, town: &str) -> Loaded {
        self.command(id, "Scan", json!({"town": town, "country": "CH"})).await.unwrap()
    }

    /// Sends a request to the command handler of this release.
    pub(crate) async fn ask(&self, request: Request<Body>) -> ApiResponse {
        let store = EventStore::new(&aws_config_at(&self.url), store_settings());
        let router = router(Api::new(self.release.registry(), store, settings()));
        whole(answer(&router, request).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> ApiResponse {
        self.ask(request(Method::GET, path, &[], None)).await
    }
}

/// The first event of each query for a range of events.
pub(crate) fn first_events(calls: &[RecordedCall]) -> Vec<&str> {
    let onwards = calls.iter().filter(|call| call.request["ScanIndexForward"] != false);
    let first = onwards.filter_map(|call| call.request["ExpressionAttributeValues"][":first"]["S"].as_str());
    first.filter(|sk| sk.starts_with(daybook_table::keys::EVENT_PREFIX)).collect()
}
