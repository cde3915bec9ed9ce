//! SQS: standard queues, and the operations on them that are not about received messages; limits and errors that several operations
//! share.

pub(crate) mod queues;
mod received;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::json_protocol::{self, CallError, CallResponse};
use crate::messaging::bus::Bus;
use crate::messaging::faults::{INJECTED, TextFault};
use crate::messaging::sqs::queues::Counts;

pub use queues::{QueueMessage, TargetOutcome, TargetRecord};
pub use received::ReceivedMessage;
pub(crate) use received::{
    change_visibility, change_visibility_batch, delete_message, delete_message_batch, receive_message,
};

/// Maximum time after which a message becomes visible, in seconds: 15 minutes.
const MAX_DELAY: u64 = 15 * 60;

/// Maximum size of body and attributes together, in bytes.
const MAX_MESSAGE: usize = 1024 * 1024;

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct SendMessageRequest {
    queue_url: String,
    message_body: String,
    message_attributes: BTreeMap<String, MessageAttribute>,
    delay_seconds: u64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct MessageAttribute {
    data_type: String,
    string_value: String,
}

/// Sends a message. The response does not contain the MD5 of the body, which the SDK for Rust does not check.
pub(crate) async fn send_message(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let fault = bus.begin_call(|faults| &mut faults.send_message).await?;
    let request: SendMessageRequest = json_protocol::read(body)?;
    check_message(&request)?;
    let mut state = bus.state();
    state.queues.check(&request.queue_url)?;
    if let Some(code) = TextFault::apply(&mut state.faults.messages, &[&request.message_body]) {
        return Err(CallError::bad_request(&code, INJECTED));
    }
    let message_id = state.new_id();
    let attributes = request.message_attributes.into_iter();
    let message = QueueMessage {
        message_id: message_id.clone(),
        queue_url: request.queue_url,
        body: request.message_body,
        attributes: attributes.map(|(name, value)| (name, value.string_value)).collect(),
    };
    state.send(message, Duration::from_secs(request.delay_seconds))?;
    fault.respond(json!({ "MessageId": message_id }))
}

fn check_message(request: &SendMessageRequest) -> Result<(), CallError> {
    let attributes = request.message_attributes.iter();
    let bytes = request.message_body.len()
        + attributes.map(|(name, value)| name.len() + value.data_type.len() + value.string_value.len()).sum::<usize>();
    if request.message_body.is_empty() {
        return Err(CallError::bad_request(
            "MissingRequiredParameterException",
            "The request must contain the parameter MessageBody.",
        ));
    }
    if bytes > MAX_MESSAGE {
        return Err(CallError::bad_request(
            "InvalidParameterValueException",
            "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.",
        ));
    }
    if !request.message_body.chars().all(is_allowed) {
        return Err(CallError::bad_request("InvalidMessageContents", "Invalid characters found."));
    }
    check("DelaySeconds", request.delay_seconds, 0..=MAX_DELAY, "DelaySeconds must be >= 0 and <= 900.")
}

/// The characters of XML 1.0.
fn is_allowed(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | '\u{20}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

/// The members that the operations on queues use.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct QueueRequest {
    queue_name: String,
    queue_url: String,
    attribute_names: Vec<String>,
}

pub(crate) async fn get_queue_attributes(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let fault = bus.begin_call(|faults| &mut faults.get_queue_attributes).await?;
    let QueueRequest { queue_url, attribute_names, .. } = json_protocol::read(body)?;
    bus.state().queues.check(&queue_url)?;
    let Counts { visible, hidden, delayed } = bus.state().queues.counts(&queue_url);
    let arn = format!("arn:aws:sqs:us-east-1:000000000000:{}", queues::name_of(&queue_url));
    let known = [
        ("QueueArn", arn),
        ("ApproximateNumberOfMessages", visible.to_string()),
        ("ApproximateNumberOfMessagesNotVisible", hidden.to_string()),
        ("ApproximateNumberOfMessagesDelayed", delayed.to_string()),
    ];
    let is_requested = |name: &str| attribute_names.iter().any(|requested| requested == name || requested == "All");
    let attributes = known.into_iter().filter(|(name, _)| is_requested(name));
    let attributes: Value = attributes.collect();
    fault.respond(json!({ "Attributes": attributes }))
}

pub(crate) fn create_queue(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let QueueRequest { queue_name, .. } = json_protocol::read(body)?;
    bus.state().queues.create(&queue_name);
    Ok(CallResponse::Json(json!({ "QueueUrl": format!("http://localhost/000000000000/{queue_name}") })))
}

pub(crate) fn delete_queue(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let QueueRequest { queue_url, .. } = json_protocol::read(body)?;
    let mut state = bus.state();
    state.queues.check(&queue_url)?;
    state.queues.remove(&queue_url);
    Ok(CallResponse::Json(json!({})))
}

/// Maximum time that a message stays hidden, in seconds: twelve hours.
const MAX_VISIBILITY_TIMEOUT: u64 = 12 * 60 * 60;

pub(crate) fn check_visibility_timeout(seconds: u64) -> Result<(), CallError> {
    check_range("VisibilityTimeout", seconds, 0..=MAX_VISIBILITY_TIMEOUT)
}

pub(crate) fn check_range(parameter: &str, value: u64, range: RangeInclusive<u64>) -> Result<(), CallError> {
    let reason = format!("Must be between {} and {}, if provided.", range.start(), range.end());
    check(parameter, value, range, &reason)
}

fn check(parameter: &str, value: u64, range: RangeInclusive<u64>, reason: &str) -> Result<(), CallError> {
    if range.contains(&value) {
        return Ok(());
    }
    let message = format!("Value {value} for parameter {parameter} is invalid. Reason: {reason}");
    Err(CallError::bad_request("InvalidParameterValueException", &message))
}

/// The error in its JSON form, and the value of the header.
pub(crate) fn error(error: CallError) -> (CallError, Option<String>) {
    let Some(query_code) = query_code(&error.code) else { return (error, None) };
    let code = format!("com.amazonaws.sqs#{}", error.code);
    (CallError { code, ..error }, Some(format!("{query_code};Sender")))
}

/// The code of an error of SQS in the Query protocol; `None` for an error of all services, or an injected one.
pub(crate) fn query_code(name: &str) -> Option<&'static str> {
    Some(match name {
        "BatchEntryIdsNotDistinct" => "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
        "EmptyBatchRequest" => "AWS.SimpleQueueService.EmptyBatchRequest",
        "InvalidBatchEntryId" => "AWS.SimpleQueueService.InvalidBatchEntryId",
        "InvalidMessageContents" => "InvalidMessageContents",
        "InvalidParameterValueException" => "InvalidParameterValue",
        "MissingRequiredParameterException" => "MissingParameter",
        "OverLimit" => "OverLimit",
        "QueueDoesNotExist" => "AWS.SimpleQueueService.NonExistentQueue",
        "ReceiptHandleIsInvalid" => "ReceiptHandleIsInvalid",
        "TooManyEntriesInBatchRequest" => "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
        _ => return None,
    })
}
