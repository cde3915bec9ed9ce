//! The check of a deployment: the hook of the command handler, the calls after the deployment, and its release.
//!
//! `.ci/check-hook` runs the code of the hook.

use serde_json::{Value, json};

use super::{plain, read, resources, text};

fn hook(template: &Value) -> &Value {
    &template["Resources"]["DeploymentHook"]["Properties"]
}

fn code() -> String {
    read("deploy/hook/hook.py")
}

#[test]
fn deployment_of_the_command_handler_begins_with_the_hook() {
    let template = plain(&text());
    let hooks = &template["Resources"]["CommandHandler"]["Properties"]["DeploymentPreference"]["Hooks"];
    assert_eq!(*hooks, json!({"PreTraffic": ["ChecksNewVersion", "DeploymentHook", "AWS::NoValue"]}));
    // CodeDeploy's managed policy allows no other name.
    assert_eq!(hook(&template)["FunctionName"], "CodeDeployHook_${AWS::StackName}");
    let boundary = read(".github/aws.yaml");
    assert!(boundary.contains(":function:CodeDeployHook_*"));
    // Not the alias, which still points to the old version, and not the function, whose code is not published.
    assert_eq!(hook(&template)["Environment"]["Variables"]["NEW_VERSION"], "CommandHandler.Version");
    // Without the hook, its role is of no use. Its log stays.
    for (name, condition) in [
        ("DeploymentHook", json!("ChecksNewVersion")),
        ("DeploymentHookRole", json!("ChecksNewVersion")),
        ("DeploymentHookLogs", Value::Null),
    ] {
        assert_eq!(template["Resources"][name].get("Condition").unwrap_or(&Value::Null), &condition, "{name}");
    }
    // The API is closed during a restore.
    assert_eq!(template["Conditions"]["ChecksNewVersion"], json!(["MappingsEnabled", "true"]));
    // No other function has the canary.
    for (name, function) in resources(&template, "AWS::Serverless::Function") {
        let has_hook = function["Properties"]["DeploymentPreference"].get("Hooks").is_some();
        assert_eq!(has_hook, name == "CommandHandler", "{name}");
    }
}

#[test]
fn hook_has_the_time_for_a_request_that_times_out_and_to_report_that() {
    let template = plain(&text());
    let limit: u64 = hook(&template)["Environment"]["Variables"]["LIMIT_SECONDS"].as_str().unwrap().parse().unwrap();
    let handler = template["Resources"]["CommandHandler"]["Properties"]["Timeout"].as_u64().unwrap();
    assert!(limit >= 2 * handler, "{limit}");
    // boto3 connects for 3 seconds and reads for 10, three times, with pauses of up to 1 and 2 seconds.
    let code = code();
    assert!(code.contains("\"total_max_attempts\": 3") && code.contains("connect_timeout=3, read_timeout=seconds"));
    assert!(code.contains("client(\"codedeploy\", 10)") && code.contains("client(\"lambda\", 30)"));
    let report = 3 * (3 + 10) + 1 + 2;
    assert!(limit + report < hook(&template)["Timeout"].as_u64().unwrap());
    assert!(30 > handler, "the function's own timeout ends an invocation first");
}

#[test]
fn both_hooks_have_the_same_code_which_is_not_built() {
    for (file, folder) in [("template.yaml", ""), ("deploy/instances.yaml", "deploy/")] {
        let template = plain(&read(file));
        let code = hook(&template)["Code"].as_str().unwrap();
        assert_eq!(
            (format!("{folder}{code}").as_str(), &hook(&template)["Handler"]),
            ("deploy/hook", &json!("hook.handler"))
        );
        assert_eq!(template["Resources"]["DeploymentHook"]["Metadata"]["SkipBuild"], true, "{file}");
    }
    assert!(code().contains("\ndef handler(event, _):\n"));
    assert!(read(".ci/run").contains(" .ci/check-hook\n"));
}

// The calls after a deployment.

/// The workflow that deploys.
fn workflow() -> String {
    read(".github/workflows/deploy-to.yml")
}

#[test]
fn workflow_checks_the_stack_before_and_after_each_deployment_with_a_role_that_may() {
    let workflow = workflow();
    let (before, after) = workflow.split_once("sam deploy --config-env").unwrap();
    // The first deployment creates the stack, so its policy is set afterwards.
    for part in [before, after] {
        assert!(part.contains("run: bash deploy/check-stack-policy \"$STACK\" \"$STACK_POLICY_URL\"\n"));
    }
    assert!(before.contains("run: bash deploy/check-order \"$STACK\"\n"));
    assert!(after.contains("run: bash deploy/check-api \"$STACK\"\n"));
    for step in workflow.split("- name: ") {
        assert!(!step.contains("continue-on-error"), "{step}");
    }
    let account = plain(&read(".github/aws.yaml"));
    let role = &account["Resources"]["DeployRole"]["Properties"];
    let statements = role["Policies"][0]["PolicyDocument"]["Statement"].as_array().unwrap();
    let may_invoke = statements.iter().find(|statement| statement["Action"] == "lambda:InvokeFunction").unwrap();
    let alias = "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:${StackName}-*:live";
    assert_eq!(may_invoke["Resource"], alias);
    // The session is longer than the job.
    let session = role["MaxSessionDuration"].as_u64().unwrap();
    assert!(workflow.contains(&format!("role-duration-seconds: {session} ")));
    let minutes = workflow.split("timeout-minutes: ").nth(1).unwrap().split('\n').next().unwrap();
    assert!(session > 60 * minutes.parse::<u64>().unwrap());
}

// The release.

/// The value of `Release` that the workflow passes, for these variables of GitHub.
fn release(commit: &str, run: &str, attempt: &str) -> String {
    let workflow = workflow();
    let line = workflow.lines().find_map(|line| line.trim().strip_prefix("release=")).unwrap();
    assert!(workflow.contains("\"Release=$release\""));
    let variables = [("$GITHUB_SHA", commit), ("$GITHUB_RUN_ID", run), ("$GITHUB_RUN_ATTEMPT", attempt)];
    variables.into_iter().fold(line.to_owned(), |release, (name, value)| release.replacen(name, value, 1))
}

#[test]
fn each_attempt_to_deploy_a_commit_has_another_release() {
    let commit = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c";
    let first = release(commit, "17171717171", "1");
    assert_ne!(first, release(commit, "17171717171", "2"));
    assert_ne!(first, release(commit, "17171717172", "1"));
    // `daybook` is installed from the commit, which operators read in the description.
    assert!(first.starts_with(commit));
    // Within the pattern of the parameter, also when there are many more runs and attempts.
    let longest = release(commit, "999999999999999", "999");
    assert!(
        (10..=64).contains(&longest.len()) && longest.bytes().all(|byte| b"0123456789abcdef".contains(&byte)),
        "{longest}"
    );
    let template = plain(&text());
    assert_eq!(template["Parameters"]["Release"]["AllowedPattern"], "([0-9a-f]{10,64})?");
    // SAM adds the release to the description of each function, which is a part of the configuration of its versions.
    for (name, function) in resources(&template, "AWS::Serverless::Function") {
        assert_eq!(function["Properties"]["AutoPublishCodeSha256"], "Release", "{name}");
        let description = function["Properties"]["Description"].as_str().unwrap();
        assert!(description.len() + 1 + 64 <= 256, "{name}: {description}");
    }
}
