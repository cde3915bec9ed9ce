//! `ReceiveMessage`: some of the visible messages, hidden from other receivers for a while; and the same without HTTP. The
//! operations on received messages: `DeleteMessage`, `ChangeMessageVisibility`, and their batches of up to ten entries.

use std::collections::HashSet;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::json_protocol::{self, CallError, CallResponse};
use crate::messaging::bus::Bus;
use crate::messaging::faults::INJECTED;
use crate::messaging::sqs::queues::Queued;
use crate::messaging::sqs::{check, check_range, check_visibility_timeout, query_code};
use crate::state::DataFileError;

const MAX_MESSAGES: u64 = 10;

/// Maximum time that a call waits for a message, in seconds.
const MAX_WAIT_TIME: u64 = 20;

/// The default of a queue without the attribute, in seconds.
const VISIBILITY_TIMEOUT: u64 = 30;

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ReceiveMessageRequest {
    queue_url: String,
    max_number_of_messages: Option<u64>,
    visibility_timeout: Option<u64>,
    wait_time_seconds: u64,
    /// The older name of `MessageSystemAttributeNames`.
    attribute_names: Vec<String>,
    message_system_attribute_names: Vec<String>,
    message_attribute_names: Vec<String>,
}

pub(crate) async fn receive_message(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let fault = bus.begin_call(|faults| &mut faults.receive_message).await?;
    let request: ReceiveMessageRequest = json_protocol::read(body)?;
    if let Some(text) = fault.text_instead() {
        return Ok(text);
    }
    let most = request.max_number_of_messages.unwrap_or(1);
    let hidden_seconds = request.visibility_timeout.unwrap_or(VISIBILITY_TIMEOUT);
    check_range("MaxNumberOfMessages", most, 1..=MAX_MESSAGES)?;
    check_visibility_timeout(hidden_seconds)?;
    check("WaitTimeSeconds", request.wait_time_seconds, 0..=MAX_WAIT_TIME, "Must be >= 0 and <= 20, if provided.")?;
    bus.state().queues.check(&request.queue_url)?;
    let wait_until = Instant::now() + Duration::from_secs(request.wait_time_seconds);
    let (most, hide) = (usize::try_from(most).unwrap_or(1), Duration::from_secs(hidden_seconds));
    let read = |queued: &Queued| received_message(queued, &request);
    let messages = receive(bus, &request.queue_url, (most, hide), wait_until, read).await?;
    fault.respond(if messages.is_empty() { json!({}) } else { json!({ "Messages": messages }) })
}

/// Returns the visible messages, or, if there are none, the first that become visible within the wait time. They are
/// hidden for a duration.
pub(crate) async fn receive<T>(
    bus: &Bus,
    queue_url: &str,
    (most, hide): (usize, Duration),
    wait_until: Instant,
    read: impl Fn(&Queued) -> T,
) -> Result<Vec<T>, DataFileError> {
    loop {
        let changed = bus.state().queues.changed.clone();
        let changed = changed.notified();
        tokio::pin!(changed);
        // Registered before the queue is read, so that a message that is sent in between wakes this call.
        changed.as_mut().enable();
        let next = {
            let mut state = bus.state();
            state.redrive(queue_url)?;
            let received = state.queues.receive(queue_url, most, hide);
            if !received.is_empty() || Instant::now() >= wait_until {
                return Ok(received.into_iter().map(read).collect());
            }
            state.queues.next_to_show(queue_url)
        };
        let wake = next.map_or(wait_until, |next| next.min(wait_until));
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep_until(wake) => {}
        }
    }
}

/// A message in the response, without the MD5s, which the SDK for Rust does not check.
fn received_message(queued: &Queued, request: &ReceiveMessageRequest) -> Value {
    let names: Vec<_> = request.attribute_names.iter().chain(&request.message_system_attribute_names).collect();
    let is_requested = |name: &str| names.iter().any(|requested| *requested == name || *requested == "All");
    let system_attributes: Map<_, _> = [
        ("ApproximateReceiveCount", queued.receives.to_string()),
        ("SentTimestamp", queued.sent.to_string()),
        ("ApproximateFirstReceiveTimestamp", queued.first_received.to_string()),
    ]
    .into_iter()
    .filter(|(name, _)| is_requested(name))
    .map(|(name, value)| (name.to_owned(), value.into()))
    .collect();

    let names = &request.message_attribute_names;
    let is_requested = |name: &str| names.iter().any(|requested| [name, "All", ".*"].contains(&requested.as_str()));
    let attributes = queued.message.attributes.iter().filter(|(name, _)| is_requested(name));
    let attributes: Map<_, _> =
        attributes.map(|(name, value)| (name.clone(), json!({ "DataType": "String", "StringValue": value }))).collect();

    let mut message = json!({
        "MessageId": queued.message.message_id,
        "ReceiptHandle": queued.handle,
        "Body": queued.message.body,
    });
    for (name, attributes) in [("Attributes", system_attributes), ("MessageAttributes", attributes)] {
        if !attributes.is_empty() {
            message[name] = attributes.into();
        }
    }
    message
}

const MAX_ENTRIES: usize = 10;
const MAX_ENTRY_ID: usize = 80;

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ReceiptBatch {
    queue_url: String,
    entries: Vec<Receipt>,
}

/// A received message: a request, or an entry of a batch, which has an id.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Receipt {
    queue_url: String,
    id: String,
    receipt_handle: String,
    /// In seconds; only set to change the visibility.
    visibility_timeout: Option<u64>,
}

