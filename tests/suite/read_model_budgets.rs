//! What read models cost, counted at the services: nothing when they are off, and when they are on, the calls and units of a
//! projection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::{Next, from_fn};
use daybook_command_handler::{Api, router};
use daybook_event_source_mapping::template::{Function, Template};
use daybook_function_runtime::aws_config_at;
use daybook_local_aws::messaging::{Bus, Server};
use daybook_projection::Projections;
use daybook_projector::{Projector, QueueBatch, QueueRecord, QueueResponse};
use daybook_stream_relay::{Relay, RelaySettings, RetryPolicy, StreamBatch, clients};
use daybook_table::{AggregateKey, ChangedAggregates};
use daybook_test_support::stream_record;
use serde_json::{Value, json};
use suite_tests::workspace;
use tokio::time::Instant;

use crate::instance::{Instance, send, settings};

/// More time than any test takes.
const TIME: Duration = Duration::from_secs(60);

/// The relay in template.yaml.
fn relay_of_template(read_models: &str, reactor: &str) -> Function {
    let text = std::fs::read_to_string(workspace().join("template.yaml")).unwrap();
    let parameters = [("ReadModels", read_models), ("Reactor", reactor)];
    let mut template = Template::with_parameters(&text, &parameters).unwrap();
    template.functions.remove("StreamRelay").unwrap()
}

/// EventBridge and SQS, and their calls: the operation, and the bytes of the request.
struct Services {
    bus: Bus,
    server: Server,
    calls: Arc<Mutex<Vec<(String, usize)>>>,
}

impl Services {
    async fn start() -> Self {
        let (bus, calls) = (Bus::with("main", "dlq"), Arc::<Mutex<Vec<_>>>::default());
        bus.create_work_queue("changes");
        let counted = Arc::clone(&calls);
        let count = from_fn(move |request: Request, next: Next| {
            let counted = Arc::clone(&counted);
            async move {
                let (parts, body) = request.into_parts();
                let body = to_bytes(body, usize::MAX).await.unwrap();
                let target = parts.headers["x-amz-target"].to_str().unwrap().rsplit('.').next().unwrap().to_owned();
                counted.lock().unwrap().push((target, body.len()));
                next.run(Request::from_parts(parts, Body::from(body))).await
            }
        });
        let server = Server::start(bus.router().layer(count)).await.unwrap();
        Self { bus, server, calls }
    }

    fn relay(&self) -> Relay {
        let config = aws_config_at(self.server.url());
        let settings = RelaySettings {
            event_bus_name: "main".into(),
            event_source: "daybook".into(),
            dlq_url: "http://localhost/1/dlq".into(),
            retry: RetryPolicy::default(),
        };
        Relay::new(clients::eventbridge(&config), clients::sqs(&config), settings)
    }

    fn relay_with_changes_queue(&self) -> Relay {
        let config = aws_config_at(self.server.url());
        self.relay().with_changes_queue(clients::sqs(&config), "http://localhost/1/changes".to_owned())
    }

    async fn relay_all(&self, relay: Relay, records: &[Value]) -> Vec<(String, usize)> {
        let batch: StreamBatch = serde_json::from_str(&json!({ "Records": records }).to_string()).unwrap();
        let response = relay.handle(batch, Instant::now() + TIME).await.unwrap();
        assert_eq!(response.checkpoint(), None);
        let mut calls = std::mem::take(&mut *self.calls.lock().unwrap());
        calls.sort();
        calls
    }
}

fn todo(id: &str) -> Value {
    json!({"id": id, "title": "TODO", "message": "Make coffee"})
}

/// The stream records of ten to-dos.
async fn records() -> Vec<Value> {
    let instance = Instance::start().await;
    let mut records = Vec::new();
    for id in 0..10 {
        let id = id.to_string();
        instance.post("/todo", todo(&id)).await.expect(201);
        let key = AggregateKey::new("todo", id);
        for sk in ["#METADATA", "EVENT#000000000001", "OUTBOX#000000000001#0"] {
            let row = instance.table.row(&key, sk).await.unwrap();
            records.push(stream_record::inserted(records.len() as u64 + 1, &row));
        }
        let mut moved = records[records.len() - 3].clone();
        moved["eventName"] = "MODIFY".into();
        moved["dynamodb"]["SequenceNumber"] = (records.len() + 1).to_string().into();
        records.push(moved);
    }
    records
}

