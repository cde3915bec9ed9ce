//! `PutEvents`: the limits of a request and of each entry.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::json_protocol::{self, CallError, CallResponse};
use crate::messaging::bus::{Bus, Delivered, PutEventsCall, PutEventsResultEntry};
use crate::messaging::faults::{CallFault, INJECTED, TextFault};

const MAX_ENTRIES: usize = 10;
/// The total size of a request's entries is below this number of bytes.
const REQUEST_BYTES: usize = 1024 * 1024;
/// The size that counts for a `Time`, in bytes.
const TIME_BYTES: usize = 14;
const MAX_DETAIL_TYPE: usize = 128;
const MAX_TRACE_HEADER: usize = 500;

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct PutEventsRequest {
    entries: Vec<PutEventsRequestEntry>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct PutEventsRequestEntry {
    /// Seconds since 1970.
    time: Option<f64>,
    source: Option<String>,
    resources: Vec<String>,
    detail_type: Option<String>,
    detail: Option<String>,
    event_bus_name: Option<String>,
    trace_header: Option<String>,
}

pub(crate) async fn put_events(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let fault = bus.next_fault(|faults| &mut faults.put_events).await;
    let PutEventsRequest { entries } = json_protocol::read(body)?;
    let call = PutEventsCall { entries: entries.len(), bytes: entries.iter().map(size).sum(), results: vec![] };
    if let Some(text) = fault.text_instead() {
        bus.state().put_events_calls.push(call);
        return Ok(text);
    }
    if let Err(error) = fault.fail_before().and_then(|()| check(&entries, call.bytes)) {
        bus.state().put_events_calls.push(call);
        return Err(error);
    }
    let results = accept(bus, entries, &fault);
    bus.state().put_events_calls.push(PutEventsCall { results: results.clone(), ..call });
    let failed = results.iter().filter(|result| result.error_code.is_some()).count();
    fault.respond(json!({ "FailedEntryCount": failed, "Entries": results }))
}

/// Delivers the entries that have no fault and are within the limits.
fn accept(bus: &Bus, entries: Vec<PutEventsRequestEntry>, fault: &CallFault) -> Vec<PutEventsResultEntry> {
    let mut state = bus.state();
    let accept = |(index, entry): (usize, PutEventsRequestEntry)| {
        let texts = [entry.detail_type.as_deref().unwrap_or_default(), entry.detail.as_deref().unwrap_or_default()];
        if let Some(code) = fault.of_entry(index).or_else(|| TextFault::apply(&mut state.faults.entries, &texts)) {
            return Err(PutEventsResultEntry::failed(&code, INJECTED));
        }
        let entry = deliverable(entry)?;
        let (event_id, accepted_at) = (state.new_id(), Some(state.queues.clock.milliseconds()));
        // An entry for an unknown bus gets an id too, and is dropped.
        if state.has_event_bus(&entry.event_bus_name) {
            let delivered = state.deliver(Delivered { event_id: event_id.clone(), accepted_at, ..entry });
            delivered.map_err(|error| PutEventsResultEntry::failed("InternalFailure", &error.to_string()))?;
        }
        Ok(PutEventsResultEntry::accepted(event_id))
    };
    let results = entries.into_iter().enumerate().map(accept);
    results.map(|result| result.unwrap_or_else(|failed| failed)).collect()
}

fn check(entries: &[PutEventsRequestEntry], bytes: usize) -> Result<(), CallError> {
    let invalid = |message| Err(CallError::bad_request("ValidationException", message));
    if !(1..=MAX_ENTRIES).contains(&entries.len()) {
        return invalid(
            "1 validation error detected: Value at 'entries' failed to satisfy constraint: Member must have length \
             less than or equal to 10, and greater than or equal to 1",
        );
    }
    if bytes >= REQUEST_BYTES {
        return invalid("Total size of the entries in the request is over the limit.");
    }
    Ok(())
}

fn deliverable(entry: PutEventsRequestEntry) -> Result<Delivered, PutEventsResultEntry> {
    let failed = |code, message| Err(PutEventsResultEntry::failed(code, message));
    let invalid = |message| failed("InvalidArgument", message);
    let required = |name: &str, value: Option<String>| {
        let message = format!("Parameter {name} is not valid. Reason: {name} is a required argument.");
        value.filter(|value| !value.is_empty()).ok_or_else(|| PutEventsResultEntry::failed("InvalidArgument", &message))
    };
    let (source, detail_type) = (required("Source", entry.source)?, required("DetailType", entry.detail_type)?);
    let detail = required("Detail", entry.detail)?;
    if detail_type.chars().count() > MAX_DETAIL_TYPE {
        return invalid("DetailType is longer than 128 characters.");
    }
    if entry.trace_header.as_ref().is_some_and(|header| header.chars().count() > MAX_TRACE_HEADER) {
        return invalid("TraceHeader is longer than 500 characters.");
    }
    if source.starts_with("aws.") {
        return failed("NotAuthorizedForSourceException", "Not authorized for the source.");
    }
    if !serde_json::from_str::<Value>(&detail).is_ok_and(|detail| detail.is_object()) {
        return failed("MalformedDetail", "Detail is malformed.");
    }
    let Ok(time) = entry.time.map(time).transpose() else { return invalid("Time is not valid.") };
    Ok(Delivered {
        event_id: String::new(),
        event_bus_name: entry.event_bus_name.unwrap_or_else(|| "default".to_owned()),
        source,
        detail_type,
        detail,
        time,
        resources: entry.resources,
        trace_header: entry.trace_header,
        accepted_at: None,
    })
}

/// The size of an entry by EventBridge's rule.
fn size(entry: &PutEventsRequestEntry) -> usize {
    let texts = [&entry.source, &entry.detail_type, &entry.detail];
    entry.time.map_or(0, |_| TIME_BYTES)
        + texts.into_iter().flatten().chain(&entry.resources).map(String::len).sum::<usize>()
}

#[expect(clippy::cast_possible_truncation, reason = "a time out of range saturates, and jiff rejects it")]
fn time(seconds: f64) -> Result<String, jiff::Error> {
    Ok(format!("{:.3}", Timestamp::from_millisecond((seconds * 1000.0).round() as i64)?))
}
