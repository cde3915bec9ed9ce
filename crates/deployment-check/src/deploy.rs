//! Deploys the stack of a project with SAM, which prints what it does, and then shows a command and its message on the bus.
//!
//! SAM publishes a new version of a function for new code, but not for a changed parameter, and with an unchanged `Release` for
//! neither. So `Release` is computed from both.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use daybook_decider::personal;
use daybook_operations::signed_calls::{CLOUDFORMATION, LAMBDA, SNS, SignedCalls};
use daybook_operations::stack::StackDescription;
use daybook_operations::{OperatorError, Stack};
use daybook_settings::Environment;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::process::Command;
use tokio::time::Instant;
use toml_edit::{DocumentMut, Item};

use crate::aws_calls::CallError;
use crate::deployment::{CANARY, Deployment};

/// What `sam build` writes, in the folder of the project.
const BUILD: &str = ".aws-sam/build";

/// The number of hex digits of `Release`. SAM compares the first ten.
const DIGITS: usize = 40;

/// Below this number of concurrent executions, an account is new, and requests are throttled under a small load.
const FEW_EXECUTIONS: u64 = 100;

/// A stack that is or will be deployed: an environment of samconfig.toml.
pub struct StackDeployment {
    project: PathBuf,
    config_env: String,
    pub stack_name: String,
    parameters: Vec<String>,
    /// With the region and the profile of samconfig.toml, if it has them.
    pub environment: Environment,
    cloudformation: SignedCalls,
}

impl StackDeployment {
    /// Reads samconfig.toml. Without a region or credentials, this is an error: a build takes minutes.
    pub async fn connect(project: &Path, config_env: &str, environment: &Environment) -> Result<Self, OperatorError> {
        let file = project.join("samconfig.toml");
        let usage = |problem: String| OperatorError::Usage(format!("{}: {problem}", file.display()));
        let text = fs::read_to_string(&file)
            .map_err(|error| usage(format!("{error}; run this in the folder of a project, which has this file")))?;
        let config: DocumentMut = text.parse().map_err(|error| usage(format!("{error}")))?;
        let setting = |name: &str| {
            let of = |command: &str| config.get(config_env)?.get(command)?.get("parameters")?.get(name);
            of("deploy").or_else(|| of("global"))
        };
        let text = |name: &str| setting(name).and_then(Item::as_str).map(str::to_owned);
        if let (Some(profile), Some(_)) = (text("profile"), environment.optional("AWS_ACCESS_KEY_ID")) {
            return Err(usage(format!(
                "it selects the profile {profile:?}, and the environment has access keys, perhaps of another account: unset \
                 AWS_ACCESS_KEY_ID, or remove the profile"
            )));
        }
        let environment = environment.clone().with("AWS_REGION", text("region")).with("AWS_PROFILE", text("profile"));
        let stack_name = text("stack_name").ok_or_else(|| {
            usage(format!("the environment {config_env:?} has no stack_name; choose another one with --config-env"))
        })?;
        let parameters = setting("parameter_overrides");
        let parameters = match parameters.map(|item| (item.as_str(), item.as_array(), item.as_table_like())) {
            None => Some(Vec::new()),
            Some((Some(text), ..)) => Some(vec![text.to_owned()]),
            Some((_, Some(texts), _)) => texts.iter().map(|text| text.as_str().map(str::to_owned)).collect(),
            Some((.., Some(pairs))) => {
                pairs.iter().map(|(name, value)| Some(format!("{name}={}", value.as_str()?))).collect()
            }
            Some(_) => None,
        };
        Ok(Self {
            project: project.to_owned(),
            config_env: config_env.to_owned(),
            stack_name,
            parameters: parameters
                .ok_or_else(|| usage("parameter_overrides has a value that is no text".to_owned()))?,
            cloudformation: SignedCalls::connect(&environment, CLOUDFORMATION).await?,
            environment,
        })
    }

