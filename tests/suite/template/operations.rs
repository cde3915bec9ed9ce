//! Operations: errors are explained in the runbook, deployments can roll back, and data outlives the stack.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use suite_tests::workspace;

use super::{PARTS, plain, plain_with_parts, read, resources, template_of, text};
use crate::links::page_sections;

const FUNCTION: &str = "AWS::Serverless::Function";

/// The alarms that roll back the deployment of any function.
pub(super) fn deployment_alarms(template: &Value) -> BTreeSet<String> {
    resources(template, FUNCTION).values().flat_map(watching).collect()
}

/// The alarms that roll back a function's deployment.
fn watching(function: &Value) -> BTreeSet<String> {
    fn names(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::String(name) => drop(found.insert(name.clone())),
            Value::Array(all) => all.iter().for_each(|one| names(one, found)),
            Value::Object(members) => members.values().for_each(|member| names(member, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    names(&function["Properties"]["DeploymentPreference"]["Alarms"], &mut found);
    found.remove("ShiftsGradually");
    found
}

/// The messages of the functions at level ERROR. The crates `cli`, `local-aws` and `local-stack` are not deployed, and
/// `consumer` is not a part of the stack: docs/consumers.md has its messages.
fn error_lines() -> BTreeSet<String> {
    let mut folders = vec![workspace().join("crates")];
    let mut lines = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                let others = ["crates/cli", "crates/consumer", "crates/local-aws", "crates/local-stack"];
                let is_other = others.iter().any(|folder| path.ends_with(folder));
                folders.extend((!is_other).then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let code = std::fs::read_to_string(&path).unwrap();
                let code = code.split_whitespace().collect::<Vec<_>>().join(" ").replace("\", )", "\")");
                // The message is the last argument of the macro.
                let calls = code.split("tracing::error!(").skip(1).map(|rest| rest.split("\")").next().unwrap());
                lines.extend(calls.map(|call| call.rsplit('"').next().unwrap().to_owned()));
            }
        }
    }
    lines
}

#[test]
fn each_error_log_line_is_in_the_runbook() {
    let runbook = read("docs/runbook.md");
    let section = page_sections(&runbook)["lines-of-level-error"];
    let rows = section.lines().filter(|line| line.starts_with("| `")).map(|row| row.split(" | ").next().unwrap());
    let documented: BTreeSet<_> = rows.flat_map(|lines| lines.split('`').skip(1).step_by(2)).collect();
    let lines = error_lines();
    assert!(lines.len() > 5, "{lines:?}");
    for line in lines {
        assert!(documented.iter().any(|row| line.starts_with(row)), "no row for {line:?} in {documented:?}");
    }
}

#[test]
fn new_version_is_deployed_gradually_and_rolled_back_by_alarms() {
    let template = plain(&text());
    let globals = &template["Globals"]["Function"];
    assert_eq!(globals["AutoPublishAlias"], "live");
    assert_eq!(globals["DeploymentPreference"], json!({"Type": "TrafficShift", "Role": "DeploymentRole.Arn"}));
    // The nested template has no globals.
    let parts = PARTS.map(|(file, id)| (id, plain(&read(file))));
    for (id, nested) in &parts {
        let function = &nested["Resources"][id]["Properties"];
        assert_eq!(function["DeploymentPreference"]["Type"], "TrafficShift");
        assert_eq!(function["DeploymentPreference"]["Role"], "DeploymentRole");
        assert_eq!(function["AutoPublishAlias"], "live");
    }
    let templates = parts.iter().map(|(_, nested)| nested).chain([&template]);
    let functions = templates
        .flat_map(|template| resources(template, FUNCTION).into_iter().map(move |function| (template, function)));
    for (template, (name, function)) in functions {
        let overrides = function["Properties"]["DeploymentPreference"].get("Type").is_some();
        assert_eq!(overrides, parts.iter().any(|(id, _)| name == *id), "{name} overrides Globals");
        let of_version = format!("{name}NewVersionErrors");
        assert!(watching(&function).contains(&of_version), "{name}");
        let alarm = &template["Resources"][&of_version]["Properties"];
        let dimensions = alarm["Dimensions"].to_string();
        for part in [format!("{name}.Version.Version"), format!("${{{name}}}:live")] {
            assert!(dimensions.contains(&part), "{of_version}: {dimensions}");
        }
        // A changed alarm retains its state, so each version has its own alarm.
        let alarm_name = alarm["AlarmName"].as_str().unwrap();
        assert!(alarm_name.ends_with(&format!("-${{{name}.Version.Version}}")), "{of_version}: {alarm_name}");
    }
    // A 500 is a response, not an error of the function.
    let handler = &template["Resources"]["CommandHandler"];
    assert!(watching(handler).contains("ApiServerErrors"));
}

#[test]
fn new_version_of_a_stream_function_is_rolled_back_by_failures_that_do_not_crash_it() {
    for (name, metric, folder) in [
        ("StreamRelay", "MessagesFailed", "stream-relay"),
        ("Snapshotter", "SnapshotsFailed", "snapshotter"),
        ("Projector", "ChangesFailed", "projector"),
        ("Reactor", "ReactionAttemptsFailed", "reactor"),
    ] {
        let template = template_of(name);
        let function = &template["Resources"][name];
        let of_version = format!("{name}NewVersionFailures");
        assert!(watching(function).contains(&of_version), "{name}");
        let alarm = &template["Resources"][&of_version]["Properties"];
        assert_eq!(alarm["MetricName"], metric);
        // The failures of the old version must not count.
        let version = format!("{name}.Version.Version");
        assert_eq!(alarm["Dimensions"], json!([{"Name": "FunctionVersion", "Value": version}]));
        assert!(alarm["AlarmName"].as_str().unwrap().ends_with(&format!("-${{{version}}}")), "{of_version}");
        assert_eq!(alarm["Namespace"], function["Properties"]["Environment"]["Variables"]["METRICS_NAMESPACE"]);
        assert_eq!((&alarm["Statistic"], &alarm["Threshold"]), (&json!("Sum"), &json!(0)));
        assert_eq!((&alarm["Period"], &alarm["EvaluationPeriods"]), (&json!(60), &json!(1)));
        // The function passes the version, which Lambda sets.
        let code = read(&format!("crates/{folder}/src/function.rs"));
        assert!(
            code.contains("with_function_version(environment.optional(\"AWS_LAMBDA_FUNCTION_VERSION\"))"),
            "{name}"
        );
    }
}

#[test]
fn resources_with_irreplaceable_data_outlive_the_stack() {
    let template = plain(&text());
    // RetainExceptOnCreate: a first deployment that fails leaves nothing behind. An archive replays to its own bus only.
    let kept = |resource: &Value| {
        resource["DeletionPolicy"] == "RetainExceptOnCreate" && resource["UpdateReplacePolicy"] == "Retain"
    };
    for name in ["Table", "SubjectKeys", "EventBus", "Archive", "DeadLetterQueue", "DiscardedRecords"] {
        assert!(kept(&template["Resources"][name]), "{name}");
    }
    let table = &template["Resources"]["Table"]["Properties"];
    assert_eq!(table["DeletionProtectionEnabled"], "DeletionProtection");
    assert_eq!(template["Parameters"]["DeletionProtection"]["Default"], "true");
    assert_eq!(table["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"], true);
    assert_eq!(table["SSESpecification"]["SSEEnabled"], true);
    assert_eq!(table["StreamSpecification"]["StreamViewType"], "NEW_IMAGE");
    assert_eq!(
        table["TimeToLiveSpecification"],
        json!({"AttributeName": daybook_table::attributes::TTL, "Enabled": true})
    );

    let queue = &template["Resources"]["DeadLetterQueue"]["Properties"];
    assert_eq!(queue["MessageRetentionPeriod"], 14 * 24 * 60 * 60);
    assert_eq!((&queue["SqsManagedSseEnabled"], queue.get("KmsMasterKeyId")), (&json!(true), None));
    let bucket = &template["Resources"]["DiscardedRecords"]["Properties"];
    assert!(!bucket["BucketEncryption"].is_null());
    let closed = bucket["PublicAccessBlockConfiguration"].as_object().unwrap();
    assert_eq!(closed.values().filter(|closed| **closed == true).count(), 4);
}

#[test]
fn key_of_ones_own_encrypts_the_tables_and_the_dead_letter_queue() {
    let resources = &plain_with_parts(&text())["Resources"];
    let [table, keys, queue] = ["Table", "SubjectKeys", "DeadLetterQueue"].map(|name| &resources[name]["Properties"]);
    for of_key in [&table["SSESpecification"]["KMSMasterKeyId"], &keys["SSESpecification"]["KMSMasterKeyId"]] {
        assert_eq!(of_key, "KmsKeyArn");
    }
    assert_eq!((&queue["KmsMasterKeyId"], queue.get("SqsManagedSseEnabled")), (&json!("KmsKeyArn"), None));
    // Without a key, there is no table of data keys. Its backups would bring back forgotten ones.
    assert_eq!(resources["SubjectKeys"]["Condition"], "HasKey");
    assert_eq!(keys["PointInTimeRecoverySpecification"]["RecoveryPeriodInDays"], 1);
    assert_eq!(keys["DeletionProtectionEnabled"], table["DeletionProtectionEnabled"]);
    assert_eq!(keys["KeySchema"], json!([{"AttributeName": "pk", "KeyType": "HASH"}]));
}

#[test]
fn log_groups_have_the_documented_retention() {
    let template = plain(&text());
    let groups = resources(&template, "AWS::Logs::LogGroup");
    for (name, group) in &groups {
        assert_eq!(group["Properties"]["RetentionInDays"], "RetentionDays", "{name}");
    }
    // A function without its own log group would get one that is stored forever.
    for (name, function) in resources(&template, FUNCTION) {
        let group = function["Properties"]["LoggingConfig"]["LogGroup"].as_str().unwrap();
        assert!(groups.iter().any(|(name, _)| name == group), "{name}");
    }
    let stage = &template["Resources"]["ApiStage"]["Properties"];
    assert_eq!(stage["AccessLogSettings"]["DestinationArn"], "ApiLogs.Arn");
    for limit in ["ThrottlingRateLimit", "ThrottlingBurstLimit"] {
        assert!(!stage["DefaultRouteSettings"][limit].is_null(), "{limit}");
    }
}
