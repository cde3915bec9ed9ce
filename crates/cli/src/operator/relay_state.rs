//! The state of a deployed relay: its event source mapping, and the age of the oldest record that it read.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::error::OperatorError;
use super::signed_calls::SignedCalls;

/// How far back the metric is read. It may arrive minutes late.
const METRIC_WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// An event source mapping of the relay.
pub(crate) struct RelayMapping {
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) last_result: String,
}

/// The age of the oldest record of an invocation.
pub(crate) struct IteratorAge {
    pub(crate) milliseconds: f64,
    /// The minute of the invocation.
    pub(crate) at: Timestamp,
}

/// The mappings of the alias that the stack's mapping invokes.
pub(crate) async fn relay_mappings(lambda: &SignedCalls, function: &str) -> Result<Vec<RelayMapping>, OperatorError> {
    let path = format!("/2015-03-31/event-source-mappings/?FunctionName={function}%3Alive");
    let response = lambda.get(&path).await?;
    let mappings = response["EventSourceMappings"].as_array().into_iter().flatten().map(|mapping| {
        let text = |name: &str| mapping[name].as_str().unwrap_or("unknown").to_owned();
        RelayMapping { id: text("UUID"), state: text("State"), last_result: text("LastProcessingResult") }
    });
    Ok(mappings.collect())
}

/// The age in the last minute for which CloudWatch has one; `None` if it has none for ten minutes.
pub(crate) async fn iterator_age(
    cloudwatch: &SignedCalls,
    function: &str,
) -> Result<Option<IteratorAge>, OperatorError> {
    let now = Timestamp::now();
    let metric = json!({
        "Namespace": "AWS/Lambda", "MetricName": "IteratorAge",
        "Dimensions": [{"Name": "FunctionName", "Value": function}],
    });
    let request = json!({
        "StartTime": (now - METRIC_WINDOW).as_second(), "EndTime": now.as_second(), "ScanBy": "TimestampDescending",
        "MetricDataQueries": [{"Id": "age", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Maximum"}}],
    });
    let response = cloudwatch.post("GetMetricData", &request).await?;
    let values = &response["MetricDataResults"][0];
    let found = values["Values"][0].as_f64().zip(values["Timestamps"][0].as_f64());
    Ok(found.map(|(milliseconds, at)| {
        #[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
        let at = Timestamp::from_second(at as i64).unwrap_or(now);
        IteratorAge { milliseconds, at }
    }))
}
