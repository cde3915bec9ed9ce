//! The events of the folder `events`, in their order, and the template.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use daybook_consumer::ConsumerFunction;
use daybook_function_runtime::aws_config_at;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_order_mails::OrderMails;
use serde_json::{Value, json};
use tokio::time::Instant;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("events")
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[tokio::test]
async fn events_have_the_expected_responses_and_mails() {
    let engine = LocalDynamoDb::in_memory().await.unwrap();
    let function = ConsumerFunction::new(OrderMails, &aws_config_at(engine.url()), "order-mails-test");
    function.table().create().await.unwrap();
    function.table().warm().await.unwrap();
    let mut events: Vec<_> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    events.retain(|path| !path.to_str().unwrap().ends_with(".answer.json"));
    events.sort();
    assert_eq!(events.len(), 4);
    for path in events {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut response = function.handle(read(&path), deadline).await.unwrap();
        if let Some(since) = response.pointer_mut("/aggregates/0/since") {
            *since = "<time>".into();
        }
        assert_eq!(response, read(&path.with_extension("answer.json")), "{}", path.display());
    }
    let rows = function.table().partition("customer/alice").await.unwrap();
    let mails: Vec<_> = rows.iter().filter_map(|(_, row)| row["text"].as_str()).collect();
    let expected = ["Thank you for order 7, your number 1.", "Order 7 is on its way, its tracking number is T-1."];
    assert_eq!((mails, &rows[0].1), (expected.to_vec(), &json!({"orders": 1})));
}

/// The template, in which `!Ref x`, `!GetAtt x` and `!Sub x` are replaced by the text x.
fn template() -> Value {
    fn plain(yaml: serde_yaml_ng::Value) -> Value {
        use serde_yaml_ng::Value as Yaml;
        match yaml {
            Yaml::Tagged(tagged) => plain(tagged.value),
            Yaml::Sequence(elements) => elements.into_iter().map(plain).collect(),
            Yaml::Mapping(members) => {
                members.into_iter().map(|(name, value)| (name.as_str().unwrap().to_owned(), plain(value))).collect()
            }
            scalar => serde_json::to_value(scalar).unwrap(),
        }
    }
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("template.yaml")).unwrap();
    plain(serde_yaml_ng::from_str(&text).unwrap())
}

#[test]
fn rule_selects_all_messages_of_the_aggregate_type() {
    let pattern = &template()["Resources"]["Orders"]["Properties"]["EventPattern"];
    // A rule that selects names of messages would make a gap of each other message.
    assert_eq!(*pattern, json!({"source": ["EventSource"], "detail": {"metadata": {"aggregateType": ["order"]}}}));
}

#[test]
fn schedule_sends_a_request_that_the_function_reads() {
    let input = &template()["Resources"]["Function"]["Properties"]["Events"]["Report"]["Properties"]["Input"];
    assert_eq!(serde_json::from_str::<Value>(input.as_str().unwrap()).unwrap(), read(&folder().join("2-report.json")));
}

#[test]
fn role_grants_only_the_calls_of_a_consumer() {
    let policies = &template()["Resources"]["Role"]["Properties"]["Policies"][0];
    let granted = policies["PolicyDocument"]["Statement"].as_array().unwrap().iter().map(|statement| {
        let condition = statement["Condition"]["ForAnyValue:StringEquals"]["dynamodb:EnclosingOperation"].clone();
        (statement["Action"].clone(), statement["Resource"].clone(), condition)
    });
    let expected = [
        (json!(["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query"]), json!("Table.Arn"), Value::Null),
        (
            json!(["dynamodb:ConditionCheckItem", "dynamodb:DeleteItem", "dynamodb:PutItem"]),
            json!("Table.Arn"),
            json!(["TransactWriteItems"]),
        ),
        (
            json!(["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"]),
            json!("Messages.Arn"),
            Value::Null,
        ),
        (json!(["logs:CreateLogStream", "logs:PutLogEvents"]), json!("Logs.Arn"), Value::Null),
    ];
    assert_eq!(granted.collect::<Vec<_>>(), expected);
}
