//! The delays of a queue, by which deadlines fire to the second.

use std::time::Duration;

use daybook_operations::signed_calls::SQS;
use serde_json::json;
use tokio::time::Instant;

use crate::aws_calls::CallError;
use crate::check::{Check, CheckResult};
use crate::deployment::Deployment;

/// The delay of the message, in seconds.
const DELAY: u32 = 3;

pub(super) fn checks() -> Vec<Check> {
    vec![Check {
        name: "message-delay",
        relies_on: "a message with DelaySeconds is invisible until then, and no longer, and does not count as a message that waits",
        documented: "SQS Developer Guide, message timers; SQS API Reference, GetQueueAttributes",
        permissions: &[
            "sqs:CreateQueue, SendMessage, GetQueueAttributes, ReceiveMessage, DeleteQueue on daybook-check-*",
        ],
        run: |deployment| Box::pin(message_delay(deployment)),
    }]
}

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
