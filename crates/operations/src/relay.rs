//! The state of the relay: its event source mapping, the age of the oldest record that it read, and the messages that wait.

use std::collections::BTreeMap;
use std::time::Duration;

use daybook_console::stack::{IteratorAge, Relay, RelayMapping};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::alarms::values;
use crate::error::OperatorError;
use crate::signed_calls::{CLOUDWATCH, CLOUDWATCH_LOGS, LAMBDA, SignedCalls};
use crate::stack::Stack;

/// How far back the metric is read. It may arrive minutes late.
const METRIC_WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// The age of the oldest unsettled record from which messages count as late, as in the alarm messages-late.
pub const LATE: Duration = Duration::from_secs(60);

const LOG_WINDOW: SignedDuration = SignedDuration::from_mins(15);

const MAX_LOG_PAGES: usize = 20;

/// The beginning of the log line of an invocation that left messages unsettled.
const UNSETTLED: &str = "unsettled, will be retried";

/// A message that was unsettled when the relay logged it.
pub struct LoggedMessage {
    pub id: String,
    pub logged_at: String,
    pub error_code: String,
}

/// The mappings of the alias that the stack's mapping invokes.
pub async fn relay_mappings(lambda: &SignedCalls, function: &str) -> Result<Vec<RelayMapping>, OperatorError> {
    let path = format!("/2015-03-31/event-source-mappings/?FunctionName={function}%3Alive");
    let response = lambda.get(&path).await?;
    let mappings = response["EventSourceMappings"].as_array().into_iter().flatten().map(|mapping| {
        let text = |name: &str| mapping[name].as_str().unwrap_or("unknown").to_owned();
        RelayMapping { id: text("UUID"), state: text("State"), last_result: text("LastProcessingResult") }
    });
    Ok(mappings.collect())
}

/// The age in the last minute for which CloudWatch has one; `None` if it has none for ten minutes.
async fn iterator_age(cloudwatch: &SignedCalls, function: &str) -> Result<Option<IteratorAge>, OperatorError> {
    let metric = json!({
        "Namespace": "AWS/Lambda", "MetricName": "IteratorAge",
        "Dimensions": [{"Name": "FunctionName", "Value": function}],
    });
    let age = json!([{"Id": "age", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Maximum"}}]);
    let found = values(cloudwatch, METRIC_WINDOW, age).await?;
    Ok(found.first().map(|&(milliseconds, at)| {
        #[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
        let at = Timestamp::from_second(at as i64).unwrap_or_default();
        IteratorAge { milliseconds, at }
    }))
}

/// The mappings of the relay, and the age of its oldest record.
pub async fn relay(stack: &Stack) -> Result<Relay, OperatorError> {
    let function = stack.required("STREAM_RELAY_NAME")?;
    let lambda = SignedCalls::connect(&stack.environment, LAMBDA).await?;
    let cloudwatch = SignedCalls::connect(&stack.environment, CLOUDWATCH).await?;
    let mappings = relay_mappings(&lambda, &function).await?;
    Ok(Relay { mappings, age: iterator_age(&cloudwatch, &function).await? })
}

/// The messages of the last log lines about unsettled messages. Some may have been sent since.
pub async fn waiting_messages(stack: &Stack) -> Result<Vec<LoggedMessage>, OperatorError> {
    let log_group = stack.required("STREAM_RELAY_LOGS")?;
    let logs = SignedCalls::connect(&stack.environment, CLOUDWATCH_LOGS).await?;
    let since = (Timestamp::now() - LOG_WINDOW).as_millisecond();
    let mut waiting: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut next = Value::Null;
    for _ in 0..MAX_LOG_PAGES {
        let mut request =
            json!({"logGroupName": log_group, "startTime": since, "filterPattern": format!("\"{UNSETTLED}\"")});
        if !next.is_null() {
            request["nextToken"] = next;
        }
        let response = logs.post("FilterLogEvents", &request).await?;
        for event in response["events"].as_array().into_iter().flatten() {
            let line: Value = serde_json::from_str(event["message"].as_str().unwrap_or_default()).unwrap_or_default();
            let fields = if line["fields"].is_object() { &line["fields"] } else { &line };
            let at = event["timestamp"].as_i64().and_then(|at| Timestamp::from_millisecond(at).ok());
            let at = at.map(|at| at.to_string()).unwrap_or_default();
            let code = fields["code"].as_str().unwrap_or_default();
            for id in fields["ids"].as_str().unwrap_or_default().split_ascii_whitespace() {
                waiting.insert(id.to_owned(), (at.clone(), code.to_owned()));
            }
        }
        next = response["nextToken"].clone();
        if next.is_null() {
            break;
        }
    }
    let message = |(id, (logged_at, error_code))| LoggedMessage { id, logged_at, error_code };
    Ok(waiting.into_iter().map(message).collect())
}
