//! Calls to AWS as JSON, without an SDK: the checks compare what the services return, word for word.

use daybook_settings::Environment;
use serde_json::Value;

use crate::aws::{DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT};
use crate::http::HttpClient;
use crate::operator::OperatorError;
use crate::operator::target::signer;

/// A service, with its name in endpoints, its name in signatures and variables, and the prefix of its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AwsService {
    DynamoDb,
    EventBridge,
    Sqs,
    CloudWatch,
    Lambda,
}

/// The clients of the services.
pub(super) struct AwsCalls {
    clients: [Option<ServiceClient>; 5],
}

struct ServiceClient {
    client: HttpClient,
    url: String,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The service returned an error.
    #[error("{operation}: {status} {code} {message}")]
    Service { operation: String, status: u16, code: String, message: String, body: Value },
    /// No response that can be read.
    #[error("{operation}: no response: {reason}")]
    NoResponse { operation: String, reason: String },
    /// Something did not happen within the time limit.
    #[error("{what}")]
    NotSeen { what: String },
    /// The local stack has no such service.
    #[error("the local stack has no {0:?}")]
    NoService(AwsService),
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

impl AwsService {
    const ALL: [Self; 5] = [Self::DynamoDb, Self::EventBridge, Self::Sqs, Self::CloudWatch, Self::Lambda];

    /// The variable for another endpoint.
    fn variable(self) -> &'static str {
        match self {
            Self::DynamoDb => DYNAMODB_ENDPOINT,
            Self::EventBridge => EVENTBRIDGE_ENDPOINT,
            Self::Sqs => SQS_ENDPOINT,
            Self::CloudWatch => "AWS_ENDPOINT_URL_CLOUDWATCH",
            Self::Lambda => "AWS_ENDPOINT_URL_LAMBDA",
        }
    }

    /// The name in endpoints and signatures.
    fn name(self) -> &'static str {
        match self {
            Self::DynamoDb => "dynamodb",
            Self::EventBridge => "events",
            Self::Sqs => "sqs",
            Self::CloudWatch => "monitoring",
            Self::Lambda => "lambda",
        }
    }

    /// The beginning of `X-Amz-Target`, and the version of the JSON protocol. Lambda's operations have paths instead.
    fn protocol(self) -> (&'static str, &'static str) {
        match self {
            Self::DynamoDb => ("DynamoDB_20120810", "application/x-amz-json-1.0"),
            Self::EventBridge => ("AWSEvents", "application/x-amz-json-1.1"),
            Self::Sqs => ("AmazonSQS", "application/x-amz-json-1.0"),
            Self::CloudWatch => ("GraniteServiceVersion20100801", "application/x-amz-json-1.0"),
            Self::Lambda => ("", "application/json"),
        }
    }
}

impl AwsCalls {
    /// The services at the endpoints or in the account that the environment names. A local stack has only the services whose
    /// endpoints it names.
    pub(super) async fn connect(environment: &Environment, is_local: bool) -> Result<Self, OperatorError> {
        let mut clients = [const { None }; 5];
        for (client, service) in clients.iter_mut().zip(AwsService::ALL) {
            let endpoint = environment.optional(service.variable());
            if is_local && endpoint.is_none() {
                continue;
            }
            let signer = signer(environment, service.variable(), service.name()).await?;
            let url = endpoint.unwrap_or_else(|| aws_endpoint(service.name(), signer.region()));
            let url = url.trim_end_matches('/').to_owned();
            *client = Some(ServiceClient { client: HttpClient::new(&url, Some(signer)), url });
        }
        Ok(Self { clients })
    }

    /// Calls an operation of a service with the JSON protocol.
    pub(super) async fn call(&self, service: AwsService, operation: &str, body: Value) -> Result<Value, CallError> {
        let (target, content_type) = service.protocol();
        let headers = [("x-amz-target", format!("{target}.{operation}")), ("content-type", content_type.to_owned())];
        self.send(service, operation, "POST", "/", &headers, Some(body.to_string())).await
    }

    /// Reads a path of a service with a REST protocol.
    pub(super) async fn get(&self, service: AwsService, operation: &str, path: &str) -> Result<Value, CallError> {
        self.send(service, operation, "GET", path, &[], None).await
    }

    async fn send(
        &self,
        service: AwsService,
        operation: &str,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: Option<String>,
    ) -> Result<Value, CallError> {
        let position = AwsService::ALL.iter().position(|other| *other == service).unwrap_or_default();
        let Some(ServiceClient { client, url }) = &self.clients[position] else {
            return Err(CallError::NoService(service));
        };
        let operation = operation.to_owned();
        let headers: Vec<_> = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let response = match client.send(method, &format!("{url}{path}"), &headers, body).await {
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

/// The endpoint of a service in a region.
fn aws_endpoint(service: &str, region: &str) -> String {
    let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    format!("https://{service}.{region}.{suffix}")
}
