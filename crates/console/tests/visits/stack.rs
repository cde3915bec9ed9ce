//! A stack, and a visitor of its console.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use daybook_local_aws::messaging::Bus;
use daybook_local_stack::{DevArgs, LocalStack, Project};
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value, json};

/// How long a page may take to show something.
const PATIENCE: Duration = Duration::from_secs(20);

/// The engine needs a signature, and does not check it.
const UNCHECKED_SIGNATURE: &str =
    "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0";

/// A running stack, and a visitor of its console.
pub(crate) struct Visit {
    stack: LocalStack,
    client: Client,
}

/// A page, or the response to a form.
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    /// The address after redirects.
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) body: String,
}

impl Page {
    /// Expects that the page has this text or markup.
    #[track_caller]
    pub(crate) fn has(&self, wanted: &str) -> &Self {
        assert!(self.body.contains(wanted), "{} has no {wanted:?}: {}", self.path, self.body);
        self
    }

    /// Expects that the page does not have this text or markup.
    #[track_caller]
    pub(crate) fn lacks(&self, unwanted: &str) -> &Self {
        assert!(!self.body.contains(unwanted), "{} has {unwanted:?}: {}", self.path, self.body);
        self
    }

    /// The text between two others.
    #[track_caller]
    pub(crate) fn between(&self, before: &str, after: &str) -> &str {
        let begin = self.body.split_once(before).unwrap_or_else(|| panic!("no {before:?} in {}", self.body)).1;
        begin.split_once(after).unwrap().0
    }

    async fn of(response: Response) -> Self {
        let (status, url) = (response.status(), response.url());
        let (path, query) = (url.path().to_owned(), url.query().map(str::to_owned));
        Self { status, path, query, body: response.text().await.unwrap() }
    }
}

impl Visit {
    pub(crate) async fn start() -> Self {
        Self::with_rules(&[]).await
    }

    /// A stack whose bus has these rules.
    pub(crate) async fn with_rules(rules: &[&str]) -> Self {
        Self::of(Project { aggregates: aggregates::registry, projections: projections::projections }, rules).await
    }

    /// A stack of a project.
    pub(crate) async fn of(project: Project, rules: &[&str]) -> Self {
        let args = DevArgs {
            port: 0,
            dynamodb_port: 0,
            bus_port: 0,
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            data: None,
            template: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../template.yaml"),
            rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
            function_timeout: 30,
            otlp: None,
        };
        Self { stack: LocalStack::start(args, project).await.unwrap(), client: Client::new() }
    }

    pub(crate) async fn stop(self) {
        self.stack.stop().await;
    }

    /// Puts messages of another sender on the bus, up to ten.
    pub(crate) async fn put_on_bus(&self, details: impl Iterator<Item = Value>) {
        let entry = |detail: Value| json!({"EventBusName": "daybook", "Source": "test", "DetailType": "T", "Detail": detail.to_string()});
        let request = self.client.post(self.stack.bus_url()).header("x-amz-target", "AWSEvents.PutEvents");
        let response = request.body(json!({"Entries": details.map(entry).collect::<Vec<_>>()}).to_string());
        assert!(response.send().await.unwrap().status().is_success());
    }

    /// The bus with the queues of the rules.
    pub(crate) fn queues(&self) -> &Bus {
        self.stack.bus()
    }

    /// The page at a path below the console.
    pub(crate) async fn page(&self, path: &str) -> Page {
        let page = Page::of(self.get(path).await).await;
        assert!(page.status.is_success(), "{path}: {} {}", page.status, page.body);
        page
    }

    /// The response to GET of a path below the console.
    pub(crate) async fn get(&self, path: &str) -> Response {
        self.client.get(format!("{}{path}", self.stack.console_url())).send().await.unwrap()
    }

    /// The response of the API to a request with this header.
    pub(crate) async fn request_api(&self, method: Method, path: &str, header: (&str, &str)) -> Response {
        let url = format!("{}{path}", self.stack.api_url());
        self.client.request(method, url).header(header.0, header.1).send().await.unwrap()
    }

    /// The page at a path, as soon as it has this text.
    pub(crate) async fn page_with(&self, path: &str, wanted: &str) -> Page {
        let begun = Instant::now();
        loop {
            let page = self.page(path).await;
            if page.body.contains(wanted) {
                return page;
            }
            assert!(begun.elapsed() < PATIENCE, "{path} has no {wanted:?}: {}", page.body);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends a form with the token of the console.
    pub(crate) async fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let token = self.page("/faults").await.between("name=\"token\" value=\"", "\"").to_owned();
        let fields: Vec<_> = fields.iter().copied().chain([("token", token.as_str())]).collect();
        let request = self.client.post(format!("{}{path}", self.stack.console_url())).form(&fields);
        Page::of(request.send().await.unwrap()).await
    }

    /// A request to the API.
    pub(crate) async fn post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Value {
        let mut request = self.client.post(format!("{}{path}", self.stack.api_url())).json(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap().json().await.unwrap()
    }

    pub(crate) async fn create_todo(&self, id: &str, title: &str) {
        let created = self.post("/todo", &[], &json!({"id": id, "title": title, "message": "m"})).await;
        assert_eq!(created["version"], 1, "{created}");
    }

    /// The messages on the bus.
    pub(crate) async fn bus(&self) -> Vec<Value> {
        let response = self.client.get(format!("{}/_dev/bus", self.stack.api_url())).send().await.unwrap();
        response.json().await.unwrap()
    }

    pub(crate) async fn set_faults(&self, faults: &Value) {
        let response =
            self.client.put(format!("{}/_dev/faults", self.stack.api_url())).json(faults).send().await.unwrap();
        assert!(response.status().is_success());
    }

    /// The JSON at a path of the stack.
    pub(crate) async fn json(&self, path: &str) -> Value {
        let response = self.client.get(format!("{}{path}", self.stack.api_url())).send().await.unwrap();
        response.json().await.unwrap()
    }

    /// The response to a move of the clock.
    pub(crate) async fn try_move(&self, body: &Value) -> (StatusCode, String) {
        let url = format!("{}/_dev/clock", self.stack.api_url());
        let response = self.client.put(url).json(body).send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    }

    /// Moves the clock forward by a duration.
    pub(crate) async fn move_clock(&self, by: &str) -> Value {
        let (status, text) = self.try_move(&json!({"forwardBy": by})).await;
        assert!(status.is_success(), "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The sort keys in the table that begin with a text.
    pub(crate) async fn rows(&self, beginning: &str) -> Vec<String> {
        let found = self.dynamodb("Scan", &json!({"TableName": self.stack.table_name()})).await;
        let rows = found["Items"].as_array().unwrap_or_else(|| panic!("{found}")).iter();
        let keys = rows.map(|row| row["sk"]["S"].as_str().unwrap().to_owned());
        keys.filter(|sk| sk.starts_with(beginning)).collect()
    }

    /// The response to a call of DynamoDB.
    pub(crate) async fn dynamodb(&self, operation: &str, body: &Value) -> Value {
        let target = format!("DynamoDB_20120810.{operation}");
        let request = self.client.post(self.stack.dynamodb_url()).header("x-amz-target", target);
        let request = request.header("x-amz-date", "20260101T000000Z").header("authorization", UNCHECKED_SIGNATURE);
        let request = request.header("content-type", "application/x-amz-json-1.0").body(body.to_string());
        request.send().await.unwrap().json().await.unwrap()
    }
}
