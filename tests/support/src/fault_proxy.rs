//! A proxy in front of a DynamoDB endpoint: it records the calls with the capacity that they consume, and fails the calls
//! that a test chooses, as the service or the network would.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use daybook_local_aws::json_protocol::{self, JSON_1_0};
use daybook_local_aws::messaging::Server;
use serde_json::{Value, json};

/// One call that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedCall {
    /// `Query`, `TransactWriteItems`, …
    pub operation: String,
    /// The HTTP status that the caller received; 0 if the connection broke.
    pub status: u16,
    /// Capacity units of the table.
    pub table_units: f64,
    /// Capacity units of its indexes.
    pub index_units: f64,
    /// The request.
    pub request: Value,
}

/// What happens to a call instead of the usual response.
#[derive(Clone, Debug)]
pub enum InjectedFault {
    /// The service returns this error and does nothing.
    Refuse {
        /// The HTTP status.
        status: u16,
        /// The error code, such as `ThrottlingException`.
        code: &'static str,
    },
    /// The service cancels a transaction with these codes, one per item, and does nothing.
    Cancel {
        /// `None`, `TransactionConflict`, …
        codes: Vec<&'static str>,
    },
    /// No response ever arrives.
    Hang,
    /// The connection breaks before the service sees the call.
    BreakBefore,
    /// The service executes the call, then the connection breaks.
    BreakAfter,
    /// A page ends after this number of items and names the start of the next page, as a page of 1 MB does.
    ShortPage {
        /// The number of items.
        items: u32,
    },
}

/// A running proxy. It stops when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    server: Server,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    endpoint: String,
    client: reqwest::Client,
    calls: Mutex<Vec<RecordedCall>>,
    faults: Mutex<VecDeque<(&'static str, InjectedFault)>>,
}

impl FaultProxy {
    /// A proxy in front of `endpoint`.
    ///
    /// # Errors
    ///
    /// When no port is free.
    pub async fn to(endpoint: &str) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            endpoint: endpoint.to_owned(),
            client: reqwest::Client::new(),
            calls: Mutex::default(),
            faults: Mutex::default(),
        });
        let router = Router::new().fallback(handle).layer(DefaultBodyLimit::disable());
        let server = Server::start(router.with_state(Arc::clone(&shared))).await?;
        Ok(Self { server, shared })
    }

    /// The endpoint for an AWS SDK.
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// The calls since they were last taken.
    pub fn take_calls(&self) -> Vec<RecordedCall> {
        std::mem::take(&mut lock(&self.shared.calls))
    }

    /// Fails the next call of `operation` that has no earlier fault.
    pub fn fail_next(&self, operation: &'static str, fault: InjectedFault) {
        lock(&self.shared.faults).push_back((operation, fault));
    }

    /// Takes back the faults that no call has met yet.
    pub fn take_faults(&self) {
        lock(&self.shared.faults).clear();
    }

    /// Polls `run` until `is_reached` is true for the recorded calls, and leaves it there, so that others can act before its
    /// next step. It continues when it is awaited. All recorded calls are taken.
    ///
    /// # Panics
    ///
    /// When `run` ends earlier.
    pub async fn hold<T>(&self, run: impl Future<Output = T> + Unpin, is_reached: impl Fn(&[RecordedCall]) -> bool) {
        assert!(self.advance(run, is_reached).await.is_none(), "the run ended before it could be held");
    }

    /// Does the same with a run that may end earlier. In that case, returns its output.
    pub async fn advance<T>(
        &self,
        mut run: impl Future<Output = T> + Unpin,
        is_reached: impl Fn(&[RecordedCall]) -> bool,
    ) -> Option<T> {
        let mut calls = Vec::new();
        poll_fn(|context| {
            calls.extend(self.take_calls());
            if is_reached(&calls) {
                return Poll::Ready(None);
            }
            // Nothing else wakes this task when a call is recorded.
            context.waker().wake_by_ref();
            Pin::new(&mut run).poll(context).map(Some)
        })
        .await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn handle(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let operation = json_protocol::target(&headers).rsplit('.').next().unwrap_or_default().to_owned();
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let fault = shared.take_fault(&operation);
    let mut call = RecordedCall { operation, status: 0, table_units: 0.0, index_units: 0.0, request: request.clone() };
    let response = match fault {
        Some(InjectedFault::Hang) => std::future::pending().await,
        Some(InjectedFault::BreakBefore) => None,
        Some(InjectedFault::Refuse { status, code }) => Some(error_response(status, error(code))),
        Some(InjectedFault::Cancel { codes }) => {
            let mut body = error("TransactionCanceledException");
            body["CancellationReasons"] = codes.iter().map(|code| json!({ "Code": code })).collect();
            Some(error_response(400, body))
        }
        other @ (None | Some(InjectedFault::BreakAfter | InjectedFault::ShortPage { .. })) => {
            let Ok((status, body)) = shared.forward(&headers, request, other.as_ref()).await else {
                return broken_response();
            };
            (call.table_units, call.index_units) = units(&serde_json::from_slice(&body).unwrap_or_default());
            let breaks = matches!(other, Some(InjectedFault::BreakAfter));
            (!breaks).then(|| json_protocol::response(status, JSON_1_0, body))
        }
    };
    if let Some(response) = &response {
        call.status = response.status().as_u16();
    }
    lock(&shared.calls).push(call);
    response.unwrap_or_else(broken_response)
}

impl Shared {
    fn take_fault(&self, operation: &str) -> Option<InjectedFault> {
        let mut faults = lock(&self.faults);
        let next = faults.iter().position(|(of, _)| *of == operation)?;
        faults.remove(next).map(|(_, fault)| fault)
    }

    async fn forward(
        &self,
        headers: &HeaderMap,
        mut request: Value,
        fault: Option<&InjectedFault>,
    ) -> reqwest::Result<(StatusCode, Bytes)> {
        if let Some(InjectedFault::ShortPage { items }) = fault {
            request["Limit"] = (*items).into();
        }
        request["ReturnConsumedCapacity"] = "INDEXES".into();
        let mut headers = headers.clone();
        // These belong to the caller's connection.
        headers.remove(header::HOST);
        headers.remove(header::CONTENT_LENGTH);
        let response = self.client.post(&self.endpoint).headers(headers).body(request.to_string()).send().await?;
        Ok((response.status(), response.bytes().await.unwrap_or_default()))
    }
}

fn error(code: &str) -> Value {
    json_protocol::error_body(&format!("com.amazonaws.dynamodb.v20120810#{code}"), "injected fault")
}

fn error_response(status: u16, body: Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_protocol::response(status, JSON_1_0, body.to_string())
}

fn broken_response() -> Response {
    Response::new(json_protocol::broken_body())
}

/// The capacity units that a response reports, of the table and of its indexes.
fn units(response: &Value) -> (f64, f64) {
    let consumed = match &response["ConsumedCapacity"] {
        Value::Array(tables) => tables.as_slice(),
        one => std::slice::from_ref(one),
    };
    let table = consumed.iter().filter_map(|of| of["Table"]["CapacityUnits"].as_f64()).sum();
    let indexes = consumed
        .iter()
        .filter_map(|of| of["GlobalSecondaryIndexes"].as_object())
        .flat_map(|indexes| indexes.values())
        .filter_map(|index| index["CapacityUnits"].as_f64())
        .sum();
    (table, indexes)
}
