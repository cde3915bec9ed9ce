//! Causes the failures of the runbook's table, each on the local stack or on a function over a table that fails, and
//! observes the metrics.

mod bench;
mod metrics;
mod reactor;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::types::AttributeValue;
use axum::body::Body;
use axum::http::Request;
use daybook_decider::Registry;
use daybook_projector::{Projector, QueueBatch, QueueRecord};
use daybook_snapshotter::{SequenceNumber, Snapshotter, StreamBatch};
use daybook_table::{AggregateKey, ChangedAggregates, keys};
use daybook_test_support::commands::execute;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::notebook::Notebook;
use daybook_test_support::stream_record;
use daybook_test_support::table::TestTable;
use futures_util::future::{LocalBoxFuture, join_all};
use lambda_http::RequestExt;
use reqwest::Method;
use serde_json::json;
use tokio::time::Instant;

pub(super) use self::bench::Observed;
use self::bench::{Bench, MESSAGES, Signals};
pub(super) use self::reactor::{
    command_of_a_deadline_cannot_be_executed, event_cannot_be_handled, message_of_the_reactor_fails,
    messages_of_the_reactor_are_lost, queue_denies_the_tick, table_denies_the_tick,
};
use super::names::{
    API_TIME, CHANGE_FAILED, HANDLER_TIME, INDEX_THROTTLED, LOGGED, LOGGED_5XX, RELAY_TIME, SENT, SERVER_ERRORS,
    SNAPSHOTTER_AGE, SNAPSHOTTER_FAILED, SUSPENDED, TABLE_THROTTLED, TOO_LARGE,
};
use crate::instance::{Instance, request, time_left};

/// A trial of a failure.
pub(super) type Trial = fn() -> LocalBoxFuture<'static, Observed>;

/// The time-outs of the functions in the template.
const RELAY_TIMEOUT: Duration = Duration::from_secs(30);
const HANDLER_TIMEOUT: Duration = Duration::from_secs(28);

/// The caller has lost a permission.
const DENIED: InjectedFault = InjectedFault::Refuse { status: 400, code: "AccessDeniedException" };

/// The time-out of a relay in a trial.
const SHORT_TIMEOUT: Duration = Duration::from_secs(6);

/// The template with other text in the part of the relay's mapping.
fn with_mapping(template: &str, name: &str, old: &str, new: &str) -> String {
    let (before, mapping) = template.split_once(&format!("        {name}:\n")).unwrap();
    assert!(mapping.contains(old), "{mapping:.1000}");
    format!("{before}        {name}:\n{}", mapping.replacen(old, new, 1))
}

/// The template with a relay that must respond early.
fn impatient(template: &str) -> String {
    assert!(template.contains("    Timeout: 30\n"));
    template.replacen("    Timeout: 30\n", &format!("    Timeout: {}\n", SHORT_TIMEOUT.as_secs()), 1)
}

// Mappings.

async fn disabled(mapping: &str) -> Bench {
    Bench::with_template(|template| with_mapping(template, mapping, "Enabled: !Ref MappingsEnabled", "Enabled: false"))
        .await
}

pub(super) async fn relay_is_disabled() -> Observed {
    let bench = disabled("OutboxRows").await;
    bench.minute().await;
    bench.observe().await
}

pub(super) async fn relay_is_disabled_without_load() -> Observed {
    disabled("OutboxRows").await.observe().await
}

pub(super) async fn snapshotter_is_disabled() -> Observed {
    let bench = disabled("DueEvents").await;
    bench.minute().await;
    bench.settled(MESSAGES).await;
    bench.observe().await
}

