//! Thousands of generated valid and invalid requests to the local stack: none causes a server error, every response is in the
//! OpenAPI document, and at the end the table contains exactly the acknowledged events.
//!
//! The same seed generates the same requests. `GENERATED_REQUESTS=10000` generates more than a normal run, `GENERATED_SEED`
//! generates others.

mod requests;

use std::collections::BTreeMap;
use std::time::Duration;

use daybook_command_handler::Api;
use daybook_decider::{Json, Meta, Model, RecordedEvent, Registry};
use daybook_event_store::{EventStore, StoreSettings};
use daybook_local_aws::messaging::Server;
use reqwest::Method;
use serde_json::Value;
use suite_tests::document::Document;
use suite_tests::{ApiResponse, Suite};
use ulid::Ulid;

use self::requests::{Made, Requests};
use crate::instance::settings;

/// The number of requests in a normal run.
const REQUESTS: usize = 1_500;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// The version in a response.
fn version(response: &ApiResponse) -> Option<usize> {
    response.header("etag").trim_matches('"').split('-').next()?.parse().ok()
}

/// The URL of the API.
struct Endpoint {
    url: String,
    client: reqwest::Client,
}

impl Endpoint {
    fn at(url: &str) -> Self {
        Self { url: url.to_owned(), client: reqwest::Client::new() }
    }

    async fn send(&self, made: &Made) -> ApiResponse {
        let mut request = self.client.request(made.method.clone(), format!("{}{}", self.url, made.path));
        for (name, value) in &made.headers {
            request = request.header(*name, value);
        }
        let response = request.body(made.body.clone()).send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        ApiResponse::new(status, headers, &response.bytes().await.unwrap())
    }

    async fn get(&self, path: String) -> ApiResponse {
        self.send(&Made { method: Method::GET, path, headers: Vec::new(), body: String::new() }).await
    }
}

/// The acknowledged events, by path: `Null` for one that records a rejection, because the response does not contain it, and
/// `None` for one that a process must have appended.
#[derive(Default)]
struct Acknowledged(BTreeMap<String, Vec<Option<Value>>>);

impl Acknowledged {
    fn note(&mut self, made: &Made, response: &ApiResponse) {
        if made.method == Method::GET || made.method == Method::HEAD {
            return;
        }
        let replayed = response.headers.contains_key("idempotency-replayed");
        match response.status.as_u16() {
            200 | 201 => {
                let type_name = made.path.split(['/', '?']).nth(1).unwrap();
                let stream =
                    self.0.entry(format!("/{type_name}/{}", response.body["id"].as_str().unwrap())).or_default();
                for event in response.body["events"].as_array().unwrap() {
                    let place = usize::try_from(event["seqNum"].as_u64().unwrap()).unwrap() - 1;
                    if replayed {
                        assert_eq!(
                            stream[place].as_ref(),
                            Some(event),
                            "a replay contains the events of the first response"
                        );
                    } else {
                        assert!(place >= stream.len(), "{event} is there twice");
                        stream.resize(place, None);
                        stream.push(Some(event.clone()));
                    }
                }
                if !replayed {
                    assert_eq!(version(response), Some(stream.len()));
                }
            }
            422 if !replayed && response.body["rejection"].is_string() => {
                let Some(version) = version(response) else { return };
                let path = made.path.split('?').next().unwrap().trim_end_matches("/commands");
                let stream = self.0.entry(path.to_owned()).or_default();
                if version > stream.len() {
                    stream.resize(version - 1, None);
                    stream.push(Some(Value::Null));
                }
            }
            _ => {}
        }
    }
}

/// All entries of a feed, page by page.
async fn all(api: &Endpoint, mut path: String) -> Vec<Value> {
    let mut entries = Vec::new();
    loop {
        let page = api.get(path).await.expect(200);
        entries.extend(page.body["events"].as_array().unwrap().iter().cloned());
        let Some(next) = page.next() else { return entries };
        path = next.to_owned();
    }
}

fn recorded(event: &Value) -> RecordedEvent {
    RecordedEvent {
        seq_num: event["seqNum"].as_u64().unwrap(),
        event_id: Ulid::from_string(event["eventId"].as_str().unwrap()).unwrap(),
        event_type: event["eventType"].as_str().unwrap().to_owned(),
        event_version: u32::try_from(event["eventVersion"].as_u64().unwrap()).unwrap(),
        data: Json::of(&event["data"]).unwrap(),
        meta: Meta::default(),
        occurred_at: event["occurredAt"].as_str().unwrap().parse().unwrap(),
        message_seq: 0,
        message_epoch: 1,
        together: Vec::new(),
    }
}

