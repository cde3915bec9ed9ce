//! `PutEvents`, `SendMessage` and injected faults over HTTP, as a client sees them.

use daybook_local_aws::messaging::{Bus, Faults, Server};
use serde_json::{Value, json};

struct Client {
    bus: Bus,
    server: Server,
    http: reqwest::Client,
}

async fn client(faults: Value) -> Client {
    let bus = Bus::with("main", "dlq");
    bus.set_faults(serde_json::from_value::<Faults>(faults).unwrap());
    let server = Server::start(bus.router()).await.unwrap();
    Client { bus, server, http: reqwest::Client::new() }
}

impl Client {
    async fn call(&self, target: &str, body: &str) -> reqwest::Result<(u16, String, Value)> {
        let request = self.http.post(self.server.url()).header("x-amz-target", target).body(body.to_owned());
        let response = request.send().await?;
        let status = response.status().as_u16();
        let header = |name| response.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        assert!(!header("x-amzn-requestid").is_empty());
        let headers = format!("{} {}", header("content-type"), header("x-amzn-errortype"));
        Ok((status, headers.trim().to_owned(), response.json().await?))
    }

    async fn put_events(&self, entries: &[Value]) -> Value {
        let (status, headers, body) =
            self.call("AWSEvents.PutEvents", &json!({ "Entries": entries }).to_string()).await.unwrap();
        assert_eq!((status, headers.as_str()), (200, "application/x-amz-json-1.1"), "{body}");
        body
    }

    async fn failed_put_events(&self, entries: &[Value]) -> Value {
        let (status, headers, body) =
            self.call("AWSEvents.PutEvents", &json!({ "Entries": entries }).to_string()).await.unwrap();
        assert_eq!(headers, format!("application/x-amz-json-1.1 {}", body["__type"].as_str().unwrap()));
        json!([status, body["__type"]])
    }

    async fn send_message(&self, body: &str) -> Value {
        let request = json!({ "QueueUrl": "http://localhost/1/dlq", "MessageBody": body });
        let (status, headers, body) = self.call("AmazonSQS.SendMessage", &request.to_string()).await.unwrap();
        assert!(headers.starts_with("application/x-amz-json-1.0"), "{headers}");
        json!([status, body["__type"].as_str().map(|name| name.trim_start_matches("com.amazonaws.sqs#"))])
    }
}

fn entry(detail: &str) -> Value {
    json!({ "Source": "daybook", "DetailType": "TodoCreated", "Detail": detail })
}

fn with(member: &str, value: Value) -> Value {
    let mut entry = entry("{}");
    entry[member] = value;
    entry
}

fn codes(response: &Value) -> Vec<&str> {
    response["Entries"].as_array().unwrap().iter().map(|entry| entry["ErrorCode"].as_str().unwrap_or("-")).collect()
}