    /// Builds and deploys. Returns the stack with its new outputs.
    pub async fn deploy(&self) -> Result<StackDescription, OperatorError> {
        let before = StackDescription::read(&self.cloudformation, &self.stack_name).await?;
        if let Some(obstacle) = before.as_ref().and_then(|stack| self.obstacle(stack)) {
            return Err(OperatorError::Failed(obstacle));
        }
        self.sam("build", &[]).await?;
        let build = self.project.join(BUILD);
        let release = self.release(&build, before.as_ref()).map_err(|source| OperatorError::File {
            doing: format!("cannot read {}, which `sam build` has written", build.display()),
            source,
        })?;
        let mut arguments =
            vec!["--region".to_owned(), self.cloudformation.region.clone(), "--parameter-overrides".to_owned()];
        arguments.extend(self.parameters.iter().cloned().chain([format!("Release={release}")]));
        let deployed = self.sam("deploy", &arguments).await;
        let after = StackDescription::read(&self.cloudformation, &self.stack_name).await?;
        let obstacle = after.as_ref().and_then(|stack| self.obstacle(stack));
        match (deployed, after, obstacle) {
            (Err(OperatorError::Failed(error)), _, Some(obstacle)) => {
                Err(OperatorError::Failed(format!("{error}; {obstacle}")))
            }
            (Err(error), ..) => Err(error),
            // Without the new release, the user has declined the change set.
            (Ok(()), Some(stack), None) if stack.parameter("Release") == release => Ok(stack),
            (Ok(()), ..) => Err(OperatorError::Failed(format!("{} was not deployed", self.stack_name))),
        }
    }

    pub async fn gaps(&self, code: &Stack, deployed: &StackDescription) -> Result<Vec<String>, OperatorError> {
        let mut all = missing_parts(code, deployed)?;
        for found in [without_recipients(&self.environment, deployed).await, self.low_quota().await] {
            all.extend(found.unwrap_or_else(|error| vec![format!("not checked: {error}")]));
        }
        Ok(all)
    }

    /// The quota of concurrent executions, if it is that of a new account.
    async fn low_quota(&self) -> Result<Vec<String>, OperatorError> {
        let lambda = SignedCalls::connect(&self.environment, LAMBDA).await?;
        let settings = lambda.get("/2016-08-19/account-settings/").await?;
        let quota = settings["AccountLimit"]["ConcurrentExecutions"].as_u64().filter(|quota| *quota < FEW_EXECUTIONS);
        let request = "request 1,000 concurrent executions under Service Quotas";
        Ok(quota.iter().map(|quota| format!("the account runs only {quota} functions at a time: {request}")).collect())
    }

    /// Why a stack cannot be deployed, and what to do.
    fn obstacle(&self, stack: &StackDescription) -> Option<String> {
        let (name, region) = (&self.stack_name, &self.cloudformation.region);
        let status = stack.status.as_str();
        let do_this = match status {
            "ROLLBACK_COMPLETE" | "ROLLBACK_FAILED" | "DELETE_FAILED" => format!(
                "its first deployment or its deletion has failed, and such a stack can only be deleted. Its events have the reason: \
                 aws cloudformation describe-stack-events --region {region} --stack-name {name}. Then delete it: aws cloudformation \
                 delete-stack --region {region} --stack-name {name}; and deploy again"
            ),
            "UPDATE_ROLLBACK_FAILED" => format!(
                "complete its rollback first: aws cloudformation continue-update-rollback --region {region} --stack-name {name}"
            ),
            _ if stack.is_in_progress() => "wait until its current deployment has ended".to_owned(),
            _ => return None,
        };
        Some(format!("the stack {name} is {status}: {do_this}"))
    }

