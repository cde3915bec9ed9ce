//! HTTP endpoints that only the local stack has, under `/_dev/`: the messages on the bus and in the dead-letter queue, the
//! discarded records, the event source mappings, the rules, the usage, injected faults, and the clock.
//!
//! Everything in the stack that shows or stores a time has its clock: the functions, the table's stream, the event source
//! mappings, the bus, the queues and the console. Pauses, timeouts and signatures of AWS calls have the machine's clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use daybook_function_runtime::{SdkConfig, with_causes};
use daybook_local_aws::clock::{Ahead, LocalClock};
use daybook_local_aws::dynamodb::{ForwardError, TableClock};
use daybook_local_aws::messaging::{Bus, Delivered, Faults, QueueMessage};
use daybook_stream_relay::RelaySettings;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::functions::{Functions, Variables};
use crate::mapping_worker::MappingStates;
use crate::rule_function::RuleStates;
use crate::services::DiscardedRecords;
use crate::usage::{Usage, UsageMeter};

/// How long a move of the clock waits for the functions of the stream.
const MOVE_PATIENCE: Duration = Duration::from_secs(2);

/// The stack is idle if nothing waits at several reads with this pause: a record that was just written may not be at its
/// mapping yet.
const READ_PAUSE: Duration = Duration::from_millis(100);
const IDLE_READS: u32 = 3;

#[derive(Clone)]
pub(crate) struct StackParts {
    pub(crate) bus: Bus,
    pub(crate) discarded: DiscardedRecords,
    pub(crate) mappings: MappingStates,
    pub(crate) rules: RuleStates,
    pub(crate) meter: UsageMeter,
    pub(crate) functions: Functions,
    pub(crate) set_faults: Arc<Mutex<Value>>,
    pub(crate) clock: LocalClock,
    pub(crate) table_clock: TableClock,
    /// Is notified when the clock was moved.
    pub(crate) ticks: Arc<Notify>,
    pub(crate) of_operator: Arc<Variables>,
    /// With these, messages are sent to the bus again.
    pub(crate) eventbridge: SdkConfig,
    pub(crate) relay: RelaySettings,
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueMessageJson {
    message_id: String,
    queue_url: String,
    body: JsonOrText,
}

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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MoveJson {
    forward_by: String,
}

/// The endpoints. No aggregate type can have the name `_dev`.
pub(crate) fn router(parts: StackParts) -> Router {
    type Parts = State<StackParts>;
    let set_faults = async |State(parts): Parts, Json(faults): Json<Value>| {
        parts
            .set_faults(faults)
            .map(|()| StatusCode::NO_CONTENT)
            .map_err(|error| (StatusCode::UNPROCESSABLE_ENTITY, error))
    };
    let usage = async |State(parts): Parts| {
        parts.meter.add(parts.functions.take_usage().await);
        Json(parts.usage())
    };
    let move_clock = async |State(parts): Parts, Json(given): Json<MoveJson>| {
        parts.move_clock(&given.forward_by).await.map(|()| Json(parts.clock_json()))
    };
    let invoke =
        async |State(parts): Parts, Path(name): Path<String>, event: String| parts.rules.invoke(&name, event).await;
    Router::new()
        .route("/_dev/bus", get(async |State(parts): Parts| Json(delivered(&parts.bus))))
        .route("/_dev/dlq", get(async |State(parts): Parts| Json(dead_letters(&parts.bus))))
        .route("/_dev/discarded", get(async |State(parts): Parts| Json(parts.discarded.all())))
        .route("/_dev/mappings", get(async |State(parts): Parts| Json(parts.mappings.all())))
        .route("/_dev/rules", get(async |State(parts): Parts| Json(parts.rules.all())))
        .route("/_dev/functions/{name}", post(invoke))
        .route("/_dev/usage", get(usage))
        .route("/_dev/faults", get(async |State(parts): Parts| Json(parts.faults_as_set())).put(set_faults))
        .route(
            "/_dev/environment",
            get(async |State(parts): Parts, headers: HeaderMap| environment(&parts.of_operator, &headers)),
        )
        .route("/_dev/clock", get(async |State(parts): Parts| Json(parts.clock_json())).put(move_clock))
        .with_state(parts)
}

/// Lines for a shell, or JSON if the request asks for it.
fn environment(variables: &Variables, headers: &HeaderMap) -> Response {
    if headers.get(ACCEPT).is_some_and(|accepted| accepted == "application/json") {
        return Json(variables).into_response();
    }
    let line = |(name, value): (&String, &String)| format!("export {name}='{value}'\n");
    variables.iter().map(line).collect::<String>().into_response()
}

fn delivered(bus: &Bus) -> Vec<BusEntryJson> {
    let entry = |entry: Delivered| {
        let Delivered { event_bus_name, source, detail_type, time, resources, trace_header, detail, .. } = entry;
        let detail = detail.into();
        BusEntryJson { event_bus_name, source, detail_type, time, resources, trace_header, detail }
    };
    bus.delivered().into_iter().map(entry).collect()
}

fn dead_letters(bus: &Bus) -> Vec<QueueMessageJson> {
    let message = |QueueMessage { message_id, queue_url, body, .. }| QueueMessageJson {
        message_id,
        queue_url,
        body: body.into(),
    };
    bus.dead_letters().into_iter().map(message).collect()
}

impl StackParts {
    /// What the stack has used since its start, without the calls that the functions have not reported yet.
    pub(crate) fn usage(&self) -> Usage {
        let calls = self.bus.put_events_calls();
        let entries = calls.iter().map(|call| call.entries as u64).sum();
        Usage { put_events_calls: calls.len() as u64, put_events_entries: entries, ..self.meter.usage() }
    }

