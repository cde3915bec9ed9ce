//! `ReceiveMessage`: some of what waits, hidden from everybody else for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::messaging::bus::Bus;
use crate::messaging::faults::CallFault;
use crate::messaging::queue::{MAX_HIDDEN, Queued};
use crate::messaging::wire::{Answer, Refused};

/// Messages a call.
const MAX_MESSAGES: u64 = 10;
/// A call waits this long at most, in seconds.
const MAX_WAIT: u64 = 20;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Request {
    queue_url: String,
    #[serde(default = "one")]
    max_number_of_messages: u64,
    /// 30 seconds, as a queue has it that nobody changed.
    #[serde(default = "thirty")]
    visibility_timeout: u64,
    #[serde(default)]
    wait_time_seconds: u64,
    /// The older name of the next.
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

/// Without the MD5s, which the SDK for Rust does not check.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Message {
    message_id: String,
    receipt_handle: String,
    body: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    message_attributes: BTreeMap<String, Attribute>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Attribute {
    data_type: &'static str,
    string_value: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Response {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<Message>,
}

pub(crate) async fn call(bus: &Bus, body: &[u8]) -> Result<Answer, Refused> {
    let fault = CallFault::next(&mut bus.state().faults.receive_message);
    tokio::time::sleep(fault.delay()).await;
    let request: Request = serde_json::from_slice(body).map_err(|error| Refused::unreadable(&error))?;
    let refusal = fault.refusal();
    if let Some(refused) = refusal.clone().filter(|_| !fault.accept_then_drop) {
        return Err(refused);
    }
    within("MaxNumberOfMessages", request.max_number_of_messages, 1, MAX_MESSAGES)?;
    within("VisibilityTimeout", request.visibility_timeout, 0, MAX_HIDDEN)?;
    within("WaitTimeSeconds", request.wait_time_seconds, 0, MAX_WAIT)?;
    let messages = receive(bus, &request).await;
    if fault.accept_then_drop {
        return refusal.map_or(Ok(Answer::Broken), Err);
    }
    Answer::json(&Response { messages })
}

/// What there is, or what there is as soon as there is something.
async fn receive(bus: &Bus, request: &Request) -> Vec<Message> {
    let give_up = Instant::now() + Duration::from_secs(request.wait_time_seconds);
    let hide = Duration::from_secs(request.visibility_timeout);
    let most = usize::try_from(request.max_number_of_messages).unwrap_or(1);
    loop {
        let news = bus.state().queues.news.clone();
        let news = news.notified();
        tokio::pin!(news);
        // From here on, so that nothing is sent between the look and the wait.
        news.as_mut().enable();
        let next = {
            let mut state = bus.state();
            let received = state.queues.receive(&request.queue_url, most, hide);
            if !received.is_empty() || Instant::now() >= give_up {
                return received.into_iter().map(|queued| message(queued, request)).collect();
            }
            state.queues.next_to_show(&request.queue_url)
        };
        let wake = next.map_or(give_up, |next| next.min(give_up));
        tokio::select! {
            () = news => {}
            () = tokio::time::sleep_until(wake) => {}
        }
    }
}

fn message(queued: &Queued, request: &Request) -> Message {
    let system = [
        ("ApproximateReceiveCount", queued.receives.to_string()),
        ("SentTimestamp", queued.sent.to_string()),
        ("ApproximateFirstReceiveTimestamp", queued.first_received.to_string()),
    ];
    let names: Vec<_> = request.attribute_names.iter().chain(&request.message_system_attribute_names).collect();
    let asked = |name: &str| names.iter().any(|asked| *asked == name || *asked == "All");
    let attributes = system.into_iter().filter(|(name, _)| asked(name)).collect();
    let names = &request.message_attribute_names;
    let own = queued.letter.attributes.iter();
    let own = own.filter(|(name, _)| names.iter().any(|asked| asked == *name || asked == "All" || asked == ".*"));
    let own = own.map(|(name, value)| (name.clone(), Attribute { data_type: "String", string_value: value.clone() }));
    Message {
        message_id: queued.letter.message_id.clone(),
        receipt_handle: queued.handle.clone().unwrap_or_default(),
        body: queued.letter.body.clone(),
        attributes,
        message_attributes: own.collect(),
    }
}

pub(crate) fn within(name: &str, value: u64, least: u64, most: u64) -> Result<(), Refused> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let message = format!(
        "Value {value} for parameter {name} is invalid. Reason: Must be between {least} and {most}, if provided."
    );
    Err(Refused::of("InvalidParameterValue", &message))
}
