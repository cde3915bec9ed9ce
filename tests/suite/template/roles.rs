//! Permissions of the functions: exactly the calls that they make.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use daybook_command_handler::Api;
use daybook_event_store::StoreSettings;
use daybook_snapshotter::Snapshotter;
use daybook_test_support::fault_proxy::FaultProxy;
use daybook_test_support::table::{KEYS_TABLE, TestTable};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{plain, plain_with_parts, read, template_of, text};
use crate::fixtures;

/// The permissions of each function's role: actions, resource and condition.
const GRANTS: [(&str, &[&str]); 4] = [
    (
        "CommandHandler",
        &[
            "dynamodb:ConditionCheckItem on Table.Arn if ForAnyValue:StringEquals dynamodb:EnclosingOperation TransactWriteItems",
            "dynamodb:DeleteItem on Table.Arn if ForAnyValue:StringEquals dynamodb:EnclosingOperation TransactWriteItems",
            "dynamodb:GetItem on Table.Arn",
            "dynamodb:PutItem on Table.Arn if ForAnyValue:StringEquals dynamodb:EnclosingOperation TransactWriteItems",
            "dynamodb:Query on Table.Arn, ${Table.Arn}/index/gsi1",
            "dynamodb:UpdateItem on Table.Arn if ForAnyValue:StringEquals dynamodb:EnclosingOperation TransactWriteItems",
            "logs:CreateLogStream on CommandHandlerLogs.Arn",
            "logs:PutLogEvents on CommandHandlerLogs.Arn",
            "xray:PutTelemetryRecords on *",
            "xray:PutTraceSegments on *",
        ],
    ),
    (
        "Snapshotter",
        &[
            "dynamodb:DescribeStream on Table.StreamArn",
            "dynamodb:GetItem on Table.Arn",
            "dynamodb:GetRecords on Table.StreamArn",
            "dynamodb:GetShardIterator on Table.StreamArn",
            "dynamodb:ListStreams on *",
            "dynamodb:PutItem on Table.Arn",
            "dynamodb:Query on Table.Arn",
            "logs:CreateLogStream on SnapshotterLogs.Arn",
            "logs:PutLogEvents on SnapshotterLogs.Arn",
            "s3:ListBucket on DiscardedRecords.Arn, ${DiscardedRecords.Arn}/* if StringEquals s3:ResourceAccount AWS::AccountId",
            "s3:PutObject on DiscardedRecords.Arn, ${DiscardedRecords.Arn}/* if StringEquals s3:ResourceAccount AWS::AccountId",
            "xray:PutTelemetryRecords on *",
            "xray:PutTraceSegments on *",
        ],
    ),
    (
        "StreamRelay",
        &[
            "dynamodb:DescribeStream on Table.StreamArn",
            "dynamodb:GetRecords on Table.StreamArn",
            "dynamodb:GetShardIterator on Table.StreamArn",
            "dynamodb:ListStreams on *",
            "events:DescribeEventBus on EventBus.Arn",
            "events:PutEvents on EventBus.Arn",
            "logs:CreateLogStream on StreamRelayLogs.Arn",
            "logs:PutLogEvents on StreamRelayLogs.Arn",
            "s3:ListBucket on DiscardedRecords.Arn, ${DiscardedRecords.Arn}/* if StringEquals s3:ResourceAccount AWS::AccountId",
            "s3:PutObject on DiscardedRecords.Arn, ${DiscardedRecords.Arn}/* if StringEquals s3:ResourceAccount AWS::AccountId",
            "sqs:SendMessage on DeadLetterQueue.Arn",
            "xray:PutTelemetryRecords on *",
            "xray:PutTraceSegments on *",
        ],
    ),
    (
        "DeploymentHook",
        &[
            "codedeploy:PutLifecycleEventHookExecutionStatus on \
             arn:${AWS::Partition}:codedeploy:${AWS::Region}:${AWS::AccountId}:deploymentgroup:${ServerlessDeploymentApplication}/*",
            "lambda:InvokeFunction on ${CommandHandler.Arn}:*",
            "logs:CreateLogStream on DeploymentHookLogs.Arn",
            "logs:PutLogEvents on DeploymentHookLogs.Arn",
            "xray:PutTelemetryRecords on *",
            "xray:PutTraceSegments on *",
        ],
    ),
];

