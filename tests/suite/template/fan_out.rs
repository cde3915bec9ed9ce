//! deploy/fan-out.yaml: its rules select the messages, no target loses one silently, and no permission is wider than needed.

use std::collections::BTreeMap;

use daybook_api_documents::asyncapi;
use daybook_local_aws::messaging::EventPattern;
use serde_json::{Value, json};

use super::{plain, plain_with_parts, read, resources};

const TARGETS: [(&str, &str); 4] =
    [("queue", "Queue"), ("topic", "Topic"), ("kinesis", "Kinesis"), ("bucket", "Bucket")];

fn template() -> Value {
    plain(&read("deploy/fan-out.yaml"))
}

/// An example of each message, as EventBridge delivers it.
fn messages() -> Vec<Value> {
    let document = asyncapi(&aggregates::registry().unwrap());
    let messages = document["components"]["messages"].as_object().unwrap();
    messages.values().map(|message| message["examples"][0]["payload"].clone()).collect()
}

/// The pattern of a rule, with these values of the parameters.
fn pattern(rule: &Value, source: &str, aggregates: &[&str], messages: &[&str]) -> EventPattern {
    let pattern = &rule["Properties"]["EventPattern"];
    assert_eq!(pattern["source"], json!(["EventSource"]));
    // `!If [SelectsMessages, !Ref MessageTypes, !Ref AWS::NoValue]`
    assert_eq!(pattern["detail-type"], json!(["SelectsMessages", "MessageTypes", "AWS::NoValue"]));
    let detail = json!({"metadata": {"aggregateType": "AggregateTypes"}});
    assert_eq!(pattern["detail"], json!(["SelectsAggregates", detail, "AWS::NoValue"]));
    let mut given = json!({"source": [source]});
    if !messages.is_empty() {
        given["detail-type"] = json!(messages);
    }
    if !aggregates.is_empty() {
        given["detail"]["metadata"]["aggregateType"] = json!(aggregates);
    }
    EventPattern::new(&given).unwrap()
}

#[test]
fn rule_of_each_target_selects_the_messages() {
    let (template, main) = (template(), plain(&super::text()));
    let source = template["Parameters"]["EventSource"]["Default"].as_str().unwrap();
    assert_eq!(main["Parameters"]["EventSource"]["Default"], source);
    let rules = resources(&template, "AWS::Events::Rule");
    assert_eq!(rules.len(), TARGETS.len());
    for (name, target) in TARGETS {
        let rule = &rules[&format!("{target}Rule")];
        assert_eq!(rule["Condition"], format!("SendsTo{target}"));
        assert_eq!(template["Conditions"][format!("SendsTo{target}")], json!([format!("To{target}"), "true"]));
        assert_eq!(template["Parameters"][format!("To{target}")]["Default"], "false");
        let properties = &rule["Properties"];
        assert_eq!(
            (&properties["EventBusName"], &properties["Name"]),
            (&json!("EventBusName"), &json!(format!("${{AWS::StackName}}-{name}")))
        );
        let all = pattern(rule, source, &[], &[]);
        assert!(messages().iter().all(|message| all.matches(message)), "{target}");
        let selected = |aggregates: &[&str], types: &[&str]| {
            let pattern = pattern(rule, source, aggregates, types);
            messages().iter().filter(|message| pattern.matches(message)).count()
        };
        assert_eq!(selected(&["account", "todo"], &[]), 5, "{target}");
        assert_eq!(selected(&[], &["TodoCreated", "OrderPlaced"]), 2, "{target}");
        assert_eq!(selected(&["todo"], &["TodoCreated", "OrderPlaced"]), 1, "{target}");
    }
}

