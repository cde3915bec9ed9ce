//! `PutEvents`: the limits of a request and of each entry.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::messaging::bus::{Bus, Delivered, PutEventsCall, ResultEntry};
use crate::messaging::faults::{CallFault, Rule};
use crate::messaging::wire::{Answer, Refused};

/// Entries a request.
const MAX_ENTRIES: usize = 10;
/// The entries of a request together are smaller than this, in bytes.
const REQUEST_BYTES: usize = 1024 * 1024;
/// What a `Time` counts, in bytes.
const TIME_BYTES: usize = 14;
/// Characters of a `DetailType`.
const MAX_DETAIL_TYPE: usize = 128;
/// Characters of a `TraceHeader`.
const MAX_TRACE_HEADER: usize = 500;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Request {
    #[serde(default)]
    entries: Vec<Entry>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Entry {
    /// Seconds since 1970.
    time: Option<f64>,
    source: Option<String>,
    resources: Vec<String>,
    detail_type: Option<String>,
    detail: Option<String>,
    event_bus_name: Option<String>,
    trace_header: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Response {
    failed_entry_count: usize,
    entries: Vec<ResultEntry>,
}

pub(crate) async fn call(bus: &Bus, body: &[u8]) -> Result<Answer, Refused> {
    let fault = CallFault::next(&mut bus.state().faults.put_events);
    tokio::time::sleep(fault.delay()).await;
    let Request { entries } = serde_json::from_slice(body).map_err(|error| Refused::unreadable(&error))?;
    let call = PutEventsCall { entries: entries.len(), bytes: entries.iter().map(size).sum(), results: vec![] };

    let refusal = fault.refusal();
    let refused_at_once = refusal.clone().filter(|_| !fault.accept_then_drop);
    if let Some(refused) = refused_at_once.or_else(|| check(&entries, call.bytes).err()) {
        bus.state().put_events_calls.push(call);
        return Err(refused);
    }
    let results = accept(bus, entries, &fault);
    bus.state().put_events_calls.push(PutEventsCall { results: results.clone(), ..call });
    if fault.accept_then_drop {
        return refusal.map_or(Ok(Answer::Broken), Err);
    }
    let failed_entry_count = results.iter().filter(|result| result.error_code.is_some()).count();
    Answer::json(&Response { failed_entry_count, entries: results })
}

/// Takes the entries that have nothing against them.
fn accept(bus: &Bus, entries: Vec<Entry>, fault: &CallFault) -> Vec<ResultEntry> {
    let mut state = bus.state();
    let mut results = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let scripted = fault.of_entry(index).map(|code| (code, "a fault was asked for"));
        let by_rule = scripted.or_else(|| {
            let texts = [entry.detail_type.as_deref().unwrap_or_default(), entry.detail.as_deref().unwrap_or_default()];
            Rule::apply(&mut state.faults.entries, &texts).map(|code| (code, "a fault was asked for"))
        });
        results.push(match by_rule.map_or_else(|| deliverable(entry), Err) {
            Ok(entry) => {
                let event_id = state.new_id();
                state.deliver(Delivered { event_id: event_id.clone(), ..entry });
                ResultEntry { event_id: Some(event_id), ..ResultEntry::default() }
            }
            Err((code, message)) => ResultEntry {
                error_code: Some(code),
                error_message: Some(message.to_owned()),
                ..ResultEntry::default()
            },
        });
    }
    results
}

/// What is wrong with the request as a whole.
fn check(entries: &[Entry], bytes: usize) -> Result<(), Refused> {
    if !(1..=MAX_ENTRIES).contains(&entries.len()) {
        return Err(Refused::validation(
            "1 validation error detected: Value at 'entries' failed to satisfy constraint: Member must have length \
             from 1 to 10",
        ));
    }
    if bytes >= REQUEST_BYTES {
        return Err(Refused::validation("Total size of the entries in the request is over the limit."));
    }
    if entries.iter().all(|entry| required(entry).is_err()) {
        return Err(Refused::validation("no entry has a Source, a DetailType and a Detail"));
    }
    Ok(())
}

type EntryError = (String, &'static str);

fn deliverable(entry: Entry) -> Result<Delivered, EntryError> {
    let invalid = |message| Err(("InvalidArgument".to_owned(), message));
    let (source, detail_type, detail) = required(&entry)?;
    if detail_type.chars().count() > MAX_DETAIL_TYPE {
        return invalid("DetailType is longer than 128 characters.");
    }
    if entry.trace_header.as_ref().is_some_and(|header| header.chars().count() > MAX_TRACE_HEADER) {
        return invalid("TraceHeader is longer than 500 characters.");
    }
    if source.starts_with("aws.") {
        return Err(("NotAuthorizedForSourceException".to_owned(), "Not authorized for the source."));
    }
    if !serde_json::from_str::<Value>(&detail).is_ok_and(|detail| detail.is_object()) {
        return Err(("MalformedDetail".to_owned(), "Detail is malformed."));
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
    })
}

/// Source, detail type and detail.
fn required(entry: &Entry) -> Result<(String, String, String), EntryError> {
    let required = |value: &Option<String>, message| {
        value.clone().filter(|value| !value.is_empty()).ok_or_else(|| ("InvalidArgument".to_owned(), message))
    };
    Ok((
        required(&entry.source, "Parameter Source is not valid. Reason: Source is a required argument.")?,
        required(&entry.detail_type, "Parameter DetailType is not valid. Reason: DetailType is a required argument.")?,
        required(&entry.detail, "Parameter Detail is not valid. Reason: Detail is a required argument.")?,
    ))
}

/// The size of an entry by EventBridge's rule.
fn size(entry: &Entry) -> usize {
    let texts = [&entry.source, &entry.detail_type, &entry.detail];
    entry.time.map_or(0, |_| TIME_BYTES)
        + texts.into_iter().flatten().chain(&entry.resources).map(String::len).sum::<usize>()
}

#[expect(clippy::cast_possible_truncation, reason = "a time out of range saturates, and jiff refuses it")]
fn time(seconds: f64) -> Result<String, jiff::Error> {
    Ok(format!("{:.3}", Timestamp::from_millisecond((seconds * 1000.0).round() as i64)?))
}
