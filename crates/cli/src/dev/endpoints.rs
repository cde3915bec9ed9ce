//! What only the dev stack answers: what arrived on the bus and in the dead-letter queue, and faults on demand.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, put};
use axum::{Json, Router};
use daybook_local_aws::messaging::{Bus, Faults};
use serde::Serialize;
use serde_json::value::RawValue;

use super::functions::Discards;

/// `/_dev/…`; no aggregate type can be named like that.
pub(super) fn router(bus: Bus, discards: Discards) -> Router {
    Router::new()
        .route("/_dev/bus", get(async |State(bus): State<Bus>| Json(delivered(&bus))))
        .route("/_dev/dlq", get(async |State(bus): State<Bus>| Json(dead_letters(&bus))))
        .route("/_dev/discarded", get(async move || Json(discards.all())))
        .route("/_dev/faults", put(set_faults))
        .with_state(bus)
}

/// An entry that the bus took, its detail as it was sent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OnTheBus {
    event_bus_name: String,
    source: String,
    detail_type: String,
    time: Option<String>,
    resources: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_header: Option<String>,
    detail: Content,
}

/// A message that the dead-letter queue took.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InTheQueue {
    message_id: String,
    queue_url: String,
    body: Content,
}

/// Text that should be JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum Content {
    Json(Box<RawValue>),
    Text(String),
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        RawValue::from_string(text.clone()).map_or(Self::Text(text), Self::Json)
    }
}

/// In order of arrival.
fn delivered(bus: &Bus) -> Vec<OnTheBus> {
    let entry = |entry: daybook_local_aws::messaging::Delivered| OnTheBus {
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

/// In order of arrival.
fn dead_letters(bus: &Bus) -> Vec<InTheQueue> {
    let letter = |letter: daybook_local_aws::messaging::QueueMessage| InTheQueue {
        message_id: letter.message_id,
        queue_url: letter.queue_url,
        body: letter.body.into(),
    };
    bus.dead_letters().into_iter().map(letter).collect()
}

async fn set_faults(State(bus): State<Bus>, Json(faults): Json<Faults>) -> StatusCode {
    bus.set_faults(faults);
    StatusCode::NO_CONTENT
}
