//! Operations on received messages: `DeleteMessage`, `ChangeMessageVisibility`, and their batches of up to ten entries.

use std::collections::HashSet;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::json_protocol::{self, CallError, CallResponse};
use crate::messaging::bus::Bus;
use crate::messaging::faults::{CallFault, INJECTED};
use crate::messaging::sqs::{check_visibility_timeout, query_code};

const MAX_ENTRIES: usize = 10;
const MAX_ENTRY_ID: usize = 80;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiptRequest {
    queue_url: String,
    #[serde(flatten)]
    receipt: Receipt,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiptBatchRequest {
    queue_url: String,
    #[serde(default)]
    entries: Vec<ReceiptBatchEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiptBatchEntry {
    id: String,
    #[serde(flatten)]
    receipt: Receipt,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Receipt {
    #[serde(default)]
    receipt_handle: String,
    /// In seconds; only set to change the visibility.
    visibility_timeout: Option<u64>,
}

pub(crate) async fn delete_message(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let fault = deletion_fault(bus).await?;
    let ReceiptRequest { queue_url, receipt } = json_protocol::read(body)?;
    bus.state().delete(&queue_url, &receipt.receipt_handle)?;
    fault.respond(json!({}))
}

pub(crate) async fn delete_message_batch(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let fault = deletion_fault(bus).await?;
    let ReceiptBatchRequest { queue_url, entries } = json_protocol::read(body)?;
    bus.state().queues.check(&queue_url)?;
    fault.respond(each(entries, |index, receipt| match fault.of_entry(index) {
        Some(code) => Err(CallError::bad_request(&code, INJECTED)),
        None => bus.state().delete(&queue_url, &receipt.receipt_handle),
    })?)
}

pub(super) async fn deletion_fault(bus: &Bus) -> Result<CallFault, CallError> {
    let fault = CallFault::next(&mut bus.state().faults.delete_message);
    fault.delay().await;
    fault.fail_before()?;
    Ok(fault)
}

pub(crate) fn change_visibility(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let ReceiptRequest { queue_url, receipt } = json_protocol::read(body)?;
    hide(bus, &queue_url, &receipt)?;
    Ok(CallResponse::Json(json!({})))
}

pub(crate) fn change_visibility_batch(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let ReceiptBatchRequest { queue_url, entries } = json_protocol::read(body)?;
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
    entries: Vec<ReceiptBatchEntry>,
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
    for (index, ReceiptBatchEntry { id, receipt }) in entries.iter().enumerate() {
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