/// The further permissions of each function that seals and opens personal data, with a key.
const GRANTS_WITH_KEY: [&str; 7] = [
    "dynamodb:BatchGetItem on SubjectKeys.Arn",
    "dynamodb:GetItem on SubjectKeys.Arn",
    "dynamodb:PutItem on SubjectKeys.Arn",
    "dynamodb:Scan on SubjectKeys.Arn",
    "dynamodb:UpdateItem on SubjectKeys.Arn",
    "kms:Decrypt on KmsKeyArn, arn:${AWS::Partition}:kms:${AWS::Region}:${AWS::AccountId}:key/* if \
     StringEquals kms:EncryptionContext:daybook:table SubjectKeys",
    "kms:Encrypt on KmsKeyArn, arn:${AWS::Partition}:kms:${AWS::Region}:${AWS::AccountId}:key/* if \
     StringEquals kms:EncryptionContext:daybook:table SubjectKeys",
];

/// The further permissions of each function's role with read models and reactor.
const GRANTS_WITH_PARTS: [(&str, &[&str]); 5] = [
    (
        "CommandHandler",
        &[
            "dynamodb:BatchGetItem on ReadModelsStack.Outputs.ViewsTableArn",
            "dynamodb:GetItem on ReadModelsStack.Outputs.ViewsTableArn",
            "dynamodb:Query on ReadModelsStack.Outputs.ViewsTableArn",
        ],
    ),
    ("Snapshotter", &[]),
    (
        "StreamRelay",
        &[
            "sqs:SendMessage on ReactorStack.Outputs.ReactionsQueueArn",
            "sqs:SendMessage on ReadModelsStack.Outputs.ChangesQueueArn",
        ],
    ),
    (
        "Reactor",
        &[
            "dynamodb:ConditionCheckItem on TableArn if ForAnyValue:StringEquals dynamodb:EnclosingOperation TransactWriteItems",
            "dynamodb:DeleteItem on TableArn if ForAnyValue:StringEquals dynamodb:EnclosingOperation TransactWriteItems",
            "dynamodb:GetItem on TableArn",
            "dynamodb:PutItem on TableArn",
            "dynamodb:Query on TableArn, ${TableArn}/index/gsi1",
            "dynamodb:UpdateItem on TableArn if ForAnyValue:StringEquals dynamodb:EnclosingOperation TransactWriteItems",
            "logs:CreateLogStream on ReactorLogs.Arn",
            "logs:PutLogEvents on ReactorLogs.Arn",
            "sqs:DeleteMessage on Reactions.Arn",
            "sqs:GetQueueAttributes on Reactions.Arn",
            "sqs:ReceiveMessage on Reactions.Arn",
            "sqs:SendMessage on Reactions.Arn",
            "xray:PutTelemetryRecords on *",
            "xray:PutTraceSegments on *",
        ],
    ),
    (
        "Projector",
        &[
            "dynamodb:BatchGetItem on Views.Arn",
            "dynamodb:ConditionCheckItem on Views.Arn if ForAnyValue:StringEquals dynamodb:EnclosingOperation TransactWriteItems",
            "dynamodb:DeleteItem on Views.Arn if ForAnyValue:StringEquals dynamodb:EnclosingOperation TransactWriteItems",
            "dynamodb:GetItem on TableArn",
            "dynamodb:PutItem on Views.Arn if ForAnyValue:StringEquals dynamodb:EnclosingOperation TransactWriteItems",
            "dynamodb:Query on TableArn",
            "dynamodb:Query on Views.Arn",
            "dynamodb:UpdateItem on Views.Arn if ForAllValues:StringLike dynamodb:LeadingKeys PROJECTION#*",
            "logs:CreateLogStream on ProjectorLogs.Arn",
            "logs:PutLogEvents on ProjectorLogs.Arn",
            "sqs:DeleteMessage on Changes.Arn",
            "sqs:GetQueueAttributes on Changes.Arn",
            "sqs:ReceiveMessage on Changes.Arn",
            "xray:PutTelemetryRecords on *",
            "xray:PutTraceSegments on *",
        ],
    ),
];

