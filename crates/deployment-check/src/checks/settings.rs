//! The settings of the stack, as AWS has them: its alarms, the event source mappings, and the table, which lacks some of them
//! after it was restored until an operator sets them.

use daybook_operations::health::alarm_names;
use daybook_operations::signed_calls::{CLOUDWATCH, LAMBDA, SQS};
use daybook_operations::stack::{CHANGES_QUEUE, REACTIONS_QUEUE};
use daybook_table::attributes::{self, SK, SNAPSHOT_DUE, SOON};
use daybook_table::keys::{DEADLINE_PREFIX, EVENT_PREFIX, METADATA, OUTBOX_PREFIX};
use serde_json::{Value, json};

use crate::aws_calls::CallError;
use crate::check::{Check, CheckResult};
use crate::deploy::gaps_of_alarms;
use crate::deployment::Deployment;

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check {
            name: "alarms",
            relies_on: "all alarms of the stack exist and are in state OK: without data they are OK, not INSUFFICIENT_DATA",
            documented: "CloudWatch User Guide, alarms: missing data; docs/runbook.md",
            permissions: &["cloudwatch:DescribeAlarms"],
            run: |deployment| Box::pin(alarms(deployment)),
        },
        Check {
            name: "alarm-recipients",
            relies_on: "somebody gets the alarms: each topic has a confirmed subscription, or AlarmEmail is none, for recipients of \
                        your own",
            documented: "SNS API Reference, ListSubscriptionsByTopic; docs/deploy.md",
            permissions: &["cloudformation:DescribeStacks", "sns:ListSubscriptionsByTopic"],
            run: |deployment| Box::pin(async { Ok(alarm_recipients(deployment).await) }),
        },
        Check {
            name: "event-source-mappings",
            relies_on: "the stream has two enabled mappings, with the filters of the template, which report failed records one by one, \
                    retry for 23 hours without a limit, and write discarded records to the bucket; the queues of the projector and of \
                    the reactor have one, which reports failed messages one by one",
            documented: "Lambda API Reference, EventSourceMappingConfiguration; template.yaml",
            permissions: &["dynamodb:DescribeTable", "lambda:ListEventSourceMappings", "sqs:GetQueueAttributes"],
            run: |deployment| Box::pin(event_source_mappings(deployment)),
        },
        Check {
            name: "table-settings",
            relies_on: "the table has a stream with new images, an index of all attributes, TTL and point-in-time recovery. A restored \
                    table has no stream, no TTL and no point-in-time recovery until they are set",
            documented: "DynamoDB Developer Guide, point-in-time recovery: how it works; docs/restore.md",
            permissions: &[
                "dynamodb:DescribeTable",
                "dynamodb:DescribeTimeToLive",
                "dynamodb:DescribeContinuousBackups",
            ],
            run: |deployment| Box::pin(table_settings(deployment)),
        },
    ]
}

async fn alarms(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    let Some(stack) = deployment.stack.optional("STACK") else { return Ok(unknown_stack(deployment)) };
    let request = json!({"AlarmNamePrefix": format!("{stack}-"), "AlarmTypes": ["MetricAlarm"], "MaxRecords": 100});
    let response = deployment.calls.call(CLOUDWATCH, "DescribeAlarms", request).await?;
    let found = response["MetricAlarms"].as_array().cloned().unwrap_or_default();
    let state = |name: &str| {
        let full_name = format!("{stack}-{name}");
        let alarm = found.iter().find(|alarm| alarm["AlarmName"] == full_name.as_str());
        alarm.map_or("missing".to_owned(), |alarm| alarm["StateValue"].as_str().unwrap_or_default().to_owned())
    };
    let states = alarm_names().map(|name| (name, state(name)));
    let others: Vec<_> =
        states.filter(|(_, state)| state != "OK").map(|(name, state)| format!("{name} {state}")).collect();
    let expected = format!("{} alarms are OK", alarm_names().count());
    Ok(match others.is_empty() {
        true => CheckResult::AsExpected { seen: expected },
        false => CheckResult::compare(expected, others.join(", ")),
    })
}

fn unknown_stack(deployment: &Deployment) -> CheckResult {
    let reason = match deployment.stack.is_local() {
        true => "the local stack has no alarms",
        false => "the name of the stack is not known; use --stack or set STACK",
    };
    CheckResult::not_seen(reason.to_owned(), deployment.stack.is_local())
}

