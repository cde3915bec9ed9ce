//! From a row in the table to the bus and the dead-letter queue.

use std::time::Duration;

use daybook_operations::signed_calls::SQS;
use daybook_stream_relay::DeadLetter;
use daybook_table::{OutboxItem, keys};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::aws_calls::CallError;
use crate::check::{Check, CheckResult};
use crate::deployment::{Deployment, MESSAGE_TYPE};

/// How long the bus is watched for messages that must not come, after one that must: in AWS, and with the local stack.
const QUIET: Duration = Duration::from_secs(10);
const QUIET_LOCAL: Duration = Duration::from_secs(1);

const NOT_JSON: &str = "not JSON";

/// How long the dead-letter messages of others stay hidden that this check receives, in seconds.
const HIDDEN_SECONDS: u32 = 5;

pub(super) fn checks() -> Vec<Check> {
    const OBSERVER: &str = "events:PutRule, PutTargets, RemoveTargets, DeleteRule, PutEvents";
    const QUEUE: &str =
        "sqs:CreateQueue, GetQueueAttributes, ReceiveMessage, DeleteMessage, DeleteQueue on daybook-check-*";
    vec![
        Check {
            name: "stream-delivery",
            relies_on: "the stream delivers a new outbox row to the relay, and the bus delivers its message with the same \
                        source, type, resource and detail",
            documented: "Lambda Developer Guide, DynamoDB event source; EventBridge User Guide, event structure",
            permissions: &["dynamodb:PutItem", OBSERVER, QUEUE],
            run: |deployment| Box::pin(stream_delivery(deployment)),
        },
        Check {
            name: "only-new-outbox-rows",
            relies_on: "only inserted outbox rows become messages: the filter of the mapping and the relay leave out other rows, \
                        changes and deletions",
            documented: "Lambda Developer Guide, event filtering",
            permissions: &["dynamodb:PutItem", "dynamodb:DeleteItem", OBSERVER, QUEUE],
            run: |deployment| Box::pin(only_new_outbox_rows(deployment)),
        },
        Check {
            name: "dead-letter-queue",
            relies_on: "a message that the bus rejects permanently is sent to the dead-letter queue whole, with the bus's error \
                        code, and later messages of the shard are delivered",
            documented: "EventBridge API Reference, PutEventsResultEntry; SQS API Reference, SendMessage",
            permissions: &[
                "dynamodb:PutItem",
                "sqs:ReceiveMessage, DeleteMessage, ChangeMessageVisibility on the dead-letter queue",
                OBSERVER,
                QUEUE,
            ],
            run: |deployment| Box::pin(dead_letter_queue(deployment)),
        },
    ]
}

/// The detail of a message, with a text that a careless copy would change.
fn detail(number: u64) -> Value {
    json!({"metadata": {"messageSeq": number}, "data": {"text": "ä \" \\ \u{2028} <&>", "amount": 9_007_199_254_740_991_i64}})
}

async fn stream_delivery(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    deployment.observe().await?;
    let aggregate = deployment.aggregate("stream-delivery");
    let row = deployment.outbox_row(&aggregate, 1, &detail(1).to_string());
    deployment.put_outbox_row(&row).await?;
    let (written, limit) = (Instant::now(), deployment.timeout);
    let messages = deployment.messages_of(&aggregate, limit, |messages| !messages.is_empty()).await?;
    let Some(message) = messages.first() else {
        return Ok(CheckResult::compare(format!("a message within {limit:?}"), "no message"));
    };
    let parts = |message: &Value| {
        ["source", "detail-type", "resources", "detail"].map(|part| message[part].to_string()).join(" ")
    };
    let expected = json!({
        "source": deployment.source, "detail-type": MESSAGE_TYPE, "resources": [aggregate.to_string()],
        "detail": detail(1),
    });
    Ok(match parts(message) == parts(&expected) {
        true => CheckResult::AsExpected { seen: format!("the message, after {} ms", written.elapsed().as_millis()) },
        false => CheckResult::compare(parts(&expected), parts(message)),
    })
}

