//! A server in place of CloudFormation, Lambda and the operations of DynamoDB on whole tables. It passes the operations on rows
//! to the embedded DynamoDB.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use daybook_admin::AdminCalls;
use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::aws_config_at;
use daybook_local_aws::messaging::Server;
use daybook_test_support::row::Item;
use daybook_test_support::table::TABLE;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// The restored table.
pub(super) const NEW: &str = "prod-restored-1";
/// The key of the stack and of the restored table.
pub(super) const KEY: &str = "arn:aws:kms:us-east-1:1:key/b";

/// The state of the services.
pub(super) struct State {
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) status: &'static str,
    /// The table of the outputs. While an update is in progress, it is that from before.
    table: String,
    /// The parameters to which a rollback returns.
    pub(super) before: BTreeMap<String, String>,
    /// How the next update ends.
    pub(super) updated: &'static str,
    pub(super) reserved: Option<u64>,
    mapping: &'static str,
    /// The rows of the old table at the time of the restore.
    pub(super) rows: Vec<Item>,
    pub(super) restored: Option<Value>,
    ttl: &'static str,
    recovery: &'static str,
    pub(super) recovery_of_source: &'static str,
    /// The calls that change something.
    pub(super) changes: Vec<String>,
    /// The operation that is denied.
    pub(super) denied: &'static str,
    /// Operations that are answered as if something else were under way, once each.
    pub(super) busy: Vec<&'static str>,
}

#[derive(Clone)]
pub(super) struct Aws {
    pub(super) state: Arc<Mutex<State>>,
    engine: String,
    pub(super) at: Timestamp,
}

fn seconds(at: Timestamp) -> Value {
    json!(at.as_second() as f64)
}

impl Aws {
    /// A stack with the epoch 1 and a table, whose rows at the time of the restore, `at`, are in `rows`. `engine` is the embedded
    /// DynamoDB.
    pub(super) async fn start(engine: &str, at: Timestamp, rows: Vec<Item>) -> (Self, Server) {
        let parameters = [
            ("DeletionProtection", "true"),
            ("Epoch", "1"),
            ("KmsKeyArn", KEY),
            ("MappingsEnabled", "true"),
            ("Release", ""),
            ("TableStreamArn", ""),
            ("TrafficShift", "Canary10Percent15Minutes"),
            ("AlarmEmail", "on-call@example.com"),
        ];
        let state = State {
            parameters: parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            status: "UPDATE_COMPLETE",
            table: TABLE.to_owned(),
            before: BTreeMap::new(),
            updated: "UPDATE_COMPLETE",
            reserved: None,
            mapping: "Enabled",
            rows,
            restored: None,
            ttl: "DISABLED",
            recovery: "DISABLED",
            recovery_of_source: "ENABLED",
            changes: vec![],
            denied: "",
            busy: vec![],
        };
        let aws = Self { state: Arc::new(Mutex::new(state)), engine: engine.to_owned(), at };
        let serving = aws.clone();
        let server =
            Server::start(Router::new().fallback(async move |request: Request| serving.respond(request).await))
                .await
                .unwrap();
        (aws, server)
    }

    async fn respond(self, request: Request) -> (StatusCode, String) {
        let (parts, body) = request.into_parts();
        let body = String::from_utf8(to_bytes(body, usize::MAX).await.unwrap().to_vec()).unwrap();
        let target = parts.headers.get("x-amz-target").map(|target| target.to_str().unwrap().to_owned());
        let operation = match (&target, body.split_once('=')) {
            (Some(target), _) => target.rsplit('.').next().unwrap().to_owned(),
            (None, Some(("Action", rest))) => rest.split('&').next().unwrap().to_owned(),
            (None, _) => format!("{} {}", parts.method, parts.uri.path()),
        };
        let denied = |code: &str| (StatusCode::BAD_REQUEST, json!({"__type": format!("x#{code}")}).to_string());
        {
            let mut state = self.state.lock().unwrap();
            if state.denied == operation {
                return denied("AccessDeniedException");
            }
            if let Some(busy) = state.busy.iter().position(|busy| *busy == operation) {
                state.busy.remove(busy);
                return denied("ContinuousBackupsUnavailableException");
            }
        }
        let request: Value = serde_json::from_str(&body).unwrap_or_default();
        if operation == "RestoreTableToPointInTime" {
            self.copy_rows().await;
        }
        match self.answer(&operation, &body, &request) {
            Some(Some(answer)) => (StatusCode::OK, answer),
            Some(None) => denied("ResourceNotFoundException"),
            None => self.forward(parts.headers, body).await,
        }
    }

