//! The metrics of invocations, as CloudWatch reads them. They are collected for the whole process, so this is its only test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use daybook_consumer::testing::message;
use daybook_consumer::{BusMessage, Changes, Consumer, ConsumerFunction, HandleError, Rows};
use daybook_function_runtime::{Metrics, aws_config_at};
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_settings::Environment;
use serde_json::{Value, json};
use tokio::time::Instant;

/// The metrics with their units.
const NAMES: [(&str, &str); 9] = [
    ("AggregatesStopped", "Count"),
    ("LostMessagesApplied", "Count"),
    ("MessagesApplied", "Count"),
    ("MessagesDuplicate", "Count"),
    ("MessagesFailed", "Count"),
    ("MessagesStored", "Count"),
    ("MessagesUnreadable", "Count"),
    ("MessagesUnsettled", "Count"),
    ("OldestGapSeconds", "Seconds"),
];

struct Fails;

impl Consumer for Fails {
    const NAME: &'static str = "fails";
    const MAX_ATTEMPTS: u32 = 1;

    fn handle(&self, message: &BusMessage, _: &Rows<'_>) -> Result<Changes, HandleError> {
        if message.message_type == "Poison" { Err(message.unknown()) } else { Ok(Changes::none()) }
    }
}

/// The metrics since they were last written.
fn written(metrics: Metrics) -> Value {
    let mut written = Vec::new();
    metrics.write_to(&mut written);
    let mut line: Value = serde_json::from_slice(&written).unwrap_or_default();
    for metric in line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().into_iter().flatten() {
        let known = (metric["Name"].as_str().unwrap(), metric["Unit"].as_str().unwrap());
        assert!(NAMES.contains(&known), "{known:?}");
    }
    line.as_object_mut().map(|members| members.remove("_aws"));
    line
}

#[tokio::test]
async fn each_invocation_writes_what_became_of_its_messages() {
    let metrics = Metrics::collect(&Environment::from_iter([("METRICS_NAMESPACE", "Daybook/test")]));
    let engine = LocalDynamoDb::in_memory().await.unwrap();
    let function = ConsumerFunction::new(Fails, &aws_config_at(engine.url()), "daybook-consumer");
    function.table().create().await.unwrap();
    let deliver = async |messages: &[BusMessage]| {
        let body = |of: &BusMessage| {
            let metadata = serde_json::to_value(&of.metadata).unwrap();
            json!({"detail-type": of.message_type, "detail": {"metadata": metadata, "data": {}}}).to_string()
        };
        let records =
            messages.iter().enumerate().map(|(id, of)| json!({"messageId": id.to_string(), "body": body(of)}));
        let odd = json!({"messageId": "odd", "body": "{}"});
        let records: Vec<_> = records.chain([odd]).collect();
        function.handle(json!({"Records": records}), Instant::now() + Duration::from_secs(30)).await.unwrap();
        written(metrics)
    };
    let of = |aggregate: &str, number, name: &str| message(aggregate, number, (name, 1), json!({}));
    let all = [of("note/1", 1, "Noted"), of("note/1", 2, "Noted"), of("note/1", 4, "Noted"), of("note/2", 1, "Poison")];
    let expected = json!({
        "MessagesApplied": 2, "MessagesStored": 2, "MessagesFailed": 1, "MessagesUnreadable": 1, "MessagesUnsettled": 1,
    });
    assert_eq!(deliver(&all).await, expected);
    let expected = json!({"MessagesDuplicate": 1, "MessagesUnreadable": 1, "MessagesUnsettled": 1});
    assert_eq!(deliver(&all[..1]).await, expected);
    let restored = deliver(&[of("note/1", 2, "Noted").in_epoch(2, Some(1))]).await;
    assert_eq!((&restored["MessagesApplied"], &restored["LostMessagesApplied"]), (&json!(1), &json!(1)));

    deliver(&[of("note/3", 2, "Noted")]).await;
    function.handle(json!({"request": "report"}), Instant::now() + Duration::from_secs(30)).await.unwrap();
    let reported = written(metrics);
    assert_eq!(reported["AggregatesStopped"], json!([1.0]), "{reported}");
    assert!(reported["OldestGapSeconds"][0].as_f64().unwrap() < 60.0, "{reported}");
    // An instance does not repeat them with its next batch.
    assert_eq!(deliver(&all[..1]).await["AggregatesStopped"], Value::Null);

    let page = include_str!("../../../docs/consumers.md");
    for (name, _) in NAMES {
        assert!(page.contains(&format!("`{name}`")), "docs/consumers.md does not describe {name}");
    }
    let template = include_str!("../../../app/order-mails/template.yaml");
    for name in template.split("MetricName: ").skip(1).map(|rest| rest.split(',').next().unwrap()) {
        // Those of SQS and EventBridge.
        let of_aws = name.starts_with("Approximate") || name == "TriggeredRules";
        assert!(of_aws || NAMES.iter().any(|(one, _)| *one == name), "no metric is called {name}");
    }
    let alarm = |metric: &str, of: &str| {
        let mut parts = template.split("\n\n").filter(|part| part.contains(&format!("MetricName: {metric},")));
        parts.find(|part| part.contains(of)).unwrap_or_else(|| panic!("no alarm on {metric} of {of}"))
    };
    // The messages of an empty queue may have expired.
    for metric in ["ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"] {
        assert!(!alarm(metric, "UnsettledMessages.QueueName").contains("OKActions"), "{metric}");
    }
    assert!(alarm("TriggeredRules", "${AWS::StackName}-messages").contains("TreatMissingData: breaching"));
}
