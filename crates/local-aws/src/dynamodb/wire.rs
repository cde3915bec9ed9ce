//! A wire in front of a DynamoDB endpoint: it counts the calls with the capacity that they consume, and fails those that
//! a test tells it to, as the service or the network would.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::dynamodb::StartError;

const JSON: &str = "application/x-amz-json-1.0";

/// One call that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedCall {
    /// `Query`, `TransactWriteItems`, …
    pub operation: String,
    /// The HTTP status that the caller got; 0 when the connection broke.
    pub status: u16,
    /// Capacity units of the table.
    pub table_units: f64,
    /// Capacity units of its indexes.
    pub index_units: f64,
    /// The request.
    pub request: Value,
}

/// What happens to a call instead of the answer that was asked for.
#[derive(Clone, Debug)]
pub enum InjectedFault {
    /// The service refuses with this error and does nothing.
    Refuse {
        /// The HTTP status.
        status: u16,
        /// The error code, such as `ThrottlingException`.
        code: &'static str,
    },
    /// A transaction is cancelled with these codes, one an item, and nothing is done.
    Cancel {
        /// `None`, `TransactionConflict`, …
        codes: Vec<&'static str>,
    },
    /// There is never an answer.
    Hang,
    /// The connection breaks before the service sees the call.
    BreakBefore,
    /// The service does what it is asked to, then the connection breaks.
    BreakAfter,
    /// A page ends after so many items and says where the next begins, as one of 1 MB does.
    ShortPage {
        /// How many.
        items: u32,
    },
}

/// A running wire. It ends when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    url: String,
    line: Arc<Line>,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
struct Line {
    target: String,
    client: reqwest::Client,
    calls: Mutex<Vec<RecordedCall>>,
    faults: Mutex<VecDeque<(&'static str, InjectedFault)>>,
}

impl FaultProxy {
    /// A wire to the endpoint `target`.
    ///
    /// # Errors
    ///
    /// When there is no port to listen on.
    pub async fn to(target: &str) -> Result<Self, StartError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let line = Arc::new(Line {
            target: target.to_owned(),
            client: reqwest::Client::new(),
            calls: Mutex::default(),
            faults: Mutex::default(),
        });
        let router = Router::new().fallback(relay).layer(DefaultBodyLimit::disable()).with_state(Arc::clone(&line));
        let serving = tokio::spawn(async move {
            // Serving ends with the task; a listener that fails shows in the calls that fail.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, line, serving })
    }

    /// The endpoint for an AWS SDK.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The calls since the last time that they were taken.
    pub fn take_calls(&self) -> Vec<RecordedCall> {
        std::mem::take(&mut lock(&self.line.calls))
    }

    /// Fails the next call of `operation` that has no fault waiting before it.
    pub fn fail_next(&self, operation: &'static str, fault: InjectedFault) {
        lock(&self.line.faults).push_back((operation, fault));
    }

    /// Holds a run once its calls are those: between these and its next step, others have all the time that they need. It
    /// goes on when it is awaited. The calls, with those since they were last taken, are taken.
    ///
    /// # Panics
    ///
    /// When the run ends before.
    pub async fn hold<T>(&self, run: impl Future<Output = T> + Unpin, are_those: impl Fn(&[RecordedCall]) -> bool) {
        assert!(self.advance(run, are_those).await.is_none(), "it ended before");
    }

    /// The same of a run that may end before; then, what it came to.
    pub async fn advance<T>(
        &self,
        mut run: impl Future<Output = T> + Unpin,
        are_those: impl Fn(&[RecordedCall]) -> bool,
    ) -> Option<T> {
        let mut calls = Vec::new();
        poll_fn(|context| {
            calls.extend(self.take_calls());
            if are_those(&calls) {
                return Poll::Ready(None);
            }
            // Nothing else tells of a call.
            context.waker().wake_by_ref();
            Pin::new(&mut run).poll(context).map(Some)
        })
        .await
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn relay(State(line): State<Arc<Line>>, headers: HeaderMap, body: Bytes) -> Response {
    let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default().to_owned();
    let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
    let mut request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let fault = {
        let mut faults = lock(&line.faults);
        let next = faults.iter().position(|(of, _)| *of == operation);
        next.and_then(|at| faults.remove(at)).map(|(_, fault)| fault)
    };
    let mut call = RecordedCall { operation, status: 0, table_units: 0.0, index_units: 0.0, request: request.clone() };
    let response = match fault {
        Some(InjectedFault::Hang) => std::future::pending().await,
        Some(InjectedFault::BreakBefore) => broken(),
        Some(InjectedFault::Refuse { status, code }) => refused(status, code, None),
        Some(InjectedFault::Cancel { codes }) => {
            let reasons: Vec<_> = codes.iter().map(|code| serde_json::json!({"Code": code})).collect();
            refused(400, "TransactionCanceledException", Some(Value::from(reasons)))
        }
        other @ (None | Some(InjectedFault::BreakAfter | InjectedFault::ShortPage { .. })) => {
            if let Some(InjectedFault::ShortPage { items }) = other {
                request["Limit"] = items.into();
            }
            request["ReturnConsumedCapacity"] = "INDEXES".into();
            let sent =
                line.client.post(&line.target).headers(forwarded(&headers)).body(request.to_string()).send().await;
            let Ok(answer) = sent else { return broken() };
            let status = answer.status();
            let bytes = answer.bytes().await.unwrap_or_default();
            (call.table_units, call.index_units) = units(&serde_json::from_slice(&bytes).unwrap_or_default());
            if let Some(InjectedFault::BreakAfter) = other {
                broken()
            } else {
                (status, [(header::CONTENT_TYPE, JSON)], bytes).into_response()
            }
        }
    };
    if response.extensions().get::<Broken>().is_none() {
        call.status = response.status().as_u16();
    }
    lock(&line.calls).push(call);
    response
}

/// The headers that are the request's own and not the connection's.
fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    headers
}

fn refused(status: u16, code: &str, reasons: Option<Value>) -> Response {
    let mut body = serde_json::json!({
        "__type": format!("com.amazonaws.dynamodb.v20120810#{code}"),
        "message": "told to fail",
    });
    if let Some(reasons) = reasons {
        body["CancellationReasons"] = reasons;
    }
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, JSON)], body.to_string()).into_response()
}

#[derive(Clone)]
struct Broken;

/// An answer that breaks off: the caller cannot tell what became of its call.
fn broken() -> Response {
    let torn = futures_util::stream::once(async { Err::<Bytes, _>(std::io::Error::other("told to break")) });
    let mut response = Response::new(Body::from_stream(torn));
    response.extensions_mut().insert(Broken);
    response
}

/// What an answer says it consumed, of the table and of its indexes.
fn units(answer: &Value) -> (f64, f64) {
    let consumed = match &answer["ConsumedCapacity"] {
        Value::Array(tables) => tables.clone(),
        one => vec![one.clone()],
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
