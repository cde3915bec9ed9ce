//! What can be done with a message that was received: `DeleteMessage`, `ChangeMessageVisibility`, and both for up to ten.

use std::collections::HashSet;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::messaging::bus::Bus;
use crate::messaging::faults::CallFault;
use crate::messaging::queue::MAX_HIDDEN;
use crate::messaging::receive_message::within;
use crate::messaging::wire::{Answer, Refused};

/// Entries a batch.
const MAX_ENTRIES: usize = 10;
/// Characters of an entry's id.
const MAX_ENTRY_ID: usize = 80;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct One {
    queue_url: String,
    #[serde(flatten)]
    receipt: Receipt,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Batch {
    queue_url: String,
    #[serde(default)]
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    id: String,
    #[serde(flatten)]
    receipt: Receipt,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Receipt {
    #[serde(default)]
    receipt_handle: String,
    /// In seconds; only when the visibility is changed.
    visibility_timeout: Option<u64>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct BatchResponse {
    successful: Vec<Done>,
    failed: Vec<Failed>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Done {
    id: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Failed {
    id: String,
    sender_fault: bool,
    code: String,
    message: String,
}

#[derive(Serialize)]
struct Nothing {}

pub(crate) async fn delete(bus: &Bus, body: &[u8]) -> Result<Answer, Refused> {
    let fault = next_fault(bus).await?;
    let One { queue_url, receipt } = read(body)?;
    bus.state().queues.delete(&queue_url, &receipt.receipt_handle)?;
    answer(&fault, &Nothing {})
}

pub(crate) async fn delete_batch(bus: &Bus, body: &[u8]) -> Result<Answer, Refused> {
    let fault = next_fault(bus).await?;
    let Batch { queue_url, entries } = read(body)?;
    let outcome = each(entries, |index, receipt| match fault.of_entry(index) {
        Some(code) => Err(Refused::of(&code, "a fault was asked for")),
        None => bus.state().queues.delete(&queue_url, &receipt.receipt_handle),
    })?;
    answer(&fault, &outcome)
}

pub(crate) fn change_visibility(bus: &Bus, body: &[u8]) -> Result<Answer, Refused> {
    let One { queue_url, receipt } = read(body)?;
    hide(bus, &queue_url, &receipt)?;
    Answer::json(&Nothing {})
}

pub(crate) fn change_visibility_batch(bus: &Bus, body: &[u8]) -> Result<Answer, Refused> {
    let Batch { queue_url, entries } = read(body)?;
    Answer::json(&each(entries, |_, receipt| hide(bus, &queue_url, receipt))?)
}

fn hide(bus: &Bus, queue_url: &str, receipt: &Receipt) -> Result<(), Refused> {
    let seconds = receipt
        .visibility_timeout
        .ok_or_else(|| Refused::of("MissingParameter", "The request must contain the parameter VisibilityTimeout."))?;
    within("VisibilityTimeout", seconds, 0, MAX_HIDDEN)?;
    bus.state().queues.hide(queue_url, &receipt.receipt_handle, Duration::from_secs(seconds))
}

/// Does something with each entry of a batch, which must be one.
fn each(
    entries: Vec<Entry>,
    mut act: impl FnMut(usize, &Receipt) -> Result<(), Refused>,
) -> Result<BatchResponse, Refused> {
    if entries.is_empty() {
        return Err(Refused::of("EmptyBatchRequest", "There should be at least one entry in the request."));
    }
    if entries.len() > MAX_ENTRIES {
        return Err(Refused::of("TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10."));
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let is_id = |id: &str| (1..=MAX_ENTRY_ID).contains(&id.len()) && id.bytes().all(allowed);
    if !entries.iter().all(|entry| is_id(&entry.id)) {
        return Err(Refused::of(
            "InvalidBatchEntryId",
            "A batch entry id can only contain 1 to 80 of A-Z a-z 0-9 _ -.",
        ));
    }
    if entries.iter().map(|entry| &entry.id).collect::<HashSet<_>>().len() < entries.len() {
        return Err(Refused::of("BatchEntryIdsNotDistinct", "Two or more batch entries have the same Id."));
    }
    let mut response = BatchResponse::default();
    for (index, Entry { id, receipt }) in entries.into_iter().enumerate() {
        match act(index, &receipt) {
            Ok(()) => response.successful.push(Done { id }),
            Err(Refused { status, code, message }) => {
                let sender_fault = status.is_client_error();
                response.failed.push(Failed { id, sender_fault, code, message });
            }
        }
    }
    Ok(response)
}

async fn next_fault(bus: &Bus) -> Result<CallFault, Refused> {
    let fault = CallFault::next(&mut bus.state().faults.delete_message);
    tokio::time::sleep(fault.delay()).await;
    match fault.refusal().filter(|_| !fault.accept_then_drop) {
        Some(refused) => Err(refused),
        None => Ok(fault),
    }
}

fn answer(fault: &CallFault, response: &impl Serialize) -> Result<Answer, Refused> {
    if fault.accept_then_drop {
        return fault.refusal().map_or(Ok(Answer::Broken), Err);
    }
    Answer::json(response)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| Refused::unreadable(&error))
}
