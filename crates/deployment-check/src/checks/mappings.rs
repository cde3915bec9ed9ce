//! The event source mappings of the stack, as Lambda has them.

use daybook_operations::signed_calls::LAMBDA;
use daybook_table::attributes::{SK, SNAPSHOT_DUE};
use daybook_table::keys::{EVENT_PREFIX, METADATA, OUTBOX_PREFIX};
use serde_json::{Value, json};

use crate::aws_calls::CallError;
use crate::check::Check;
use crate::deployment::Deployment;
use crate::result::CheckResult;

/// The filter patterns of the relay's mapping: those of outbox rows, and with read models those of changes of metadata.
fn relay_patterns(has_views: bool) -> Vec<String> {
    let outbox = of_inserts(OUTBOX_PREFIX) + "}}";
    let metadata =
        format!(r#"{{"eventName":["INSERT","MODIFY"],"dynamodb":{{"Keys":{{"{SK}":{{"S":["{METADATA}"]}}}}}}}}"#);
    [outbox].into_iter().chain(has_views.then_some(metadata)).collect()
}

/// The filter pattern of the snapshotter's mapping.
fn snapshotter_pattern() -> String {
    format!(r#"{},"NewImage":{{"{SNAPSHOT_DUE}":{{"BOOL":[true]}}}}}}}}"#, of_inserts(EVENT_PREFIX))
}

fn of_inserts(prefix: &str) -> String {
    format!(r#"{{"eventName":["INSERT"],"dynamodb":{{"Keys":{{"{SK}":{{"S":[{{"prefix":"{prefix}"}}]}}}}"#)
}

pub(super) fn checks() -> Vec<Check> {
    vec![Check {
        name: "event-source-mappings",
        relies_on: "the stream has two enabled mappings, with the filters of the template, which report failed records one by one, \
                    retry for 23 hours without a limit, and write discarded records to the bucket",
        documented: "Lambda API Reference, EventSourceMappingConfiguration; template.yaml",
        permissions: &["dynamodb:DescribeTable", "lambda:ListEventSourceMappings"],
        run: |deployment| Box::pin(event_source_mappings(deployment)),
    }]
}

async fn event_source_mappings(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    let table = deployment.dynamodb("DescribeTable", json!({"TableName": deployment.table})).await?;
    let arn = table["Table"]["LatestStreamArn"].as_str().unwrap_or_default().replace(':', "%3A").replace('/', "%2F");
    let path = format!("/2015-03-31/event-source-mappings?EventSourceArn={arn}");
    let response = deployment.calls.get(LAMBDA, "ListEventSourceMappings", &path).await?;
    let mappings = response["EventSourceMappings"].as_array().cloned().unwrap_or_default();
    let mut seen: Vec<_> = mappings.iter().map(description).collect();
    seen.sort();
    let patterns = [relay_patterns(deployment.has_views).join(" or "), snapshotter_pattern()];
    let mut expected = patterns.map(|patterns| described("Enabled", &patterns, -1, 82_800, true, "s3"));
    expected.sort();
    Ok(CheckResult::compare(expected.join("; "), seen.join("; ")))
}

/// The settings of a mapping that the code relies on.
fn description(mapping: &Value) -> String {
    let destination = mapping["DestinationConfig"]["OnFailure"]["Destination"].as_str().unwrap_or_default();
    let patterns = mapping["FilterCriteria"]["Filters"].as_array().into_iter().flatten();
    let patterns: Vec<_> = patterns.filter_map(|filter| filter["Pattern"].as_str()).collect();
    let reports = mapping["FunctionResponseTypes"] == json!(["ReportBatchItemFailures"]);
    described(
        mapping["State"].as_str().unwrap_or_default(),
        &patterns.join(" or "),
        mapping["MaximumRetryAttempts"].as_i64().unwrap_or_default(),
        mapping["MaximumRecordAgeInSeconds"].as_i64().unwrap_or_default(),
        reports,
        destination.split(':').nth(2).unwrap_or_default(),
    )
}

fn described(state: &str, pattern: &str, retries: i64, age: i64, reports: bool, destination: &str) -> String {
    let reports = if reports { "with" } else { "without" };
    format!(
        "{state}, filter {pattern}, {retries} retries for {age} s, {reports} ReportBatchItemFailures, on failure to {destination}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_limits_are_those_of_the_template() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../template.yaml");
        let template = std::fs::read_to_string(path).unwrap();
        let patterns: Vec<_> = relay_patterns(true).into_iter().chain([snapshotter_pattern()]).collect();
        for pattern in &patterns {
            assert!(template.contains(&format!("Pattern: '{pattern}'")), "{pattern}");
        }
        assert_eq!(template.matches("Pattern: '").count(), patterns.len());
        assert_eq!(template.matches("MaximumRecordAgeInSeconds: 82800 ").count(), 2);
    }
}
