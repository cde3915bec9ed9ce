//! Calls to AWS as JSON, each sent once: the checks compare what the services return, word for word.

use daybook_operations::signed_calls::{AwsService, CLOUDWATCH, DYNAMODB, EVENTBRIDGE, LAMBDA, SQS, SignedCalls};
use daybook_operations::{OperatorError, Stack};
use serde_json::Value;

pub(super) struct AwsCalls(Vec<SignedCalls>);

#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("{operation}: {status} {code} {message}")]
    Service { operation: String, status: u16, code: String, message: String, body: Value },
    /// No response that can be read.
    #[error("{operation}: no response: {reason}")]
    NoResponse { operation: String, reason: String },
    /// Something did not happen within the time limit.
    #[error("{what}")]
    NotSeen { what: String },
    #[error("the local stack has no service {0:?}")]
    NoService(&'static str),
}

impl CallError {
    /// The error code of the service; empty without a response.
    pub(super) fn code(&self) -> &str {
        match self {
            Self::Service { code, .. } => code,
            Self::NoResponse { .. } | Self::NotSeen { .. } | Self::NoService(_) => "",
        }
    }

    /// Whether the local stack does not have the operation.
    pub(super) fn is_unknown_operation(&self) -> bool {
        matches!(self, Self::NoService(_)) || self.code() == "UnknownOperationException"
    }
}

impl AwsCalls {
    /// The services at the endpoints or in the account that the environment names. A local stack has only the services whose
    /// endpoints it names.
    pub(super) async fn connect(stack: &Stack) -> Result<Self, OperatorError> {
        let (environment, is_local, mut clients) = (&stack.environment, stack.is_local(), Vec::new());
        for service in [DYNAMODB, EVENTBRIDGE, SQS, CLOUDWATCH, LAMBDA] {
            if !is_local || environment.optional(service.endpoint_variable).is_some() {
                clients.push(SignedCalls::connect(environment, service).await?);
            }
        }
        Ok(Self(clients))
    }

    pub(super) async fn call(&self, service: AwsService, operation: &str, body: Value) -> Result<Value, CallError> {
        self.send(service, "POST", "/", operation, Some(body.to_string())).await
    }

    /// Sends a request; to a service with a REST protocol, with a path.
    pub(super) async fn send(
        &self,
        service: AwsService,
        method: &str,
        path: &str,
        operation: &str,
        body: Option<String>,
    ) -> Result<Value, CallError> {
        let client = self.0.iter().find(|client| client.service.name == service.name);
        let client = client.ok_or(CallError::NoService(service.name))?;
        let sent = client.send(method, path, (path == "/").then_some(operation), body).await;
        let operation = operation.to_owned();
        let response = match sent {
            Ok(response) => response,
            Err(error) => {
                let reason = daybook_function_runtime::with_causes(&*error);
                return Err(CallError::NoResponse { operation, reason });
            }
        };
        let body: Value = serde_json::from_str(&response.body).unwrap_or_default();
        if (200..300).contains(&response.status) {
            return Ok(body);
        }
        let code = body["__type"].as_str().or(body["Type"].as_str()).unwrap_or_default();
        let message = body["message"].as_str().or(body["Message"].as_str()).unwrap_or_default().to_owned();
        let code = code.rsplit('#').next().unwrap_or_default().to_owned();
        Err(CallError::Service { operation, status: response.status, code, message, body })
    }
}
