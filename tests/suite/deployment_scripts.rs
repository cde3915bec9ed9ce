//! The scripts that the workflow runs before and after a deployment, with a stub in place of the AWS CLI.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use daybook_local_aws::messaging::Server;
use suite_tests::workspace;
use tempfile::TempDir;
use tokio::process::Command;

use crate::fixtures::call_api;
use crate::instance::Instance;

/// Prints the outputs of the stack, and passes invocations to a server.
const AWS: &str = r#"#!/bin/sh
case "$*" in
  "lambda invoke"*) curl --silent --fail --data-binary "@${8#file://}" --output "$9" "$URL/$4" && echo '{"StatusCode": 200}' ;;
  *CommandHandlerName*) echo prod-CommandHandler-1 ;;
  *ApiUrl*) echo "$URL" ;;
  *get-stack-policy*) if [ -e "$SET" ]; then cat "$SET"; else echo "$POLICY"; fi ;;
  *"set-stack-policy --stack-name prod --stack-policy-url https://policies/"*) cp .github/stack-policy.json "$SET" ;;
  *Release*) [ -z "$ERROR" ] || { echo "$ERROR" >&2; exit 254; }; echo "$RELEASE" ;;
  *describe-stacks*) [ -z "$ERROR" ] || { echo "$ERROR" >&2; exit 254; } ;;
  *) echo "unexpected: $*" >&2; exit 1 ;;
esac
"#;

/// Runs a script for the stack `prod`.
async fn run(script: &str, variables: &[(&str, &str)]) -> Output {
    run_with(script, &[], variables).await
}

async fn run_with(script: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let programs = TempDir::new().unwrap();
    let stub = programs.path().join("aws");
    std::fs::write(&stub, AWS).unwrap();
    std::fs::set_permissions(&stub, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(workspace().join("deploy").join(script));
    let command = command.arg("prod").args(arguments).env_clear().env("PATH", path).envs(variables.iter().copied());
    command.output().await.unwrap()
}

/// What a deployed stack does instead of its usual response.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// The API accepts calls without credentials.
    AcceptsAnybody,
    FailsInvocations,
    FailsWrites,
    /// Responses have an empty body.
    ReturnsNothing,
    /// Reads return the first version.
    ReadsOldState,
}