/// Actions that IAM does not tie to a resource.
const WITHOUT_RESOURCE: [&str; 3] = ["dynamodb:ListStreams", "xray:PutTelemetryRecords", "xray:PutTraceSegments"];

/// A text, or a list of texts.
fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .map_or_else(|| vec![value], |all| all.iter().collect())
        .into_iter()
        .filter_map(Value::as_str)
        .collect()
}

/// The statements of the policies of a function's role.
fn statements(template: &Value, id: &str) -> Vec<Value> {
    let resources = &template["Resources"];
    let properties = &resources[id]["Properties"];
    assert!(properties.get("Policies").is_none(), "{id} has a role, so SAM would not use these");
    let role = properties["Role"].as_str().unwrap().strip_suffix(".Arn").unwrap();
    let role = &resources[role]["Properties"];
    let inline = role["Policies"].as_array().unwrap().iter().map(|policy| &policy["PolicyDocument"]);
    let managed = texts(&role["ManagedPolicyArns"]).into_iter().map(|name| {
        assert!(!resources[name].is_null(), "{name} is not in the template, so it may grant anything");
        &resources[name]["Properties"]["PolicyDocument"]
    });
    inline.chain(managed).flat_map(|document| document["Statement"].as_array().unwrap().clone()).collect()
}

/// The permissions that the role of a function has.
fn granted(template: &Value, id: &str) -> BTreeSet<String> {
    let mut granted = BTreeSet::new();
    for statement in statements(template, id) {
        assert_eq!(statement["Effect"], "Allow", "{id}");
        let condition: Vec<String> = statement["Condition"]
            .as_object()
            .into_iter()
            .flatten()
            .flat_map(|(operator, keys)| {
                keys.as_object().unwrap().iter().map(move |(key, value)| (operator, key, value))
            })
            .map(|(operator, key, value)| format!("{operator} {key} {}", texts(value).join(" or ")))
            .collect();
        let condition = if condition.is_empty() { String::new() } else { format!(" if {}", condition.join(" and ")) };
        for action in texts(&statement["Action"]) {
            granted.insert(format!("{action} on {}{condition}", texts(&statement["Resource"]).join(", ")));
        }
    }
    granted
}

#[test]
fn each_role_grants_exactly_the_listed_permissions() {
    let template = plain(&text());
    for (id, expected) in GRANTS {
        assert_eq!(granted(&template, id), expected.iter().map(|&grant| grant.to_owned()).collect(), "{id}");
    }
    for (id, expected) in GRANTS_WITH_PARTS {
        let mut with_parts = template_of(id);
        // The policies are parameters of the nested stack.
        for policy in ["SendTraces", "UsePersonalData"] {
            with_parts["Resources"][policy] = template["Resources"][policy].clone();
        }
        let without = GRANTS.iter().find(|(other, _)| *other == id).map_or(&[] as &[_], |(_, grants)| *grants);
        let with_key: &[_] = if id == "StreamRelay" { &[] } else { &GRANTS_WITH_KEY };
        let expected = without.iter().chain(expected).chain(with_key).map(|&grant| grant.to_owned()).collect();
        assert_eq!(granted(&with_parts, id), expected, "{id}");
    }
}

