//! The rate and the memory of `republish`, in virtual time: each call takes 50 ms, and nothing else takes any time.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aggregates::Todo;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use daybook_decider::Registry;
use daybook_event_store::StoreSettings;
use daybook_function_runtime::aws_config_at;
use daybook_settings::Environment;
use daybook_stream_relay::{RelaySettings, RetryPolicy, clients};
use daybook_table::keys;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::*;
use crate::moment::Moment;
use crate::pacing::Interrupt;

const CALL: Duration = Duration::from_millis(50);

/// The id of the first event; each next event is a millisecond later.
const BEGINNING: u64 = 1_795_222_923_456;

/// A table and a bus. Event n is of aggregate n % `aggregates`, and has one message.
#[derive(Debug)]
struct Services {
    aggregates: u64,
    events: u64,
    bytes: usize,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    calls: BTreeMap<String, usize>,
    /// The messages that were read and not accepted yet.
    held: usize,
    most_held: usize,
    /// The last message that the bus accepted, by aggregate.
    accepted: HashMap<String, u64>,
}

impl Services {
    /// The rows of the index with ids between two sort keys.
    fn query(&self, request: &Value) -> Value {
        let values = &request["ExpressionAttributeValues"];
        let Some("EVENT_TYPE#TodoUpdated") = values[":pk"]["S"].as_str() else { return json!({"Items": []}) };
        let at = |name: &str| keys::gsi1sk_event_id(values[name]["S"].as_str().unwrap()).unwrap().timestamp_ms();
        let first = at(":first").saturating_sub(BEGINNING) + u64::from(at(":first") > BEGINNING);
        let end = self.events.min(at(":last").saturating_sub(BEGINNING));
        let limit = request["Limit"].as_u64().unwrap();
        let rows = (first..end).take(limit as usize).map(|event| {
            let (seq_num, id) = (event / self.aggregates + 1, Ulid::from_parts(BEGINNING + event, 0));
            json!({
                "pk": {"S": format!("AGGREGATE#todo#{}", event % self.aggregates)},
                "sk": {"S": keys::event_sk(seq_num)},
                "gsi1sk": {"S": keys::gsi1sk(id)},
                "messageSeq": {"N": seq_num.to_string()},
            })
        });
        let more = (first + limit < end).then(|| json!({"pk": {"S": ""}, "sk": {"S": ""}}));
        json!({"Items": rows.collect::<Vec<_>>(), "LastEvaluatedKey": more})
    }

    fn batch_get(&self, request: &Value) -> Value {
        let keys = request["RequestItems"]["table"]["Keys"].as_array().unwrap();
        assert!(keys.len() <= 100);
        let rows = keys.iter().map(|key| {
            let (pk, sk) = (key["pk"]["S"].as_str().unwrap(), key["sk"]["S"].as_str().unwrap());
            let seq_num: u64 = sk.split('#').nth(1).unwrap().parse().unwrap();
            json!({
                "pk": {"S": pk}, "sk": {"S": sk}, "messageId": {"S": format!("{pk} {seq_num}")},
                "messageType": {"S": "TodoUpdated"}, "messageSeq": {"N": seq_num.to_string()},
                "detail": {"S": "x".repeat(self.bytes)}, "occurredAt": {"S": "2026-11-21T01:02:03.456Z"},
                "seqNum": {"N": seq_num.to_string()}, "ttl": {"N": "7"},
            })
        });
        let rows: Vec<_> = rows.collect();
        let mut seen = self.seen.lock().unwrap();
        seen.held += rows.len();
        seen.most_held = seen.most_held.max(seen.held);
        json!({"Responses": {"table": rows}})
    }

    /// Accepts the entries, which must be the next ones of their aggregates.
    fn put_events(&self, request: &Value) -> Value {
        let entries = request["Entries"].as_array().unwrap();
        let mut seen = self.seen.lock().unwrap();
        for entry in entries {
            *seen.accepted.entry(entry["Resources"][0].as_str().unwrap().to_owned()).or_default() += 1;
        }
        seen.held -= entries.len();
        let accepted: Vec<_> = entries.iter().map(|_| json!({"EventId": "1"})).collect();
        json!({"FailedEntryCount": 0, "Entries": accepted})
    }
}

#[derive(Debug)]
struct Network(Arc<Services>);

