//! `deploy/check-api`, with which the workflow checks the API that it has deployed.

use std::process::Output;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use daybook_command_handler::ApiSettings;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_local_aws::messaging::Server;
use suite_tests::workspace;
use tokio::process::Command;

use crate::instance::{Instance, settings};

/// What the API does instead of its usual response.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Calls without credentials are accepted.
    AcceptsAnybody,
    RejectsEverybody,
    FailsWrites,
    /// Reads return the first version.
    ReadsOldState,
    FailsReads,
}

/// An API that expects credentials, like API Gateway.
struct DeployedApi {
    server: Server,
    /// The credentials of the calls.
    credentials: Arc<Mutex<Vec<String>>>,
}

impl DeployedApi {
    async fn start(router: Router, fault: Fault) -> Self {
        let credentials = Arc::<Mutex<Vec<String>>>::default();
        let seen = credentials.clone();
        let authorized = move |request: Request, next: Next| {
            let seen = seen.clone();
            async move { respond(request, next, fault, &seen).await }
        };
        let server = Server::start(router.layer(from_fn(authorized))).await.unwrap();
        Self { server, credentials }
    }

    /// Runs the script with these variables.
    async fn check(&self, variables: &[(&str, &str)]) -> Output {
        let path = std::env::var_os("PATH").unwrap();
        let mut script = Command::new(workspace().join("deploy/check-api"));
        let script = script.arg(self.server.url()).env_clear().env("PATH", path).envs(variables.iter().copied());
        script.output().await.unwrap()
    }
}

async fn respond(mut request: Request, next: Next, fault: Fault, seen: &Mutex<Vec<String>>) -> Response {
    let credentials = request.headers_mut().remove(AUTHORIZATION);
    let is_write = request.method() == "POST";
    match (&credentials, fault) {
        (_, Fault::RejectsEverybody) => return StatusCode::FORBIDDEN.into_response(),
        (None, Fault::AcceptsAnybody) | (Some(_), _) => {}
        (None, _) => return StatusCode::FORBIDDEN.into_response(),
    }
    seen.lock().unwrap().extend(credentials.map(|value| value.to_str().unwrap().to_owned()));
    match fault {
        Fault::FailsWrites if is_write => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Fault::FailsReads if !is_write => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Fault::ReadsOldState if !is_write => {
            let first = format!("{}?version=1", request.uri().path());
            *request.uri_mut() = first.parse().unwrap();
            next.run(request).await
        }
        _ => next.run(request).await,
    }
}

const KEYS: [(&str, &str); 4] = [
    ("AWS_REGION", "eu-central-1"),
    ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
    ("AWS_SECRET_ACCESS_KEY", "secret"),
    ("AWS_SESSION_TOKEN", "session"),
];

/// The output of a check that succeeds.
fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn check_writes_and_reads_with_signatures() {
    for require_if_match in [false, true] {
        let settings = ApiSettings { require_if_match, ..settings() };
        let engine = LocalDynamoDb::in_memory().await.unwrap();
        let instance = Instance::with(engine, aggregates::registry().unwrap(), settings).await;
        let api = DeployedApi::start(instance.router.clone(), Fault::None).await;
        for version in 1..=3 {
            let printed = succeeded(api.check(&KEYS).await);
            assert!(
                printed.ends_with(&format!("wrote and read version {version} of todo/deployment-check\n")),
                "{printed}"
            );
        }
        let printed = succeeded(api.check(&[&KEYS[..], &[("CHECK_ID", "other")]].concat()).await);
        assert!(printed.ends_with("version 1 of todo/other\n"), "{printed}");
        let credentials = api.credentials.lock().unwrap().clone();
        assert_eq!(credentials.len(), 12);
        for value in credentials {
            let begin = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/";
            assert!(value.starts_with(begin) && value.contains("/eu-central-1/execute-api/aws4_request"), "{value}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_sends_the_token_of_an_api_with_an_issuer() {
    let instance = Instance::start().await;
    let api = DeployedApi::start(instance.router.clone(), Fault::None).await;
    succeeded(api.check(&[("API_TOKEN", "a.b.c")]).await);
    assert_eq!(*api.credentials.lock().unwrap(), ["Bearer a.b.c"; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_fails_when_the_api_does_not_work() {
    for (fault, expected) in [
        (Fault::AcceptsAnybody, "returned 200 to a call without credentials"),
        (Fault::RejectsEverybody, "returned 403 to a read of todo/deployment-check"),
        (Fault::FailsWrites, "returned 500 to a write of todo/deployment-check"),
        (Fault::FailsReads, "returned 503 to a read of todo/deployment-check"),
        (Fault::ReadsOldState, "and not that version"),
    ] {
        let instance = Instance::start().await;
        if fault == Fault::ReadsOldState {
            let working = DeployedApi::start(instance.router.clone(), Fault::None).await;
            succeeded(working.check(&KEYS).await);
        }
        let output = DeployedApi::start(instance.router.clone(), fault).await.check(&KEYS).await;
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && printed.contains(expected), "{expected}: {output:?}");
    }
    let instance = Instance::start().await;
    let api = DeployedApi::start(instance.router.clone(), Fault::None).await;
    assert!(!api.check(&KEYS[1..]).await.status.success(), "there is no region");
}