    /// The response; `Some(None)` for a table that does not exist, `None` for an operation on rows.
    fn answer(&self, operation: &str, query: &str, request: &Value) -> Option<Option<String>> {
        let mut state = self.state.lock().unwrap();
        if ["Update", "Restore", "PUT", "DELETE"].iter().any(|change| operation.starts_with(change))
            && operation != "UpdateItem"
        {
            state.changes.push(operation.to_owned());
        }
        let name = request["TableName"].as_str().unwrap_or_default();
        let (earliest, latest) = (seconds(self.at - SignedDuration::from_hours(24)), seconds(self.at));
        Some(Some(match operation {
            "DescribeStacks" => state.described(),
            "UpdateStack" => state.update(query),
            "GET /2019-09-30/functions/prod-CommandHandler/concurrency" => {
                json!({"ReservedConcurrentExecutions": state.reserved}).to_string()
            }
            "PUT /2017-10-31/functions/prod-CommandHandler/concurrency" => {
                state.reserved = request["ReservedConcurrentExecutions"].as_u64();
                String::new()
            }
            "DELETE /2017-10-31/functions/prod-CommandHandler/concurrency" => {
                state.reserved = None;
                String::new()
            }
            "GET /2015-03-31/event-source-mappings/" => {
                json!({"EventSourceMappings": [{"UUID": "u-1", "State": state.mapping}]}).to_string()
            }
            "PUT /2015-03-31/event-source-mappings/u-1" => {
                assert_eq!(*request, json!({"Enabled": false}));
                state.mapping = "Disabling";
                String::new()
            }
            "DescribeTable" if name == NEW => {
                let Some(table) = &mut state.restored else { return Some(None) };
                let described = json!({ "Table": table }).to_string();
                table["TableStatus"] = json!("ACTIVE");
                described
            }
            "RestoreTableToPointInTime" => {
                assert_eq!(request["SourceTableName"], TABLE);
                let arn = format!("arn:aws:dynamodb:us-east-1:1:table/{TABLE}");
                let summary = json!({"SourceTableArn": arn, "RestoreDateTime": request["RestoreDateTime"]});
                state.restored = Some(json!({
                    "TableStatus": "CREATING", "RestoreSummary": summary, "SSEDescription": {"KMSMasterKeyArn": KEY},
                }));
                "{}".to_owned()
            }
            "UpdateTable" => {
                let table = state.restored.as_mut().unwrap();
                for (name, value) in request.as_object().unwrap() {
                    table[name] = value.clone();
                }
                table["LatestStreamArn"] =
                    json!(format!("arn:aws:dynamodb:us-east-1:1:table/{NEW}/stream/2026-11-20T08:00:00.000"));
                table["TableStatus"] = json!("UPDATING");
                "{}".to_owned()
            }
            "DescribeContinuousBackups" => {
                let status = if name == NEW { state.recovery } else { state.recovery_of_source };
                json!({"ContinuousBackupsDescription": {"PointInTimeRecoveryDescription": {
                    "PointInTimeRecoveryStatus": status, "EarliestRestorableDateTime": earliest,
                    "LatestRestorableDateTime": latest,
                }}})
                .to_string()
            }
            "UpdateContinuousBackups" => {
                state.recovery = "ENABLED";
                "{}".to_owned()
            }
            "DescribeTimeToLive" => json!({"TimeToLiveDescription": {"TimeToLiveStatus": state.ttl}}).to_string(),
            "UpdateTimeToLive" => {
                state.ttl = "ENABLING";
                "{}".to_owned()
            }
            _ => return None,
        }))
    }

    async fn copy_rows(&self) {
        let rows = self.state.lock().unwrap().rows.clone();
        let store = EventStore::new(&aws_config_at(&self.engine), StoreSettings::new(NEW));
        store.admin().create_table().await.unwrap();
        for row in rows {
            store.client().put_item().table_name(NEW).set_item(Some(row)).send().await.unwrap();
        }
    }

    async fn forward(&self, mut headers: HeaderMap, body: String) -> (StatusCode, String) {
        headers.remove("host");
        let response = reqwest::Client::new().post(&self.engine).headers(headers).body(body).send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    }
}

impl State {
    fn described(&mut self) -> String {
        let status = self.status;
        if status != "UPDATE_IN_PROGRESS" {
            self.table = self.parameters["TableStreamArn"].split('/').nth(1).unwrap_or(TABLE).to_owned();
        }
        let parameter = |(key, value): (&String, &String)| {
            format!("<member><ParameterKey>{key}</ParameterKey><ParameterValue>{value}</ParameterValue></member>")
        };
        let parameters: String = self.parameters.iter().map(parameter).collect();
        let table = &self.table;
        let epoch = &self.parameters["Epoch"];
        let outputs = [
            ("TableName", table.clone()),
            ("CommandHandlerName", "prod-CommandHandler".to_owned()),
            ("StreamRelayName", "prod-StreamRelay".to_owned()),
            (
                "OperatorEnvironment",
                format!("TABLE_NAME={table} EPOCH={epoch} EVENT_TYPE_SHARDS=1 FEED_DELAY_MS=0 REACTOR=processes"),
            ),
        ];
        let output = |(key, value): &(&str, String)| {
            format!("<member><OutputKey>{key}</OutputKey><OutputValue>{value}</OutputValue></member>")
        };
        let outputs: String = outputs.iter().map(output).collect();
        let described = format!(
            "<D><Stacks><member><Parameters>{parameters}</Parameters><Outputs>{outputs}</Outputs><StackStatus>{status}</StackStatus>\
             </member></Stacks></D>"
        );
        if status == "UPDATE_IN_PROGRESS" {
            self.status = self.updated;
            if self.updated != "UPDATE_COMPLETE" {
                self.parameters = self.before.clone();
            }
        }
        described
    }

    fn update(&mut self, query: &str) -> String {
        assert!(query.contains("&UsePreviousTemplate=true&"), "{query}");
        assert!(query.contains("&StackPolicyDuringUpdateBody=%7B%22Statement%22"), "{query}");
        let url = reqwest::Url::parse(&format!("http://localhost/?{query}")).unwrap();
        let pairs: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
        let before = std::mem::take(&mut self.parameters);
        for number in 1..=before.len() {
            let pair = |name: &str| pairs.get(&format!("Parameters.member.{number}.{name}")).cloned();
            let key = pair("ParameterKey").unwrap();
            let value = pair("ParameterValue").unwrap_or_else(|| {
                assert_eq!(pair("UsePreviousValue").as_deref(), Some("true"));
                before[&key].clone()
            });
            self.parameters.insert(key, value);
        }
        self.before = before;
        self.status = "UPDATE_IN_PROGRESS";
        "<U/>".to_owned()
    }
}
