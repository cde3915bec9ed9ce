//! `ReceiveMessage`: some of the visible messages, hidden from other receivers for a while; and the same without HTTP.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::json_protocol::{self, CallError, CallResponse};
use crate::messaging::bus::Bus;
use crate::messaging::faults::CallFault;
use crate::messaging::sqs::queues::Queued;
use crate::messaging::sqs::receipts::deletion_fault;
use crate::messaging::sqs::{check_range, check_visibility_timeout, check_wait_time};
use crate::state::StateError;

const MAX_MESSAGES: u64 = 10;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiveMessageRequest {
    queue_url: String,
    #[serde(default = "one")]
    max_number_of_messages: u64,
    /// The default is that of a queue without the attribute.
    #[serde(default = "thirty")]
    visibility_timeout: u64,
    #[serde(default)]
    wait_time_seconds: u64,
    /// The older name of `MessageSystemAttributeNames`.
    #[serde(default)]
    attribute_names: Vec<String>,
    #[serde(default)]
    message_system_attribute_names: Vec<String>,
    #[serde(default)]
    message_attribute_names: Vec<String>,
}

fn one() -> u64 {
    1
}

fn thirty() -> u64 {
    30
}

pub(crate) async fn receive_message(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let fault = CallFault::next(&mut bus.state().faults.receive_message);
    fault.delay().await;
    let request: ReceiveMessageRequest = json_protocol::read(body)?;
    fault.fail_before()?;
    if let Some(text) = fault.text_instead() {
        return Ok(text);
    }
    check_range("MaxNumberOfMessages", request.max_number_of_messages, 1..=MAX_MESSAGES)?;
    check_visibility_timeout(request.visibility_timeout)?;
    check_wait_time(request.wait_time_seconds)?;
    bus.state().queues.check(&request.queue_url)?;
    let wait_until = Instant::now() + Duration::from_secs(request.wait_time_seconds);
    let hide = Duration::from_secs(request.visibility_timeout);
    let most = usize::try_from(request.max_number_of_messages).unwrap_or(1);
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
) -> Result<Vec<T>, StateError> {
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

/// How long a call waits for a message.
const WAIT: Duration = Duration::from_secs(20);

/// A message that was received, and is hidden for others.
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

impl ReceivedMessage {
    fn new(queued: &Queued) -> Self {
        Self {
            message_id: queued.message.message_id.clone(),
            receipt_handle: queued.handle.clone().unwrap_or_default(),
            body: queued.message.body.clone(),
            receives: queued.receives,
            sent: queued.sent,
            first_received: queued.first_received,
        }
    }
}

impl Bus {
    /// Waits for messages of a queue, receives up to `most`, and hides them for a duration. Returns none after a while.
    pub async fn receive(&self, queue: &str, most: usize, hide: Duration) -> Result<Vec<ReceivedMessage>, String> {
        let fault = CallFault::next(&mut self.state().faults.receive_message);
        fault.delay().await;
        fault.fail_before().map_err(|error| error.message)?;
        let received = receive(self, queue, (most, hide), Instant::now() + WAIT, ReceivedMessage::new).await;
        received.map_err(|error| error.to_string())
    }

    /// Deletes a received message. Has no effect if it was received again since.
    pub async fn delete(&self, queue: &str, message: &ReceivedMessage) {
        let deleted = deletion_fault(self).await.and_then(|_| self.state().delete(queue, &message.receipt_handle));
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