#[tokio::test(flavor = "multi_thread")]
async fn relay_without_read_models_receives_no_metadata_and_does_not_call_sqs() {
    let records = records().await;
    let received = |read_models: &str| {
        let relay = relay_of_template(read_models, "off");
        let event = relay.streams.values().next().unwrap();
        let received: Vec<_> = records.iter().filter(|record| event.settings.filter.matches(record)).cloned().collect();
        (relay.environment.contains_key("CHANGES_QUEUE_URL"), received)
    };
    let (has_queue, without) = received("false");
    assert!(!has_queue);
    let sk = |record: &Value| record["dynamodb"]["Keys"]["sk"]["S"].as_str().unwrap().to_owned();
    assert_eq!(without.iter().map(sk).collect::<Vec<_>>(), ["OUTBOX#000000000001#0"; 10]);
    let (has_queue, with) = received("true");
    assert!(has_queue);
    assert_eq!(with.len(), 30);

    let services = Services::start().await;
    let calls_without = services.relay_all(services.relay(), &without).await;
    let [(operation, bytes)] = calls_without.as_slice() else { panic!("{calls_without:?}") };
    assert_eq!(operation, "PutEvents");
    // Even if it receives metadata.
    assert_eq!(services.relay_all(services.relay(), &with).await, calls_without);

    // With read models: one request more, for all aggregates of the batch.
    let calls_with = services.relay_all(services.relay_with_changes_queue(), &with).await;
    let [put_events, (send_message, bytes_of_message)] = calls_with.as_slice() else { panic!("{calls_with:?}") };
    assert_eq!((put_events, send_message.as_str()), (&calls_without[0], "SendMessage"));
    eprintln!("PutEvents of 10 messages: {bytes} bytes; SendMessage of 10 aggregates: {bytes_of_message} bytes");
    assert!(*bytes_of_message < 1_000);
    assert_eq!(services.bus.queued().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn relay_receives_metadata_for_a_reactor_only_with_processes() {
    let records = records().await;
    for (reactor, variables, received) in
        [("off", [false, false], 10), ("deadlines", [true, true], 10), ("processes", [true, true], 30)]
    {
        let relay = relay_of_template("false", reactor);
        let has = ["REACTIONS_QUEUE_URL", "REACTOR"].map(|name| relay.environment.contains_key(name));
        let filter = &relay.streams.values().next().unwrap().settings.filter;
        let passed = records.iter().filter(|record| filter.matches(record)).count();
        assert_eq!((has, passed), (variables, received), "{reactor}");
    }
    let queue = |reactor: &str| {
        let environment = [("REACTIONS_QUEUE_URL", "reactions"), ("REACTOR", reactor)].into_iter().collect();
        daybook_stream_relay::processes_queue(&environment)
    };
    assert_eq!((queue("deadlines"), queue("processes")), (None, Some("reactions".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn command_handler_makes_the_same_calls_with_and_without_read_models() {
    let mut made = BTreeMap::new();
    for has_views in [false, true] {
        let mut instance = Instance::start().await;
        if !has_views {
            instance.router = router(Api::new(aggregates::registry().unwrap(), instance.table.store(), settings()));
        }
        instance.table.proxy.take_calls();
        let update = json!({"title": "TODO", "message": "x"});
        for (method, path, body) in [
            (Method::POST, "/todo", Some(todo("1"))),
            (Method::POST, "/todo/1", Some(update)),
            (Method::GET, "/todo/1", None),
            (Method::GET, "/todo/1/events", None),
            (Method::GET, "/todo", None),
            (Method::DELETE, "/todo/1", None),
            (Method::GET, "/todo/1", None),
        ] {
            send(&instance.router, method, path, &[], body).await;
        }
        let calls = instance.table.proxy.take_calls().into_iter();
        let calls = calls.map(|call| {
            let bytes = call.request.to_string().len();
            (call.operation, call.status, call.table_units.to_string(), call.index_units.to_string(), bytes)
        });
        made.insert(has_views, calls.collect::<Vec<_>>());
        // A request for a view that does not exist makes no call.
        send(&instance.router, Method::GET, "/views/nothing/x", &[], None).await.expect(404);
        assert!(instance.table.proxy.take_calls().is_empty());
    }
    assert!(made[&false].len() >= 6, "{made:?}");
    assert_eq!(made[&false], made[&true]);
}

/// The calls of a projection, and the units that it reads and writes.
pub(crate) type Cost = (Vec<String>, f64, f64);

/// Projects one message for each order. Returns the cost.
pub(crate) async fn project(instance: &Instance, ids: &[&str]) -> Cost {
    let projections = Projections::new().with::<projections::OrdersByDay>().unwrap();
    let projector = Projector::new(projections, instance.table.store(), instance.table.views().await);
    let message = |id: &&str| {
        let changed = ChangedAggregates::one(AggregateKey::new("order", *id), 0);
        QueueRecord::new(*id, changed.to_body())
    };
    // The first invocation of an instance also reads the marks of the versions.
    projector.handle(QueueBatch { records: vec![message(&"none")] }, Instant::now() + TIME).await;
    instance.table.proxy.take_calls();
    let batch = QueueBatch { records: ids.iter().map(message).collect() };
    assert_eq!(projector.handle(batch, Instant::now() + TIME).await, QueueResponse::default());
    let calls = instance.table.proxy.take_calls();
    let units = |writes: bool| {
        let calls = calls.iter().filter(|call| (call.operation == "TransactWriteItems") == writes);
        calls.map(|call| call.table_units).sum::<f64>()
    };
    let (read, written) = (units(false), units(true));
    let mut operations: Vec<_> = calls.into_iter().map(|call| call.operation).collect();
    operations.sort_unstable();
    eprintln!(
        "{} messages of {} aggregates: {operations:?}, {read} read units, {written} write units",
        ids.len(),
        ids.len()
    );
    (operations, read, written)
}

pub(crate) async fn place(instance: &Instance, id: &str) {
    let items = json!([{"productId": "coffee", "quantity": 2}]);
    let order = json!({"id": id, "customerId": "alice", "items": items, "total": 100});
    instance.post("/order", order).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn projection_of_one_event_into_one_row_takes_four_calls() {
    let instance = Instance::start().await;
    place(&instance, "1").await;
    let operations = ["BatchGetItem", "BatchGetItem", "Query", "TransactWriteItems"].map(str::to_owned).to_vec();
    assert_eq!(project(&instance, &["1"]).await, (operations, 3.0, 4.0));
    // A repeated message.
    let operations = ["BatchGetItem", "Query"].map(str::to_owned).to_vec();
    assert_eq!(project(&instance, &["1"]).await, (operations, 2.0, 0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_messages_of_ten_aggregates_share_one_transaction() {
    let instance = Instance::start().await;
    let ids = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    for id in ids {
        place(&instance, id).await;
    }
    let mut operations = vec!["BatchGetItem".to_owned(); 2];
    operations.extend(vec!["Query".to_owned(); 10]);
    operations.push("TransactWriteItems".to_owned());
    assert_eq!(project(&instance, &ids).await, (operations, 21.0, 22.0));
}
