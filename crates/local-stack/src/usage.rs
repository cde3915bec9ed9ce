//! What the stack has used since its start: calls, and the read and write units that the table charges for them.
//!
//! The calls of the API and the stream functions are counted, not those of other processes. The units are those that the
//! stack's own DynamoDB reports for successful calls; AWS also charges for transactions that are cancelled.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use daybook_function_runtime::SdkConfig;
use serde::{Deserialize, Serialize};

use crate::metered_client::{MeteredClient, is_read};

/// What the stack has used since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    pub api_requests: u64,
    /// Invocations of the stream functions, by function.
    pub stream_invocations: BTreeMap<String, u64>,
    pub dynamodb_calls: BTreeMap<String, u64>,
    /// Units of reads; `None` if DynamoDB is not the stack's own.
    pub read_units: Option<f64>,
    /// Units of writes, in the table and the index; `None` if DynamoDB is not the stack's own.
    pub write_units: Option<f64>,
    pub put_events_calls: u64,
    /// Entries in these calls.
    pub put_events_entries: u64,
}

/// Counts the usage of a running stack. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsageMeter(Arc<Mutex<Usage>>);

impl UsageMeter {
    pub(crate) fn usage(&self) -> Usage {
        self.counts().clone()
    }

    /// Returns the usage, and begins to count anew.
    pub(crate) fn take(&self) -> Usage {
        let mut counts = self.counts();
        let nothing = Usage {
            read_units: counts.read_units.map(|_| 0.0),
            write_units: counts.write_units.map(|_| 0.0),
            ..Usage::default()
        };
        mem::replace(&mut *counts, nothing)
    }

    pub(crate) fn add(&self, counted: Usage) {
        let mut counts = self.counts();
        counts.api_requests += counted.api_requests;
        for (function, invocations) in counted.stream_invocations {
            *counts.stream_invocations.entry(function).or_default() += invocations;
        }
        counts.put_events_calls += counted.put_events_calls;
        counts.put_events_entries += counted.put_events_entries;
        for (operation, calls) in counted.dynamodb_calls {
            *counts.dynamodb_calls.entry(operation).or_default() += calls;
        }
        counts.read_units = sum(counts.read_units, counted.read_units);
        counts.write_units = sum(counts.write_units, counted.write_units);
    }

    pub(crate) fn count_invocation(&self, function: &str) {
        *self.counts().stream_invocations.entry(function.to_owned()).or_default() += 1;
    }

    /// The configuration of a DynamoDB client whose calls are counted. The client must not check signatures: the request is
    /// changed after it was signed.
    pub(crate) fn metered(&self, dynamodb: &SdkConfig) -> SdkConfig {
        let Some(client) = dynamodb.http_client() else { return dynamodb.clone() };
        {
            let mut counts = self.counts();
            counts.read_units.get_or_insert_default();
            counts.write_units.get_or_insert_default();
        }
        let meter = self.clone();
        let metered =
            MeteredClient::asking_for_units(client, move |operation, units| meter.count_call(operation, units));
        dynamodb.to_builder().http_client(metered).build()
    }

    fn count_call(&self, operation: &str, units: f64) {
        let mut counts = self.counts();
        *counts.dynamodb_calls.entry(operation.to_owned()).or_default() += 1;
        *if is_read(operation) { &mut counts.read_units } else { &mut counts.write_units }.get_or_insert_default() +=
            units;
    }

    fn counts(&self) -> MutexGuard<'_, Usage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sum(units: Option<f64>, more: Option<f64>) -> Option<f64> {
    units.zip(more).map(|(units, more)| units + more).or(units).or(more)
}

pub(crate) async fn count_request(State(meter): State<UsageMeter>, request: Request, next: Next) -> Response {
    meter.counts().api_requests += 1;
    next.run(request).await
}