impl HttpConnector for Network {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let body: Value = serde_json::from_slice(request.body().bytes().unwrap_or_default()).unwrap();
        let services = Arc::clone(&self.0);
        HttpConnectorFuture::new(async move {
            *services.seen.lock().unwrap().calls.entry(operation.clone()).or_default() += 1;
            sleep(CALL).await;
            let response = match operation.as_str() {
                "Query" => services.query(&body),
                "BatchGetItem" => services.batch_get(&body),
                "PutEvents" => services.put_events(&body),
                _ => unreachable!("{operation}"),
            };
            let status = StatusCode::try_from(200).expect("a status has three digits");
            Ok(HttpResponse::new(status, SdkBody::from(response.to_string())))
        })
    }
}

async fn send_all(services: Services) -> (Duration, Seen) {
    let events = services.events;
    let services = Arc::new(services);
    let connector = SharedHttpConnector::new(Network(Arc::clone(&services)));
    let client = http_client_fn(move |_, _| connector.clone());
    let aws = aws_config_at("http://in.process").into_builder().http_client(client).build();
    let store = EventStore::new(&aws, StoreSettings::new("table"));
    let rate = NonZeroU32::new(1_000_000).unwrap();
    let at = |text: &str| Moment::At(text.parse().unwrap());
    let window = Window {
        from: at("2026-01-01T00:00:00Z"),
        to: at("2030-01-01T00:00:00Z"),
        types: Vec::new(),
        aggregates: Vec::new(),
        message_types: Vec::new(),
        event_types: Vec::new(),
    };
    let concurrency = NonZeroUsize::new(64).unwrap();
    let options = RepublishOptions { window, yes: true, rate, concurrency };
    let settings = RelaySettings {
        event_bus_name: "main".to_owned(),
        event_source: "daybook".to_owned(),
        dlq_url: String::new(),
        retry: RetryPolicy::default(),
    };
    let resend = Resend::new(clients::eventbridge(&aws), settings, rate);
    // One type alone: each further event type costs queries of its partition of the index.
    let registry = Registry::new().with::<Todo>().unwrap();
    let interrupt = Interrupt::new();
    let stack = Stack::new(Environment::default(), registry, projections::projections, interrupt);
    let start = Instant::now();
    let ended = republish_from(&stack, &options, &store, resend, |_| Ok(())).await.unwrap();
    let elapsed = start.elapsed();
    assert!(ended.how_to_go_on.is_none() && ended.failure.is_none(), "{ended:?}");
    let seen = std::mem::take(&mut *services.seen.lock().unwrap());
    assert_eq!(seen.accepted.values().sum::<u64>(), events);
    (elapsed, seen)
}

/// 20,000 messages: of 1,000 aggregates, as many of each, and of aggregates with one message each.
#[tokio::test(start_paused = true)]
async fn republish_sends_5000_messages_a_second_at_50_ms_a_call() {
    for aggregates in [1_000, 20_000] {
        let services = Services { aggregates, events: 20_000, bytes: 1_000, seen: Mutex::default() };
        let (elapsed, seen) = send_all(services).await;
        println!("{aggregates} aggregates: {elapsed:?}, {:?}, {} messages held", seen.calls, seen.most_held);
        assert!(elapsed <= Duration::from_secs(4), "{aggregates} aggregates take {elapsed:?}");
        // Full requests of ten; reads of the rows of 25 events.
        assert!(seen.calls["PutEvents"] <= 2_200 && seen.calls["BatchGetItem"] <= 900, "{:?}", seen.calls);
        assert!(seen.most_held <= 12_000, "{} messages are held", seen.most_held);
    }
}

/// Rows of 100 KB, 400 MB together.
#[tokio::test(start_paused = true)]
async fn republish_of_large_messages_holds_a_bounded_number_of_bytes() {
    let bytes = 100_000;
    let services = Services { aggregates: 1_000, events: 4_000, bytes, seen: Mutex::default() };
    let (elapsed, seen) = send_all(services).await;
    let held = seen.most_held * bytes;
    println!("{elapsed:?}, {:?}, {held} bytes held", seen.calls);
    // Two batches of 8 MB, and 20 reads of 25 rows.
    assert!(held <= 70 * 1024 * 1024, "{held} bytes are held");
}
