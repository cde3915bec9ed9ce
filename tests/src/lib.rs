//! A running suite for tests, and a client that keeps status, headers and body together.

pub mod document;
pub mod scale;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use daybook_cli::Project;
use daybook_local_aws::messaging::Delivered;
use daybook_local_stack::{DevArgs, LocalStack};
use document::Document;
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tokio::time::Instant;

/// How long a test waits for an asynchronous result before it fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The aggregates and the projections of the workspace, which are samples.
pub const SAMPLES: Project = Project { aggregates: aggregates::registry, projections: projections::projections };

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace").to_owned()
}

/// The settings of the release profile of a manifest of the workspace.
///
/// # Panics
///
/// When the manifest has no such profile.
pub fn release_profile(manifest: &str) -> BTreeSet<String> {
    let text =
        std::fs::read_to_string(workspace().join(manifest)).unwrap_or_else(|error| panic!("{manifest}: {error}"));
    let (_, profile) =
        text.split_once("[profile.release]\n").unwrap_or_else(|| panic!("{manifest} has no release profile"));
    let settings = profile.lines().take_while(|line| !line.is_empty());
    settings.filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// The local stack on free ports.
pub struct Suite {
    /// The stack.
    pub stack: LocalStack,
    client: reqwest::Client,
}

/// A response of the API.
#[derive(Clone, Debug)]
pub struct ApiResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; null if it is empty.
    pub body: Value,
    /// The unparsed body.
    pub text: String,
}

impl ApiResponse {
    /// Reads a response.
    ///
    /// # Panics
    ///
    /// When the body is not JSON.
    pub fn new(status: StatusCode, headers: HeaderMap, body: &[u8]) -> Self {
        let text = String::from_utf8(body.into()).expect("the body is a text");
        let read = || serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
        let body = if text.is_empty() { Value::Null } else { read() };
        Self { status, headers, body, text }
    }

    /// Expects a response that the OpenAPI document contains for the request.
    ///
    /// # Panics
    ///
    /// When the document does not contain it.
    #[track_caller]
    pub fn expect_documented(self, method: &Method, path: &str) -> Self {
        let judged = Document::get().check(method.as_str(), path, self.status.as_u16(), &self.headers, &self.body);
        judged.unwrap_or_else(|misfit| panic!("{method} {path}: {misfit}"));
        self
    }

    /// A header's text; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The path of the next page, if there is one.
    pub fn next(&self) -> Option<&str> {
        self.header("link").strip_prefix('<')?.strip_suffix(">; rel=\"next\"")
    }

    /// Expects a status.
    ///
    /// # Panics
    ///
    /// When the status differs.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{:.500}", self.body.to_string());
        self
    }

    /// Expects a problem with this status and the last part of its type.
    ///
    /// # Panics
    ///
    /// When the response differs.
    #[track_caller]
    pub fn expect_problem(self, status: u16, slug: &str) -> Self {
        assert_eq!(self.header("content-type"), "application/problem+json", "{:.500}", self.body.to_string());
        assert_eq!(self.body["type"], format!("urn:daybook:problem:{slug}"), "{}", self.body);
        assert_eq!(self.body["status"], status);
        for text in ["title", "detail"] {
            assert!(self.body[text].as_str().is_some_and(|text| !text.is_empty()), "{}", self.body);
        }
        self.expect(status)
    }
}

impl Suite {
    /// Starts a local stack.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn start() -> Self {
        Self::with_template(workspace().join("template.yaml")).await
    }

    /// Starts a local stack with another template.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn with_template(template: PathBuf) -> Self {
        Self::with_rules(template, &[]).await
    }

    /// Starts a local stack with another template and with values of `--rule`, whose functions may take two seconds.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn with_rules(template: PathBuf, rules: &[String]) -> Self {
        let rule = |rule: &String| rule.parse().unwrap_or_else(|error| panic!("{rule}: {error}"));
        let args = DevArgs {
            port: 0,
            dynamodb_port: 0,
            bus_port: 0,
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            data: None,
            template,
            rules: rules.iter().map(rule).collect(),
            function_timeout: 2,
            otlp: None,
        };
        let stack = LocalStack::start(args, SAMPLES).await.expect("the stack starts");
        Self { stack, client: reqwest::Client::new() }
    }

    /// Sends a request to the API.
    ///
    /// # Panics
    ///
    /// When there is no response, or the OpenAPI document does not contain it.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> ApiResponse {
        let mut request = self.client.request(method.clone(), format!("{}{path}", self.stack.api_url()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.body(body.to_owned());
        }
        let response = request.send().await.expect("the API responds");
        let (status, headers) = (response.status(), response.headers().clone());
        let response = ApiResponse::new(status, headers, &response.bytes().await.expect("the response has a body"));
        if path.starts_with("/_dev/") { response } else { response.expect_documented(&method, path) }
    }

    /// `GET`.
    pub async fn get(&self, path: &str) -> ApiResponse {
        self.send(Method::GET, path, &[], None).await
    }

    /// `POST` with a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> ApiResponse {
        self.post_if_match(path, body, None).await
    }

    /// `POST` with a JSON body and an optional `If-Match`.
    pub async fn post_if_match(&self, path: &str, body: &Value, if_match: Option<&str>) -> ApiResponse {
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(if_match.map(|version| ("if-match", version)));
        self.send(Method::POST, path, &headers, Some(&body.to_string())).await
    }

    /// Waits until this number of messages of an aggregate is on the bus.
    ///
    /// # Panics
    ///
    /// When they do not arrive in time.
    pub async fn messages_of(&self, aggregate: &str, expected: usize) -> Vec<Delivered> {
        let give_up = Instant::now() + PATIENCE;
        let found = || {
            let all = self.stack.bus().delivered();
            all.into_iter().filter(|entry| entry.resources == [aggregate]).collect::<Vec<_>>()
        };
        while found().len() < expected {
            assert!(
                Instant::now() < give_up,
                "{expected} messages of {aggregate} were expected, there are {:?}",
                found()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        found()
    }

    /// A client for the table itself.
    pub fn table(&self) -> aws_sdk_dynamodb::Client {
        aws_sdk_dynamodb::Client::new(&daybook_function_runtime::aws_config_at(self.stack.dynamodb_url()))
    }
}
