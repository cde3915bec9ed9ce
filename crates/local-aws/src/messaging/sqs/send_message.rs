//! `SendMessage`: the limits of a message.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use crate::json_protocol::{self, CallError, CallResponse};
use crate::messaging::bus::Bus;
use crate::messaging::faults::{CallFault, INJECTED, Rule};
use crate::messaging::sqs::queues::QueueMessage;

/// Maximum size of body and attributes together, in bytes.
const MAX_MESSAGE: usize = 1024 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SendMessageRequest {
    queue_url: String,
    #[serde(default)]
    message_body: String,
    #[serde(default)]
    message_attributes: BTreeMap<String, MessageAttribute>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MessageAttribute {
    data_type: String,
    #[serde(default)]
    string_value: String,
}

/// Sends a message. The response does not contain the MD5 of the body, which the SDK for Rust does not check.
pub(crate) async fn send_message(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let fault = CallFault::next(&mut bus.state().faults.send_message);
    fault.delay().await;
    let request: SendMessageRequest = json_protocol::read(body)?;
    fault.fail_before()?;
    check(&request)?;
    let mut state = bus.state();
    state.queues.check(&request.queue_url)?;
    if let Some(code) = Rule::apply(&mut state.faults.messages, &[&request.message_body]) {
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
    state.send(message)?;
    fault.respond(json!({ "MessageId": message_id }))
}

fn check(request: &SendMessageRequest) -> Result<(), CallError> {
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
    Ok(())
}

/// The characters of XML 1.0.
fn is_allowed(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | '\u{20}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}
