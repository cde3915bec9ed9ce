//! Rules over HTTP: events that match a rule reach its queue.

use std::time::Duration;

use daybook_local_aws::clock::LocalClock;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_local_aws::messaging::{Bus, EventPattern, QueueTarget, Server};
use daybook_local_aws::state::StackState;
use serde_json::{Value, json};

async fn call(server: &Server, target: &str, request: Value) -> (u16, Value) {
    let call = reqwest::Client::new().post(server.url()).header("x-amz-target", target).body(request.to_string());
    let response = call.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn events_that_match_a_rule_reach_its_queue_until_its_targets_are_removed() {
    let bus = Bus::with("main", "dlq");
    let server = Server::start(bus.router()).await.unwrap();
    let expect = async |target: &str, request: Value| {
        let (status, body) = call(&server, target, request).await;
        assert_eq!(status, 200, "{target}: {body}");
        body
    };
    let pattern = json!({"source": ["daybook"], "resources": [{"prefix": "todo/"}]}).to_string();
    let rule = json!({"Name": "r", "EventBusName": "main", "EventPattern": pattern});
    let created = expect("AWSEvents.PutRule", rule.clone()).await;
    assert_eq!(created["RuleArn"], "arn:aws:events:us-east-1:000000000000:rule/main/r");
    let url = expect("AmazonSQS.CreateQueue", json!({"QueueName": "seen"})).await["QueueUrl"].clone();
    let attributes = json!({"QueueUrl": url, "AttributeNames": ["QueueArn"]});
    let arn = expect("AmazonSQS.GetQueueAttributes", attributes).await["Attributes"]["QueueArn"].clone();
    let targets = json!({"Rule": "r", "EventBusName": "main", "Targets": [{"Id": "q", "Arn": arn}]});
    expect("AWSEvents.PutTargets", targets).await;

    let put = async |bus: &str, resource: &str| {
        let entry = json!({
            "EventBusName": bus, "Source": "daybook", "DetailType": "T", "Detail": "{\"n\":1}", "Resources": [resource],
        });
        expect("AWSEvents.PutEvents", json!({"Entries": [entry]})).await;
    };
    let receive = async || {
        let received = expect("AmazonSQS.ReceiveMessage", json!({"QueueUrl": url, "MaxNumberOfMessages": 10})).await;
        let messages = received["Messages"].as_array().cloned().unwrap_or_default();
        messages
            .iter()
            .map(|message| serde_json::from_str(message["Body"].as_str().unwrap()).unwrap())
            .collect::<Vec<Value>>()
    };
    for (bus, resource) in [("main", "todo/1"), ("main", "account/1"), ("default", "todo/2")] {
        put(bus, resource).await;
    }
    let seen = receive().await;
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(
        (&seen[0]["detail-type"], &seen[0]["resources"], &seen[0]["detail"]),
        (&json!("T"), &json!(["todo/1"]), &json!({"n": 1}))
    );
    // These messages are not dead-letter messages.
    assert!(bus.dead_letters().is_empty());

    assert_eq!(call(&server, "AWSEvents.DeleteRule", rule.clone()).await.1["__type"], "ValidationException");
    expect("AWSEvents.RemoveTargets", json!({"Rule": "r", "EventBusName": "main", "Ids": ["q"]})).await;
    expect("AWSEvents.DeleteRule", rule).await;
    put("main", "todo/3").await;
    assert!(receive().await.is_empty());
    expect("AmazonSQS.DeleteQueue", json!({"QueueUrl": url})).await;
    let (status, error) = call(&server, "AmazonSQS.ReceiveMessage", json!({"QueueUrl": url})).await;
    assert_eq!((status, &error["__type"]), (400, &json!("com.amazonaws.sqs#QueueDoesNotExist")));
}

#[tokio::test]
async fn rule_of_an_unknown_bus_or_with_a_wrong_pattern_is_rejected() {
    let server = Server::start(Bus::in_memory().router()).await.unwrap();
    let put = async |bus: &str, pattern: &str| {
        let rule = json!({"Name": "r", "EventBusName": bus, "EventPattern": pattern});
        call(&server, "AWSEvents.PutRule", rule).await.1["__type"].clone()
    };
    assert_eq!(put("nowhere", r#"{"source":["a"]}"#).await, "ResourceNotFoundException");
    assert_eq!(put("default", r#"{"source":"a"}"#).await, "InvalidEventPatternException");
    assert_eq!(put("default", r#"{"source":[{"glob":"a"}]}"#).await, "InvalidEventPatternException");
    let targets = json!({"Rule": "none", "Targets": []});
    assert_eq!(call(&server, "AWSEvents.PutTargets", targets).await.1["__type"], "ResourceNotFoundException");
}

/// Sends an event of this number to the bus `main`.
async fn put_event(server: &Server, number: u32) {
    let detail = json!({"n": number}).to_string();
    let entry = json!({"EventBusName": "main", "Source": "daybook", "DetailType": "T", "Detail": detail});
    assert_eq!(call(server, "AWSEvents.PutEvents", json!({"Entries": [entry]})).await.0, 200);
}

#[tokio::test]
async fn messages_of_rules_survive_a_restart_until_they_are_deleted_or_dead() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("daybook.db");
    let short = Duration::from_millis(1);
    let number = |body: &str| serde_json::from_str::<Value>(body).unwrap()["detail"]["n"].clone();
    for start in 0..3 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let database = LocalDynamoDb::start(Some(&data), listener).unwrap();
        let file = StackState::open(&data).unwrap();
        let bus = Bus::new(file.clone(), LocalClock::default()).unwrap();
        bus.create_event_bus("main");
        let pattern = EventPattern::new(&json!({"source": ["daybook"]})).unwrap();
        bus.create_rule("main", "r", pattern, &QueueTarget { queue: "seen", max_receives: 2 });
        let server = Server::start(bus.router()).await.unwrap();
        let receive = async || bus.receive("seen", 10, short).await.unwrap();
        match start {
            0 => {
                put_event(&server, 1).await;
                put_event(&server, 2).await;
                let received = receive().await;
                bus.delete("seen", &received[0]).await;
            }
            1 => {
                for _ in 0..2 {
                    let received = receive().await;
                    assert_eq!(received.iter().map(|message| number(&message.body)).collect::<Vec<_>>(), [2]);
                    tokio::time::sleep(short * 5).await;
                }
                // The third receive moves the message.
                put_event(&server, 3).await;
                assert_eq!(number(&receive().await[0].body), 3);
                assert_eq!((bus.message_counts("seen-dlq"), bus.dead_letters().len()), ((1, 0), 0));
            }
            _ => {
                let dead = bus.receive("seen-dlq", 10, short).await.unwrap();
                assert_eq!(dead.iter().map(|message| number(&message.body)).collect::<Vec<_>>(), [2]);
                assert_eq!(number(&receive().await[0].body), 3);
            }
        }
        server.stop(Duration::from_secs(1)).await;
        file.close();
        database.stop(Duration::from_secs(1)).await;
    }
}