pub(crate) async fn delete_message(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let fault = bus.begin_call(|faults| &mut faults.delete_message).await?;
    let Receipt { queue_url, receipt_handle, .. } = json_protocol::read(body)?;
    bus.state().delete(&queue_url, &receipt_handle)?;
    fault.respond(json!({}))
}

pub(crate) async fn delete_message_batch(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let fault = bus.begin_call(|faults| &mut faults.delete_message).await?;
    let ReceiptBatch { queue_url, entries } = json_protocol::read(body)?;
    bus.state().queues.check(&queue_url)?;
    fault.respond(each(entries, |index, receipt| match fault.of_entry(index) {
        Some(code) => Err(CallError::bad_request(&code, INJECTED)),
        None => bus.state().delete(&queue_url, &receipt.receipt_handle),
    })?)
}

pub(crate) fn change_visibility(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let receipt: Receipt = json_protocol::read(body)?;
    hide(bus, &receipt.queue_url, &receipt)?;
    Ok(CallResponse::Json(json!({})))
}

pub(crate) fn change_visibility_batch(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let ReceiptBatch { queue_url, entries } = json_protocol::read(body)?;
    bus.state().queues.check(&queue_url)?;
    each(entries, |_, receipt| hide(bus, &queue_url, receipt)).map(CallResponse::Json)
}

fn hide(bus: &Bus, queue_url: &str, receipt: &Receipt) -> Result<(), CallError> {
    let message = "The request must contain the parameter VisibilityTimeout.";
    let seconds = receipt
        .visibility_timeout
        .ok_or_else(|| CallError::bad_request("MissingRequiredParameterException", message))?;
    check_visibility_timeout(seconds)?;
    bus.state().queues.hide(queue_url, &receipt.receipt_handle, Duration::from_secs(seconds))
}

/// Checks the limits of a batch, acts on each of its entries, and returns the response.
fn each(
    entries: Vec<Receipt>,
    mut act: impl FnMut(usize, &Receipt) -> Result<(), CallError>,
) -> Result<Value, CallError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let is_id = |id: &str| (1..=MAX_ENTRY_ID).contains(&id.len()) && id.bytes().all(allowed);
    let ids: HashSet<_> = entries.iter().map(|entry| &entry.id).collect();
    let invalid = |code, message: &str| Err(CallError::bad_request(code, message));
    if entries.is_empty() {
        return invalid("EmptyBatchRequest", "There should be at least one entry in the request.");
    }
    if entries.len() > MAX_ENTRIES {
        let message = format!("Maximum number of entries per request are 10. You have sent {}.", entries.len());
        return invalid("TooManyEntriesInBatchRequest", &message);
    }
    if !entries.iter().all(|entry| is_id(&entry.id)) {
        return invalid(
            "InvalidBatchEntryId",
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters \
             long.",
        );
    }
    if ids.len() < entries.len() {
        return invalid("BatchEntryIdsNotDistinct", "Two or more batch entries have the same Id.");
    }
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for (index, receipt) in entries.iter().enumerate() {
        let id = &receipt.id;
        match act(index, receipt) {
            Ok(()) => successful.push(json!({ "Id": id })),
            Err(CallError { status, code, message }) => {
                let sender_fault = status.is_client_error();
                let code = query_code(&code).unwrap_or(&code);
                failed.push(json!({ "Id": id, "SenderFault": sender_fault, "Code": code, "Message": message }));
            }
        }
    }
    Ok(json!({ "Successful": successful, "Failed": failed }))
}

/// How long a call waits for a message.
const WAIT: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMessage {
    pub message_id: String,
    pub receipt_handle: String,
    pub body: String,
    /// How often it was received, this time included.
    pub receives: u32,
    /// When it was sent, in milliseconds since 1970.
    pub sent: u64,
    /// When it was received for the first time, in milliseconds since 1970.
    pub first_received: u64,
}

impl Bus {
    /// Waits for messages of a queue, receives up to `most`, and hides them for a duration. Returns none after a while.
    pub async fn receive(&self, queue: &str, most: usize, hide: Duration) -> Result<Vec<ReceivedMessage>, String> {
        let begun = self.begin_call(|faults| &mut faults.receive_message).await;
        begun.map_err(|error| error.message)?;
        let read = |queued: &Queued| ReceivedMessage {
            message_id: queued.message.message_id.clone(),
            receipt_handle: queued.handle.clone().unwrap_or_default(),
            body: queued.message.body.clone(),
            receives: queued.receives,
            sent: queued.sent,
            first_received: queued.first_received,
        };
        let received = receive(self, queue, (most, hide), Instant::now() + WAIT, read).await;
        received.map_err(|error| error.to_string())
    }

    /// Deletes a received message. Has no effect if it was received again since.
    pub async fn delete(&self, queue: &str, message: &ReceivedMessage) {
        let begun = self.begin_call(|faults| &mut faults.delete_message).await;
        let deleted = begun.and_then(|_| self.state().delete(queue, &message.receipt_handle));
        if let Err(error) = deleted {
            tracing::error!(queue, error = error.message, "cannot delete a message");
        }
    }

    /// Makes a received message visible after a duration from now. Has no effect if it was received again since.
    pub fn hide(&self, queue: &str, message: &ReceivedMessage, hidden: Duration) {
        // Fails only for a message that another receiver has deleted.
        drop(self.state().queues.hide(queue, &message.receipt_handle, hidden));
    }
}
