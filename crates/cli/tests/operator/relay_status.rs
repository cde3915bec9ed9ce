//! `daybook relay status`, against Lambda, CloudWatch and CloudWatch Logs as they respond.

use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::{Json, Router};
use daybook_cli::operator::{Exit, OperatorError};
use daybook_local_aws::messaging::Server;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::Setup;

/// What the services return, and the calls that they received.
#[derive(Clone)]
pub(crate) struct Aws {
    pub(crate) mapping: Value,
    pub(crate) ages: Value,
    /// The figures of the requests to the API.
    pub(crate) traffic: Value,
    pub(crate) alarms: Value,
    /// The pages of log lines.
    pub(crate) logs: Vec<Value>,
    /// The statuses of the first calls.
    pub(crate) failures: Arc<Mutex<Vec<u16>>>,
    pub(crate) calls: Arc<Mutex<Vec<(HeaderMap, String, Value)>>>,
}

impl Aws {
    fn respond(&self, method: &Method, uri: &Uri, headers: &HeaderMap, body: &Bytes) -> (StatusCode, Json<Value>) {
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        self.calls.lock().unwrap().push((headers.clone(), format!("{method} {uri}"), request.clone()));
        if let Some(status) = self.failures.lock().unwrap().pop() {
            return (StatusCode::from_u16(status).unwrap(), Json(json!({"__type": "ThrottlingException"})));
        }
        let response = match headers.get("x-amz-target").map(|target| target.to_str().unwrap()) {
            None => json!({"EventSourceMappings": [self.mapping]}),
            Some("GraniteServiceVersion20100801.DescribeAlarms") => json!({ "MetricAlarms": self.alarms }),
            Some("GraniteServiceVersion20100801.GetMetricData") => {
                let of_api = request["MetricDataQueries"][0]["MetricStat"]["Metric"]["Namespace"] == "AWS/ApiGateway";
                json!({ "MetricDataResults": if of_api { &self.traffic } else { &self.ages } })
            }
            Some("Logs_20140328.FilterLogEvents") => {
                let page = request["nextToken"].as_str().map_or(0, |token| token.parse().unwrap());
                let mut response = json!({ "events": self.logs[page] });
                if page + 1 < self.logs.len() {
                    response["nextToken"] = (page + 1).to_string().into();
                }
                response
            }
            Some(other) => panic!("{other}"),
        };
        (StatusCode::OK, Json(response))
    }
}

pub(crate) fn healthy() -> Aws {
    Aws {
        mapping: json!({"UUID": "u-1", "State": "Enabled", "LastProcessingResult": "OK"}),
        ages: json!([{"Id": "age", "Timestamps": [Timestamp::now().as_second()], "Values": [1200.0]}]),
        traffic: json!([]),
        alarms: json!([]),
        logs: vec![json!([])],
        failures: Arc::default(),
        calls: Arc::default(),
    }
}

/// A log line of the relay about unsettled messages.
fn unsettled(ids: &str) -> Value {
    let line =
        json!({"level": "ERROR", "message": "unsettled, will be retried", "ids": ids, "code": "ThrottlingException"});
    json!({"timestamp": 1_795_222_923_456_i64, "message": line.to_string()})
}

pub(crate) async fn stack(aws: &Aws) -> (Setup, Server) {
    let aws = aws.clone();
    let serve = async move |request: Request| {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        aws.respond(&parts.method, &parts.uri, &parts.headers, &body)
    };
    let server = Server::start(Router::new().fallback(serve)).await.unwrap();
    let mut setup = Setup::new().await;
    for variable in ["AWS_ENDPOINT_URL_LAMBDA", "AWS_ENDPOINT_URL_CLOUDWATCH", "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS"] {
        setup.settings.push((variable, server.url().to_owned()));
    }
    setup.settings.push(("STREAM_RELAY_NAME", "prod-StreamRelay-1X".to_owned()));
    setup.settings.push(("STREAM_RELAY_LOGS", "/aws/lambda/prod/stream-relay".to_owned()));
    (setup, server)
}

