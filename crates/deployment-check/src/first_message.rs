//! A command of the deployment canary, and its message on the bus.

use std::time::Duration;

use daybook_operations::signed_calls::LAMBDA;
use daybook_operations::{OperatorError, Stack};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::aws_calls::CallError;
use crate::deployment::{CANARY, Deployment};

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