    pub(crate) fn faults_as_set(&self) -> Value {
        self.set_faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_faults(&self, faults: Value) -> Result<(), String> {
        let given = Faults::deserialize(&faults).map_err(|error| error.to_string())?;
        *self.set_faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
        self.mappings.pause(given.paused.iter().map(|function| function.name()).collect());
        self.bus.set_faults(given);
        Ok(())
    }

    fn clock_json(&self) -> Value {
        let ahead = self.clock.ahead();
        let now = format!("{:.3}", self.clock.timestamp());
        json!({"now": now, "aheadBy": ahead.to_string(), "aheadBySeconds": ahead.seconds})
    }

    /// Moves the clock forward by a duration such as `14d`.
    pub(crate) async fn move_clock(&self, by: &str) -> Result<(), (StatusCode, String)> {
        let unprocessable = |error: &dyn std::error::Error| (StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
        let by: Ahead = by.parse().map_err(|error| unprocessable(&error))?;
        let _held = self.functions.hold_writers().await;
        // After the move, the mappings would discard the records on their way to the functions as too old. The records of a
        // function that is paused or fails get older.
        self.is_idle_within(MOVE_PATIENCE, || self.mappings.are_idle()).await;
        let table = self.table_clock.clone();
        let moved = spawn_blocking(move || table.forward(by)).await;
        // Also if expired rows could not be deleted.
        self.functions.advance_clock(self.clock.ahead()).await;
        self.bus.clock_moved();
        self.ticks.notify_one();
        match moved {
            Ok(Ok(())) => Ok(()),
            Ok(Err(ForwardError::Move(error))) => Err(unprocessable(&error)),
            Ok(Err(error)) => Err((StatusCode::INTERNAL_SERVER_ERROR, with_causes(&error))),
            Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
        }
    }

    /// Waits until a part of the stack is idle. Returns whether that was so within this time.
    pub(crate) async fn is_idle_within(&self, patience: Duration, is_idle: impl Fn() -> bool) -> bool {
        let give_up = Instant::now() + patience;
        let mut idle_reads = 0;
        while idle_reads < IDLE_READS && Instant::now() < give_up {
            sleep(READ_PAUSE).await;
            idle_reads = if is_idle() { idle_reads + 1 } else { 0 };
        }
        idle_reads == IDLE_READS
    }
}
