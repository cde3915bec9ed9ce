//! The roles of operators have the permissions of their commands, as docs/operating.md lists them, and of the steps of a restore.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{plain, read};

/// The actions that a role has. All roles may use the key, and restorers more of it.
fn granted(role: &str) -> BTreeSet<String> {
    let template = plain(&read("deploy/operators.yaml"));
    let resources = &template["Resources"];
    let policies = resources[role]["Properties"]["ManagedPolicyArns"].as_array().unwrap();
    let policies = policies.iter().map(|name| name.as_str().unwrap()).chain(["UseTheKey"]);
    let policies = policies.chain((role == "Restorer").then_some("RestoreWithTheKey"));
    let documents = policies.map(|name| &resources[name]["Properties"]["PolicyDocument"]);
    let statements = documents.flat_map(|policy| policy["Statement"].as_array().unwrap());
    let texts = |value: &Value| match value {
        Value::Array(all) => all.iter().map(|one| one.as_str().unwrap().to_owned()).collect(),
        one => vec![one.as_str().unwrap().to_owned()],
    };
    statements.flat_map(|statement| texts(&statement["Action"])).collect()
}

/// The actions in the documented permissions of a command. An action without a service has that of the action before it.
fn documented(command: &str) -> BTreeSet<String> {
    let page = read("docs/operating.md");
    let name = format!("`{command}`");
    let row = page.lines().filter(|line| line.starts_with("| `")).find(|line| {
        let permissions = ["dynamodb:", "sqs:", "s3:", "lambda:", "`Query`"];
        line.split(" | ").next().unwrap().contains(&name) && permissions.iter().any(|service| line.contains(service))
    });
    let row = row.unwrap_or_else(|| panic!("docs/operating.md has no permissions of {command}"));
    let cells = row.split_once(" | ").unwrap().1.replace("with `--allow-writes` those of `dlq redrive --yes`", "");
    let mut service = "dynamodb".to_owned();
    let mut found = BTreeSet::new();
    for word in cells.split('`').skip(1).step_by(2) {
        match word.split_once(':') {
            Some((of, _)) => of.clone_into(&mut service),
            None if !word.starts_with(|first: char| first.is_ascii_uppercase()) => continue,
            None => {}
        }
        let action = word.rsplit(':').next().unwrap();
        found.insert(format!("{service}:{action}"));
    }
    found
}

const READ: [&str; 11] = [
    "get",
    "feed",
    "console",
    "verify",
    "discarded list",
    "relay status",
    "dlq list",
    "export",
    "projection status",
    "projection suspended",
    "process status",
];
const SEND: [&str; 4] = ["discarded redrive", "republish", "dlq redrive", "dlq delete"];

#[test]
fn readers_and_redrivers_have_exactly_the_documented_permissions_of_their_commands() {
    let of = |commands: &[&str]| commands.iter().flat_map(|command| documented(command)).collect::<BTreeSet<_>>();
    // To load the settings of the stack and of its read models, and to use a key.
    let others =
        ["cloudformation:DescribeStackResource", "cloudformation:DescribeStacks", "kms:Decrypt", "kms:GenerateDataKey"];
    let mut expected: BTreeSet<String> = of(&READ);
    expected.extend(others.map(str::to_owned));
    assert_eq!(granted("Reader"), expected);
    expected.extend(of(&SEND));
    assert_eq!(granted("Redriver"), expected);
}

#[test]
fn deployments_cannot_change_the_roles_of_operators() {
    let changed = plain(&read(".github/aws.yaml"));
    let policies = &changed["Resources"]["CloudFormationRole"]["Properties"]["Policies"];
    let statements = policies[0]["PolicyDocument"]["Statement"].as_array().unwrap();
    let resources = statements.iter().flat_map(|statement| match &statement["Resource"] {
        Value::Array(all) => all.clone(),
        one => vec![one.clone()],
    });
    let prefix = |arn: Value| arn.as_str().unwrap().rsplit("${AWS::AccountId}:").next().unwrap().to_owned();
    let prefixes: BTreeSet<_> = resources.map(prefix).collect();
    assert_eq!(prefixes, ["policy/${StackName}-*", "role/${StackName}-*"].map(str::to_owned).into());
    // The path comes before the name.
    for (name, resource) in plain(&read("deploy/operators.yaml"))["Resources"].as_object().unwrap() {
        assert_eq!(resource["Properties"]["Path"], "/daybook-operators/", "{name}");
    }
}

/// The key is also used for other data, with other contexts.
#[test]
fn operators_may_open_personal_data_of_their_stack_alone() {
    let template = plain(&read("deploy/operators.yaml"));
    let statement = &template["Resources"]["UseTheKey"]["Properties"]["PolicyDocument"]["Statement"][1];
    assert_eq!(statement["Action"], "kms:Decrypt");
    let condition = json!({"StringLike": {"kms:EncryptionContext:daybook:table": "${MainStack}-*"}});
    assert_eq!(statement["Condition"], condition);
}

#[test]
fn restorers_may_execute_each_step_of_a_restore() {
    let granted = granted("Restorer");
    let code = read("crates/operations/src/restore.rs");
    // Operations of DynamoDB, such as "UpdateTable", and the paths of Lambda.
    let words = code.split('"').filter(|word| word.len() > 10 && word.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let begins = |word: &&str| ["Describe", "RestoreTable", "Update"].iter().any(|begin| word.starts_with(begin));
    let mut called: BTreeSet<_> = words.filter(begins).map(|word| format!("dynamodb:{word}")).collect();
    assert_eq!(code.matches("/2017-10-31{concurrency}").count(), 2);
    let of_lambda =
        ["DeleteFunctionConcurrency", "GetFunctionConcurrency", "ListEventSourceMappings", "PutFunctionConcurrency"];
    called.extend(of_lambda.iter().chain(&["UpdateEventSourceMapping"]).map(|name| format!("lambda:{name}")));
    let of_cloudformation = ["CreateChangeSet", "DescribeStacks", "SetStackPolicy", "UpdateStack"];
    called.extend(of_cloudformation.map(|name| format!("cloudformation:{name}")));
    called.extend(["kms:CreateGrant", "kms:DescribeKey"].map(str::to_owned));
    assert!(called.len() > 10, "{called:?}");
    let missing: Vec<_> = called.difference(&granted).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
