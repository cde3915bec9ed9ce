//! What the stack has used since its start: calls, and the read and write units that the table charges for them.
//!
//! The calls of the API and the stream functions are counted, not those of other processes. The units are those that
//! DynamoDB reports for successful calls; AWS also charges for transactions that are cancelled.

use std::collections::BTreeMap;
use std::mem;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use daybook_aws_clients::{CallMeter, CallUsage};
use daybook_console::stack::Minute;
use daybook_function_runtime::SdkConfig;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    pub api_requests: u64,
    /// Invocations of the stream functions, by function.
    pub stream_invocations: BTreeMap<String, u64>,
    #[serde(flatten)]
    pub calls: CallUsage,
    pub put_events_calls: u64,
    pub put_events_entries: u64,
}

/// The requests to the API in the last hour. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    started: Instant,
    /// By the minute since the start.
    minutes: Arc<Mutex<BTreeMap<u64, Requests>>>,
}

/// The number of requests, and the durations of the first ones.
type Requests = (usize, Vec<Duration>);

const MINUTES: u64 = 60;

/// Maximum durations of a minute.
const SAMPLE: usize = 1_000;

impl Default for Traffic {
    fn default() -> Self {
        Self { started: Instant::now(), minutes: Arc::default() }
    }
}

impl Traffic {
    pub(crate) fn count(&self, duration: Duration) {
        let (now, mut minutes) = (self.now(), self.minutes.lock().unwrap_or_else(PoisonError::into_inner));
        let (requests, durations) = minutes.entry(now).or_default();
        *requests += 1;
        if durations.len() < SAMPLE {
            durations.push(duration);
        }
        *minutes = minutes.split_off(&(now + 1).saturating_sub(MINUTES));
    }

    /// The last of them is the current one.
    pub(crate) fn minutes(&self) -> Vec<Minute> {
        let now = self.now();
        let mut minutes = self.minutes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let minute = |ago: u64| {
            let Some((requests, mut durations)) = now.checked_sub(ago).and_then(|minute| minutes.remove(&minute))
            else {
                return Minute::default();
            };
            durations.sort_unstable();
            Minute { requests, median_ms: durations[durations.len() / 2].as_secs_f64() * 1_000.0 }
        };
        (0..MINUTES).rev().map(minute).collect()
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_secs() / 60
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.api_requests += other.api_requests;
        for (function, count) in other.stream_invocations {
            *self.stream_invocations.entry(function).or_default() += count;
        }
        self.calls += other.calls;
        self.put_events_calls += other.put_events_calls;
        self.put_events_entries += other.put_events_entries;
    }
}

/// Counts what is used. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsageMeter {
    counts: Arc<Mutex<Usage>>,
    /// The calls that are not yet in `counts`.
    calls: CallMeter,
}

impl UsageMeter {
    fn counts(&self) -> MutexGuard<'_, Usage> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.calls += self.calls.take();
        counts
    }

    /// What was used since this was last called.
    pub(crate) fn take(&self) -> Usage {
        mem::take(&mut *self.counts())
    }

    pub(crate) fn usage(&self) -> Usage {
        self.counts().clone()
    }

    pub(crate) fn add(&self, counted: Usage) {
        *self.counts() += counted;
    }

    pub(crate) fn count_invocation(&self, function: &str) {
        *self.counts().stream_invocations.entry(function.to_owned()).or_default() += 1;
    }

    pub(crate) fn metered(&self, dynamodb: &SdkConfig) -> SdkConfig {
        self.calls.metered_with_units(dynamodb)
    }
}

pub(crate) async fn count_request(State(meter): State<UsageMeter>, request: Request, next: Next) -> Response {
    meter.counts().api_requests += 1;
    next.run(request).await
}