async fn alarm_recipients(deployment: &Deployment) -> CheckResult {
    let Some(stack) = deployment.stack.optional("STACK") else { return unknown_stack(deployment) };
    let expected = "somebody gets the alarms, or AlarmEmail is none";
    match gaps_of_alarms(&deployment.stack.environment, &stack).await {
        Err(error) => CheckResult::NotChecked { detail: error.to_string() },
        Ok((gaps, _)) if gaps.is_empty() => CheckResult::AsExpected { seen: expected.to_owned() },
        Ok((_, true)) => CheckResult::AsExpected { seen: "AlarmEmail is none, and nobody gets some alarms".to_owned() },
        Ok((gaps, false)) => CheckResult::compare(expected.to_owned(), gaps.join("; ")),
    }
}

/// The filter patterns of the relay's mapping: those of outbox rows, with read models or processes those of changes of
/// metadata, and with a reactor those of deadlines that are due soon.
fn relay_patterns(sends_changes: bool, has_reactor: bool) -> Vec<String> {
    let outbox = of_inserts(OUTBOX_PREFIX) + "}}";
    let metadata =
        format!(r#"{{"eventName":["INSERT","MODIFY"],"dynamodb":{{"Keys":{{"{SK}":{{"S":["{METADATA}"]}}}}}}}}"#);
    let soon = format!(
        r#"{{"eventName":["INSERT","MODIFY"],"dynamodb":{{"Keys":{{"{SK}":{{"S":[{{"prefix":"{DEADLINE_PREFIX}"}}]}}}},"NewImage":{{"{SOON}":{{"BOOL":[true]}}}}}}}}"#
    );
    [outbox].into_iter().chain(sends_changes.then_some(metadata)).chain(has_reactor.then_some(soon)).collect()
}

fn snapshotter_pattern() -> String {
    format!(r#"{},"NewImage":{{"{SNAPSHOT_DUE}":{{"BOOL":[true]}}}}}}}}"#, of_inserts(EVENT_PREFIX))
}

fn of_inserts(prefix: &str) -> String {
    format!(r#"{{"eventName":["INSERT"],"dynamodb":{{"Keys":{{"{SK}":{{"S":[{{"prefix":"{prefix}"}}]}}}}"#)
}

async fn event_source_mappings(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    let table = deployment.dynamodb("DescribeTable", json!({"TableName": deployment.table})).await?;
    let mappings = mappings_of(deployment, &table["Table"]["LatestStreamArn"]).await?;
    let mut seen: Vec<_> = mappings.iter().map(of_stream).collect();
    let stack = &deployment.stack;
    let (sends_changes, has_reactor) =
        (stack.has_views() || stack.has_processes(), stack.optional(REACTIONS_QUEUE).is_some());
    let patterns = [relay_patterns(sends_changes, has_reactor).join(" or "), snapshotter_pattern()];
    let expected = patterns.map(|pattern| {
        format!("Enabled, filter {pattern}, -1 retries for 82800 s, [\"ReportBatchItemFailures\"], on failure to s3")
    });
    let mut expected = expected.to_vec();
    seen.sort();
    expected.sort();
    for setting in [CHANGES_QUEUE, REACTIONS_QUEUE] {
        let Some(queue) = stack.optional(setting) else { continue };
        let wanted = json!({"QueueUrl": queue, "AttributeNames": ["QueueArn"]});
        let attributes = deployment.calls.call(SQS, "GetQueueAttributes", wanted).await?;
        let mappings = mappings_of(deployment, &attributes["Attributes"]["QueueArn"]).await?;
        seen.extend(mappings.iter().map(|mapping| {
            let state = mapping["State"].as_str().unwrap_or_default();
            format!("{setting} {state}, {}", mapping["FunctionResponseTypes"])
        }));
        expected.push(format!("{setting} Enabled, [\"ReportBatchItemFailures\"]"));
    }
    Ok(CheckResult::compare(expected.join("; "), seen.join("; ")))
}

async fn mappings_of(deployment: &Deployment, source: &Value) -> Result<Vec<Value>, CallError> {
    let arn = source.as_str().unwrap_or_default().replace(':', "%3A").replace('/', "%2F");
    let path = format!("/2015-03-31/event-source-mappings?EventSourceArn={arn}");
    let response = deployment.calls.send(LAMBDA, "GET", &path, "ListEventSourceMappings", None).await?;
    Ok(response["EventSourceMappings"].as_array().cloned().unwrap_or_default())
}

fn of_stream(mapping: &Value) -> String {
    let patterns = mapping["FilterCriteria"]["Filters"].as_array().into_iter().flatten();
    let patterns: Vec<_> = patterns.filter_map(|filter| filter["Pattern"].as_str()).collect();
    let destination = mapping["DestinationConfig"]["OnFailure"]["Destination"].as_str().unwrap_or_default();
    format!(
        "{}, filter {}, {} retries for {} s, {}, on failure to {}",
        mapping["State"].as_str().unwrap_or_default(),
        patterns.join(" or "),
        mapping["MaximumRetryAttempts"],
        mapping["MaximumRecordAgeInSeconds"],
        mapping["FunctionResponseTypes"],
        destination.split(':').nth(2).unwrap_or_default(),
    )
}

async fn table_settings(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    let name = json!({"TableName": deployment.table});
    let table = deployment.dynamodb("DescribeTable", name.clone()).await?;
    let ttl = deployment.dynamodb("DescribeTimeToLive", name.clone()).await?;
    let backups = deployment.dynamodb("DescribeContinuousBackups", name).await?;
    let (ttl, backups) = (&ttl["TimeToLiveDescription"], &backups["ContinuousBackupsDescription"]);
    let recovery = &backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"];
    let settings = [
        ("stream with new images", has_new_images(&table["Table"]["StreamSpecification"])),
        ("index of all attributes", has_index(&table["Table"]["GlobalSecondaryIndexes"])),
        ("TTL", ttl["AttributeName"] == attributes::TTL && is_on(&ttl["TimeToLiveStatus"])),
        ("point-in-time recovery", is_on(recovery)),
    ];
    let seen = settings.map(|(setting, is_set)| format!("{setting} {}", if is_set { "yes" } else { "no" })).join(", ");
    Ok(CheckResult::compare(settings.map(|(setting, _)| format!("{setting} yes")).join(", "), seen))
}

/// A replica of a global table has the old images too.
fn has_new_images(stream: &Value) -> bool {
    let view = &stream["StreamViewType"];
    stream["StreamEnabled"] == true && (view == "NEW_IMAGE" || view == "NEW_AND_OLD_IMAGES")
}

fn has_index(indexes: &Value) -> bool {
    let mut indexes = indexes.as_array().into_iter().flatten();
    indexes.any(|index| index["IndexName"] == attributes::GSI1 && index["Projection"]["ProjectionType"] == "ALL")
}

fn is_on(status: &Value) -> bool {
    *status == "ENABLED" || *status == "ENABLING"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_limits_are_those_of_the_template() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../template.yaml");
        let template = std::fs::read_to_string(path).unwrap();
        let patterns: Vec<_> = relay_patterns(true, true).into_iter().chain([snapshotter_pattern()]).collect();
        for pattern in &patterns {
            assert!(template.contains(&format!("Pattern: '{pattern}'")), "{pattern}");
        }
        assert_eq!(template.matches("Pattern: '").count(), patterns.len());
        assert_eq!(template.matches("MaximumRecordAgeInSeconds: 82800 ").count(), 2);
    }

    #[test]
    fn streams_and_indexes_without_what_the_code_reads_are_found() {
        for (view, expected) in
            [("NEW_IMAGE", true), ("NEW_AND_OLD_IMAGES", true), ("OLD_IMAGE", false), ("KEYS_ONLY", false)]
        {
            assert_eq!(has_new_images(&json!({"StreamEnabled": true, "StreamViewType": view})), expected, "{view}");
        }
        assert!(!has_new_images(&Value::Null) && !has_new_images(&json!({"StreamEnabled": false})));
        let index = |name, projection| json!([{"IndexName": name, "Projection": {"ProjectionType": projection}}]);
        assert!(has_index(&index(attributes::GSI1, "ALL")) && !has_index(&index(attributes::GSI1, "KEYS_ONLY")));
        assert!(!has_index(&index("other", "ALL")) && !has_index(&Value::Null));
    }
}