#[tokio::test]
async fn put_events_delivers_entries_unchanged() {
    let client = client(json!({})).await;
    let mut arrivals = client.bus.subscribe();
    let full = json!({
        "Time": 1_700_000_000.123, "Source": "daybook", "DetailType": "TodoCreated", "Detail": r#"{"é": 1.0 }"#,
        "Resources": ["todo/1"], "EventBusName": "main", "TraceHeader": "Root=1-5759e988-bd862e3fe1be46a994272793",
    });
    let response = client.put_events(&[full, entry("{}")]).await;
    assert_eq!(response["FailedEntryCount"], 0);

    let delivered = client.bus.delivered();
    assert_eq!(response["Entries"][0]["EventId"], delivered[0].event_id);
    assert_eq!(delivered[0].detail, r#"{"é": 1.0 }"#);
    assert_eq!(delivered[0].time.as_deref(), Some("2023-11-14T22:13:20.123Z"));
    assert_eq!(delivered[0].resources, ["todo/1"]);
    assert_eq!((delivered[0].event_bus_name.as_str(), delivered[1].event_bus_name.as_str()), ("main", "default"));
    assert_eq!(arrivals.recv().await.as_ref(), delivered.first());
    // The bytes of the first entry are 14 + 7 + 11 + 12 + 6, those of the second 7 + 11 + 2.
    assert_eq!((client.bus.put_events_calls()[0].entries, client.bus.put_events_calls()[0].bytes), (2, 70));
}

#[tokio::test]
async fn put_events_checks_each_entry() {
    let client = client(json!({})).await;
    let entries = [
        entry("{}"),
        with("Source", json!("")),
        with("DetailType", Value::Null),
        with("DetailType", json!("é".repeat(128))),
        with("DetailType", json!("x".repeat(129))),
        with("TraceHeader", json!("x".repeat(501))),
        with("Source", json!("aws.daybook")),
        entry("{"),
        entry("[]"),
    ];
    let response = client.put_events(&entries).await;
    assert_eq!(response["FailedEntryCount"], 7);
    let invalid = "InvalidArgument";
    let not_authorized = "NotAuthorizedForSourceException";
    let malformed = "MalformedDetail";
    assert_eq!(codes(&response), ["-", invalid, invalid, "-", invalid, invalid, not_authorized, malformed, malformed]);
    assert_eq!(client.bus.delivered().len(), 2);
}

#[tokio::test]
async fn put_events_checks_the_limits_of_the_request() {
    let client = client(json!({})).await;
    let validation = json!([400, "ValidationException"]);
    assert_eq!(client.failed_put_events(&[]).await, validation);
    assert_eq!(client.failed_put_events(&vec![entry("{}"); 11]).await, validation);
    // An entry without required members fails alone, even if there is no other.
    let response = client.put_events(&[json!({}), with("Detail", Value::Null)]).await;
    assert_eq!((codes(&response), &response["FailedEntryCount"]), (vec!["InvalidArgument"; 2], &json!(2)));

    let detail = |bytes: usize| format!(r#"{{"x":"{}"}}"#, "x".repeat(bytes - 8));
    let overhead = "daybook".len() + "TodoCreated".len();
    client.put_events(&[entry(&detail(1024 * 1024 - overhead - 1))]).await;
    assert_eq!(client.failed_put_events(&[entry(&detail(1024 * 1024 - overhead))]).await, validation);
    assert_eq!(client.bus.put_events_calls().last().map(|call| call.bytes), Some(1024 * 1024));
}

#[tokio::test]
async fn entry_for_an_unknown_bus_gets_an_id_and_is_dropped() {
    let client = client(json!({})).await;
    let arn = |name: &str| format!("arn:aws:events:us-east-1:000000000000:event-bus/{name}");
    let entries = ["nope", &arn("nope"), &arn("main"), "default"].map(|bus| with("EventBusName", json!(bus)));
    let response = client.put_events(&entries).await;
    assert_eq!((codes(&response), &response["FailedEntryCount"]), (vec!["-"; 4], &json!(0)));
    let ids = response["Entries"].as_array().unwrap().iter();
    assert!(ids.clone().all(|entry| entry["EventId"].is_string()));
    let arrived: Vec<_> = client.bus.delivered().into_iter().map(|entry| entry.event_bus_name).collect();
    assert_eq!(arrived, [arn("main"), "default".to_owned()]);
}

#[tokio::test]
async fn describe_event_bus_returns_existing_buses_only() {
    let client = client(json!({"describeEventBus": [{"http": 500}]})).await;
    let describe = async |request: Value| {
        let (status, _, body) = client.call("AWSEvents.DescribeEventBus", &request.to_string()).await.unwrap();
        let name_or_error = body.get("Name").or(body.get("__type")).unwrap().clone();
        (status, name_or_error, body["message"].clone())
    };
    assert_eq!(describe(json!({})).await.0, 500);
    assert_eq!(describe(json!({})).await, (200, json!("default"), Value::Null));
    assert_eq!(describe(json!({"Name": "main"})).await, (200, json!("main"), Value::Null));
    let arn = "arn:aws:events:us-east-1:000000000000:event-bus/main";
    assert_eq!(describe(json!({"Name": arn})).await, (200, json!("main"), Value::Null));
    let missing = (400, json!("ResourceNotFoundException"), json!("Event bus nope does not exist."));
    assert_eq!(describe(json!({"Name": "nope"})).await, missing);
}

#[tokio::test]
async fn unreadable_responses_can_be_injected() {
    let client = client(json!({"putEvents": [
        {"http": 408, "body": ""},
        {"body": "<html>", "acceptThenDrop": true},
    ]}))
    .await;
    for (status, text, delivered) in [(408, "", 0), (200, "<html>", 1)] {
        let request = client.http.post(client.server.url()).header("x-amz-target", "AWSEvents.PutEvents");
        let response = request.body(json!({"Entries": [entry("{}")]}).to_string()).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (status, text));
        assert_eq!(client.bus.delivered().len(), delivered);
    }
}

#[tokio::test]
async fn unknown_operation_or_unreadable_body_is_an_error() {
    let client = client(json!({})).await;
    let (status, _, body) = client.call("AWSEvents.PutPermission", "{}").await.unwrap();
    assert_eq!((status, &body["__type"]), (400, &json!("UnknownOperationException")));
    let (status, _, body) = client.call("AWSEvents.PutEvents", "{").await.unwrap();
    assert_eq!((status, &body["__type"]), (400, &json!("SerializationException")));
}

#[tokio::test]
async fn send_message_accepts_up_to_1_mib_of_text() {
    let client = client(json!({})).await;
    let request = json!({
        "QueueUrl": "http://localhost/1/dlq", "MessageBody": "{}",
        "MessageAttributes": {"code": {"DataType": "String", "StringValue": "MalformedDetail"}},
    });
    let (status, _, response) = client.call("AmazonSQS.SendMessage", &request.to_string()).await.unwrap();
    let message = client.bus.dead_letters().remove(0);
    assert_eq!((status, &response["MessageId"]), (200, &json!(message.message_id)));
    assert_eq!((message.body.as_str(), message.attributes["code"].as_str()), ("{}", "MalformedDetail"));

    assert_eq!(client.send_message(&"x".repeat(1024 * 1024)).await, json!([200, null]));
    assert_eq!(client.send_message(&"x".repeat(1024 * 1024 + 1)).await, json!([400, "InvalidParameterValueException"]));
    assert_eq!(client.send_message("").await, json!([400, "MissingRequiredParameterException"]));
    assert_eq!(client.send_message("\u{FFFF}").await, json!([400, "InvalidMessageContents"]));
    assert_eq!(client.bus.dead_letters().len(), 2);
}

#[tokio::test]
async fn scripted_faults_apply_to_one_call_each() {
    let client = client(json!({
        "putEvents": [
            {"http": 500},
            {"code": "ThrottlingException"},
            {"failEntries": [{"index": 1, "code": "InternalFailure"}]},
            {"acceptThenDrop": true},
            {"acceptThenDrop": true, "http": 503},
            {},
            {"http": 403, "code": "AccessDeniedException", "forever": true},
        ],
    }))
    .await;
    let two = [entry(r#"{"n":1}"#), entry(r#"{"n":2}"#)];
    assert_eq!(client.failed_put_events(&two).await, json!([500, "InternalFailure"]));
    assert_eq!(client.failed_put_events(&two).await, json!([400, "ThrottlingException"]));
    assert_eq!(client.bus.delivered().len(), 0);
    assert_eq!(codes(&client.put_events(&two).await), ["-", "InternalFailure"]);
    assert_eq!(client.bus.delivered().len(), 1);
    assert!(client.call("AWSEvents.PutEvents", &json!({ "Entries": two }).to_string()).await.is_err());
    assert_eq!(client.bus.delivered().len(), 3);
    assert_eq!(client.failed_put_events(&two).await, json!([503, "InternalFailure"]));
    assert_eq!(client.bus.delivered().len(), 5);
    client.put_events(&two).await;
    for _ in 0..2 {
        assert_eq!(client.failed_put_events(&two).await, json!([403, "AccessDeniedException"]));
    }
    let results: Vec<_> = client.bus.put_events_calls().iter().map(|call| call.results.len()).collect();
    assert_eq!(results, [0, 0, 2, 2, 2, 2, 0, 0]);
}

#[tokio::test]
async fn rule_applies_until_its_times_are_used_up() {
    let client = client(json!({
        "entries": [
            {"containing": "\"n\":2", "code": "ThrottlingException", "times": 2},
            {"containing": "TodoCreated", "code": "InternalFailure", "times": 1},
        ],
        "sendMessage": [{"http": 503}],
        "messages": [{"containing": "", "code": "QueueDoesNotExist"}],
    }))
    .await;
    let two = [entry(r#"{"n":1}"#), entry(r#"{"n":2}"#)];
    assert_eq!(codes(&client.put_events(&two).await), ["InternalFailure", "ThrottlingException"]);
    assert_eq!(codes(&client.put_events(&two).await), ["-", "ThrottlingException"]);
    assert_eq!(codes(&client.put_events(&two).await), ["-", "-"]);
    assert_eq!(client.send_message("x").await, json!([503, "InternalFailure"]));
    for _ in 0..2 {
        assert_eq!(client.send_message("x").await, json!([400, "QueueDoesNotExist"]));
    }
    assert!(serde_json::from_value::<Faults>(json!({"putEvent": []})).is_err());
}

#[tokio::test]
async fn dropped_server_closes_its_port() {
    let client = client(json!({})).await;
    client.put_events(&[entry("{}")]).await;
    let url = client.server.url().to_owned();
    drop(client.server);
    // The port is closed after the server's task has run again.
    while client.http.post(&url).send().await.is_ok() {
        tokio::task::yield_now().await;
    }
}
