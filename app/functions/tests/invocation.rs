//! Invocations of the function's process, with a server in place of Lambda's runtime API.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use daybook_test_support::collector::{Collector, CollectorBehaviour};
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::table::{TABLE, TestTable};
use serde_json::{Value, json};

/// The trace header of each invocation.
const TRACE_HEADER: &str = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";

/// The process, which ends with the test.
struct Function {
    process: Child,
    events: Sender<String>,
    outcomes: Receiver<(String, String)>,
    invocations: Arc<Invocations>,
}

/// The invocations so far.
#[derive(Default)]
struct Invocations {
    begun: AtomicUsize,
    in_progress: AtomicUsize,
    /// The maximum number that were in progress at a time.
    most: AtomicUsize,
}

impl Drop for Function {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Function {
    /// Starts the process. Each event that is sent becomes an invocation.
    fn start(more_variables: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (events, to_function) = channel::<String>();
        let (to_test, outcomes) = channel();
        let invocations = Arc::<Invocations>::default();
        let (to_function, counted) = (Arc::new(Mutex::new(to_function)), Arc::clone(&invocations));
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let (events, outcomes) = (Arc::clone(&to_function), to_test.clone());
                let invocations = Arc::clone(&counted);
                std::thread::spawn(move || serve(&connection.unwrap(), &events, &outcomes, &invocations));
            }
        });
        let environment = [
            ("AWS_LAMBDA_RUNTIME_API", address.as_str()),
            ("AWS_LAMBDA_FUNCTION_NAME", "command-handler"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512"),
            ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
            ("TABLE_NAME", TABLE),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "local"),
            ("AWS_SECRET_ACCESS_KEY", "local"),
            // Nothing listens there: the document needs no table.
            ("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1"),
        ];
        let mut command = Command::new(env!("CARGO_BIN_EXE_command-handler"));
        let process = command.env_clear().envs(environment).envs(more_variables.iter().copied()).spawn().unwrap();
        Self { process, events, outcomes, invocations }
    }

    /// Begins an invocation.
    fn send(&self, event: &Value) {
        self.events.send(event.to_string()).unwrap();
    }

    /// The last part of the path that the process posts to next (`response` or `error`), and the body.
    fn outcome(&self) -> (String, String) {
        self.outcomes.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    /// The next response.
    fn response(&self) -> Value {
        let (outcome, body) = self.outcome();
        assert_eq!(outcome, "response", "{body:.300}");
        serde_json::from_str(&body).unwrap()
    }

    /// Sends requests for the document one after the other, each after the response to the one before.
    fn invoke(&self, times: usize) {
        for _ in 0..times {
            self.send(&event("GET", "/openapi.json", &json!(null)));
            self.response();
        }
    }
}

/// Serves the requests of one connection.
fn serve(
    connection: &TcpStream,
    events: &Mutex<Receiver<String>>,
    outcomes: &Sender<(String, String)>,
    invocations: &Invocations,
) {
    let (mut reader, mut writer) = (BufReader::new(connection), connection);
    while let Some((path, body)) = read_request(&mut reader) {
        let (status, headers, body) = if path.ends_with("/invocation/next") {
            let Ok(event) = events.lock().unwrap().recv() else { return };
            let id = invocations.begun.fetch_add(1, Ordering::SeqCst);
            let in_progress = invocations.in_progress.fetch_add(1, Ordering::SeqCst) + 1;
            invocations.most.fetch_max(in_progress, Ordering::SeqCst);
            let headers = format!(
                "lambda-runtime-aws-request-id: {id}\r\nlambda-runtime-deadline-ms: 9999999999999\r\n\
                 lambda-runtime-trace-id: {TRACE_HEADER}\r\n"
            );
            ("200 OK", headers, event)
        } else {
            invocations.in_progress.fetch_sub(1, Ordering::SeqCst);
            let _ = outcomes.send((path.rsplit('/').next().unwrap().to_owned(), body));
            ("202 Accepted", String::new(), String::new())
        };
        let length = body.len();
        write!(writer, "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}").unwrap();
    }
}

/// The path and the body of the next request; none at the end of the connection.
fn read_request(reader: &mut impl BufRead) -> Option<(String, String)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|&length| length > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        match header.trim().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().ok()?,
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, String::from_utf8(body).ok()?))
}

/// A request without a body.
fn event(method: &str, path: &str, authorizer: &Value) -> Value {
    json!({
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json"},
        "requestContext": {"http": {"method": method, "path": path}, "authorizer": authorizer},
        "isBase64Encoded": false,
    })
}

/// A `POST` request.
fn post(path: &str, body: &Value) -> Value {
    let mut event = event("POST", path, &json!(null));
    event["body"] = json!(body.to_string());
    event
}

