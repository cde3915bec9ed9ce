//! HTTP endpoints that only the local stack has: the messages on the bus and in the dead-letter queue, the discarded
//! records, the event source mappings, the rules, the usage, and injected faults.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use daybook_local_aws::messaging::Bus;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::discarded::DiscardedRecords;
use crate::faults::{ProjectorFaults, StackFaults};
use crate::functions::Functions;
use crate::mapping_states::MappingStates;
use crate::rules::RuleStates;
use crate::usage::{Usage, UsageMeter};

/// The endpoints under `/_dev/`. No aggregate type can have the name `_dev`.
pub(crate) fn router(
    bus: Bus,
    discarded: DiscardedRecords,
    states: MappingStates,
    rules: RuleStates,
    meter: UsageMeter,
    faults: ProjectorFaults,
    functions: Functions,
) -> Router {
    let last_set = Arc::new(Mutex::new(json!({})));
    let get_faults = {
        let last_set = last_set.clone();
        async move || Json(last_set.lock().unwrap_or_else(PoisonError::into_inner).clone())
    };
    let mappings = states.clone();
    let faulty = functions.clone();
    let set_faults = async move |State(bus): State<Bus>, Json(text): Json<Value>| {
        let given =
            StackFaults::deserialize(&text).map_err(|error| (StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
        *last_set.lock().unwrap_or_else(PoisonError::into_inner) = text;
        states.pause(given.paused());
        bus.set_faults(given.bus);
        faults.set(&given.read_models);
        faulty.replace_view_faults(&given.read_models.views).await;
        Ok::<_, (StatusCode, String)>(StatusCode::NO_CONTENT)
    };
    let usage = async move |State(bus): State<Bus>| {
        meter.add_calls(functions.take_usage().await);
        Json(usage(&bus, &meter))
    };
    Router::new()
        .route("/_dev/bus", get(async |State(bus): State<Bus>| Json(delivered(&bus))))
        .route("/_dev/dlq", get(async |State(bus): State<Bus>| Json(dead_letters(&bus))))
        .route("/_dev/discarded", get(async move || Json(discarded.all())))
        .route("/_dev/mappings", get(async move || Json(mappings.all())))
        .route("/_dev/rules", get(async move || Json(rules.all())))
        .route("/_dev/usage", get(usage))
        .route("/_dev/faults", get(get_faults).put(set_faults))
        .with_state(bus)
}

/// An entry that the bus accepted, with its unchanged detail.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BusEntryJson {
    event_bus_name: String,
    source: String,
    detail_type: String,
    time: Option<String>,
    resources: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_header: Option<String>,
    detail: JsonOrText,
}

/// A message of the dead-letter queue.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueMessageJson {
    message_id: String,
    queue_url: String,
    body: JsonOrText,
}

/// Unchanged JSON, or text if it is not JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum JsonOrText {
    Json(Box<RawValue>),
    Text(String),
}

impl From<String> for JsonOrText {
    fn from(text: String) -> Self {
        RawValue::from_string(text.clone()).map_or(Self::Text(text), Self::Json)
    }
}

/// The accepted entries, in order of arrival.
fn delivered(bus: &Bus) -> Vec<BusEntryJson> {
    let entry = |entry: daybook_local_aws::messaging::Delivered| BusEntryJson {
        event_bus_name: entry.event_bus_name,
        source: entry.source,
        detail_type: entry.detail_type,
        time: entry.time,
        resources: entry.resources,
        trace_header: entry.trace_header,
        detail: entry.detail.into(),
    };
    bus.delivered().into_iter().map(entry).collect()
}

/// The messages of the dead-letter queue, in order of arrival.
fn dead_letters(bus: &Bus) -> Vec<QueueMessageJson> {
    let message = |message: daybook_local_aws::messaging::QueueMessage| QueueMessageJson {
        message_id: message.message_id,
        queue_url: message.queue_url,
        body: message.body.into(),
    };
    bus.dead_letters().into_iter().map(message).collect()
}

/// What the stack has used since its start.
fn usage(bus: &Bus, meter: &UsageMeter) -> Usage {
    let calls = bus.put_events_calls();
    let entries = calls.iter().map(|call| call.entries as u64).sum();
    Usage { put_events_calls: calls.len() as u64, put_events_entries: entries, ..meter.usage() }
}
