//! The embedded DynamoDB engine without an endpoint: it executes calls on the caller's thread, with the caller's clock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dynoxide::storage_backend::Clock;
use dynoxide::{Database, DynoxideError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An engine in memory. Its results depend only on its calls and its clock.
pub struct Engine(Database);

/// The response to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineResponse {
    /// The HTTP status.
    pub status: u16,
    /// The body, in JSON.
    pub body: String,
}

impl Engine {
    /// An engine without tables. Its TTL and its stream use `clock`, which returns the time since 1970.
    ///
    /// # Errors
    ///
    /// When the engine cannot set up its memory.
    pub fn in_memory(clock: impl Fn() -> Duration + Send + Sync + 'static) -> dynoxide::Result<Self> {
        Database::memory_with_clock(Arc::new(ClockOf(clock))).map(Self)
    }

    /// Executes a request as the endpoint would. `operation` is the last part of its `X-Amz-Target`. Only the
    /// operations of event stores and of stream readers are supported.
    pub fn call(&self, operation: &str, request: &str) -> EngineResponse {
        let database = &self.0;
        let result = match operation {
            "CreateTable" => run(request, |request| database.create_table(request)),
            "UpdateTimeToLive" => run(request, |request| database.update_time_to_live(request)),
            "BatchGetItem" => run(request, |request| database.batch_get_item(request)),
            "Scan" => run(request, |request| database.scan(request)),
            "GetItem" => run(request, |request| database.get_item(request)),
            "PutItem" => run(request, |request| database.put_item(request)),
            "UpdateItem" => run(request, |request| database.update_item(request)),
            "DeleteItem" => run(request, |request| database.delete_item(request)),
            "Query" => run(request, |request| database.query(request)),
            "TransactGetItems" => run(request, |request| database.transact_get_items(request)),
            "TransactWriteItems" => run(request, |request| database.transact_write_items(request)),
            "ListStreams" => run(request, |request| database.list_streams(request)),
            "DescribeStream" => run(request, |request| database.describe_stream(request)),
            "GetShardIterator" => run(request, |request| database.get_shard_iterator(request)),
            "GetRecords" => run(request, |request| database.get_records(request)),
            other => Err(DynoxideError::UnsupportedCapability(other.to_owned())),
        };
        match result {
            Ok(body) => EngineResponse { status: 200, body },
            Err(error) => EngineResponse { status: error.status_code(), body: error.to_json() },
        }
    }

    /// Deletes all items that are past their `ttl`, as the service does within days. Returns their number.
    ///
    /// # Errors
    ///
    /// An error of the engine.
    pub fn sweep_expired(&self) -> dynoxide::Result<usize> {
        self.0.sweep_ttl()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Engine")
    }
}

fn run<Q: DeserializeOwned, A: Serialize>(
    request: &str,
    operation: impl FnOnce(Q) -> dynoxide::Result<A>,
) -> dynoxide::Result<String> {
    let unreadable = |error: serde_json::Error| DynoxideError::SerializationException(error.to_string());
    let response = operation(serde_json::from_str(request).map_err(unreadable)?)?;
    serde_json::to_string(&response).map_err(unreadable)
}

struct ClockOf<F>(F);

impl<F: Fn() -> Duration + Send + Sync> Clock for ClockOf<F> {
    fn now_unix_secs(&self) -> u64 {
        self.0().as_secs()
    }

    fn now_unix_secs_f64(&self) -> f64 {
        self.0().as_secs_f64()
    }
}