#[test]
fn invocation_with_odd_claims_returns_a_response() {
    let function = Function::start(&[]);
    for authorizer in [
        json!({"jwt": {"claims": {"sub": "ann"}, "scopes": null}}),
        json!({"jwt": {"claims": {"sub": "ann", "roles": ["a"], "nested": {"level": 3}, "none": null}, "scopes": "a"}}),
        json!({"iam": {"cognitoIdentity": {"amr": null, "identityId": 7}}}),
        json!({"lambda": ["a"]}),
        json!("nobody"),
    ] {
        function.send(&event("GET", "/openapi.json", &authorizer));
        let (outcome, body) = function.outcome();
        assert_eq!(outcome, "response", "{authorizer}: {body:.300}");
        let response: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(response["statusCode"], 200, "{authorizer}: {body:.300}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_of_an_invocation_are_exported_before_its_response() {
    let collector = Collector::start(CollectorBehaviour::Accept).await;
    let function = Function::start(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=a%20b, x-tenant=c"),
    ]);
    for count in 1..=3 {
        function.invoke(1);
        // Lambda would freeze the process now.
        assert_eq!(collector.spans().len(), count);
    }
    let span = collector.spans().remove(0);
    assert_eq!((span.service, span.name.as_str()), (json!("command-handler"), "GET /openapi.json"));
    let parent = (span.trace_id.as_str(), span.parent_id.as_str());
    assert_eq!(parent, ("5759e988bd862e3fe1be46a994272793", "53995c3f42cd8ad8"));
    let headers = collector.headers();
    assert_eq!((&headers["x-api-key"], &headers["x-tenant"]), (&"a b".parse().unwrap(), &"c".parse().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn collector_that_hangs_delays_one_of_many_invocations() {
    let collector = Collector::start(CollectorBehaviour::Hang).await;
    let function = Function::start(&[("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())]);
    let begun = Instant::now();
    function.invoke(20);
    let limit = 1 + begun.elapsed().as_secs() / 10;
    assert!(collector.requests() as u64 <= limit, "{} requests", collector.requests());
}

// Managed instances: Lambda sets the number of invocations that an environment takes at a time.

const MAX_CONCURRENCY: &str = "AWS_LAMBDA_MAX_CONCURRENCY";

/// The writes of a test.
const WRITES: usize = 16;

/// A process that uses the table, with the accounts `1` and `2`.
fn start_with(table: &TestTable, more_variables: &[(&str, &str)]) -> Function {
    let variables: Vec<_> =
        [("AWS_ENDPOINT_URL_DYNAMODB", table.proxy.url())].into_iter().chain(more_variables.iter().copied()).collect();
    let function = Function::start(&variables);
    for id in ["1", "2"] {
        function.send(&post("/account", &json!({"id": id})));
        assert_eq!(function.response()["statusCode"], 201);
    }
    table.proxy.take_calls();
    function
}

/// A command on the account `1`.
fn record_transaction() -> Value {
    post("/account/1/commands", &json!({"command": "RecordTransaction", "data": {"desc": "", "amount": 1}}))
}

/// Sends commands on one account without waiting for the responses. Expects that each returns a version of its own. Returns
/// the number of transactions.
fn write_at_once(table: &TestTable, function: &Function) -> usize {
    (0..WRITES).for_each(|_| function.send(&record_transaction()));
    let mut versions: Vec<_> = (0..WRITES)
        .map(|_| {
            let response = function.response();
            assert_eq!(response["statusCode"], 200, "{response}");
            let body: Value = serde_json::from_str(response["body"].as_str().unwrap()).unwrap();
            usize::try_from(body["version"].as_u64().unwrap()).unwrap()
        })
        .collect();
    versions.sort_unstable();
    assert_eq!(versions, (2..WRITES + 2).collect::<Vec<_>>());
    table.operations().iter().filter(|operation| *operation == "TransactWriteItems").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_invocations_of_an_environment_share_transactions() {
    let table = TestTable::new().await;
    let function = start_with(&table, &[(MAX_CONCURRENCY, "16")]);
    // Until the first call times out, all other commands arrive and wait, however slow the machine is.
    table.proxy.fail_next("TransactWriteItems", InjectedFault::Hang);
    let transactions = write_at_once(&table, &function);
    assert!(transactions <= WRITES / 4, "{transactions} transactions");
    assert_eq!(function.invocations.most.load(Ordering::SeqCst), 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn function_without_a_maximum_concurrency_takes_one_invocation_at_a_time() {
    let table = TestTable::new().await;
    let function = start_with(&table, &[]);
    assert_eq!(write_at_once(&table, &function), WRITES);
    assert_eq!(function.invocations.most.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_invocation_delays_no_other_of_its_environment() {
    const READS: usize = 5;
    let table = TestTable::new().await;
    let function = start_with(&table, &[(MAX_CONCURRENCY, "2")]);
    // Only the write makes this call. It tries again when the call has timed out.
    table.proxy.fail_next("TransactWriteItems", InjectedFault::Hang);
    function.send(&record_transaction());
    (0..READS).for_each(|_| function.send(&event("GET", "/account/2", &json!(null))));
    let id = |response: Value| {
        let body: Value = serde_json::from_str(response["body"].as_str().unwrap()).unwrap();
        (response["statusCode"].clone(), body["id"].clone())
    };
    for _ in 0..READS {
        assert_eq!(id(function.response()), (json!(200), json!("2")));
    }
    assert_eq!(id(function.response()), (json!(200), json!("1")));
}
