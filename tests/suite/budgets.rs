//! What a request costs: calls and capacity units, counted at the wire.

use axum::body::Body;
use axum::http::{Method, Request};
use command_handler::Api;
use event_store::{EventStore, Settings};
use local_dynamodb::{LocalDynamoDb, Wire};
use serde_json::{Value, json};
use startup::Environment;
use tower::ServiceExt;

/// The command handler over a wire that counts.
struct Counted {
    router: axum::Router,
    wire: Wire,
    engine: LocalDynamoDb,
}

impl Counted {
    async fn start() -> Self {
        Self::over(LocalDynamoDb::in_memory().await.unwrap()).await
    }

    /// A new instance of the function, with nothing in its cache.
    async fn over(engine: LocalDynamoDb) -> Self {
        let wire = Wire::to(engine.url()).await.unwrap();
        let environment: Environment = [("TABLE_NAME", "daybook-test")].into_iter().collect();
        let store = EventStore::new(&startup::aws_config_at(wire.url()), Settings::read(&environment).unwrap());
        store.create_table().await.unwrap();
        wire.take_calls();
        let api = Api::new(aggregates::registry().unwrap(), store, command_handler::Settings::default());
        Self { router: command_handler::router(api), wire, engine }
    }

    /// Sends a request; what calls it took, and their units of the table and the index.
    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> (Vec<String>, f64, f64) {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(body.map_or_else(Body::empty, |body| Body::from(body.to_string()))).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert!(response.status().is_success(), "{}", response.status());
        let calls = self.wire.take_calls();
        let units = |of: fn(&local_dynamodb::Call) -> f64| calls.iter().map(of).sum();
        let (table, index) = (units(|call| call.table_units), units(|call| call.index_units));
        let mut operations: Vec<_> = calls.into_iter().map(|call| call.operation).collect();
        operations.sort_unstable();
        (operations, table, index)
    }
}

fn todo(id: &str) -> Value {
    json!({"id": id, "title": "TODO", "message": "Make coffee"})
}

fn update(message: &str) -> Value {
    json!({"title": "TODO", "message": message})
}

#[tokio::test(flavor = "multi_thread")]
async fn one_event_and_one_message_cost_six_units_and_one_of_the_index() {
    let counted = Counted::start().await;
    let created = counted.send(Method::POST, "/todo", Some(todo("1"))).await;
    assert_eq!(created, (vec!["TransactWriteItems".to_owned()], 6.0, 1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_on_a_warm_instance_is_one_round_trip() {
    let counted = Counted::start().await;
    counted.send(Method::POST, "/todo", Some(todo("1"))).await;
    for message in ["a", "b", "c"] {
        let (calls, table, index) = counted.send(Method::POST, "/todo/1", Some(update(message))).await;
        assert_eq!((calls, table, index), (vec!["TransactWriteItems".to_owned()], 6.0, 1.0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_on_a_cold_instance_reads_snapshot_and_events_side_by_side() {
    let counted = Counted::start().await;
    counted.send(Method::POST, "/todo", Some(todo("1"))).await;
    let cold = Counted::over(counted.engine).await;
    let (calls, ..) = cold.send(Method::POST, "/todo/1", Some(update("a"))).await;
    assert_eq!(calls, ["GetItem", "Query", "TransactWriteItems"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_on_a_warm_instance_is_one_query_for_what_is_new() {
    let counted = Counted::start().await;
    counted.send(Method::POST, "/todo", Some(todo("1"))).await;
    let (calls, units, _) = counted.send(Method::GET, "/todo/1", None).await;
    assert_eq!((calls, units), (vec!["Query".to_owned()], 1.0));
}
