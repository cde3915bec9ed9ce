//! Invocations of the function's process, with a server in place of Lambda's runtime API.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use daybook_test_support::collector::{Collector, CollectorBehaviour};
use serde_json::{Value, json};

/// The trace header of each invocation.
const TRACE_HEADER: &str = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";

/// The process, which ends with the test.
struct Function(Child);

impl Drop for Function {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the process. Each event that is sent becomes an invocation; the receiver gets the last part of the path that
/// the process posted to (`response` or `error`), and the body.
fn start(more_variables: &[(&str, &str)]) -> (Function, Sender<String>, Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (to_function, events) = channel::<String>();
    let (outcomes, from_function) = channel();
    std::thread::spawn(move || {
        let mut invocations = 0..;
        for connection in listener.incoming() {
            // The runtime sends one request at a time, on one connection or several.
            serve(&connection.unwrap(), &events, &outcomes, &mut invocations);
        }
    });
    let environment = [
        ("AWS_LAMBDA_RUNTIME_API", address.as_str()),
        ("AWS_LAMBDA_FUNCTION_NAME", "command-handler"),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512"),
        ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
        ("TABLE_NAME", "daybook"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "local"),
        ("AWS_SECRET_ACCESS_KEY", "local"),
        // Nothing listens there: the document needs no table.
        ("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1"),
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_command-handler"));
    let process = command.env_clear().envs(environment).envs(more_variables.iter().copied()).spawn().unwrap();
    (Function(process), to_function, from_function)
}

/// Serves the requests of one connection.
fn serve(
    connection: &TcpStream,
    events: &Receiver<String>,
    outcomes: &Sender<(String, String)>,
    invocations: &mut impl Iterator<Item = u32>,
) {
    let (mut reader, mut writer) = (BufReader::new(connection), connection);
    while let Some((path, body)) = read_request(&mut reader) {
        let (status, headers, body) = if path.ends_with("/invocation/next") {
            let Ok(event) = events.recv() else { return };
            let id = invocations.next().unwrap();
            let headers = format!(
                "lambda-runtime-aws-request-id: {id}\r\nlambda-runtime-deadline-ms: 9999999999999\r\n\
                 lambda-runtime-trace-id: {TRACE_HEADER}\r\n"
            );
            ("200 OK", headers, event)
        } else {
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

/// A request for the OpenAPI document.
fn event(authorizer: &Value) -> Value {
    json!({
        "version": "2.0",
        "rawPath": "/openapi.json",
        "rawQueryString": "",
        "headers": {},
        "requestContext": {"http": {"method": "GET", "path": "/openapi.json"}, "authorizer": authorizer},
        "isBase64Encoded": false,
    })
}

#[test]
fn invocation_with_odd_claims_returns_a_response() {
    let (_function, events, outcomes) = start(&[]);
    for authorizer in [
        json!({"jwt": {"claims": {"sub": "ann"}, "scopes": null}}),
        json!({"jwt": {"claims": {"sub": "ann", "roles": ["a"], "nested": {"level": 3}, "none": null}, "scopes": "a"}}),
        json!({"iam": {"cognitoIdentity": {"amr": null, "identityId": 7}}}),
        json!({"lambda": ["a"]}),
        json!("nobody"),
    ] {
        events.send(event(&authorizer).to_string()).unwrap();
        let (outcome, body) = outcomes.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(outcome, "response", "{authorizer}: {body:.300}");
        let response: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(response["statusCode"], 200, "{authorizer}: {body:.300}");
    }
}

/// Sends requests and waits for their responses.
fn invoke(times: usize, events: &Sender<String>, outcomes: &Receiver<(String, String)>) {
    for _ in 0..times {
        events.send(event(&json!(null)).to_string()).unwrap();
        assert_eq!(outcomes.recv_timeout(Duration::from_secs(60)).unwrap().0, "response");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_of_an_invocation_are_exported_before_its_response() {
    let collector = Collector::start(CollectorBehaviour::Accept).await;
    let (_function, events, outcomes) = start(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=a%20b, x-tenant=c"),
    ]);
    for count in 1..=3 {
        invoke(1, &events, &outcomes);
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
    let (_function, events, outcomes) = start(&[("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())]);
    let begun = Instant::now();
    invoke(20, &events, &outcomes);
    let limit = 1 + begun.elapsed().as_secs() / 10;
    assert!(collector.requests() as u64 <= limit, "{} requests", collector.requests());
}
