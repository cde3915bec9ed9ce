//! Input of any form ends no function, and a function that gets several records processes the good ones beside it.
//!
//! The input is that of `events/` with a few changes; `mutation` makes them.

mod mutation;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use daybook_command_handler::gateway;
use daybook_consumer::{BusMessage, Changes, Consumer, ConsumerFunction, HandleError, RowKey, Rows};
use daybook_function_runtime::aws_config_at;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_local_aws::messaging::{Bus, Server};
use daybook_projector::Projector;
use daybook_snapshotter::Snapshotter;
use daybook_stream_relay::{Relay, RelaySettings, clients};
use daybook_table::AggregateKey;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use suite_tests::workspace;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use self::mutation::mutated;
use crate::canary::deployments;
use crate::fixtures::read;
use crate::instance::Instance;

const TIMEOUT: Duration = Duration::from_secs(30);

/// The number of inputs of a test.
const CASES: u32 = 64;

fn json_of(path: &str) -> Value {
    serde_json::from_str(&read(path)).unwrap()
}

fn records_of(path: &str) -> Vec<Value> {
    json_of(path)["Records"].as_array().unwrap().clone()
}

fn deadline() -> Instant {
    Instant::now() + TIMEOUT
}

/// Runs a check with many inputs; `PROPTEST_CASES` sets how many.
fn check<S: Strategy>(input: S, check: impl Fn(S::Value)) {
    let cases = std::env::var("PROPTEST_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() });
    let run = |input| {
        check(input);
        Ok(())
    };
    runner.run(&input, run).unwrap_or_else(|error| panic!("{error}"));
}

/// Runs a check with batches that contain, between odd records, a good one of an aggregate that is new in each batch. The
/// check gets the id of this aggregate and the batch, and returns the response.
fn check_batches(originals: Vec<Value>, good: impl Fn(&str) -> Value, respond: impl Fn(&str, &str) -> Value) {
    let batches = AtomicUsize::new(0);
    check((vec(mutated(originals.clone()), 0..3), vec(mutated(originals), 0..3)), |(mut records, after)| {
        let id = format!("good-{}", batches.fetch_add(1, Ordering::Relaxed));
        let good = good(&id);
        records.push(good.to_string());
        records.extend(after);
        let response = respond(&id, &format!(r#"{{"Records":[{}]}}"#, records.join(",")));
        let failures = response["batchItemFailures"].as_array().unwrap();
        assert!(failures.iter().all(|failure| failure["itemIdentifier"] != "good"), "{failures:?}");
    });
}

#[test]
fn api_responds_to_requests_of_any_form() {
    let runtime = Runtime::new().unwrap();
    let instance = runtime.block_on(Instance::start());
    let files = std::fs::read_dir(workspace().join("events/command-handler")).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let events = files.filter(|name| !name.ends_with(".answer.json"));
    let mut events: Vec<_> = events.map(|name| json_of(&format!("command-handler/{name}"))).collect();
    events.extend(deployments().into_iter().flatten().map(|call| call["event"].clone()));
    check(mutated(events), |event| {
        // An event in which something is missing that API Gateway always sends fails alone.
        if let Ok(response) = runtime.block_on(gateway::respond(instance.router.clone(), &event, TIMEOUT)) {
            assert!((200..500).contains(&response["statusCode"].as_u64().unwrap()), "{response:#}");
        }
    });
}

#[test]
fn relay_publishes_messages_beside_records_of_any_form() {
    let runtime = Runtime::new().unwrap();
    let bus = Bus::with("main", "dlq");
    let server = runtime.block_on(Server::start(bus.router())).unwrap();
    let settings = [("EVENT_BUS_NAME", "main"), ("EVENT_SOURCE", "daybook"), ("DLQ_URL", "http://localhost/1/dlq")];
    let settings = RelaySettings::read(&settings.into_iter().collect()).unwrap();
    let aws = aws_config_at(server.url());
    let relay = Relay::new(clients::eventbridge(&aws), clients::sqs(&aws), settings);
    let records = ["messages", "mixed", "poison"].map(|name| records_of(&format!("stream-relay/{name}.json"))).concat();
    let record = records[0].to_string();
    let good = |id: &str| {
        let mut good: Value = serde_json::from_str(&record.replace("#account#123", &format!("#account#{id}"))).unwrap();
        // The relay ignores a record that it has settled.
        good["eventID"] = id.into();
        good
    };
    check_batches(records, good, |id, batch| {
        let batch = serde_json::from_str(batch).unwrap();
        let response = runtime.block_on(relay.handle(batch, deadline())).unwrap();
        let is_of_good = |resource: &String| *resource == format!("account/{id}");
        assert!(bus.delivered().iter().rev().any(|entry| entry.resources.iter().any(is_of_good)));
        json!(response)
    });
}

#[test]
fn snapshots_are_taken_beside_records_of_any_form() {
    let runtime = Runtime::new().unwrap();
    let instance = runtime.block_on(Instance::start());
    let snapshotter = Snapshotter::new(aggregates::registry().unwrap(), instance.table.store());
    let records = ["due", "several", "own-writes"].map(|name| records_of(&format!("snapshotter/{name}.json"))).concat();
    let record = records[0].to_string();
    let good = |id: &str| serde_json::from_str(&record.replace("#account#123", &format!("#account#{id}"))).unwrap();
    check_batches(records, good, |id, batch| {
        let batch = serde_json::from_str(batch).unwrap();
        runtime.block_on(async {
            instance.post("/account", json!({ "id": id })).await.expect(201);
            let response = snapshotter.handle(batch, deadline()).await.unwrap();
            assert!(instance.table.row(&AggregateKey::new("account", id), "#SNAPSHOT").await.is_some());
            json!(response)
        })
    });
}

#[test]
fn views_are_filled_beside_messages_of_any_form() {
    let runtime = Runtime::new().unwrap();
    let instance = runtime.block_on(Instance::start());
    let views = instance.table.direct_views();
    let projector = Projector::new(projections::projections().unwrap(), instance.table.store(), views);
    let records = records_of("projector/changed.json");
    let mut record = records[0].clone();
    record["messageId"] = json!("good");
    let good = |id: &str| {
        let mut record = record.clone();
        record["body"] = json!(json!({"changed": [["account", id, 1]]}).to_string());
        record
    };
    check_batches(records, good, |id, batch| {
        // Outside of the bodies, SQS writes no JSON that a value cannot contain.
        let Ok(batch) = serde_json::from_str::<Value>(batch) else { return json!({"batchItemFailures": []}) };
        runtime.block_on(async {
            instance.post("/account", json!({ "id": id })).await.expect(201);
            let response = projector.handle(serde_json::from_value(batch).unwrap(), deadline()).await;
            instance.get(&format!("/views/account-balances/account:{id}")).await.expect(200);
            json!(response)
        })
    });
}

/// A consumer that writes a row for each message.
struct Ledger;

impl Consumer for Ledger {
    const NAME: &'static str = "ledger";

    fn handle(&self, message: &BusMessage, _: &Rows<'_>) -> Result<Changes, HandleError> {
        let mut changes = Changes::none();
        changes.put(RowKey::new(message.aggregate().to_string(), &message.metadata.message_id), &message.metadata)?;
        Ok(changes)
    }
}

/// A consumer over an engine with its table.
async fn consumer(engine: &LocalDynamoDb) -> ConsumerFunction<Ledger> {
    let function = ConsumerFunction::new(Ledger, &aws_config_at(engine.url()), "ledger-test");
    function.table().create().await.unwrap();
    function
}

#[test]
fn consumer_applies_messages_beside_messages_of_any_form() {
    let runtime = Runtime::new().unwrap();
    let engine = runtime.block_on(LocalDynamoDb::in_memory()).unwrap();
    let function = runtime.block_on(consumer(&engine));
    let records = records_of("../app/order-mails/events/1-shuffled-batch.json");
    let mut record = records[1].clone();
    record["messageId"] = json!("good");
    let [seven, record] = [r#"aggregateId\":\"7\""#.to_owned(), record.to_string()];
    let good = |id: &str| serde_json::from_str(&record.replace(&seven, &seven.replace('7', id))).unwrap();
    check_batches(records, good, |id, batch| {
        let Ok(batch) = serde_json::from_str(batch) else { return json!({"batchItemFailures": []}) };
        runtime.block_on(async {
            let response = function.handle(batch, deadline()).await.unwrap();
            assert_eq!(function.table().partition(&format!("order/{id}")).await.unwrap().len(), 1);
            response
        })
    });
}

#[test]
fn consumer_handles_events_and_requests_of_any_form() {
    let runtime = Runtime::new().unwrap();
    let engine = runtime.block_on(LocalDynamoDb::in_memory()).unwrap();
    let function = runtime.block_on(consumer(&engine));
    let mut payloads = vec![
        json!({"request": "report"}),
        json!({"request": "resume", "aggregate": "order/7"}),
        json!({"request": "skip", "aggregate": "order/7", "through": 2, "epoch": 1}),
        json!({"request": "begin", "waitingSeconds": 0}),
    ];
    for record in records_of("../app/order-mails/events/1-shuffled-batch.json") {
        payloads.push(serde_json::from_str(record["body"].as_str().unwrap()).unwrap());
    }
    // An operator has skipped all messages that order 7 could ever have.
    let skip = json!({"request": "skip", "aggregate": "order/7", "through": u64::MAX});
    runtime.block_on(function.handle(skip, deadline())).unwrap();
    check(mutated(payloads), |payload| {
        let Ok(payload) = serde_json::from_str(&payload) else { return };
        // It may fail, but not panic.
        let _ = runtime.block_on(function.handle(payload, deadline()));
    });
}
