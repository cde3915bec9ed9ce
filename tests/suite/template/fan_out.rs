//! deploy/fan-out.yaml: its rule selects the messages, no target loses one silently, and no permission is wider than needed.

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

/// The targets of the rule, by their ids. Each is `!If [SendsTo…, target, !Ref AWS::NoValue]`.
fn targets(template: &Value) -> BTreeMap<String, Value> {
    let targets = template["Resources"]["Rule"]["Properties"]["Targets"].as_array().unwrap();
    assert_eq!(targets.len(), TARGETS.len());
    let conditional = targets.iter().zip(TARGETS).map(|(target, (id, name))| {
        assert_eq!((&target[0], &target[2]), (&json!(format!("SendsTo{name}")), &json!("AWS::NoValue")));
        assert_eq!(template["Conditions"][format!("SendsTo{name}")], json!([format!("To{name}"), "true"]));
        assert_eq!(template["Parameters"][format!("To{name}")]["Default"], "false");
        assert_eq!(target[1]["Id"], id);
        (id.to_owned(), target[1].clone())
    });
    conditional.collect()
}

#[test]
fn rule_selects_the_messages() {
    let (template, main) = (template(), plain(&super::text()));
    let source = template["Parameters"]["EventSource"]["Default"].as_str().unwrap();
    assert_eq!(main["Parameters"]["EventSource"]["Default"], source);
    let rules = resources(&template, "AWS::Events::Rule");
    let rule = &rules["Rule"];
    let properties = &rule["Properties"];
    assert_eq!((rules.len(), rule.get("Condition"), &properties["EventBusName"]), (1, None, &json!("EventBusName")));
    let all = pattern(rule, source, &[], &[]);
    assert!(messages().iter().all(|message| all.matches(message)));
    let selected = |aggregates: &[&str], types: &[&str]| {
        let pattern = pattern(rule, source, aggregates, types);
        messages().iter().filter(|message| pattern.matches(message)).count()
    };
    assert_eq!(selected(&["account", "todo"], &[]), 5);
    assert_eq!(selected(&[], &["TodoCreated", "OrderPlaced"]), 2);
    assert_eq!(selected(&["todo"], &["TodoCreated", "OrderPlaced"]), 1);
}

#[test]
fn each_target_retries_and_has_a_dead_letter_queue_that_the_rule_may_use() {
    let template = template();
    let policy = &template["Resources"]["RuleSendsToUndelivered"]["Properties"]["PolicyDocument"]["Statement"][0];
    // Not `Rule.Arn`: the rule is created after the policy, so that it can use the queue from its first message on.
    let rule =
        "arn:${AWS::Partition}:events:${AWS::Region}:${AWS::AccountId}:rule/${EventBusName}/${AWS::StackName}-rule";
    assert_eq!(policy["Condition"], json!({"ArnEquals": {"aws:SourceArn": rule}}));
    assert_eq!(template["Resources"]["Rule"]["DependsOn"], "RuleSendsToUndelivered");
    assert_eq!(plain(&read("app/order-mails/template.yaml"))["Resources"]["Orders"]["DependsOn"], "MayDeliver");
    for (id, target) in targets(&template) {
        assert_eq!(target["DeadLetterConfig"]["Arn"], "Undelivered.Arn", "{id}");
        // The default is the maximum: 24 hours and 185 attempts.
        assert_eq!(target.get("RetryPolicy"), None, "{id}");
    }
}

#[test]
fn kinesis_has_the_messages_of_an_aggregate_in_one_shard() {
    let target = &targets(&template())["kinesis"];
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
        ("RuleSendsToUndelivered", &["sqs:SendMessage"][..]),
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
fn rule_has_alarms_and_each_alarm_its_section() {
    let template = template();
    let alarms = resources(&template, "AWS::CloudWatch::Alarm");
    let page = read("docs/consumers.md");
    for (name, alarm) in &alarms {
        let description = alarm["Properties"]["AlarmDescription"].as_str().unwrap();
        let anchor = description.trim().rsplit_once("docs/consumers.md#").unwrap_or_else(|| panic!("{name}")).1;
        assert!(page.contains(&format!("<a id=\"{anchor}\"></a>")), "{name}");
        let alarm_name = alarm["Properties"]["AlarmName"].as_str().unwrap().replace("${AWS::StackName}", "STACK");
        assert!(page.contains(&format!("`{alarm_name}`")), "the page does not name {alarm_name}");
        assert_eq!(alarm["Properties"]["AlarmActions"][1], json!(["NotificationsTopicArn"]), "{name}");
        // The messages of an empty queue may have expired, and a lost message stays lost.
        let is_silent = ["UndeliveredArrived", "FailedArrived", "MessagesOld"].contains(&name.as_str());
        let expected =
            if is_silent || name.ends_with("Lost") { &Value::Null } else { &alarm["Properties"]["AlarmActions"] };
        assert_eq!(alarm["Properties"].get("OKActions").unwrap_or(&Value::Null), expected, "{name}");
    }
    // Whatever the targets are.
    for (metric, alarm) in [
        ("FailedInvocations", "RuleFailed"),
        ("InvocationsFailedToBeSentToDlq", "RuleLost"),
        ("TriggeredRules", "RuleSilent"),
    ] {
        let alarm = &alarms[alarm];
        assert_eq!((alarm.get("Condition"), &alarm["Properties"]["MetricName"]), (None, &json!(metric)));
        assert_eq!(alarm["Properties"]["TreatMissingData"] == "breaching", metric == "TriggeredRules", "{metric}");
        assert_eq!(
            alarm["Properties"]["Dimensions"],
            json!([
                {"Name": "EventBusName", "Value": "EventBusName"},
                {"Name": "RuleName", "Value": template["Resources"]["Rule"]["Properties"]["Name"]},
            ])
        );
    }
    assert_eq!(alarms["UndeliveredArrived"].get("Condition"), None);
    // The age of all queues, before they delete the messages after 14 days.
    let old = &alarms["MessagesOld"]["Properties"];
    assert_eq!(
        (&old["Metrics"][0]["Expression"], &old["Threshold"]),
        (&json!("MAX([undelivered, failed, waiting])"), &json!(432_000))
    );
    let queues = [1, 2, 3].map(|metric| &old["Metrics"][metric]["MetricStat"]["Metric"]["Dimensions"][0]["Value"]);
    assert_eq!(queues, ["Undelivered.QueueName", "${AWS::StackName}-failed", "${AWS::StackName}-messages"]);
    for (name, queue) in [("FailedMessages", &queues[1]), ("Messages", &queues[2])] {
        assert_eq!(template["Resources"][name]["Properties"]["QueueName"], **queue);
    }
}