pub(super) async fn filter_passes_nothing() -> Observed {
    // All of its filters: of messages, of changes for the projector, and of deadlines.
    let broken = |template: &str| with_mapping(template, "OutboxRows", r#""Keys":{"#, r#""NoKeys":{"#);
    let bench = Bench::with_template(|template| broken(&broken(&broken(template)))).await;
    bench.minute().await;
    // Time in which the relay would be invoked.
    tokio::time::sleep(Duration::from_millis(500)).await;
    bench.observe().await
}

/// The mapping retries without end until records are 23 hours old. Here, it does not retry at all.
pub(super) async fn records_are_discarded() -> Observed {
    let retries =
        |template: &str| with_mapping(template, "OutboxRows", "MaximumRetryAttempts: -1", "MaximumRetryAttempts: 0");
    let bench = Bench::with_template(retries).await;
    bench.fail(json!({"putEvents": [{"code": "AccessDeniedException", "forever": true}]}));
    for _ in 0..10 {
        bench.create("TODO").await;
    }
    let discarded = async || {
        let discarded = bench.suite.get("/_dev/discarded").await.body;
        let records = discarded.as_array().unwrap().iter().map(|one| one["DDBStreamBatchInfo"]["batchSize"].as_u64());
        records.sum::<Option<u64>>() >= Some(10) && bench.waiting().await == 0
    };
    bench.until("ten discarded records", discarded).await;
    // The outage, which has alarms of its own, is over.
    bench.fail(json!({}));
    bench.signals.take();
    bench.minute().await;
    bench.settled(MESSAGES).await;
    bench.observe().await
}

// The bus and the queue.

/// A minute of a bus with these faults that lets no message pass.
async fn minute_of_outage(faults: serde_json::Value) -> Observed {
    let bench = Bench::start().await;
    bench.fail(faults);
    bench.minute().await;
    bench.unsettled(MESSAGES).await;
    bench.observe().await
}

pub(super) async fn bus_denies_requests() -> Observed {
    minute_of_outage(json!({"putEvents": [{"code": "AccessDeniedException", "forever": true}]})).await
}

pub(super) async fn bus_denies_entries() -> Observed {
    minute_of_outage(json!({"entries": [{"containing": "", "code": "NotAuthorizedForSourceException"}]})).await
}

pub(super) async fn bus_rejects_everything() -> Observed {
    let bench = Bench::start().await;
    bench.fail(json!({"entries": [{"containing": "", "code": "InvalidArgument"}]}));
    for count in 1..=2 {
        bench.create("TODO").await;
        bench.until("a dead-letter message", async || bench.dead_letters().len() == count).await;
    }
    bench.minute().await;
    bench.unsettled(MESSAGES).await;
    bench.observe().await
}

/// A minute of a bus with these faults, because of which the relay uses all its time for a message with this title.
async fn minute_of_waiting(faults: serde_json::Value, title: &str) -> Observed {
    let bench = Bench::with_template(impatient).await;
    bench.fail(faults);
    let began = Instant::now();
    bench.create(title).await;
    bench.unsettled(1).await;
    let time = began.elapsed() + RELAY_TIMEOUT - SHORT_TIMEOUT;
    bench.minute().await;
    bench.unsettled(MESSAGES + 1).await;
    let mut observed = bench.observe().await;
    observed.insert(RELAY_TIME, Some(time.as_secs_f64() * 1_000.0));
    observed
}

pub(super) async fn bus_hangs() -> Observed {
    minute_of_waiting(json!({"putEvents": [{"delayMs": 600_000, "forever": true}]}), "TODO").await
}

pub(super) async fn bus_throttles() -> Observed {
    minute_of_waiting(json!({"putEvents": [{"code": "ThrottlingException", "forever": true}]}), "TODO").await
}

pub(super) async fn bus_fails() -> Observed {
    minute_of_waiting(json!({"putEvents": [{"http": 500, "forever": true}]}), "TODO").await
}

pub(super) async fn bus_fails_one_message() -> Observed {
    minute_of_waiting(json!({"entries": [{"containing": "stubborn", "code": "InternalFailure"}]}), "stubborn").await
}

pub(super) async fn bus_rejects_one_message() -> Observed {
    let bench = Bench::start().await;
    bench.fail(json!({"entries": [{"containing": "wrong", "code": "MalformedDetail"}]}));
    bench.minute().await;
    bench.create("wrong").await;
    bench.settled(MESSAGES + 1).await;
    bench.observe().await
}

/// Writes an outbox row that the relay cannot read.
async fn write_unreadable_row(bench: &Bench) {
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let put = bench.suite.table().put_item().table_name(bench.suite.stack.table_name());
    let put = put.item("pk", text("AGGREGATE#todo#unreadable")).item("sk", text("OUTBOX#000000000001#0"));
    put.item("messageId", text("1")).send().await.unwrap();
}

pub(super) async fn row_is_unreadable_to_the_relay() -> Observed {
    let bench = Bench::start().await;
    write_unreadable_row(&bench).await;
    bench.minute().await;
    bench.settled(MESSAGES + 1).await;
    bench.observe().await
}

pub(super) async fn queue_rejects_messages() -> Observed {
    let bench = Bench::start().await;
    bench.fail(json!({"messages": [{"containing": "deadLetteredAt", "code": "AccessDeniedException"}]}));
    write_unreadable_row(&bench).await;
    bench.unsettled(1).await;
    bench.minute().await;
    bench.unsettled(MESSAGES + 1).await;
    bench.observe().await
}

// The API and the table.

pub(super) async fn callers_are_forbidden() -> Observed {
    let bench = Bench::start().await;
    bench.minute().await;
    let todo = json!({"id": "of-ann", "title": "TODO", "message": ""});
    bench.send(Method::POST, "/todo", &[("x-daybook-caller", "ann")], Some(todo)).await.expect(201);
    for _ in 0..50 {
        bench.send(Method::GET, "/todo/of-ann", &[("x-daybook-caller", "bob")], None).await.expect(403);
    }
    bench.settled(MESSAGES + 1).await;
    bench.observe().await
}

pub(super) async fn stored_event_is_unreadable() -> Observed {
    let bench = Bench::start().await;
    bench.minute().await;
    bench.send(Method::POST, "/account", &[], Some(json!({"id": "1"}))).await.expect(201);
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let update = bench.suite.table().update_item().table_name(bench.suite.stack.table_name());
    let update = update.key("pk", text("AGGREGATE#account#1")).key("sk", text(&keys::event_sk(1)));
    let update = update.update_expression("SET #data = :data").expression_attribute_names("#data", "data");
    update.expression_attribute_values(":data", text("{")).send().await.unwrap();
    bench.send(Method::GET, "/account/1/events", &[], None).await.expect(200);
    bench.settled(MESSAGES).await;
    bench.observe().await
}

/// Creates to-dos, whose first transactions fail like this.
async fn failing_transactions(count: usize, fault: &InjectedFault) -> (Observed, Instance) {
    let signals = Signals::start();
    let instance = Instance::start().await;
    (0..count).for_each(|_| instance.table.proxy.fail_next("TransactWriteItems", fault.clone()));
    let create = async |n: usize| {
        let todo = json!({"id": n.to_string(), "title": "TODO", "message": ""});
        signals.count_response(instance.post("/todo", todo).await.expect(201).status.as_u16());
    };
    join_all((0..MESSAGES).map(create)).await;
    let mut observed = signals.take();
    // There is no relay, and no other request.
    observed.remove(SENT);
    (observed, instance)
}

/// The number of failed transactions.
fn failed_transactions(instance: &Instance, status: u16) -> Option<f64> {
    let calls = instance.table.proxy.take_calls();
    let failed = calls.iter().filter(|call| call.operation == "TransactWriteItems" && call.status == status).count();
    Some(f64::from(u32::try_from(failed).unwrap()))
}

pub(super) async fn table_throttles() -> Observed {
    let fault = InjectedFault::Refuse { status: 400, code: "ThrottlingException" };
    let (mut observed, instance) = failing_transactions(10, &fault).await;
    observed.insert(TABLE_THROTTLED, failed_transactions(&instance, 400));
    observed
}

pub(super) async fn index_throttles() -> Observed {
    let fault = InjectedFault::Cancel { codes: vec!["None", "ThrottlingError", "None"] };
    let (mut observed, instance) = failing_transactions(10, &fault).await;
    observed.insert(INDEX_THROTTLED, failed_transactions(&instance, 400));
    observed
}

pub(super) async fn table_denies_commands() -> Observed {
    let signals = Signals::start();
    let instance = Instance::start().await;
    for n in 0..MESSAGES {
        instance.table.proxy.fail_next("TransactWriteItems", DENIED);
        let todo = json!({"id": n.to_string(), "title": "TODO", "message": ""});
        signals.count_response(instance.post("/todo", todo).await.expect(500).status.as_u16());
    }
    signals.take()
}

/// Requests with less time than in Lambda.
pub(super) async fn table_hangs() -> Observed {
    const TIME: Duration = Duration::from_secs(5);
    let signals = Signals::start();
    let instance = Instance::start().await;
    (0..200).for_each(|_| instance.table.proxy.fail_next("TransactWriteItems", InjectedFault::Hang));
    let create = async |n: usize| {
        let todo = json!({"id": n.to_string(), "title": "TODO", "message": ""});
        let request: Request<Body> = request(Method::POST, "/todo", &[], Some(todo));
        let began = Instant::now();
        let response = instance.ask(request.with_lambda_context(time_left(TIME))).await;
        signals.count_response(response.status.as_u16());
        began.elapsed()
    };
    let longest = join_all((0..50).map(create)).await.into_iter().max().unwrap();
    let mut observed = signals.take();
    let time = Some((longest + HANDLER_TIMEOUT - TIME).as_secs_f64() * 1_000.0);
    observed.retain(|metric, _| [SERVER_ERRORS, LOGGED_5XX, LOGGED].contains(metric));
    observed.extend([(HANDLER_TIME, time), (API_TIME, time)]);
    observed
}

// Snapshots and views.

pub(super) async fn event_cannot_be_folded() -> Observed {
    let signals = Signals::start();
    let instance = Instance::start().await;
    let items = json!([{"productId": "coffee", "quantity": 2}]);
    instance.post("/order", json!({"id": "1", "customerId": "alice", "items": items, "total": 1})).await.expect(201);
    let key = AggregateKey::new("order", "1");
    let broken = AttributeValue::S("{".to_owned());
    instance.table.tamper(&key, &keys::event_sk(1), [("data", broken)]).await;
    let (events, views) = (instance.table.direct_store(), instance.table.views().await);
    let projector = Projector::new(::projections::projections().unwrap(), events, views);
    let body = ChangedAggregates::one(key, 0).to_body();
    let batch = QueueBatch { records: vec![QueueRecord::new("1", body)] };
    let response = projector.handle(batch, Instant::now() + Duration::from_secs(300)).await;
    assert_eq!(response.batch_item_failures, []);
    Observed::from([(SUSPENDED, signals.count_of(SUSPENDED))])
}

/// A batch of one message, which was sent seven minutes ago.
fn old_batch(body: &str) -> QueueBatch {
    let sent = Some(SystemTime::now() - Duration::from_mins(7));
    QueueBatch { records: vec![QueueRecord { sent, ..QueueRecord::new("1", body) }] }
}

pub(super) async fn message_of_the_projector_fails() -> Observed {
    let signals = Signals::start();
    let table = TestTable::new().await;
    let (events, views) = (table.store(), table.views().await);
    let projector = Projector::new(::projections::projections().unwrap(), events, views);
    table.proxy.fail_next("BatchGetItem", DENIED);
    let body = ChangedAggregates::one(AggregateKey::new("order", "1"), 1).to_body();
    let response = projector.handle(old_batch(&body), Instant::now() + Duration::from_secs(300)).await;
    assert_eq!(response.batch_item_failures.len(), 1);
    Observed::from([(CHANGE_FAILED, signals.latest_of(CHANGE_FAILED))])
}

pub(super) async fn table_denies_snapshots() -> Observed {
    let signals = Signals::start();
    let table = TestTable::new().await;
    let registry = Registry::new().with::<Notebook>().unwrap();
    let key = AggregateKey::new("notebook", "1");
    for operation in ["GetItem", "Query", "PutItem"] {
        table.proxy.fail_next(operation, DENIED);
    }
    let due = due(&key, 1);
    let created = due["dynamodb"]["ApproximateCreationDateTime"].as_f64().unwrap();
    let snapshotter = Snapshotter::new(registry, table.store());
    let batch: StreamBatch = serde_json::from_value(json!({"Records": [due]})).unwrap();
    let response = snapshotter.handle(batch, Instant::now() + Duration::from_secs(300)).await.unwrap();
    assert_eq!(response.checkpoint().map(SequenceNumber::as_str), Some("1"));
    let mut observed = signals.take();
    observed.retain(|metric, _| [TOO_LARGE, LOGGED].contains(metric));
    let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() - created;
    observed.extend([(SNAPSHOTTER_FAILED, Some(1.0)), (SNAPSHOTTER_AGE, Some(1_000.0 * age))]);
    observed
}

/// The stream record of an event that makes a snapshot due.
fn due(key: &AggregateKey, event: u64) -> serde_json::Value {
    let image = json!({"pk": {"S": keys::pk(key)}, "sk": {"S": keys::event_sk(event)}, "snapshotDue": {"BOOL": true}});
    stream_record::insert(1, image)
}

pub(super) async fn state_is_too_large() -> Observed {
    let signals = Signals::start();
    let table = TestTable::new().await;
    let registry = Registry::new().with::<Notebook>().unwrap();
    let (model, key) = (registry.get("notebook").unwrap(), AggregateKey::new("notebook", "1"));
    // Random text does not compress to less than three quarters of its size.
    let page = || std::iter::repeat_with(fastrand::alphanumeric).take(150 * 1024).collect::<String>();
    for command in ["Start", "Write", "Write", "Write"] {
        execute(&table.direct_store(), model, &key, &[(command, json!({"lines": [page()]}))]).await.unwrap();
    }
    let batch = json!({"Records": [due(&key, 4)]});
    let batch: StreamBatch = serde_json::from_value(batch).unwrap();
    let snapshotter = Snapshotter::new(registry, table.direct_store());
    let response = snapshotter.handle(batch, Instant::now() + Duration::from_secs(300)).await.unwrap();
    assert_eq!(response.checkpoint(), None);
    let mut observed = signals.take();
    observed.retain(|metric, _| [TOO_LARGE, LOGGED].contains(metric));
    observed
}