#[tokio::test]
async fn status_of_a_working_relay_is_clean_and_its_calls_are_signed() {
    let aws = healthy();
    let (setup, _server) = stack(&aws).await;
    let lines = setup.daybook("relay status").await.expect(Exit::Clean);
    assert_eq!(lines[0], "mapping u-1 is Enabled, its last result: OK");
    assert!(lines[1].starts_with("the oldest record was 1200 ms old at 20"), "{lines:?}");
    assert_eq!(lines[2], "1 mappings, 0 of them not working; 0 messages wait; messages are not late");

    let calls = aws.calls.lock().unwrap().clone();
    let requests: Vec<_> = calls.iter().map(|(_, request, _)| request.as_str()).collect();
    let mappings = "GET /2015-03-31/event-source-mappings/?FunctionName=prod-StreamRelay-1X%3Alive";
    assert_eq!(requests, [mappings, "POST /", "POST /"]);
    for ((headers, ..), service) in calls.iter().zip(["lambda", "monitoring", "logs"]) {
        let authorization = headers["authorization"].to_str().unwrap();
        assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=local/"), "{authorization}");
        assert!(authorization.contains(&format!("/us-east-1/{service}/aws4_request")), "{authorization}");
        assert!(authorization.contains("host;x-amz-date"), "{authorization}");
        assert!(headers.contains_key("x-amz-date"));
    }
    let metric = &calls[1].2["MetricDataQueries"][0]["MetricStat"]["Metric"];
    assert_eq!(metric["Dimensions"][0], json!({"Name": "FunctionName", "Value": "prod-StreamRelay-1X"}));
    assert_eq!(calls[1].0["content-type"], "application/x-amz-json-1.0");
    assert_eq!(calls[2].2["logGroupName"], "/aws/lambda/prod/stream-relay");
    assert_eq!(calls[2].0["content-type"], "application/x-amz-json-1.1");
}

#[tokio::test]
async fn status_of_a_relay_that_does_not_work_is_a_finding() {
    let disabled = json!({"UUID": "u-1", "State": "Disabled", "LastProcessingResult": "OK"});
    let failing = json!({"UUID": "u-1", "State": "Enabled", "LastProcessingResult": "PROBLEM: Function call failed"});
    let late = json!([{"Id": "age", "Timestamps": [1_795_222_923], "Values": [61_000.0]}]);
    for (aws, expected) in [
        (Aws { mapping: disabled, ..healthy() }, "1 mappings, 1 of them not working"),
        (Aws { mapping: failing, ..healthy() }, "1 mappings, 1 of them not working"),
        (Aws { ages: late, ..healthy() }, "messages are more than a minute late"),
    ] {
        let (setup, _server) = stack(&aws).await;
        let lines = setup.daybook("relay status").await.expect(Exit::Findings);
        assert!(lines.last().unwrap().contains(expected), "{lines:?}");
    }
}

#[tokio::test]
async fn status_lists_the_messages_of_all_pages_of_the_log() {
    let logs = vec![json!([unsettled("m1 m2"), {"timestamp": 1, "message": "no JSON"}]), json!([unsettled("m2 m3")])];
    let aws = Aws { logs, ages: json!([{"Values": []}]), ..healthy() };
    let (setup, _server) = stack(&aws).await;
    let lines = setup.daybook("relay status --json").await.expect(Exit::Clean);
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[1], json!({ "iteratorAgeMs": null }));
    let waiting: Vec<_> = lines.iter().filter_map(|line| line["waiting"].as_str()).collect();
    assert_eq!(waiting, ["m1", "m2", "m3"]);
    assert_eq!((&lines[2]["errorCode"], &lines[5]["summary"]["waiting"]), (&json!("ThrottlingException"), &json!(3)));
}

#[tokio::test]
async fn throttled_call_is_repeated_and_a_denied_call_is_reported() {
    let aws = healthy();
    *aws.failures.lock().unwrap() = vec![503, 400];
    let (setup, _server) = stack(&aws).await;
    setup.daybook("relay status").await.expect(Exit::Clean);
    assert_eq!(aws.calls.lock().unwrap().len(), 5);

    *aws.failures.lock().unwrap() = vec![500; 9];
    let error = setup.daybook("relay status").await.ended.unwrap_err();
    assert!(matches!(&error, OperatorError::Call { service: "lambda", .. }) && error.exit_code() == 3, "{error}");
    assert_eq!(aws.calls.lock().unwrap().len(), 8);
}

#[tokio::test]
async fn status_without_the_names_of_the_relay_is_a_usage_error() {
    let setup = Setup::new().await;
    let error = setup.daybook("relay status").await.ended.unwrap_err();
    assert!(error.to_string().contains("STREAM_RELAY_NAME is missing") && error.exit_code() == 2, "{error}");
}
