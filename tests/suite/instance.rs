//! One instance of the command handler over a wire that counts and fails.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::{Method, Request, Response};
use command_handler::{Api, Settings, router};
use decider::Registry;
use event_store::EventStore;
use lambda_http::{Context, RequestExt};
use local_dynamodb::{LocalDynamoDb, Wire};
use serde_json::Value;
use startup::Environment;
use tower::ServiceExt;

/// Those of a function that sets nothing.
pub(crate) fn settings() -> Settings {
    Settings::read(&Environment::default()).unwrap()
}

/// What Lambda says of an invocation that has so much time left.
pub(crate) fn time_left(time: Duration) -> Context {
    let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + time;
    let mut context = Context::default();
    context.deadline = u64::try_from(end.as_millis()).unwrap();
    context
}

pub(crate) struct Instance {
    pub(crate) router: axum::Router,
    pub(crate) wire: Wire,
    pub(crate) engine: LocalDynamoDb,
}

impl Instance {
    /// Over a table of its own.
    pub(crate) async fn start() -> Self {
        Self::over(LocalDynamoDb::in_memory().await.unwrap()).await
    }

    /// A new instance over a table that is there, with nothing in its cache.
    pub(crate) async fn over(engine: LocalDynamoDb) -> Self {
        Self::with(engine, aggregates::registry().unwrap(), settings()).await
    }

    pub(crate) async fn with(engine: LocalDynamoDb, registry: Registry, settings: Settings) -> Self {
        Self::with_environment(engine, registry, settings, &[]).await
    }

    async fn with_environment(
        engine: LocalDynamoDb,
        registry: Registry,
        settings: Settings,
        environment: &[(&str, &str)],
    ) -> Self {
        let wire = Wire::to(engine.url()).await.unwrap();
        let environment = [("TABLE_NAME", "daybook-test")].iter().chain(environment).copied().collect();
        let of_store = event_store::Settings::read(&environment).unwrap();
        let store = EventStore::new(&startup::aws_config_at(wire.url()), of_store);
        store.create_table().await.unwrap();
        wire.take_calls();
        Self { router: router(Api::new(registry, store, settings)), wire, engine }
    }

    /// Another instance over the same table, with a cache of its own.
    pub(crate) fn beside(&self) -> axum::Router {
        let environment: Environment = [("TABLE_NAME", "daybook-test")].into_iter().collect();
        let of_store = event_store::Settings::read(&environment).unwrap();
        let store = EventStore::new(&startup::aws_config_at(self.engine.url()), of_store);
        router(Api::new(aggregates::registry().unwrap(), store, settings()))
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Response<Body> {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.answer(request.body(body).unwrap()).await
    }

    pub(crate) async fn answer(&self, request: Request<Body>) -> Response<Body> {
        answer(&self.router, request).await
    }
}

/// The answer to a request that has all the time in the world, unless it says otherwise: a machine that is busy with
/// other tests makes none of these fail.
pub(crate) async fn answer(router: &axum::Router, mut request: Request<Body>) -> Response<Body> {
    if request.lambda_context_ref().is_none() {
        request = request.with_lambda_context(time_left(Duration::from_secs(300)));
    }
    router.clone().oneshot(request).await.unwrap()
}

/// A new instance that spreads the events of a type over so many index partitions.
pub(crate) async fn sharded(engine: LocalDynamoDb, shards: u32) -> Instance {
    let shards = shards.to_string();
    let environment = [("EVENT_TYPE_SHARDS", shards.as_str())];
    Instance::with_environment(engine, aggregates::registry().unwrap(), settings(), &environment).await
}
