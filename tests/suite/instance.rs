//! One instance of the command handler over a table behind a proxy that records calls and injects faults.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, Response};
use daybook_command_handler::{Api, ApiSettings, router};
use daybook_decider::Registry;
use daybook_event_store::StoreSettings;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_settings::Environment;
use daybook_test_support::table::{TABLE, TestTable};
use lambda_http::{Context, RequestExt};
use serde_json::Value;
use suite_tests::ApiResponse;
use suite_tests::document::Document;
use tower::ServiceExt;

/// The settings of a function without variables.
pub(crate) fn settings() -> ApiSettings {
    ApiSettings::read(&Environment::default()).unwrap()
}

/// Moves the clock of the runtime forward. It then runs on, because calls over the network take time.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// The Lambda context of an invocation with this much time left.
pub(crate) fn time_left(time: Duration) -> Context {
    let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + time;
    let mut context = Context::default();
    context.deadline = u64::try_from(end.as_millis()).unwrap();
    context
}

pub(crate) struct Instance {
    pub(crate) router: axum::Router,
    pub(crate) table: TestTable,
}

impl Instance {
    /// An instance with its own table.
    pub(crate) async fn start() -> Self {
        Self::over(LocalDynamoDb::in_memory().await.unwrap()).await
    }

    /// A new instance over an existing table, with an empty cache.
    pub(crate) async fn over(engine: LocalDynamoDb) -> Self {
        Self::with(engine, aggregates::registry().unwrap(), settings()).await
    }

    pub(crate) async fn with(engine: LocalDynamoDb, registry: Registry, settings: ApiSettings) -> Self {
        Self::with_environment(engine, registry, settings, &[]).await
    }

    pub(crate) async fn with_environment(
        engine: LocalDynamoDb,
        registry: Registry,
        settings: ApiSettings,
        environment: &[(&str, &str)],
    ) -> Self {
        // Like the local stack: a test reads what it has just written.
        let defaults = [("TABLE_NAME", TABLE), ("FEED_DELAY_MS", "0")];
        let environment = defaults.iter().chain(environment).copied().collect();
        let of_store = StoreSettings::read(&environment).unwrap();
        let table = TestTable::over(engine, of_store).await;
        let api = Api::new(registry, table.store(), settings);
        let api = api.with_views(projections::projections().unwrap(), table.views().await);
        Self { router: router(api), table }
    }

    /// Another instance over the same table, with its own cache.
    pub(crate) fn beside(&self) -> axum::Router {
        router(Api::new(aggregates::registry().unwrap(), self.table.direct_store(), settings()))
    }

    pub(crate) async fn get(&self, path: &str) -> ApiResponse {
        send(&self.router, Method::GET, path, &[], None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> ApiResponse {
        send(&self.router, Method::POST, path, &[], Some(body)).await
    }

    pub(crate) async fn ask(&self, request: Request<Body>) -> ApiResponse {
        ask(&self.router, request).await
    }
}

pub(crate) fn request(method: Method, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body.map_or_else(Body::empty, |body| Body::from(body.to_string()))).unwrap()
}

pub(crate) async fn send(
    router: &axum::Router,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<Value>,
) -> ApiResponse {
    ask(router, request(method, path, headers, body)).await
}

/// The response. Asserts that the OpenAPI document contains it, if it contains the path.
pub(crate) async fn ask(router: &axum::Router, request: Request<Body>) -> ApiResponse {
    let (method, path) = (request.method().clone(), request.uri().to_string());
    let response = whole(answer(router, request).await).await;
    if Document::get().path(&path).is_some() { response.expect_documented(&method, &path) } else { response }
}

/// The complete response.
pub(crate) async fn whole(response: Response<Body>) -> ApiResponse {
    let (parts, body) = response.into_parts();
    ApiResponse::new(parts.status, parts.headers, &to_bytes(body, usize::MAX).await.unwrap())
}

/// The response to a request with unlimited time unless it sets a limit, so that no test fails on a slow machine.
pub(crate) async fn answer(router: &axum::Router, mut request: Request<Body>) -> Response<Body> {
    if request.lambda_context_ref().is_none() {
        request = request.with_lambda_context(time_left(Duration::from_secs(300)));
    }
    router.clone().oneshot(request).await.unwrap()
}

/// A new instance that distributes the events of a type over this number of index partitions.
pub(crate) async fn sharded(engine: LocalDynamoDb, shards: u32) -> Instance {
    let shards = shards.to_string();
    let environment = [("EVENT_TYPE_SHARDS", shards.as_str())];
    Instance::with_environment(engine, aggregates::registry().unwrap(), settings(), &environment).await
}
