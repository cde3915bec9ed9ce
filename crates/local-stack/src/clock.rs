//! `/_dev/clock`: the clock of the stack, which can be moved forward.
//!
//! Everything in the stack that shows or stores a time has this clock: the functions, the table's stream, the event source
//! mappings, the bus, the queues and the console. Pauses, timeouts and signatures of AWS calls have the machine's clock.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use daybook_function_runtime::with_causes;
use daybook_local_aws::clock::{ForwardBy, LocalClock};
use daybook_local_aws::dynamodb::{ForwardError, TableClock};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::aws::DYNAMODB_ENDPOINT;
use crate::functions::Functions;
use crate::mapping_states::MappingStates;

/// How long a move waits for the functions of the stream.
const PATIENCE: Duration = Duration::from_secs(2);

/// The functions are idle if nothing waits at several reads with this pause: a record that was just written may not be at
/// its mapping yet.
const READ_PAUSE: Duration = Duration::from_millis(100);
const IDLE_READS: u32 = 3;

/// The clock, and what a move changes.
#[derive(Clone)]
pub(crate) struct StackClock {
    pub(crate) clock: LocalClock,
    /// `None` if DynamoDB is external.
    pub(crate) table: Option<TableClock>,
    pub(crate) mappings: MappingStates,
    pub(crate) functions: Functions,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClockJson {
    now: String,
    ahead_by: String,
    ahead_by_seconds: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MoveJson {
    forward_by: String,
}

/// The endpoint.
pub(crate) fn router(clock: StackClock) -> Router {
    let read = async |State(clock): State<StackClock>| Json(clock.json());
    let forward = async |State(clock): State<StackClock>, Json(given): Json<MoveJson>| {
        clock.forward(&given.forward_by).await.map(|()| Json(clock.json()))
    };
    Router::new().route("/_dev/clock", get(read).put(forward)).with_state(clock)
}

impl StackClock {
    fn json(&self) -> ClockJson {
        let ahead = self.clock.ahead();
        ClockJson {
            now: format!("{:.3}", self.clock.timestamp()),
            ahead_by: ahead.to_string(),
            ahead_by_seconds: ahead.seconds,
        }
    }

    async fn forward(&self, by: &str) -> Result<(), (StatusCode, String)> {
        let unprocessable = |error: &dyn std::error::Error| (StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
        let by: ForwardBy = by.parse().map_err(|error| unprocessable(&error))?;
        let Some(table) = self.table.clone() else {
            let reason = format!("the clock of an external DynamoDB cannot be moved; unset {DYNAMODB_ENDPOINT}");
            return Err((StatusCode::CONFLICT, reason));
        };
        self.wait_for_functions().await;
        let moved = spawn_blocking(move || table.forward(by)).await;
        // Also if expired rows could not be deleted.
        self.functions.advance_clock(self.clock.ahead()).await;
        match moved {
            Ok(Ok(())) => Ok(()),
            Ok(Err(ForwardError::Move(error))) => Err(unprocessable(&error)),
            Ok(Err(error)) => Err((StatusCode::INTERNAL_SERVER_ERROR, with_causes(&error))),
            Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
        }
    }

    /// Waits until the functions of the stream have settled the records that are on their way to them: after the move, the
    /// mappings would discard these as too old. The records of a function that is paused or fails get older.
    async fn wait_for_functions(&self) {
        let give_up = Instant::now() + PATIENCE;
        let mut idle_reads = 0;
        while idle_reads < IDLE_READS && Instant::now() < give_up {
            sleep(READ_PAUSE).await;
            idle_reads = if self.mappings.are_idle() { idle_reads + 1 } else { 0 };
        }
    }
}