#[test]
fn each_wildcard_in_a_role_has_a_reason() {
    fn walk<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
        match value {
            Value::Object(members) if members.contains_key("Effect") => found.push(value),
            Value::Object(members) => members.values().for_each(|member| walk(member, found)),
            Value::Array(elements) => elements.iter().for_each(|element| walk(element, found)),
            _ => {}
        }
    }
    let templates = ["template.yaml", "deploy/read-models.yaml", "deploy/reactor.yaml"];
    let templates = templates.map(|file| plain_with_parts(&read(file)));
    let mut statements = Vec::new();
    templates.iter().for_each(|template| walk(&template["Resources"], &mut statements));
    assert!(statements.len() > 10);
    for statement in statements.into_iter().filter(|statement| statement["Effect"] == "Allow") {
        assert!(statement.get("NotAction").is_none() && statement.get("NotResource").is_none(), "{statement}");
        for action in texts(&statement["Action"]) {
            assert!(!action.contains('*'), "{statement}");
            if texts(&statement["Resource"]).contains(&"*") {
                assert!(WITHOUT_RESOURCE.contains(&action), "{statement}");
            }
        }
    }
    for line in text().lines().filter(|line| line.contains("Resource: \"*\"")) {
        assert!(line.contains(" # "), "no reason is given: {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_the_functions_equal_the_permissions_of_their_roles() {
    let table = TestTable::with(StoreSettings::read(&fixtures::environment("CommandHandler")).unwrap()).await;

    let settings = daybook_command_handler::ApiSettings::read(&fixtures::environment("CommandHandler")).unwrap();
    let api = daybook_command_handler::router(Api::new(aggregates::registry().unwrap(), table.store(), settings));
    let snapshotter = Snapshotter::new(aggregates::registry().unwrap(), table.store());
    let (mut by_api, mut by_snapshotter) = (BTreeSet::new(), BTreeSet::new());
    fixtures::run_api(&api).await;
    // The second command changes nothing, and its response is stored.
    let create = json!({"id": "idle", "title": "A", "message": "B"});
    let register = json!({"id": "9", "email": "a@example.com", "name": "A"});
    for (path, body) in [
        ("/todo", create),
        ("/todo/idle", json!({"title": "A", "message": "B"})),
        ("/customer", register),
        ("/customer/9", json!({"email": "b@example.com"})),
    ] {
        let request = Request::post(path).header("content-type", "application/json").header("idempotency-key", path);
        let response = crate::instance::answer(&api, request.body(Body::from(body.to_string())).unwrap()).await;
        assert!(response.status().is_success(), "{response:?}");
    }
    by_api.extend(actions(&table.proxy));
    // These runs take one snapshot more than is stored, so that one must expire.
    for _ in 0..3 {
        fixtures::run_api_event(&api, "command").await;
        by_api.extend(actions(&table.proxy));
        let batch = serde_json::from_str(&fixtures::read("snapshotter/due.json")).unwrap();
        snapshotter.handle(batch, Instant::now() + Duration::from_secs(30)).await.unwrap();
        by_snapshotter.extend(actions(&table.proxy));
    }
    let template = plain(&text());
    for (id, called) in [("CommandHandler", by_api), ("Snapshotter", by_snapshotter)] {
        let on_table = |statement: &Value| texts(&statement["Resource"]).contains(&"Table.Arn");
        let granted = statements(&template, id).into_iter().filter(on_table);
        let granted: BTreeSet<_> = granted
            .flat_map(|statement| texts(&statement["Action"]).into_iter().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        assert_eq!(called, granted, "{id}");
    }
}

/// The IAM actions of the calls since this was last called.
fn actions(proxy: &FaultProxy) -> Vec<String> {
    let mut actions = Vec::new();
    // The keys of personal data have a policy of their own.
    let is_of_keys = |request: &Value| request.to_string().contains(KEYS_TABLE);
    for call in proxy.take_calls() {
        let items = call.request["TransactItems"].as_array().into_iter().flatten().filter(|item| !is_of_keys(item));
        let within: Vec<_> = items.flat_map(|item| item.as_object().unwrap().keys()).collect();
        if call.operation != "TransactWriteItems" && !is_of_keys(&call.request) {
            actions.push(format!("dynamodb:{}", call.operation));
        }
        for verb in within {
            let verb = if verb == "ConditionCheck" { "ConditionCheckItem".to_owned() } else { format!("{verb}Item") };
            actions.push(format!("dynamodb:{verb}"));
        }
    }
    actions
}
