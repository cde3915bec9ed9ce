//! A queue over HTTP, as a client sees it: received messages are hidden, and deleted messages are not received again.

use std::time::Duration;

use daybook_local_aws::clock::{Ahead, LocalClock};
use daybook_local_aws::messaging::{Bus, Faults, Server};
use daybook_local_aws::state::StackState;
use serde_json::{Value, json};

const QUEUE: &str = "http://localhost/1/dlq";

struct Client {
    bus: Bus,
    server: Server,
    http: reqwest::Client,
}

/// A queue with these messages.
async fn client(bodies: &[&str]) -> Client {
    let client = client_of(Bus::with("main", "dlq")).await;
    for body in bodies {
        client.call("SendMessage", json!({"MessageBody": body})).await;
    }
    client
}

async fn client_of(bus: Bus) -> Client {
    let server = Server::start(bus.router()).await.unwrap();
    Client { bus, server, http: reqwest::Client::new() }
}

impl Client {
    async fn try_call(&self, operation: &str, mut request: Value) -> reqwest::Result<(u16, Value)> {
        if request["QueueUrl"].is_null() {
            request["QueueUrl"] = QUEUE.into();
        }
        let call = self.http.post(self.server.url()).header("x-amz-target", format!("AmazonSQS.{operation}"));
        let response = call.body(request.to_string()).send().await?;
        Ok((response.status().as_u16(), response.json().await?))
    }

    async fn call(&self, operation: &str, request: Value) -> Value {
        let (status, answer) = self.try_call(operation, request).await.unwrap();
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// The code that SDKs report. The body has the name of the error.
    async fn error(&self, operation: &str, mut request: Value) -> String {
        if request["QueueUrl"].is_null() {
            request["QueueUrl"] = QUEUE.into();
        }
        let call = self.http.post(self.server.url()).header("x-amz-target", format!("AmazonSQS.{operation}"));
        let response = call.body(request.to_string()).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 400);
        let header = response.headers().get("x-amzn-query-error").unwrap().to_str().unwrap().to_owned();
        let answer: Value = response.json().await.unwrap();
        let name = answer["__type"].as_str().unwrap().strip_prefix("com.amazonaws.sqs#").unwrap();
        let code = header.strip_suffix(";Sender").unwrap();
        let simple = code.trim_start_matches("AWS.SimpleQueueService.");
        assert!(name.starts_with(simple) || ["QueueDoesNotExist", "MissingRequiredParameterException"].contains(&name));
        code.to_owned()
    }

    /// Bodies and receipt handles.
    async fn receive(&self, request: Value) -> Vec<(String, String)> {
        let answer = self.call("ReceiveMessage", request).await;
        let text = |message: &Value, name: &str| message[name].as_str().unwrap().to_owned();
        let messages = answer["Messages"].as_array().cloned().unwrap_or_default();
        messages.iter().map(|message| (text(message, "Body"), text(message, "ReceiptHandle"))).collect()
    }

    async fn bodies(&self, request: Value) -> Vec<String> {
        self.receive(request).await.into_iter().map(|(body, _)| body).collect()
    }

    async fn counts(&self) -> Value {
        let answer = self.call("GetQueueAttributes", json!({"AttributeNames": ["All"]})).await;
        let count = |name: &str| answer["Attributes"][name].as_str().unwrap().to_owned();
        assert_eq!(count("ApproximateNumberOfMessagesDelayed"), "0");
        json!([count("ApproximateNumberOfMessages"), count("ApproximateNumberOfMessagesNotVisible")])
    }
}

