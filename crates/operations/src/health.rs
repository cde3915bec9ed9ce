//! The health of a deployed stack: the state of its relay (the event source mapping, the age of the oldest record that it read, and the
//! messages that wait), its alarms with the figures that they watch, and the requests to its API.

use std::collections::BTreeMap;
use std::time::Duration;

use daybook_console::stack::{Alarm, Health, IteratorAge, Minute, Relay, RelayMapping};
use daybook_function_runtime::with_causes;
use futures_util::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::error::OperatorError;
use crate::signed_calls::{CLOUDWATCH, CLOUDWATCH_LOGS, LAMBDA, SignedCalls};
use crate::stack::Stack;

/// The age of the oldest unsettled record from which messages count as late, as in the alarm messages-late.
pub const LATE: Duration = Duration::from_secs(60);

pub async fn relay(stack: &Stack) -> Result<Relay, OperatorError> {
    let function = stack.required("STREAM_RELAY_NAME")?;
    let lambda = SignedCalls::connect(&stack.environment, LAMBDA).await?;
    let cloudwatch = SignedCalls::connect(&stack.environment, CLOUDWATCH).await?;
    let mappings = relay_mappings(&lambda, &function).await?;
    Ok(Relay { mappings, age: iterator_age(&cloudwatch, &function).await? })
}

/// The event source mappings of the alias of the function.
pub(crate) async fn relay_mappings(lambda: &SignedCalls, function: &str) -> Result<Vec<RelayMapping>, OperatorError> {
    let path = format!("/2015-03-31/event-source-mappings/?FunctionName={function}%3Alive");
    let response = lambda.get(&path).await?;
    let mappings = response["EventSourceMappings"].as_array().into_iter().flatten().map(|mapping| {
        let text = |name: &str| mapping[name].as_str().unwrap_or("unknown").to_owned();
        RelayMapping { id: text("UUID"), state: text("State"), last_result: text("LastProcessingResult") }
    });
    Ok(mappings.collect())
}