    /// The identifier of a deployment: the same code with the same parameters has the same one. After a rollback, it is another:
    /// Lambda publishes no second version of the same code and configuration.
    fn release(&self, build: &Path, before: Option<&StackDescription>) -> io::Result<String> {
        let mut hash = Sha256::new();
        hash_folder(build, &mut hash)?;
        self.parameters.iter().for_each(|parameter| hash.update(format!("{parameter}\n")));
        if let Some(stack) = before.filter(|stack| stack.status == "UPDATE_ROLLBACK_COMPLETE") {
            hash.update(&stack.updated);
        }
        Ok(hash.finalize().iter().take(DIGITS / 2).map(|byte| format!("{byte:02x}")).collect())
    }

    async fn sam(&self, command: &str, arguments: &[String]) -> Result<(), OperatorError> {
        let mut sam = Command::new("sam");
        sam.args([command, "--config-env", &self.config_env]).args(arguments).current_dir(&self.project);
        let status = match sam.status().await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(OperatorError::Usage(
                    "SAM is not installed, or not on the PATH: pip install aws-sam-cli cargo-lambda ziglang".to_owned(),
                ));
            }
            status => status.map_err(|source| OperatorError::File { doing: "cannot run sam".to_owned(), source })?,
        };
        match status.success() {
            true => Ok(()),
            false => Err(OperatorError::Failed(format!(
                "`sam {command}` has failed; its output above has the reason. {} has the code and the settings that it had before",
                self.stack_name
            ))),
        }
    }
}

/// The gaps of the alarms of a stack that is deployed, and whether its `AlarmEmail` accepts them: others than SNS can get alarms.
pub(crate) async fn gaps_of_alarms(
    environment: &Environment,
    name: &str,
) -> Result<(Vec<String>, bool), OperatorError> {
    let cloudformation = SignedCalls::connect(environment, CLOUDFORMATION).await?;
    let stack = StackDescription::read(&cloudformation, name).await?.unwrap_or_default();
    Ok((without_recipients(environment, &stack).await?, stack.parameter("AlarmEmail") == "none"))
}

/// Which alarms nobody gets.
async fn without_recipients(environment: &Environment, stack: &StackDescription) -> Result<Vec<String>, OperatorError> {
    if !stack.outputs.contains_key("DashboardUrl") {
        return Ok(vec!["there are no alarms and no dashboard: set AlarmEmail in samconfig.toml".to_owned()]);
    }
    let (sns, mut gaps) = (SignedCalls::connect(environment, SNS).await?, Vec::new());
    for (output, topic) in stack.outputs.iter().filter(|(output, _)| output.ends_with("Topic")) {
        let names = ["SubscriptionArn", "Endpoint"];
        let found = sns.query("ListSubscriptionsByTopic", &[("TopicArn", topic)], &names).await?;
        if found.is_empty() {
            gaps.push(format!(
                "nobody gets the alarms: set AlarmEmail in samconfig.toml, or subscribe to the output {output}"
            ));
        }
        let of = |wanted| found.iter().filter(move |(name, _)| *name == wanted).map(|(_, text)| text);
        let unconfirmed = of("SubscriptionArn").zip(of("Endpoint")).filter(|(arn, _)| *arn == "PendingConfirmation");
        gaps.extend(unconfirmed.map(|(_, endpoint)| {
            format!("{endpoint} gets no alarms yet: open the link in the mail that asks for a confirmation")
        }));
    }
    Ok(gaps)
}

/// Adds all files below a folder, in the order of their paths.
fn hash_folder(folder: &Path, hash: &mut Sha256) -> io::Result<()> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        hash.update(path.file_name().unwrap_or_default().as_encoded_bytes());
        if path.is_dir() {
            hash_folder(&path, hash)?;
        } else {
            hash.update(fs::read(&path)?);
        }
    }
    Ok(())
}