#[tokio::test]
async fn delayed_message_is_visible_when_the_clock_has_passed_its_delay() {
    let clock = LocalClock::default();
    let bus = Bus::new(StackState::in_memory().unwrap(), clock.clone()).unwrap();
    bus.create_queue("dlq");
    let client = client_of(bus).await;
    for (body, delay) in [("a", 900), ("b", 0), ("c", 60)] {
        client.call("SendMessage", json!({"MessageBody": body, "DelaySeconds": delay})).await;
    }
    let names = ["ApproximateNumberOfMessagesDelayed", "ApproximateNumberOfMessages"];
    let counts = client.call("GetQueueAttributes", json!({"AttributeNames": names})).await;
    assert_eq!(counts["Attributes"], json!({names[0]: "2", names[1]: "1"}));
    assert_eq!(client.bodies(json!({"MaxNumberOfMessages": 10})).await, ["b"]);

    // The receiver that waits notices the move.
    let wait = json!({"MaxNumberOfMessages": 10, "WaitTimeSeconds": 20});
    let move_clock = async |seconds| {
        tokio::time::sleep(Duration::from_millis(50)).await;
        clock.advance_to(Ahead { seconds });
        client.bus.clock_moved();
    };
    for (ahead, body) in [(60, "c"), (901, "a")] {
        assert_eq!(tokio::join!(client.bodies(wait.clone()), move_clock(ahead)).0, [body]);
    }
    assert_eq!(client.bus.message_counts("dlq"), (0, 3));
}

#[tokio::test]
async fn delay_is_at_most_15_minutes() {
    let client = client(&[]).await;
    let too_long = json!({"MessageBody": "a", "DelaySeconds": 901});
    assert_eq!(client.error("SendMessage", too_long).await, "InvalidParameterValue");
    assert_eq!(client.bus.queued().len(), 0);
}

#[tokio::test]
async fn received_message_is_hidden_until_shown_or_deleted() {
    let client = client(&["a", "b", "c"]).await;
    let first = client.receive(json!({})).await;
    assert_eq!(first[0].0, "a");
    assert_eq!(client.bodies(json!({"MaxNumberOfMessages": 10})).await, ["b", "c"]);
    assert_eq!(client.bodies(json!({"MaxNumberOfMessages": 10})).await, [""; 0]);
    assert_eq!(client.counts().await, json!(["0", "3"]));

    let show = json!({"ReceiptHandle": first[0].1, "VisibilityTimeout": 0});
    client.call("ChangeMessageVisibility", show.clone()).await;
    assert_eq!(client.counts().await, json!(["1", "2"]));
    // The latest receipt can hide the message again, although it is visible.
    client.call("ChangeMessageVisibility", json!({"ReceiptHandle": first[0].1, "VisibilityTimeout": 60})).await;
    assert_eq!(client.counts().await, json!(["0", "3"]));
    client.call("ChangeMessageVisibility", show.clone()).await;

    let again = client.receive(json!({})).await;
    assert_eq!(again[0].0, "a");
    // An older receipt deletes nothing and is not an error.
    client.call("DeleteMessage", json!({"ReceiptHandle": first[0].1})).await;
    assert_eq!(client.bus.queued().len(), 3);
    assert_eq!(client.error("ChangeMessageVisibility", show).await, "InvalidParameterValue");
    client.call("DeleteMessage", json!({"ReceiptHandle": again[0].1})).await;
    client.call("DeleteMessage", json!({"ReceiptHandle": again[0].1})).await;
    let hide = json!({"ReceiptHandle": again[0].1, "VisibilityTimeout": 60});
    assert_eq!(client.error("ChangeMessageVisibility", hide).await, "InvalidParameterValue");
    let left: Vec<_> = client.bus.queued().into_iter().map(|message| message.body).collect();
    assert_eq!(left, ["b", "c"]);
    assert_eq!(client.bus.dead_letters().len(), 3);
}

