//! The alarms of a deployed stack, the figures that they watch, and the requests to its API.

use std::collections::BTreeMap;

use daybook_console::stack::{Alarm, Health, Minute};
use futures_util::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::error::OperatorError;
use crate::signed_calls::SignedCalls;

/// The alarms of template.yaml and deploy/monitoring.yaml, without the name of the stack. Those on new versions have the
/// version in their names.
const ALARMS: &str = "api-failing api-server-errors api-slow archive-silent breaker-open command-handler-failures concurrency-high \
    dead-letter-arrived dead-letter-messages dead-letter-old errors-in-logs functions-near-timeout \
    functions-throttled index-throttled messages-late messages-missing records-discarded records-dropped \
    records-retried requests-forbidden requests-throttled requests-unauthenticated rows-unreadable snapshots-late \
    snapshotter-failures snapshotter-silent state-too-large stream-relay-failures stream-relay-silent \
    table-throttled";

const ALARMS_OF_PARTS: &str = "aggregates-suspended changes-unread projector-behind projector-failures \
    reactions-given-up reactions-late reactions-unread reactor-behind reactor-failures";

/// The names of the alarms that each stack has.
pub fn alarm_names() -> impl Iterator<Item = &'static str> {
    ALARMS.split_whitespace()
}

/// How far back the figures of alarms are read.
const WINDOW: SignedDuration = SignedDuration::from_hours(3);

const CONCURRENCY: usize = 8;

const MINUTES: i64 = 60;

/// The alarms of the stack that exist, each with its figures, and the requests to its API. It makes one call, one for each alarm,
/// and one for the requests.
pub async fn health(cloudwatch: &SignedCalls, stack_name: &str) -> Result<Health, OperatorError> {
    let names = alarm_names().chain(ALARMS_OF_PARTS.split_whitespace()).map(|name| format!("{stack_name}-{name}"));
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
        Some(of_api) => traffic(cloudwatch, &of_api["Dimensions"]).await?,
        None => Vec::new(),
    };
    Ok(Health { alarms: all, traffic })
}

/// The requests in each of the last minutes. CloudWatch returns nothing for a minute without requests.
async fn traffic(cloudwatch: &SignedCalls, dimensions: &Value) -> Result<Vec<Minute>, OperatorError> {
    let query = |name: &str, statistic: &str| {
        let metric = json!({"Namespace": "AWS/ApiGateway", "MetricName": name, "Dimensions": dimensions});
        json!({"Id": name.to_lowercase(), "MetricStat": {"Metric": metric, "Period": 60, "Stat": statistic}})
    };
    let queries = json!([query("Count", "Sum"), query("Latency", "p50")]);
    let found = values(cloudwatch, SignedDuration::from_mins(MINUTES), queries).await?;
    #[expect(clippy::cast_possible_truncation, reason = "minutes since 1970")]
    let by_minute = |figures: &[(f64, f64)]| -> BTreeMap<_, _> {
        figures.iter().map(|(value, at)| ((at / 60.0) as i64, *value)).collect()
    };
    let [counts, medians] = [0, 1].map(|query| found.get(query).map(|figures| by_minute(figures)).unwrap_or_default());
    let now = Timestamp::now().as_second() / 60;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of requests")]
    let minute = |at: i64| Minute {
        requests: counts.get(&at).map_or(0, |count| *count as usize),
        median_ms: medians.get(&at).copied().unwrap_or_default(),
    };
    Ok((now - MINUTES..now).map(minute).collect())
}

/// For each query its values within the window, the latest first, each with its time in seconds since 1970.
pub(crate) async fn values(
    cloudwatch: &SignedCalls,
    window: SignedDuration,
    queries: Value,
) -> Result<Vec<Vec<(f64, f64)>>, OperatorError> {
    let now = Timestamp::now();
    let request = json!({
        "StartTime": (now - window).as_second(), "EndTime": now.as_second(), "ScanBy": "TimestampDescending",
        "MetricDataQueries": queries,
    });
    let response = cloudwatch.post("GetMetricData", &request).await?;
    let found = response["MetricDataResults"].as_array().into_iter().flatten().map(|found| {
        let numbers = |name: &str| found[name].as_array().into_iter().flatten().filter_map(Value::as_f64);
        numbers("Values").zip(numbers("Timestamps")).collect()
    });
    Ok(found.collect())
}

async fn figures(cloudwatch: &SignedCalls, stack_name: &str, alarm: &Value) -> Result<Alarm, OperatorError> {
    let values = values(cloudwatch, WINDOW, queries(alarm)).await?;
    let text = |name: &str| alarm[name].as_str().unwrap_or_default().to_owned();
    let full_name = text("AlarmName");
    Ok(Alarm {
        name: full_name.strip_prefix(stack_name).unwrap_or(&full_name).trim_start_matches('-').to_owned(),
        description: text("AlarmDescription"),
        state: text("StateValue"),
        reason: text("StateReason"),
        threshold: alarm["Threshold"].as_f64(),
        comparison: text("ComparisonOperator"),
        values: values.first().into_iter().flatten().rev().map(|(value, _)| *value).collect(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[&str]) -> Vec<String> {
        let of_file = |file: &&str| {
            let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            let lines = text.lines().filter_map(|line| line.trim().strip_prefix("AlarmName: !Sub \"${"));
            lines.map(|line| line.split_once("}-").unwrap().1.trim_end_matches('"').to_owned()).collect::<Vec<_>>()
        };
        let mut names: Vec<_> = files.iter().flat_map(of_file).filter(|name| !name.contains("new-version")).collect();
        names.sort();
        names
    }

    #[test]
    fn alarms_are_those_of_the_templates() {
        let mut all: Vec<_> = alarm_names().chain(ALARMS_OF_PARTS.split_whitespace()).collect();
        all.sort_unstable();
        assert_eq!(names(&["template.yaml", "deploy/monitoring.yaml"]), all);
    }
}
