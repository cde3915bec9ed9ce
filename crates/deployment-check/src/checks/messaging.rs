//! The bus and queues: unknown buses, the errors of single entries, and the delays of a queue, by which deadlines fire to the second.

use std::time::Duration;

use daybook_operations::signed_calls::{EVENTBRIDGE, SQS};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::aws_calls::CallError;
use crate::check::{Check, CheckResult};
use crate::deployment::{CHECK_SOURCE, Deployment};

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check {
            name: "unknown-bus",
            relies_on: "PutEvents accepts entries for a bus that does not exist, and DescribeEventBus returns \
                        ResourceNotFoundException: commands that send messages therefore check the bus first",
            documented: "recorded by others: crates/local-aws/aws-behaviour.md, EventBridge",
            permissions: &["events:PutEvents and events:DescribeEventBus on any bus"],
            run: |deployment| Box::pin(unknown_bus(deployment)),
        },
        Check {
            name: "entry-errors",
            relies_on: "one bad entry fails alone: the response has status 200, the results in the order of the entries, and \
                        MalformedDetail for a detail that is not JSON; the relay retries and rejects entry by entry",
            documented: "EventBridge API Reference, PutEvents and PutEventsResultEntry",
            permissions: &["events:PutEvents"],
            run: |deployment| Box::pin(entry_errors(deployment)),
        },
        Check {
            name: "message-delay",
            relies_on: "a message with DelaySeconds is invisible until then, and no longer, and does not count as a message that waits",
            documented: "SQS Developer Guide, message timers; SQS API Reference, GetQueueAttributes",
            permissions: &[
                "sqs:CreateQueue, SendMessage, GetQueueAttributes, ReceiveMessage, DeleteQueue on daybook-check-*",
            ],
            run: |deployment| Box::pin(message_delay(deployment)),
        },
    ]
}

fn entry(bus: &str, detail: &str) -> Value {
    json!({"EventBusName": bus, "Source": CHECK_SOURCE, "DetailType": "Checked", "Detail": detail})
}

/// The result of each entry: its error code, or `accepted`.
async fn put_events(deployment: &Deployment, entries: Vec<Value>) -> Result<String, CallError> {
    let response = deployment.calls.call(EVENTBRIDGE, "PutEvents", json!({"Entries": entries})).await?;
    let result = |entry: &Value| match (entry["ErrorCode"].as_str(), entry["EventId"].as_str()) {
        (Some(code), _) => code.to_owned(),
        (None, Some(_)) => "accepted".to_owned(),
        (None, None) => "no result".to_owned(),
    };
    let results: Vec<_> = response["Entries"].as_array().into_iter().flatten().map(result).collect();
    Ok(format!("{} failed: {}", response["FailedEntryCount"], results.join(", ")))
}

async fn unknown_bus(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    let name = format!("daybook-check-{}", deployment.run_id);
    let put = put_events(deployment, vec![entry(&name, "{}")]).await?;
    let describe = json!({"Name": name});
    let described = match deployment.calls.call(EVENTBRIDGE, "DescribeEventBus", describe).await {
        Ok(_) => "found".to_owned(),
        Err(CallError::Service { code, .. }) => code,
        Err(error) => return Err(error),
    };
    let expected = "PutEvents: 0 failed: accepted; DescribeEventBus: ResourceNotFoundException";
    Ok(CheckResult::compare(expected, format!("PutEvents: {put}; DescribeEventBus: {described}")))
}

async fn entry_errors(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    let entries = ["{}", "not JSON", "{}"].map(|detail| entry(&deployment.bus, detail));
    let seen = put_events(deployment, entries.into()).await?;
    Ok(CheckResult::compare("1 failed: accepted, MalformedDetail, accepted", seen))
}

/// The delay of the message, in seconds.
const DELAY: u32 = 3;

async fn message_delay(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    let queue_url = deployment.delay_queue().await?;
    let sqs = async |operation, request| deployment.calls.call(SQS, operation, request).await;
    let (sent, limit) = (Instant::now(), deployment.timeout);
    let message = json!({"QueueUrl": queue_url, "MessageBody": "{}", "DelaySeconds": DELAY});
    sqs("SendMessage", message).await?;
    let names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
    let counts = sqs("GetQueueAttributes", json!({"QueueUrl": queue_url, "AttributeNames": names})).await?;
    let waiting = names.map(|name| counts["Attributes"][name].as_str().unwrap_or("no number").to_owned()).join(" and ");
    while sent.elapsed() < limit {
        let request = json!({"QueueUrl": queue_url, "WaitTimeSeconds": 1});
        let response = sqs("ReceiveMessage", request).await?;
        if response["Messages"].as_array().is_some_and(|messages| !messages.is_empty()) {
            let is_early = sent.elapsed() < Duration::from_secs(DELAY.into());
            let when = if is_early { "before" } else { "after" };
            return Ok(CheckResult::compare(
                format!("0 and 0 messages wait; received after {DELAY} s"),
                format!("{waiting} messages wait; received {when} {DELAY} s"),
            ));
        }
    }
    Ok(CheckResult::compare(format!("a message after {DELAY} s"), format!("no message within {limit:?}")))
}
