//! `SendMessage`: what a queue takes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::messaging::bus::{Bus, DeadLetter};
use crate::messaging::faults::{CallFault, Rule};
use crate::messaging::wire::{Answer, Refused};

/// Body and attributes together, in bytes.
const MAX_MESSAGE: usize = 1024 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Request {
    queue_url: String,
    #[serde(default)]
    message_body: String,
    #[serde(default)]
    message_attributes: BTreeMap<String, Attribute>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Attribute {
    data_type: String,
    #[serde(default)]
    string_value: String,
}

/// Without the MD5 of the body, which the SDK for Rust does not check.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Response {
    message_id: String,
}

pub(crate) async fn call(bus: &Bus, body: &[u8]) -> Result<Answer, Refused> {
    let fault = CallFault::next(&mut bus.state().faults.send_message);
    tokio::time::sleep(fault.delay()).await;
    let request: Request = serde_json::from_slice(body).map_err(|error| Refused::unreadable(&error))?;

    let refusal = fault.refusal();
    if let Some(refused) = refusal.clone().filter(|_| !fault.accept_then_drop) {
        return Err(refused);
    }
    check(&request)?;
    let mut state = bus.state();
    if let Some(code) = Rule::apply(&mut state.faults.messages, &[&request.message_body]) {
        return Err(Refused::of(&code, "a fault was asked for"));
    }
    let message_id = state.new_id();
    let letter = DeadLetter {
        message_id: message_id.clone(),
        queue_url: request.queue_url,
        body: request.message_body,
        attributes: request.message_attributes.into_iter().map(|(name, value)| (name, value.string_value)).collect(),
    };
    state.queues.put(letter.clone());
    state.dead_letters.push(letter);
    if fault.accept_then_drop {
        return refusal.map_or(Ok(Answer::Broken), Err);
    }
    Answer::json(&Response { message_id })
}

fn check(request: &Request) -> Result<(), Refused> {
    let attributes = request.message_attributes.iter();
    let bytes = request.message_body.len()
        + attributes.map(|(name, value)| name.len() + value.data_type.len() + value.string_value.len()).sum::<usize>();
    if request.message_body.is_empty() {
        return Err(Refused::of("MissingParameter", "The request must contain the parameter MessageBody."));
    }
    if bytes > MAX_MESSAGE {
        return Err(Refused::of(
            "InvalidParameterValue",
            "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.",
        ));
    }
    if !request.message_body.chars().all(is_allowed) {
        return Err(Refused::of("InvalidMessageContents", "Invalid characters found."));
    }
    Ok(())
}

/// The characters of XML 1.0.
fn is_allowed(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | '\u{20}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}