#[test]
fn each_target_retries_and_has_a_dead_letter_queue_that_its_rule_may_use() {
    let template = template();
    let policy = &template["Resources"]["RulesSendToUndelivered"]["Properties"]["PolicyDocument"]["Statement"][0];
    let allowed = policy["Condition"]["ArnEquals"]["aws:SourceArn"].as_array().unwrap();
    assert_eq!(allowed.len(), TARGETS.len());
    for (name, target) in TARGETS {
        let targets = &template["Resources"][format!("{target}Rule")]["Properties"]["Targets"];
        assert_eq!(targets.as_array().unwrap().len(), 1);
        assert_eq!(targets[0]["DeadLetterConfig"]["Arn"], "Undelivered.Arn", "{target}");
        assert_eq!(
            targets[0]["RetryPolicy"],
            json!({"MaximumEventAgeInSeconds": ["Retry", "RetryHours", "Seconds"], "MaximumRetryAttempts": 185})
        );
        let arn = format!("rule/${{EventBusName}}/${{AWS::StackName}}-{name}");
        assert!(allowed.iter().any(|allowed| allowed.as_str().unwrap().ends_with(&arn)), "{target}");
    }
    for hours in template["Parameters"]["RetryHours"]["AllowedValues"].as_array().unwrap() {
        let seconds = &template["Mappings"]["Retry"][hours.to_string()]["Seconds"];
        assert_eq!(seconds.as_u64(), hours.as_u64().map(|hours| hours * 3600));
    }
}

#[test]
fn kinesis_has_the_messages_of_an_aggregate_in_one_shard() {
    let target = &template()["Resources"]["KinesisRule"]["Properties"]["Targets"][0];
    let path = target["KinesisParameters"]["PartitionKeyPath"].as_str().unwrap();
    let pointer = path.strip_prefix('$').unwrap().replace('.', "/");
    for message in messages() {
        assert_eq!(message.pointer(&pointer), Some(&message["detail"]["metadata"]["aggregateId"]), "{message}");
        assert_eq!(message.pointer(&pointer).unwrap(), "123");
    }
}

#[test]
fn stored_messages_are_encrypted_and_stay_when_the_stack_is_deleted() {
    let template = plain_with_parts(&read("deploy/fan-out.yaml"));
    let mut seen = 0;
    for (of_type, encryption) in [
        ("AWS::SQS::Queue", "KmsMasterKeyId"),
        ("AWS::Kinesis::Stream", "StreamEncryption"),
        ("AWS::S3::Bucket", "BucketEncryption"),
    ] {
        for (name, resource) in resources(&template, of_type) {
            assert_eq!(
                (&resource["DeletionPolicy"], &resource["UpdateReplacePolicy"]),
                (&json!("RetainExceptOnCreate"), &json!("Retain")),
                "{name}"
            );
            assert!(resource["Properties"][encryption].to_string().contains("KmsKeyArn"), "{name}");
            seen += 1;
        }
    }
    assert_eq!(seen, 5);
    for name in ["Topic", "Firehose"] {
        assert!(template["Resources"][name]["Properties"].to_string().contains("KmsKeyArn"), "{name}");
    }
}

#[test]
fn permissions_are_these_and_no_others() {
    let template = template();
    let mut found = BTreeMap::new();
    for (name, resource) in template["Resources"].as_object().unwrap() {
        let properties = &resource["Properties"];
        let inline = properties["Policies"].as_array().into_iter().flatten().map(|policy| &policy["PolicyDocument"]);
        let documents = inline.chain(properties.get("PolicyDocument"));
        for statement in documents.flat_map(|document| document["Statement"].as_array().unwrap()) {
            if statement["Effect"] == "Allow" {
                let mut actions: Vec<_> = match &statement["Action"] {
                    Value::Array(actions) => actions.iter().map(|action| action.as_str().unwrap().to_owned()).collect(),
                    action => vec![action.as_str().unwrap().to_owned()],
                };
                assert!(!statement["Resource"].to_string().contains("\"*\""), "{name}");
                assert!(actions.iter().all(|action| !action.contains('*')), "{name}");
                found.entry(name.as_str()).or_insert_with(Vec::new).append(&mut actions);
            } else {
                assert_eq!(statement["Condition"], json!({"Bool": {"aws:SecureTransport": "false"}}), "{name}");
            }
        }
        // Only services of AWS assume the roles, and only for this account.
        if resource["Type"] == "AWS::IAM::Role" {
            let trust = &properties["AssumeRolePolicyDocument"]["Statement"][0];
            assert_eq!(trust["Condition"], json!({"StringEquals": {"aws:SourceAccount": "AWS::AccountId"}}), "{name}");
        }
    }
    let expected: BTreeMap<&str, &[&str]> = [
        ("RulesSendToUndelivered", &["sqs:SendMessage"][..]),
        ("RuleSendsToMessages", &["sqs:SendMessage"]),
        ("RulePublishesToTopic", &["sns:Publish"]),
        ("KinesisRuleRole", &["kinesis:PutRecord", "kinesis:PutRecords"]),
        ("KinesisRuleUsesTheKey", &["kms:GenerateDataKey"]),
        ("BucketRuleRole", &["firehose:PutRecord", "firehose:PutRecordBatch"]),
        (
            "FirehoseRole",
            &[
                "s3:AbortMultipartUpload",
                "s3:PutObject",
                "s3:GetBucketLocation",
                "s3:ListBucket",
                "s3:ListBucketMultipartUploads",
                "logs:PutLogEvents",
            ],
        ),
        ("FirehoseUsesTheKey", &["kms:Decrypt", "kms:GenerateDataKey"]),
    ]
    .into();
    let found: BTreeMap<_, Vec<_>> =
        found.iter().map(|(name, actions)| (*name, actions.iter().map(String::as_str).collect())).collect();
    assert_eq!(found, expected.into_iter().map(|(name, actions)| (name, actions.to_vec())).collect());
}

