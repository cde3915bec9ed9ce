//! Calls to AWS as JSON, each sent once: the checks compare what the services return, word for word.

use daybook_operations::OperatorError;
use daybook_operations::signed_calls::{AwsService, CLOUDWATCH, DYNAMODB, EVENTBRIDGE, LAMBDA, SQS, SignedCalls};
use daybook_settings::Environment;
use serde_json::Value;

pub(super) struct AwsCalls(Vec<SignedCalls>);

#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("{operation}: {status} {code} {message}")]
    Service { operation: String, status: u16, code: String, message: String, body: Value },
    /// No response came, or something did not happen within the time limit.
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
            Self::NotSeen { .. } | Self::NoService(_) => "",
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
    pub(super) async fn connect(environment: &Environment, is_local: bool) -> Result<Self, OperatorError> {
        let mut clients = Vec::new();
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
        let no_response = |reason| CallError::NotSeen { what: format!("{operation}: no response: {reason}") };
        let response = sent.map_err(|error| no_response(daybook_function_runtime::with_causes(&*error)))?;
        let body: Value = serde_json::from_str(&response.body).unwrap_or_default();
        if (200..300).contains(&response.status) {
            return Ok(body);
        }
        let code = body["__type"].as_str().or(body["Type"].as_str()).unwrap_or_default();
        let message = body["message"].as_str().or(body["Message"].as_str()).unwrap_or_default().to_owned();
        let (code, operation) = (code.rsplit('#').next().unwrap_or_default().to_owned(), operation.to_owned());
        Err(CallError::Service { operation, status: response.status, code, message, body })
    }
}