#[tokio::test]
async fn receive_message_returns_requested_attributes() {
    let client = client(&[]).await;
    let attribute = json!({"code": {"DataType": "String", "StringValue": "x"}});
    client.call("SendMessage", json!({"MessageBody": "a", "MessageAttributes": attribute})).await;
    let plain = client.call("ReceiveMessage", json!({"VisibilityTimeout": 0})).await;
    assert_eq!(
        (&plain["Messages"][0]["Attributes"], &plain["Messages"][0]["MessageAttributes"]),
        (&json!(null), &json!(null))
    );
    let all = json!({"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]});
    let full = client.call("ReceiveMessage", all).await;
    assert_eq!(full["Messages"][0]["Attributes"]["ApproximateReceiveCount"], "2");
    assert!(full["Messages"][0]["Attributes"]["SentTimestamp"].as_str().unwrap().parse::<u64>().is_ok());
    assert_eq!(full["Messages"][0]["MessageAttributes"], attribute);
    assert_eq!(full["Messages"][0]["MessageId"], client.bus.queued()[0].message_id);
}

#[tokio::test]
async fn hidden_message_shows_again_after_its_timeout() {
    let client = client(&["a"]).await;
    let receipt = client.receive(json!({"VisibilityTimeout": 600})).await.remove(0).1;
    assert_eq!(client.bodies(json!({})).await, [""; 0]);
    client.call("ChangeMessageVisibility", json!({"ReceiptHandle": receipt, "VisibilityTimeout": 1})).await;
    // The call waits until the message is visible.
    assert_eq!(client.bodies(json!({"WaitTimeSeconds": 20})).await, ["a"]);
    assert_eq!(
        client.error("ChangeMessageVisibility", json!({"ReceiptHandle": receipt, "VisibilityTimeout": 9})).await,
        "InvalidParameterValue"
    );
}

#[tokio::test]
async fn every_operation_on_an_unknown_queue_is_an_error() {
    let client = client(&["a"]).await;
    let handle = client.receive(json!({})).await.remove(0).1;
    let entries = json!([{"Id": "1", "ReceiptHandle": handle, "VisibilityTimeout": 0}]);
    for (operation, mut request) in [
        ("SendMessage", json!({"MessageBody": "b"})),
        ("ReceiveMessage", json!({})),
        ("DeleteMessage", json!({"ReceiptHandle": handle})),
        ("DeleteMessageBatch", json!({ "Entries": entries })),
        ("ChangeMessageVisibility", json!({"ReceiptHandle": handle, "VisibilityTimeout": 0})),
        ("ChangeMessageVisibilityBatch", json!({ "Entries": entries })),
        ("GetQueueAttributes", json!({"AttributeNames": ["All"]})),
    ] {
        request["QueueUrl"] = "http://localhost/1/other".into();
        let code = client.error(operation, request).await;
        assert_eq!(code, "AWS.SimpleQueueService.NonExistentQueue", "{operation}");
    }
    assert_eq!((client.bus.queued().len(), client.bus.dead_letters().len()), (1, 1));
}

#[tokio::test]
async fn queue_is_the_same_at_every_host() {
    let client = client(&["a"]).await;
    assert_eq!(client.bodies(json!({"QueueUrl": "http://host.docker.internal:8001/000000000000/dlq"})).await, ["a"]);
}

#[tokio::test]
async fn waiting_receive_message_returns_a_message_when_it_is_sent() {
    let client = client(&[]).await;
    let send = async { client.call("SendMessage", json!({"MessageBody": "a"})).await };
    let (bodies, _) = tokio::join!(client.bodies(json!({"WaitTimeSeconds": 20})), send);
    assert_eq!(bodies, ["a"]);
}

#[tokio::test]
async fn receive_message_returns_messages_of_its_queue_only() {
    let client = client(&["a"]).await;
    client.bus.create_queue("other");
    assert_eq!(client.bodies(json!({"QueueUrl": "http://localhost/1/other"})).await, [""; 0]);
    assert_eq!(client.bodies(json!({})).await, ["a"]);
}

#[tokio::test]
async fn batch_deletes_or_shows_several_messages() {
    let client = client(&["a", "b", "c"]).await;
    let receipts = client.receive(json!({"MaxNumberOfMessages": 10})).await;
    let entry = |id: &str, handle: &str| json!({"Id": id, "ReceiptHandle": handle});
    let entries = [entry("0", &receipts[0].1), entry("1", "no handle")];
    let answer = client.call("DeleteMessageBatch", json!({ "Entries": entries })).await;
    assert_eq!(answer["Successful"], json!([{"Id": "0"}]));
    assert_eq!(
        (&answer["Failed"][0]["Id"], &answer["Failed"][0]["Code"]),
        (&json!("1"), &json!("ReceiptHandleIsInvalid"))
    );
    assert_eq!(client.counts().await, json!(["0", "2"]));

    let mut shown = entry("1", &receipts[1].1);
    shown["VisibilityTimeout"] = 0.into();
    let answer =
        client.call("ChangeMessageVisibilityBatch", json!({ "Entries": [shown, entry("2", &receipts[2].1)] })).await;
    assert_eq!(answer["Failed"][0]["Code"], "MissingParameter");
    assert_eq!(client.counts().await, json!(["1", "1"]));
}

#[tokio::test]
async fn queue_operations_check_their_limits() {
    let client = client(&["a"]).await;
    for request in [
        json!({"MaxNumberOfMessages": 0}),
        json!({"MaxNumberOfMessages": 11}),
        json!({"VisibilityTimeout": 43_201}),
        json!({"WaitTimeSeconds": 21}),
    ] {
        assert_eq!(client.error("ReceiveMessage", request).await, "InvalidParameterValue");
    }
    let handle = client.receive(json!({"VisibilityTimeout": 43_200})).await.remove(0).1;
    assert_eq!(client.error("DeleteMessage", json!({"ReceiptHandle": "x"})).await, "ReceiptHandleIsInvalid");
    assert_eq!(
        client.error("ChangeMessageVisibility", json!({"ReceiptHandle": handle, "VisibilityTimeout": 43_201})).await,
        "InvalidParameterValue"
    );
    let entries = |ids: &[&str]| {
        let entries: Vec<_> = ids.iter().map(|id| json!({"Id": id, "ReceiptHandle": handle})).collect();
        json!({ "Entries": entries })
    };
    for (ids, code) in [
        (vec![], "AWS.SimpleQueueService.EmptyBatchRequest"),
        (
            vec!["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"],
            "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
        ),
        (vec!["0", "0"], "AWS.SimpleQueueService.BatchEntryIdsNotDistinct"),
        (vec!["a b"], "AWS.SimpleQueueService.InvalidBatchEntryId"),
    ] {
        assert_eq!(client.error("DeleteMessageBatch", entries(&ids)).await, code);
    }
    assert_eq!(client.bus.queued().len(), 1);
}

#[tokio::test]
async fn scripted_faults_fail_queue_calls() {
    let client = client(&["a", "b"]).await;
    let faults = json!({
        "receiveMessage": [{"http": 500}, {"acceptThenDrop": true}, {"body": "{}"}],
        "deleteMessage": [{"http": 503}, {"failEntries": [{"index": 0, "code": "InternalError"}]}, {"acceptThenDrop": true}],
    });
    client.bus.set_faults(serde_json::from_value::<Faults>(faults).unwrap());
    assert_eq!(client.try_call("ReceiveMessage", json!({})).await.unwrap().0, 500);
    assert!(client.try_call("ReceiveMessage", json!({"VisibilityTimeout": 0})).await.is_err());
    assert_eq!(client.call("ReceiveMessage", json!({})).await, json!({}));
    let receipts = client.receive(json!({"MaxNumberOfMessages": 10})).await;
    let entries: Vec<_> = receipts.iter().map(|(body, handle)| json!({"Id": body, "ReceiptHandle": handle})).collect();
    let entries = json!({ "Entries": entries });
    assert_eq!(client.try_call("DeleteMessageBatch", entries.clone()).await.unwrap().0, 503);
    assert_eq!(client.bus.queued().len(), 2);
    let answer = client.call("DeleteMessageBatch", entries.clone()).await;
    assert_eq!((&answer["Failed"][0]["Id"], &answer["Successful"]), (&json!("a"), &json!([{"Id": "b"}])));
    assert!(client.try_call("DeleteMessageBatch", entries).await.is_err());
    assert_eq!(client.bus.queued().len(), 0);
}