#[test]
fn each_target_has_alarms_and_each_alarm_its_section() {
    let template = template();
    let alarms = resources(&template, "AWS::CloudWatch::Alarm");
    let page = read("docs/consumers.md");
    for (name, alarm) in &alarms {
        let description = alarm["Properties"]["AlarmDescription"].as_str().unwrap();
        let anchor = description.trim().rsplit_once("docs/consumers.md#").unwrap_or_else(|| panic!("{name}")).1;
        assert!(page.contains(&format!("<a id=\"{anchor}\"></a>")), "{name}");
        let alarm_name = alarm["Properties"]["AlarmName"].as_str().unwrap().replace("${AWS::StackName}", "STACK");
        let of_target = TARGETS
            .iter()
            .fold(alarm_name, |name, (target, _)| name.replace(&format!("-{target}-rule"), "-TARGET-rule"));
        assert!(page.contains(&format!("`{of_target}`")), "the page does not name {of_target}");
        assert_eq!(alarm["Properties"]["AlarmActions"][1], json!(["NotificationsTopicArn"]), "{name}");
        // The messages of an empty queue may have expired, and a lost message stays lost.
        let is_silent = ["UndeliveredArrived", "FailedArrived", "MessagesOld"].contains(&name.as_str());
        let expected =
            if is_silent || name.ends_with("Lost") { &Value::Null } else { &alarm["Properties"]["AlarmActions"] };
        assert_eq!(alarm["Properties"].get("OKActions").unwrap_or(&Value::Null), expected, "{name}");
    }
    for (metric, alarm, targets) in [
        ("FailedInvocations", "RuleFailed", &TARGETS[..]),
        ("InvocationsFailedToBeSentToDlq", "RuleLost", &TARGETS[..]),
        ("TriggeredRules", "RuleSilent", &TARGETS[..1]),
    ] {
        for (name, target) in targets {
            let alarm = &alarms[&format!("{target}{alarm}")];
            assert_eq!(alarm["Properties"]["TreatMissingData"] == "breaching", metric == "TriggeredRules");
            assert_eq!(alarm["Condition"], format!("SendsTo{target}"));
            assert_eq!(alarm["Properties"]["MetricName"], metric);
            assert_eq!(
                alarm["Properties"]["Dimensions"],
                json!([
                    {"Name": "EventBusName", "Value": "EventBusName"},
                    {"Name": "RuleName", "Value": format!("${{AWS::StackName}}-{name}")},
                ])
            );
        }
    }
    assert_eq!(alarms["UndeliveredArrived"].get("Condition"), None);
    // The age of both queues, before they delete the messages after 14 days.
    let old = &alarms["MessagesOld"]["Properties"];
    assert_eq!(
        (&old["Metrics"][0]["Expression"], &old["Threshold"]),
        (&json!("MAX([undelivered, failed])"), &json!(432_000))
    );
    let queues = [1, 2].map(|metric| &old["Metrics"][metric]["MetricStat"]["Metric"]["Dimensions"][0]["Value"]);
    assert_eq!(queues, ["Undelivered.QueueName", "${AWS::StackName}-failed"]);
    assert_eq!(template["Resources"]["FailedMessages"]["Properties"]["QueueName"], "${AWS::StackName}-failed");
}
