//! `daybook deploy` from a generated project, with a stub of SAM, servers in place of CloudFormation, SNS and Lambda, and the
//! local stack.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use daybook_command_handler::{Api, ApiSettings, gateway, router};
use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::aws_config_at;
use daybook_local_aws::messaging::Server;
use daybook_local_stack::LocalStack;
use daybook_settings::Environment;
use tempfile::TempDir;

use crate::load::local_stack;

/// Records its arguments, and writes a package of the files that a build depends on.
const SAM: &str = r#"#!/bin/sh
echo "$@" >> calls
if [ "$1" = "$FAILS" ]; then echo "Error: it failed" >&2; exit 1; fi
if [ "$1" = build ]; then mkdir -p .aws-sam/build/F; cat app/aggregates/src/*.rs > .aws-sam/build/F/bootstrap; fi
"#;

/// What the services return.
#[derive(Clone, Default)]
struct Aws {
    /// The status of the stack in each call; `None` if it does not exist. The last one stays.
    statuses: Arc<Mutex<Vec<Option<&'static str>>>>,
    subscriptions: &'static str,
    quota: u64,
    outputs: BTreeMap<&'static str, String>,
    /// The calls of SAM. Its last `Release` is that of the stack.
    calls: PathBuf,
    /// The user declines the change set.
    declines: bool,
    /// The code has projections and processes, and the parameters leave them out.
    lacks_parts: bool,
}

impl Aws {
    fn query(&self, query: &str) -> (StatusCode, String) {
        if query.starts_with("Action=ListSubscriptionsByTopic&Version=2010-03-31&TopicArn=arn%3Aaws%3Asns%3A") {
            let list = format!("<L xmlns=\"a\"><R><Subscriptions>{}</Subscriptions></R></L>", self.subscriptions);
            return (StatusCode::OK, list);
        }
        assert_eq!(query, "Action=DescribeStacks&Version=2010-05-15&StackName=shop%2Ddev");
        let mut statuses = self.statuses.lock().unwrap();
        let status = if statuses.len() > 1 { statuses.remove(0) } else { statuses[0] };
        let Some(status) = status else {
            let missing = "<E><Error><Code>ValidationError</Code><Message>Stack with id shop-dev does not exist</Message></Error></E>";
            return (StatusCode::BAD_REQUEST, missing.to_owned());
        };
        let output = |(key, value): (&&str, &String)| {
            format!(
                "<member><Description>a</Description><OutputKey>{key}</OutputKey><OutputValue>{value}</OutputValue></member>"
            )
        };
        let outputs: String = self.outputs.iter().map(output).collect();
        let calls = fs::read_to_string(&self.calls).unwrap_or_default();
        let release = if self.declines { "older" } else { calls.trim().rsplit("Release=").next().unwrap() };
        let [read_models, reactor, key] =
            if self.lacks_parts { ["false", "deadlines", ""] } else { ["true", "processes", "arn:aws:kms:key"] };
        let parts = [("Release", release), ("ReadModels", read_models), ("Reactor", reactor), ("KmsKeyArn", key)];
        let parameters: String = parts
            .map(|(key, value)| {
                format!("<member><ParameterKey>{key}</ParameterKey><ParameterValue>{value}</ParameterValue></member>")
            })
            .concat();
        let stack = format!(
            "<D xmlns=\"http://cloudformation.amazonaws.com/doc/2010-05-15/\"><DescribeStacksResult><Stacks>\n<member>\n<Parameters>\
             {parameters}</Parameters><Outputs>{outputs}\
             </Outputs><StackStatus>{status}</StackStatus><LastUpdatedTime>2026-11-25T10:00:00Z</LastUpdatedTime></member></Stacks>\
             </DescribeStacksResult></D>"
        );
        (StatusCode::OK, stack)
    }

    /// The services, and Lambda with the command handler over the table of a local stack.
    async fn serve(self, stack: &LocalStack) -> Server {
        let environment: Environment = [("TABLE_NAME", stack.table_name())].into_iter().collect();
        let store = EventStore::new(&aws_config_at(stack.dynamodb_url()), StoreSettings::read(&environment).unwrap());
        let handler =
            router(Api::new(aggregates::registry().unwrap(), store, ApiSettings::read(&environment).unwrap()));
        let settings = format!("{{\"AccountLimit\": {{\"ConcurrentExecutions\": {}}}}}", self.quota);
        let invoke = async move |event: String| {
            gateway::respond(handler.clone(), &event, Duration::from_secs(9)).await.unwrap().to_string()
        };
        let query = post(async move |query: String| self.query(&query));
        let services = Router::new()
            .route("/", query)
            .route("/2016-08-19/account-settings/", get(async || settings))
            .route("/2015-03-31/functions/shop-dev-CommandHandler-1%3Alive/invocations", post(invoke))
            .route(
                "/2015-03-31/functions/silent%3Alive/invocations",
                post(async || r#"{"statusCode": 200, "body": "{}"}"#),
            );
        Server::start(services).await.unwrap()
    }
}

/// A generated project, and programs for its PATH.
struct Shop {
    parent: TempDir,
    variables: BTreeMap<&'static str, String>,
}

impl Shop {
    fn new() -> Self {
        let parent = TempDir::new().unwrap();
        let words = ["new", "shop", "--git", "https://example.com/daybook"];
        let created = Command::new(env!("CARGO_BIN_EXE_daybook")).args(words).current_dir(&parent).output().unwrap();
        assert!(created.status.success(), "{created:?}");
        let sam = parent.path().join("bin/sam");
        fs::create_dir(sam.parent().unwrap()).unwrap();
        fs::write(&sam, SAM).unwrap();
        fs::set_permissions(&sam, Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", sam.parent().unwrap().display());
        Self { parent, variables: BTreeMap::from([("PATH", path)]) }
    }

    /// A project whose AWS is these servers.
    async fn on(stack: &LocalStack, aws: Aws) -> (Self, Server) {
        let mut shop = Self::new();
        let bus = stack.bus_url();
        let operator = format!(
            "TABLE_NAME={} EVENT_BUS_NAME=daybook EVENT_SOURCE=com.example.daybook FEED_DELAY_MS=0 \
             DLQ_URL={bus}/000000000000/daybook-dlq",
            stack.table_name()
        );
        let mut outputs = BTreeMap::from([
            ("ApiUrl", "https://a1b2c3.execute-api.us-east-1.amazonaws.com".to_owned()),
            ("CommandHandlerName", "shop-dev-CommandHandler-1".to_owned()),
            ("NotificationsTopic", "arn:aws:sns:us-east-1:123456789012:alarms".to_owned()),
            ("OperatorEnvironment", operator),
        ]);
        outputs.extend(aws.outputs.clone());
        let server = Aws { outputs, calls: shop.folder().join("calls"), ..aws }.serve(stack).await;
        for variable in ["AWS_ENDPOINT_URL_CLOUDFORMATION", "AWS_ENDPOINT_URL_SNS", "AWS_ENDPOINT_URL_LAMBDA"] {
            shop.variables.insert(variable, server.url().to_owned());
        }
        shop.variables.insert("AWS_ENDPOINT_URL_DYNAMODB", stack.dynamodb_url().to_owned());
        shop.variables.insert("AWS_ENDPOINT_URL_EVENTBRIDGE", bus.to_owned());
        shop.variables.insert("AWS_ENDPOINT_URL_SQS", bus.to_owned());
        (shop, server)
    }

    fn folder(&self) -> std::path::PathBuf {
        self.parent.path().join("shop")
    }

    async fn deploy(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
        command.arg("deploy").args(words).current_dir(self.folder()).env_clear().envs(&self.variables);
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
    }

    /// Deploys. Returns the lines of the output, and the `Release` that SAM got.
    async fn deployed(&self) -> (Vec<String>, String) {
        let output = self.deploy(&[]).await;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let calls = fs::read_to_string(self.folder().join("calls")).unwrap();
        let [.., build, deploy] = calls.lines().collect::<Vec<_>>()[..] else { panic!("{calls}") };
        assert_eq!(build, "build --config-env default");
        let (before, release) = deploy.rsplit_once(" Release=").unwrap();
        let expected = "deploy --config-env default --region us-east-1 --parameter-overrides TrafficShift=";
        assert!(before.starts_with(expected), "{before}");
        assert!(release.len() == 40 && release.bytes().all(|byte| byte.is_ascii_hexdigit()), "{release}");
        let lines = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        (lines, release.to_owned())
    }

    fn edit(&self, path: &str, from: &str, to: &str) {
        let file = self.folder().join(path);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{path}");
        fs::write(file, text.replace(from, to)).unwrap();
    }
}

fn aws(statuses: &[Option<&'static str>]) -> Aws {
    Aws { statuses: Arc::new(Mutex::new(statuses.to_vec())), quota: 1_000, ..Aws::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_prints_the_url_the_first_message_and_what_is_missing() {
    let stack = local_stack().await;
    let outputs = BTreeMap::from([("DashboardUrl", "https://example.com/dashboard".to_owned())]);
    let new = Aws { quota: 10, lacks_parts: true, outputs: outputs.clone(), ..aws(&[None, Some("CREATE_COMPLETE")]) };
    let (shop, _server) = Shop::on(&stack, new).await;
    let (lines, _) = shop.deployed().await;
    assert_eq!(lines[0], "deployed shop-dev: https://a1b2c3.execute-api.us-east-1.amazonaws.com");
    assert!(lines[1].starts_with("message on the bus, "), "{lines:?}");
    for part in ["\"source\":\"com.example.daybook\"", "\"detail-type\":\"DeploymentRecorded\"", "__canary/deployments"]
    {
        assert!(lines[1].contains(part), "{lines:?}");
    }
    assert_eq!(
        lines[2..],
        [
            "missing ReadModels=true in samconfig.toml: the code has read models, which the stack does not run",
            "missing Reactor=processes in samconfig.toml: the code has processes, which the stack does not run",
            "missing KmsKeyArn=ARN in samconfig.toml: the code has personal data, for which the stack has no key: each command that \
             stores some fails",
            "missing nobody gets the alarms: set AlarmEmail in samconfig.toml, or subscribe to the output NotificationsTopic",
            "missing the account runs only 10 functions at a time: request 1,000 concurrent executions under Service Quotas",
        ]
    );
    // The rule and the queue are deleted.
    assert!(stack.bus().queued().is_empty());

    let pending =
        "<member><Endpoint>me@example.com</Endpoint><SubscriptionArn>PendingConfirmation</SubscriptionArn></member>";
    let updated = || aws(&[Some("UPDATE_COMPLETE")]);
    let (shop, _server) = Shop::on(&stack, Aws { subscriptions: pending, outputs, ..updated() }).await;
    let (lines, _) = shop.deployed().await;
    let expected = "missing me@example.com gets no alarms yet: open the link in the mail that asks for a confirmation";
    assert_eq!(lines[2..], [expected]);

    // Without AlarmEmail, the topics have no alarms.
    let (shop, _server) = Shop::on(&stack, updated()).await;
    let (lines, _) = shop.deployed().await;
    assert_eq!(lines[2..], ["missing there are no alarms and no dashboard: set AlarmEmail in samconfig.toml"]);
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn release_is_new_for_new_code_for_a_new_parameter_and_after_a_rollback() {
    let stack = local_stack().await;
    let works = aws(&[Some("UPDATE_COMPLETE")]);
    let statuses = works.statuses.clone();
    let (shop, _server) = Shop::on(&stack, works).await;
    let mut releases = vec![shop.deployed().await.1];
    assert_eq!(shop.deployed().await.1, releases[0]);
    *statuses.lock().unwrap() = vec![Some("UPDATE_ROLLBACK_COMPLETE"), Some("UPDATE_COMPLETE")];
    releases.push(shop.deployed().await.1);
    shop.edit("samconfig.toml", "DeletionProtection=false", "DeletionProtection=true");
    releases.push(shop.deployed().await.1);
    shop.edit("app/aggregates/src/item.rs", "the title is empty", "no title");
    releases.push(shop.deployed().await.1);
    // SAM compares ten digits.
    releases.iter_mut().for_each(|release| release.truncate(10));
    releases.sort();
    releases.dedup();
    assert_eq!(releases.len(), 4, "{releases:?}");
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn region_profile_and_global_parameters_of_samconfig_are_used() {
    let stack = local_stack().await;
    let (mut shop, _server) = Shop::on(&stack, aws(&[Some("UPDATE_COMPLETE")])).await;
    let of_global = "region = \"eu-west-1\"\nprofile = \"shop\"\nparameter_overrides = [\"SnapshotEvery=7\"]\n\n";
    shop.edit("samconfig.toml", "[default.deploy.parameters]", &format!("{of_global}[default.deploy.parameters]"));
    shop.edit("samconfig.toml", "\n[default.deploy.parameters]", "\n[default.deploy.parameters]\n[default.unused]");
    let credentials = shop.folder().join("credentials");
    fs::write(&credentials, "[shop]\naws_access_key_id = AKIA\naws_secret_access_key = secret\n").unwrap();
    shop.variables.insert("AWS_SHARED_CREDENTIALS_FILE", credentials.display().to_string());
    shop.variables.insert("AWS_EC2_METADATA_DISABLED", "true".to_owned());
    let output = shop.deploy(&[]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let calls = fs::read_to_string(shop.folder().join("calls")).unwrap();
    let expected = "\ndeploy --config-env default --region eu-west-1 --parameter-overrides SnapshotEvery=7 Release=";
    assert!(calls.contains(expected), "{calls}");

    // SAM and daybook might use two accounts.
    shop.variables.insert("AWS_ACCESS_KEY_ID", "AKIB".to_owned());
    let output = shop.deploy(&[]).await;
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && error.contains("selects the profile \"shop\""), "{error}");
    assert!(error.contains("unset AWS_ACCESS_KEY_ID, or remove the profile"), "{error}");
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_says_what_to_do() {
    let stack = local_stack().await;
    let works = || aws(&[Some("UPDATE_COMPLETE")]);
    let failed = "ROLLBACK_COMPLETE";
    let delete = "aws cloudformation delete-stack --region us-east-1 --stack-name shop-dev; and deploy again";
    let silent = Aws { outputs: BTreeMap::from([("CommandHandlerName", "silent".to_owned())]), ..works() };
    let unset = String::new;
    for (aws, variables, words, code, expected, calls) in [
        (
            works(),
            vec![("PATH", "/nowhere".to_owned())],
            &[][..],
            2,
            "pip install aws-sam-cli cargo-lambda ziglang",
            "",
        ),
        (works(), vec![("FAILS", "build".to_owned())], &[], 3, "`sam build` has failed; its output above", "build"),
        (
            works(),
            vec![("FAILS", "deploy".to_owned())],
            &[],
            3,
            "`sam deploy` has failed; its output above",
            "build deploy",
        ),
        (aws(&[None, Some(failed)]), vec![("FAILS", "deploy".to_owned())], &[], 3, delete, "build deploy"),
        (aws(&[Some(failed)]), vec![], &[], 3, delete, ""),
        (aws(&[Some("UPDATE_ROLLBACK_FAILED")]), vec![], &[], 3, "continue-update-rollback", ""),
        (aws(&[Some("UPDATE_IN_PROGRESS")]), vec![], &[], 3, "wait until its current deployment has ended", ""),
        (aws(&[None]), vec![], &[], 3, "shop-dev was not deployed", "build deploy"),
        (Aws { declines: true, ..works() }, vec![], &[], 3, "shop-dev was not deployed", "build deploy"),
        (works(), vec![], &["--config-env", "stage"], 2, "the environment \"stage\" has no stack_name", ""),
        (
            silent,
            vec![],
            &["--timeout", "1"],
            3,
            "the bus delivered no message within 1s; `daybook relay status`",
            "build deploy",
        ),
        (works(), vec![("AWS_ENDPOINT_URL_CLOUDFORMATION", unset())], &[], 2, "no region is set: set AWS_REGION", ""),
        (
            works(),
            vec![("AWS_ENDPOINT_URL_CLOUDFORMATION", unset()), ("AWS_REGION", "eu-central-1".to_owned())],
            &[],
            2,
            "eval \"$(aws configure export-credentials --format env)\"",
            "",
        ),
    ] {
        let (mut shop, _server) = Shop::on(&stack, aws).await;
        shop.variables.extend(variables);
        // Otherwise the SDK asks the machine for credentials.
        shop.variables.insert("AWS_EC2_METADATA_DISABLED", "true".to_owned());
        let output = shop.deploy(words).await;
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(code) && error.contains(expected), "{expected}: {error}");
        let made = fs::read_to_string(shop.folder().join("calls")).unwrap_or_default();
        let made: Vec<_> = made.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(made.join(" "), calls, "{expected}");
    }
    assert!(stack.bus().queued().is_empty());
    stack.stop().await;

    let folder = TempDir::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_daybook")).arg("deploy").current_dir(&folder).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("run this in the folder of a project"), "{error}");
    assert!(Path::new(folder.path()).exists());
}