/// The parts that the code needs and the deployed stack does not have. Whether a state has deadlines is not known here.
fn missing_parts(code: &Stack, deployed: &StackDescription) -> Result<Vec<String>, OperatorError> {
    let no_models = (code.projections)()?.iter().next().is_some() && deployed.parameter("ReadModels") != "true";
    let has_processes = code.registry.iter().any(|model| !model.sources().is_empty());
    let no_reactor = has_processes && deployed.parameter("Reactor") != "processes";
    let is_stored = |schema: &Value| schema.to_string().contains(personal::MARK);
    let has_personal_data = code.registry.iter().any(|model| is_stored(model.schemas().event.as_value()));
    let no_key = has_personal_data && deployed.parameter("KmsKeyArn").is_empty();
    let parts = [
        (no_models, "ReadModels=true", "read models, which the stack does not run"),
        (no_reactor, "Reactor=processes", "processes, which the stack does not run"),
        (no_key, "KmsKeyArn=ARN", "personal data, for which the stack has no key: each command that stores some fails"),
    ];
    let missing = parts.into_iter().filter(|(is_missing, ..)| *is_missing);
    Ok(missing.map(|(_, setting, part)| format!("{setting} in samconfig.toml: the code has {part}")).collect())
}

#[derive(Debug)]
pub struct FirstMessage {
    pub message: Value,
    pub after: Duration,
    /// What was created to see the message, and could not be deleted.
    pub left_over: Vec<String>,
}

/// Sends a command of the canary to the function that the API uses, and waits for its message on the bus. The command is an
/// invocation in the form of API Gateway's, so it works with every authorizer, and needs no aggregate of the project.
pub async fn first_message(stack: &Stack, function: &str, limit: Duration) -> Result<FirstMessage, OperatorError> {
    let mut deployment = Deployment::connect(stack, limit).await?;
    let seen = stack.interrupt.run_until_cancelled(see_message(&mut deployment, function, limit)).await;
    let seen = seen.unwrap_or_else(|| Err(CallError::NotSeen { what: "stopped early".to_owned() }));
    let left_over = deployment.clean_up().await;
    let failed = |error: CallError| {
        let left_over: String = left_over.iter().map(|text| format!("; could not delete {text}")).collect();
        OperatorError::Failed(format!("the stack is deployed, but its first message was not seen: {error}{left_over}"))
    };
    let (message, after) = seen.map_err(failed)?;
    Ok(FirstMessage { message, after, left_over })
}

async fn see_message(
    deployment: &mut Deployment,
    function: &str,
    limit: Duration,
) -> Result<(Value, Duration), CallError> {
    deployment.observe().await?;
    let id = format!("deploy-{}", deployment.run_id);
    let mut data = json!({"deploymentId": id, "functionVersion": "live", "publish": true});
    let sent = Instant::now();
    let mut response = invoke(deployment, function, "/__canary/deployments", &data).await?;
    if response["statusCode"] == 404 {
        data["id"] = json!("deployments");
        response = invoke(deployment, function, "/__canary", &data).await?;
    }
    if !matches!(response["statusCode"].as_u64(), Some(200 | 201)) {
        return Err(CallError::NotSeen { what: format!("the command handler returned {response} to a command") });
    }
    let is_its = |message: &Value| message["detail"]["data"]["deploymentId"] == id.as_str();
    let messages = deployment.messages_of(&CANARY, limit, |messages| messages.iter().any(is_its)).await?;
    let message = messages.into_iter().find(is_its).ok_or_else(|| CallError::NotSeen {
        what: format!(
            "the command was executed, but the bus delivered no message within {limit:?}; `daybook relay status` and the log of \
             the relay have the reason"
        ),
    })?;
    Ok((message, sent.elapsed()))
}

/// Invokes the function as the hook of a deployment does.
async fn invoke(deployment: &Deployment, function: &str, path: &str, data: &Value) -> Result<Value, CallError> {
    let http = json!({"method": "POST", "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1"});
    let event = json!({
        "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "",
        "headers": {"content-type": "application/json"}, "body": data.to_string(), "isBase64Encoded": false,
        "requestContext": {"apiId": "daybook-deployment-hook", "http": http, "stage": "$default", "timeEpoch": 0},
    });
    let path = format!("/2015-03-31/functions/{function}%3Alive/invocations");
    deployment.calls.send(LAMBDA, "POST", &path, "Invoke", Some(event.to_string())).await
}