async fn only_new_outbox_rows(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    deployment.observe().await?;
    let aggregate = deployment.aggregate("only-new-outbox-rows");
    let expected = deployment.outbox_row(&aggregate, 1, &detail(1).to_string());
    // Rows that differ from an outbox row in the sort key only.
    for sk in [keys::event_sk(2), format!("CHECK#{}", keys::outbox_sk(2, 0)), keys::outbox_sk(2, 0).to_lowercase()] {
        let other = deployment.outbox_row(&aggregate, 2, &detail(2).to_string());
        deployment.put_outbox_row(&OutboxItem { sk, ..other }).await?;
    }
    deployment.put_outbox_row(&expected).await?;
    let limit = deployment.timeout;
    deployment.messages_of(&aggregate, limit, |messages| !messages.is_empty()).await?;
    deployment.put_outbox_row(&OutboxItem { detail: detail(3).to_string(), ..expected.clone() }).await?;
    deployment.delete(&expected.pk, &expected.sk).await?;
    let quiet = if deployment.stack.is_local() { QUIET_LOCAL } else { QUIET };
    let messages = deployment.messages_of(&aggregate, quiet, |_| false).await?;
    // A message may be delivered more than once.
    let mut numbers: Vec<_> =
        messages.iter().map(|message| message["detail"]["metadata"]["messageSeq"].to_string()).collect();
    numbers.dedup();
    Ok(CheckResult::compare("messages 1", format!("messages {}", numbers.join(", "))))
}

async fn dead_letter_queue(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    deployment.observe().await?;
    let (bad, good) = (deployment.aggregate("dead-letter"), deployment.aggregate("dead-letter-after"));
    let row = deployment.outbox_row(&bad, 1, NOT_JSON);
    deployment.put_outbox_row(&row).await?;
    let after = deployment.outbox_row(&good, 1, &detail(1).to_string());
    deployment.put_outbox_row(&after).await?;
    let limit = deployment.timeout;
    let dead_letter = match receive_dead_letter(deployment, &row.message_id, limit).await? {
        Some(DeadLetter { message: Some(message), error, .. }) => {
            let whole = if message == row { "the whole message" } else { "another message" };
            format!("{whole} with {}", error.map_or("no error".to_owned(), |error| error.code))
        }
        Some(_) => "a message that cannot be read".to_owned(),
        None => format!("no dead-letter message within {limit:?}"),
    };
    let delivered = !deployment.messages_of(&good, limit, |messages| !messages.is_empty()).await?.is_empty();
    let after = if delivered { "later messages are delivered" } else { "no later message is delivered" };
    let expected = "the whole message with MalformedDetail; later messages are delivered";
    Ok(CheckResult::compare(expected, format!("{dead_letter}; {after}")))
}

/// Receives dead-letter messages until that of a message comes, and deletes it. The others become visible again.
async fn receive_dead_letter(
    deployment: &Deployment,
    message_id: &str,
    limit: Duration,
) -> Result<Option<DeadLetter>, CallError> {
    let (end, queue_url) = (Instant::now() + limit, &deployment.dlq_url);
    let sqs = async |operation, request| deployment.calls.call(SQS, operation, request).await;
    while Instant::now() < end {
        let request = json!({
            "QueueUrl": queue_url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 1, "VisibilityTimeout": HIDDEN_SECONDS,
        });
        let response = sqs("ReceiveMessage", request).await?;
        for message in response["Messages"].as_array().into_iter().flatten() {
            let body = message["Body"].as_str().unwrap_or_default();
            let handle = &message["ReceiptHandle"];
            if body.contains(message_id) {
                sqs("DeleteMessage", json!({"QueueUrl": queue_url, "ReceiptHandle": handle})).await?;
                return Ok(DeadLetter::read(body).ok());
            }
        }
    }
    Ok(None)
}