fn is_of_a_process(event: &Value) -> bool {
    event["meta"]["actor"] == "daybook"
}

/// Asserts that the stored events are the acknowledged ones and those of processes, and that the state is their fold, with and
/// without a rebuild. Returns the number of events that are not of processes.
async fn compare(api: &Endpoint, registry: &Registry, path: &str, acknowledged: &[Option<Value>]) -> usize {
    let events = all(api, format!("{path}/events")).await;
    assert!(events.len() >= acknowledged.len(), "{path}: {events:?}");
    for (index, event) in events.iter().enumerate() {
        match acknowledged.get(index) {
            Some(Some(acknowledged)) => assert!(acknowledged.is_null() || acknowledged == event, "{path}: {event}"),
            _ => assert!(is_of_a_process(event), "{path}: {event}"),
        }
    }
    let own = events.iter().filter(|event| !is_of_a_process(event)).count();
    let model = registry.get(path.split('/').nth(1).unwrap()).unwrap();
    let events: Vec<_> = events.iter().map(recorded).collect();
    let folded = model.fold(model.before_first_event(), &events).unwrap();
    let expected: Value = model.state(&folded).unwrap().read().unwrap();
    for path in [path.to_owned(), format!("{path}?rebuild=true")] {
        let response = api.get(path.clone()).await;
        if model.is_deleted(&folded) {
            assert_eq!(response.status, 410, "{path}");
        } else {
            assert_eq!((response.status.as_u16(), version(&response)), (200, Some(events.len())), "{path}");
            assert_eq!(response.body["state"], expected, "{path}");
        }
    }
    own
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_requests_cause_no_server_error_and_store_only_acknowledged_events() {
    let count = number("GENERATED_REQUESTS").map_or(REQUESTS, |count| usize::try_from(count).unwrap());
    let seed = number("GENERATED_SEED").unwrap_or(20_261_128);
    let suite = Suite::start().await;
    let api = Endpoint::at(suite.stack.api_url());
    let registry = aggregates::registry().unwrap();
    let mut requests = Requests::new(seed);
    let mut acknowledged = Acknowledged::default();
    let mut statuses = BTreeMap::<u16, usize>::new();
    for n in 0..count {
        let made = requests.next();
        let response = api.send(&made).await;
        let status = response.status.as_u16();
        let judged = Document::get().check(made.method.as_str(), &made.path, status, &response.headers, &response.body);
        judged.unwrap_or_else(|misfit| panic!("request {n} of seed {seed}, {made:?}: {misfit}\n{}", response.body));
        assert!(status < 500, "request {n} of seed {seed}, {made:?}: {}", response.body);
        acknowledged.note(&made, &response);
        requests.learn(&made, version(&response));
        *statuses.entry(status).or_default() += 1;
    }
    println!("seed {seed}: {statuses:?}, {} aggregates", acknowledged.0.len());
    // With other aggregate types, the seed generates other requests and may miss rare cases.
    if registry.iter().map(Model::type_name).eq([
        "account",
        "course",
        "customer",
        "fulfilment",
        "order",
        "payment",
        "reservation",
        "shipment",
        "student",
        "subscription",
        "todo",
    ]) {
        for status in [200, 201, 304, 400, 404, 405, 409, 410, 413, 415, 422] {
            assert!(statuses.contains_key(&status), "no request got a {status}: {statuses:?}");
        }
    }

    let streams: Vec<_> = acknowledged.0.into_iter().filter(|(_, stream)| !stream.is_empty()).collect();
    for (path, stream) in &streams {
        compare(&api, &registry, path, stream).await;
    }
    // A new instance has an empty cache.
    let of_store = StoreSettings { feed_delay: Duration::ZERO, ..StoreSettings::new(suite.stack.table_name()) };
    let store = EventStore::new(&daybook_function_runtime::aws_config_at(suite.stack.dynamodb_url()), of_store);
    let router = daybook_command_handler::router(Api::new(aggregates::registry().unwrap(), store, settings()));
    let server = Server::start(router).await.unwrap();
    let cold = Endpoint::at(server.url());
    let mut expected = 0;
    for (path, stream) in &streams {
        expected += compare(&cold, &registry, path, stream).await;
    }
    let mut in_feeds = 0;
    for event_type in registry.iter().flat_map(Model::events) {
        let events = all(&cold, format!("/events?type={}&limit=1000", event_type.name)).await;
        in_feeds += events.iter().filter(|event| !is_of_a_process(event)).count();
    }
    assert_eq!(in_feeds, expected);
}