/// API Gateway, which expects credentials, and Lambda with the command handler.
async fn deployed(handler: &Router, fault: Fault) -> Server {
    let status = if fault == Fault::AcceptsAnybody { StatusCode::OK } else { StatusCode::FORBIDDEN };
    let handler = handler.clone();
    let invoke = async move |event: String| {
        let is_write = event.contains("\"POST\"");
        let event = match fault {
            Fault::FailsInvocations => return Err(StatusCode::INTERNAL_SERVER_ERROR),
            Fault::FailsWrites if is_write => {
                return Ok(r#"{"statusCode": 503, "body": "{\"title\":\"Try again later\"}"}"#.to_owned());
            }
            Fault::ReturnsNothing => return Ok(r#"{"statusCode": 200, "body": "{}"}"#.to_owned()),
            Fault::ReadsOldState if !is_write => event.replace("rebuild=true", "version=1"),
            _ => event,
        };
        Ok(call_api(&handler, &event).await.to_string())
    };
    let router = Router::new().route("/openapi.json", get(status)).route("/prod-CommandHandler-1:live", post(invoke));
    Server::start(router).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn check_after_a_deployment_writes_and_reads_the_canary() {
    let instance = Instance::start().await;
    let stack = deployed(&instance.router, Fault::None).await;
    for version in 1..=3 {
        let output = run("check-api", &[("URL", stack.url())]).await;
        assert!(output.status.success(), "{output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        let expected = format!(
            "a call without credentials is rejected: 403\n\
             prod-CommandHandler-1 wrote and read version {version} of the canary\n"
        );
        assert_eq!(printed, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_after_a_deployment_fails_when_the_stack_does_not_work() {
    for (fault, expected) in [
        (Fault::AcceptsAnybody, "returned 200 to a call without credentials"),
        (Fault::FailsInvocations, "the invocation of prod-CommandHandler-1:live failed"),
        (Fault::FailsWrites, "a write of the canary returned {\"statusCode\": 503"),
        (Fault::ReturnsNothing, "a write of the canary returned {\"statusCode\": 200"),
        (Fault::ReadsOldState, "a read of the canary returned {"),
    ] {
        let instance = Instance::start().await;
        let working = deployed(&instance.router, Fault::None).await;
        assert!(run("check-api", &[("URL", working.url())]).await.status.success());
        let stack = deployed(&instance.router, fault).await;
        let output = run("check-api", &[("URL", stack.url())]).await;
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && printed.contains(expected), "{fault:?}: {output:?}");
    }
}

#[tokio::test]
async fn check_before_a_deployment_passes_only_with_the_policy_or_without_a_stack() {
    let policy = std::fs::read_to_string(workspace().join(".github/stack-policy.json")).unwrap();
    let call = "when calling the DescribeStacks operation";
    let missing = format!("An error occurred (ValidationError) {call}: Stack with id prod does not exist");
    let denied = format!("An error occurred (AccessDenied) {call}: User is not authorized");
    for (error, policy, passes, expected) in [
        ("", policy.as_str(), true, ""),
        ("", r#"{"Statement": []}"#, false, "does not have the stack policy"),
        ("", "None", false, "does not have the stack policy"),
        (missing.as_str(), "", true, "does not exist yet"),
        (denied.as_str(), "", false, "User is not authorized"),
        ("Could not connect to the endpoint URL", "", false, "Could not connect"),
    ] {
        let output = run("check-stack-policy", &[("ERROR", error), ("POLICY", policy)]).await;
        let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() == passes && printed.contains(expected), "{error} {policy}: {output:?}");
    }
}

#[tokio::test]
async fn policy_of_a_new_stack_is_set_once_and_another_one_is_never_replaced() {
    let url = ["https://policies/stack-policy.json"];
    let folder = TempDir::new().unwrap();
    let set = folder.path().join("policy");
    let environment = |policy| [("POLICY", policy), ("SET", set.to_str().unwrap())];
    for _ in 0..2 {
        let output = run_with("check-stack-policy", &url, &environment("None")).await;
        assert!(output.status.success() && set.exists(), "{output:?}");
    }
    std::fs::remove_file(&set).unwrap();
    let output = run_with("check-stack-policy", &url, &environment(r#"{"Statement": []}"#)).await;
    assert!(!output.status.success() && !set.exists(), "{output:?}");
}

/// Creates a commit in a repository of its own. Returns its id.
fn commit(folder: &Path, message: &str) -> String {
    let git = |words: &[&str]| {
        let output = std::process::Command::new("git").arg("-C").arg(folder).args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let author = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    git(&[&author[..], &["commit", "--quiet", "--allow-empty", "--message", message]].concat());
    git(&["rev-parse", "HEAD"])
}

#[tokio::test]
async fn check_of_the_order_rejects_a_commit_that_is_older_than_the_deployed_one() {
    let repository = TempDir::new().unwrap();
    let init = std::process::Command::new("git").args(["init", "--quiet"]).arg(repository.path()).status().unwrap();
    assert!(init.success());
    let (older, newer) = (commit(repository.path(), "older"), commit(repository.path(), "newer"));
    let missing = "An error occurred (ValidationError) when calling DescribeStacks: Stack with id prod does not exist";
    let folder = repository.path().join(".git").display().to_string();
    for (error, deployed, commit, attempt, passes, expected) in [
        ("", newer.as_str(), older.as_str(), "1", false, "prod has the newer commit"),
        ("", &newer, &older, "2", true, "returns from"),
        ("", &newer, &newer, "1", true, "is not older"),
        ("", &older, &newer, "1", true, "is not older"),
        ("", "0123456789", &older, "1", true, "has no release of a commit"),
        (missing, "", &older, "1", true, "does not exist yet"),
        ("An error occurred (AccessDenied)", "", &older, "1", false, "AccessDenied"),
    ] {
        let release = format!("{deployed}171717171711");
        let variables = [
            ("ERROR", error),
            ("RELEASE", &release),
            ("GITHUB_SHA", commit),
            ("GITHUB_RUN_ATTEMPT", attempt),
            ("GIT_DIR", &folder),
        ];
        let output = run("check-order", &variables).await;
        let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() == passes && printed.contains(expected), "{deployed} {commit}: {output:?}");
    }
}
