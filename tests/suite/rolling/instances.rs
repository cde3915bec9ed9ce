//! Instances of several releases over one table.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use axum::body::Body;
use axum::http::{Method, Request};
use daybook_command_handler::{Api, router};
use daybook_decider::{CommandRequest, DecisionInput, Json, Meta, Registry};
use daybook_event_store::{AppendError, EventStore, Loaded, SnapshotOutcome, StoreError, StoreSettings};
use daybook_local_aws::dynamodb::{FaultProxy, LocalDynamoDb, RecordedCall};
use daybook_snapshotter::Snapshotter;
use daybook_table::AggregateKey;
use jiff::Timestamp;
use serde_json::{Value, json};
use suite_tests::Answer;
use tokio::time::Instant;
use ulid::Ulid;

use super::parcel::Release;
use crate::instance::{answer, request, settings, whole};

/// The number of events after which a snapshot is due.
pub(crate) const EVERY: u64 = 10;

/// 2030-01-01, in milliseconds.
const BEGINNING: u64 = 1_893_456_000_000;

pub(crate) type Item = std::collections::HashMap<String, AttributeValue>;

/// One table.
pub(crate) struct Table {
    pub(crate) wire: FaultProxy,
    pub(crate) raw: Client,
    _engine: LocalDynamoDb,
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

/// A clock that advances by a millisecond per call, so that ids are ordered by their creation.
fn circumstances() -> DecisionInput {
    static PASSED: AtomicU64 = AtomicU64::new(0);
    let milliseconds = BEGINNING + PASSED.fetch_add(1, Ordering::Relaxed);
    let now = Timestamp::from_millisecond(i64::try_from(milliseconds).unwrap()).unwrap();
    DecisionInput { now, seed: Ulid::from_parts(milliseconds, fastrand::u128(..)), meta: Meta::default() }
}

fn store(url: &str) -> EventStore {
    let settings = StoreSettings { snapshot_every: EVERY, ..StoreSettings::new("daybook-test") };
    EventStore::new(&daybook_function_runtime::aws_config_at(url), settings)
}

impl Table {
    pub(crate) async fn new() -> Self {
        let engine = LocalDynamoDb::in_memory().await.unwrap();
        let wire = FaultProxy::to(engine.url()).await.unwrap();
        let raw = Client::new(&daybook_function_runtime::aws_config_at(engine.url()));
        store(engine.url()).admin().create_table().await.unwrap();
        Self { wire, raw, _engine: engine }
    }

    /// A new instance with an empty cache.
    pub(crate) fn instance(&self, release: Release) -> Instance {
        let url = self.wire.url().to_owned();
        Instance { registry: release.registry(), store: store(&url), url, release }
    }

    pub(crate) fn snapshotter(&self, release: Release) -> Snapshotter {
        Snapshotter::new(release.registry(), store(self.wire.url()))
    }

    pub(crate) async fn rows(&self, id: &str, prefix: &str) -> Vec<Item> {
        let query = self.raw.query().table_name("daybook-test");
        let pages = query
            .key_condition_expression("pk = :pk AND begins_with(sk, :sk)")
            .expression_attribute_values(":pk", AttributeValue::S(key(id).pk()))
            .expression_attribute_values(":sk", AttributeValue::S(prefix.to_owned()))
            .into_paginator()
            .items()
            .send();
        pages.collect::<Result<_, _>>().await.unwrap()
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
        let mut known = self.store.cached(&key);
        loop {
            let before = match known.take() {
                Some(known) => known,
                None => self.store.load(model, &key).await?,
            };
            let request = CommandRequest { command: command.to_owned(), data: Json::of(&data).unwrap() };
            let circumstances = circumstances();
            let decided = model.decide(&before.folded, id, &[request], &circumstances).unwrap();
            let deadline = Instant::now() + Duration::from_secs(60);
            match self.store.append(model, &key, before.version(), &decided, None, deadline).await {
                Err(AppendError::Conflict { .. }) => {}
                appended => return Ok(appended.map_err(|error| panic!("{error}")).unwrap()),
            }
        }
    }

    pub(crate) async fn send(&self, id: &str, to: &str) {
        self.command(id, "Send", json!({ "to": to })).await.unwrap();
    }

    pub(crate) async fn scan(&self, id: &str, town: &str) -> Loaded {
        self.command(id, "Scan", json!({"town": town, "country": "CH"})).await.unwrap()
    }

    /// Sends a request to the command handler of this release.
    pub(crate) async fn ask(&self, request: Request<Body>) -> Answer {
        let router = router(Api::new(self.release.registry(), store(&self.url), settings()));
        whole(answer(&router, request).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(request(Method::GET, path, &[], None)).await
    }
}

/// The first event of each query for a range of events.
pub(crate) fn first_events(calls: &[RecordedCall]) -> Vec<&str> {
    let onwards = calls.iter().filter(|call| call.request["ScanIndexForward"] != false);
    let first = onwards.filter_map(|call| call.request["ExpressionAttributeValues"][":first"]["S"].as_str());
    first.filter(|sk| sk.starts_with(daybook_table::keys::EVENT_PREFIX)).collect()
}

/// The stream record of a row.
pub(crate) fn inserted(row: &Item, sequence_number: u64) -> Value {
    let image = serde_json::to_value(serde_dynamo::Item::from(row.clone())).unwrap();
    json!({
        "eventID": sequence_number.to_string(), "eventName": "INSERT", "eventVersion": "1.1",
        "eventSource": "aws:dynamodb", "awsRegion": "us-east-1", "eventSourceARN": "arn:stream",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_700_000_000, "Keys": {"pk": image["pk"], "sk": image["sk"]},
            "NewImage": image, "SequenceNumber": sequence_number.to_string(), "SizeBytes": 26,
            "StreamViewType": "NEW_IMAGE"
        }
    })
}