/// How far back the metric is read. It may arrive minutes late.
const METRIC_WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// The age in the last minute for which CloudWatch has one; `None` if it has none for ten minutes.
async fn iterator_age(cloudwatch: &SignedCalls, function: &str) -> Result<Option<IteratorAge>, OperatorError> {
    let metric = json!({
        "Namespace": "AWS/Lambda", "MetricName": "IteratorAge",
        "Dimensions": [{"Name": "FunctionName", "Value": function}],
    });
    let age = json!([{"Id": "age", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Maximum"}}]);
    let found = results(cloudwatch, METRIC_WINDOW, age).await?;
    Ok(found.first().into_iter().flat_map(points).next().map(|(milliseconds, at)| {
        let at = Timestamp::from_second(at).unwrap_or_default();
        IteratorAge { milliseconds, at }
    }))
}

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

/// The alarms of template.yaml and deploy/monitoring.yaml, without the name of the stack and those on new versions. A list and
/// no prefix: `check-deployment` reports those that are missing, and `shop-` is also how the alarms of a stack `shop-eu` begin.
const ALARMS: &str = "api-failing api-server-errors api-slow archive-silent breaker-open command-handler-failures concurrency-high \
    dead-letter-arrived dead-letter-messages dead-letter-old errors-in-logs functions-near-timeout \
    functions-throttled index-throttled messages-late messages-missing records-discarded records-dropped \
    records-retried requests-forbidden requests-throttled requests-unauthenticated rows-unreadable snapshots-late \
    snapshotter-failures snapshotter-silent state-too-large stream-relay-failures stream-relay-silent \
    table-throttled";

const ALARMS_OF_PARTS: &str = "aggregates-suspended changes-unread projector-behind projector-failures \
    reactions-given-up reactions-late reactions-unread reactor-behind reactor-failures";

pub fn alarm_names() -> impl Iterator<Item = &'static str> {
    ALARMS.split_whitespace()
}

/// The same, and those of the projector and the reactor, which only stacks with these have.
pub fn all_alarm_names() -> impl Iterator<Item = &'static str> {
    alarm_names().chain(ALARMS_OF_PARTS.split_whitespace())
}

const ALARM_WINDOW: SignedDuration = SignedDuration::from_hours(3);

const CONCURRENCY: usize = 8;

/// The alarms of the stack that exist, each with its figures, and the requests to its API. It makes one call, one for each alarm,
/// and one for the requests.
pub async fn health(cloudwatch: &SignedCalls, stack_name: &str) -> Result<Health, OperatorError> {
    let names = all_alarm_names().map(|name| format!("{stack_name}-{name}"));
    let request = json!({"AlarmNames": names.collect::<Vec<_>>(), "AlarmTypes": ["MetricAlarm"], "MaxRecords": 100});
    let response = cloudwatch.post("DescribeAlarms", &request).await?;
    let alarms = response["MetricAlarms"].as_array().map_or(&[][..], Vec::as_slice);
    let mut all = Vec::new();
    for some in alarms.chunks(CONCURRENCY) {
        all.extend(try_join_all(some.iter().map(|alarm| figures(cloudwatch, stack_name, alarm))).await?);
    }
    // No setting names the API, but alarms watch it.
    let watched = alarms.iter().flat_map(|alarm| alarm["Metrics"].as_array().into_iter().flatten());
    let mut metrics = watched.map(|query| &query["MetricStat"]["Metric"]);
    let traffic = match metrics.find(|metric| metric["Namespace"] == "AWS/ApiGateway") {
        // The alarms are shown without them too.
        Some(of_api) => traffic(cloudwatch, &of_api["Dimensions"]).await.unwrap_or_else(|error| {
            tracing::warn!(error = with_causes(&error), "the requests to the API cannot be read");
            Vec::new()
        }),
        None => Vec::new(),
    };
    Ok(Health { alarms: all, traffic })
}

async fn figures(cloudwatch: &SignedCalls, stack_name: &str, alarm: &Value) -> Result<Alarm, OperatorError> {
    let results = results(cloudwatch, ALARM_WINDOW, queries(alarm)).await?;
    let text = |name: &str| alarm[name].as_str().unwrap_or_default().to_owned();
    let full_name = text("AlarmName");
    Ok(Alarm {
        name: full_name.strip_prefix(stack_name).unwrap_or(&full_name).trim_start_matches('-').to_owned(),
        description: text("AlarmDescription"),
        state: text("StateValue"),
        reason: text("StateReason"),
        threshold: alarm["Threshold"].as_f64(),
        comparison: text("ComparisonOperator"),
        values: results.first().into_iter().flat_map(points).rev().map(|(value, _)| value).collect(),
    })
}

/// What the alarm watches: the expression with its metrics, or one metric.
fn queries(alarm: &Value) -> Value {
    if alarm["Metrics"].as_array().is_some_and(|metrics| !metrics.is_empty()) {
        return alarm["Metrics"].clone();
    }
    let statistic = if alarm["Statistic"].is_string() { &alarm["Statistic"] } else { &alarm["ExtendedStatistic"] };
    let metric = json!({
        "Namespace": alarm["Namespace"], "MetricName": alarm["MetricName"], "Dimensions": alarm["Dimensions"],
    });
    json!([{"Id": "watched", "MetricStat": {"Metric": metric, "Period": alarm["Period"], "Stat": statistic}}])
}

const MINUTES: i64 = 60;

/// The requests in each of the last minutes. CloudWatch returns nothing for a minute without requests.
async fn traffic(cloudwatch: &SignedCalls, dimensions: &Value) -> Result<Vec<Minute>, OperatorError> {
    let query = |name: &str, statistic: &str| {
        let metric = json!({"Namespace": "AWS/ApiGateway", "MetricName": name, "Dimensions": dimensions});
        json!({"Id": name.to_lowercase(), "MetricStat": {"Metric": metric, "Period": 60, "Stat": statistic}})
    };
    let queries = json!([query("Count", "Sum"), query("Latency", "p50")]);
    let results = results(cloudwatch, SignedDuration::from_mins(MINUTES), queries).await?;
    let [counts, medians] = ["count", "latency"].map(|id| by_minute(&results, id));
    let now = Timestamp::now().as_second() / 60;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of requests")]
    let minute = |at: i64| Minute {
        requests: counts.get(&at).map_or(0, |count| *count as usize),
        median_ms: medians.get(&at).copied().unwrap_or_default(),
    };
    Ok((now - MINUTES..now).map(minute).collect())
}

/// The values of the query with this id, each by its minute since 1970.
fn by_minute(results: &[Value], id: &str) -> BTreeMap<i64, f64> {
    let found = results.iter().filter(|result| result["Id"] == id);
    found.flat_map(points).map(|(value, at)| (at / 60, value)).collect()
}

/// The results of the queries that return data, each with the `Id` of its query, in any order.
async fn results(
    cloudwatch: &SignedCalls,
    window: SignedDuration,
    queries: Value,
) -> Result<Vec<Value>, OperatorError> {
    let now = Timestamp::now();
    let request = json!({
        "StartTime": (now - window).as_second(), "EndTime": now.as_second(), "ScanBy": "TimestampDescending",
        "MetricDataQueries": queries,
    });
    let response = cloudwatch.post("GetMetricData", &request).await?;
    Ok(response["MetricDataResults"].as_array().cloned().unwrap_or_default())
}

/// The values of a result, the latest first, each with its time in seconds since 1970.
fn points(result: &Value) -> Vec<(f64, i64)> {
    let numbers = |name: &str| result[name].as_array().into_iter().flatten().filter_map(Value::as_f64);
    #[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
    let times = numbers("Timestamps").map(|at| at as i64);
    numbers("Values").zip(times).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[&str]) -> Vec<String> {
        let of_file = |file: &&str| {
            let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            let names = text.split("AlarmName: !Sub \"${").skip(1).map(|rest| rest.split_once("}-").unwrap().1);
            names.map(|name| name.split('"').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let mut names: Vec<_> = files.iter().flat_map(of_file).filter(|name| !name.contains("new-version")).collect();
        names.sort();
        names
    }

    #[test]
    fn figures_of_requests_are_found_by_the_id_of_their_query() {
        let results = [
            json!({"Id": "latency", "Timestamps": [120, 60], "Values": [12.5, 31.0]}),
            json!({"Id": "count", "Timestamps": [60], "Values": [40.0]}),
        ];
        assert_eq!(by_minute(&results, "count"), BTreeMap::from([(1, 40.0)]));
        assert_eq!(by_minute(&results, "latency"), BTreeMap::from([(1, 31.0), (2, 12.5)]));
        assert_eq!(by_minute(&results[1..], "latency"), BTreeMap::new());
    }

    #[test]
    fn alarms_are_those_of_the_templates() {
        let mut all: Vec<_> = all_alarm_names().collect();
        all.sort_unstable();
        assert_eq!(names(&["template.yaml", "deploy/monitoring.yaml"]), all);
    }
}
