//! The AWS configuration of an operation, with a region and credentials. Calls to AWS services without an SDK client: those of
//! which a command needs one operation, and those whose responses `check-deployment` compares word for word. A signed request
//! takes less code and less time to build than the SDK crate of the service.

use std::fmt::Display;
use std::time::Duration;

use aws_sdk_sqs::config::ProvideCredentials;
use aws_smithy_xml::decode::{Document, XmlDecodeError, try_data};
use daybook_aws_clients::http::{HttpClient, HttpError, Signer, TextResponse};
use daybook_aws_clients::{DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT, service_config};
use daybook_function_runtime::{SdkConfig, shortened, with_causes};
use daybook_settings::Environment;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::error::OperatorError;

/// Maximum attempts of a call that AWS throttles or cannot complete, and the pause before the next.
const MAX_ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);

const MAX_ERROR: usize = 500;

/// A service: the name that signatures contain, which is also the beginning of its host, and the variable for another endpoint.
#[derive(Clone, Copy, Debug)]
pub struct AwsService {
    pub name: &'static str,
    pub endpoint_variable: &'static str,
    /// The beginning of `X-Amz-Target` and the type of a body with the JSON protocol, or the version of the API and the type of a
    /// body with the Query protocol. The operations of other services have paths.
    protocol: (&'static str, &'static str),
}

const fn service(
    name: &'static str,
    endpoint_variable: &'static str,
    protocol: (&'static str, &'static str),
) -> AwsService {
    AwsService { name, endpoint_variable, protocol }
}

const JSON_1_0: &str = "application/x-amz-json-1.0";
const JSON_1_1: &str = "application/x-amz-json-1.1";
const QUERY: &str = "application/x-www-form-urlencoded";

pub const DYNAMODB: AwsService = service("dynamodb", DYNAMODB_ENDPOINT, ("DynamoDB_20120810", JSON_1_0));
pub const EVENTBRIDGE: AwsService = service("events", EVENTBRIDGE_ENDPOINT, ("AWSEvents", JSON_1_1));
pub const SQS: AwsService = service("sqs", SQS_ENDPOINT, ("AmazonSQS", JSON_1_0));
pub const CLOUDWATCH: AwsService =
    service("monitoring", "AWS_ENDPOINT_URL_CLOUDWATCH", ("GraniteServiceVersion20100801", JSON_1_0));
pub const CLOUDWATCH_LOGS: AwsService =
    service("logs", "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS", ("Logs_20140328", JSON_1_1));
pub const LAMBDA: AwsService = service("lambda", "AWS_ENDPOINT_URL_LAMBDA", ("", ""));
pub const CLOUDFORMATION: AwsService =
    service("cloudformation", "AWS_ENDPOINT_URL_CLOUDFORMATION", ("2010-05-15", QUERY));
pub const SNS: AwsService = service("sns", "AWS_ENDPOINT_URL_SNS", ("2010-03-31", QUERY));
pub const S3: AwsService = service("s3", "AWS_ENDPOINT_URL_S3", ("", ""));

pub struct SignedCalls {
    pub service: AwsService,
    pub region: String,
    endpoint: String,
    http: HttpClient,
}

impl SignedCalls {
    pub async fn connect(environment: &Environment, service: AwsService) -> Result<Self, OperatorError> {
        let config = aws_config(environment, service.endpoint_variable).await?;
        let region = config.region().map(ToString::to_string).unwrap_or_default();
        let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let default = format!("https://{}.{region}.{suffix}", service.name);
        let endpoint = config.endpoint_url().map_or(default, |url| url.trim_end_matches('/').to_owned());
        let http = HttpClient::new(&endpoint, Some(signer(&config, service.name)));
        Ok(Self { service, region, http, endpoint })
    }

    pub async fn get(&self, path_and_query: &str) -> Result<Value, OperatorError> {
        self.json(&self.text("GET", path_and_query).await?)
    }

    pub async fn post(&self, operation: &str, body: &Value) -> Result<Value, OperatorError> {
        self.json(&self.call("POST", "/", Some(operation), Some(body.to_string())).await?)
    }

    /// Calls an operation of the Query protocol. Returns the texts of all elements of its response with one of these names.
    pub async fn query<'n>(
        &self,
        operation: &str,
        parameters: &[(impl Display, &str)],
        names: &[&'n str],
    ) -> Result<Vec<(&'n str, String)>, OperatorError> {
        let encoded = |value| utf8_percent_encode(value, NON_ALPHANUMERIC);
        let parameters: String = parameters.iter().map(|(name, value)| format!("&{name}={}", encoded(value))).collect();
        let body = format!("Action={operation}&Version={}{parameters}", self.service.protocol.0);
        let xml = self.call("POST", "/", None, Some(body)).await?;
        texts(&xml, names).map_err(|error| self.failed(error.to_string()))
    }

    /// Puts a resource, whose response may be empty.
    pub async fn put(&self, path: &str, body: &Value) -> Result<(), OperatorError> {
        self.call("PUT", path, None, Some(body.to_string())).await.map(drop)
    }

    /// Sends a request once. An operation of the JSON protocol has a header with its name.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        operation: Option<&str>,
        body: Option<String>,
    ) -> Result<TextResponse, HttpError> {
        let (target, body_type) = self.service.protocol;
        let target = operation.map(|operation| ("x-amz-target".to_owned(), format!("{target}.{operation}")));
        let body_type = (!body_type.is_empty()).then(|| ("content-type".to_owned(), body_type.to_owned()));
        let headers: Vec<_> = target.into_iter().chain(body_type).collect();
        self.http.send(method, &format!("{}{path}", self.endpoint), &headers, body).await
    }

    /// Gets or deletes a resource whose body is text.
    pub async fn text(&self, method: &str, path_and_query: &str) -> Result<String, OperatorError> {
        self.call(method, path_and_query, None, None).await
    }

    fn json(&self, body: &str) -> Result<Value, OperatorError> {
        serde_json::from_str(body).map_err(|error| self.failed(error.to_string()))
    }

    pub(crate) fn failed(&self, cause: String) -> OperatorError {
        OperatorError::Call { service: self.service.name, endpoint: self.endpoint.clone(), cause }
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        operation: Option<&str>,
        body: Option<String>,
    ) -> Result<String, OperatorError> {
        let mut attempts = 1;
        loop {
            let (cause, is_transient) = match self.send(method, path, operation, body.clone()).await {
                Ok(response) if (200..300).contains(&response.status) => return Ok(response.body),
                Ok(TextResponse { status, body, .. }) => {
                    let text = shortened(&body, MAX_ERROR);
                    let is_transient = status == 429 || status >= 500 || text.contains("Throttl");
                    (format!("status {status}: {text}"), is_transient)
                }
                Err(error) => (with_causes(&*error), true),
            };
            if !is_transient || attempts == MAX_ATTEMPTS {
                return Err(self.failed(cause));
            }
            tokio::time::sleep(PAUSE).await;
            attempts += 1;
        }
    }
}

/// The configuration of a service: at the endpoint or in the account that the environment names.
pub async fn aws_config(environment: &Environment, variable: &str) -> Result<SdkConfig, OperatorError> {
    let config = service_config(environment, variable).await;
    if config.region().is_none() {
        return Err(OperatorError::Usage(
            "no region is set: set AWS_REGION, such as eu-central-1; the output OperatorEnvironment of a stack contains it".to_owned(),
        ));
    }
    let why_not = match config.credentials_provider() {
        None => "no credentials provider is configured".to_owned(),
        Some(provider) => match provider.provide_credentials().await {
            Ok(_) => return Ok(config),
            Err(error) => with_causes(&error),
        },
    };
    let cure = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile with keys or a role. After \
                `aws login` or `aws sso login`, this sets them: eval \"$(aws configure export-credentials --format env)\"";
    Err(OperatorError::Usage(format!("no AWS credentials: {cure}: {why_not}")))
}

/// Signs requests to a service, with a configuration of [`aws_config`].
pub fn signer(config: &SdkConfig, service: &'static str) -> Signer {
    let region = config.region().map(ToString::to_string).unwrap_or_default();
    Signer::new(config.credentials_provider().expect("aws_config checks that there are credentials"), region, service)
}

/// The texts of all elements with one of these names, in the order of the document. None contains an element.
pub(crate) fn texts<'n>(xml: &str, names: &[&'n str]) -> Result<Vec<(&'n str, String)>, XmlDecodeError> {
    let mut document = Document::new(xml);
    let mut texts = Vec::new();
    document.next_start_element().ok_or_else(|| XmlDecodeError::custom("no root element"))?;
    while let Some(element) = document.next_start_element() {
        if let Some(name) = names.iter().find(|name| **name == element.local()) {
            texts.push((*name, try_data(&mut document.scoped_to(element))?.into_owned()));
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_without_escapes() {
        let xml = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Contents><Key>a/b&amp;c\
                   </Key><Size>1</Size></Contents><Contents><Key>d</Key></Contents><NextContinuationToken>t==\
                   </NextContinuationToken></ListBucketResult>";
        let found = texts(xml, &["Key", "NextContinuationToken"]).unwrap();
        let found: Vec<_> = found.iter().map(|(name, text)| (*name, text.as_str())).collect();
        assert_eq!(found, [("Key", "a/b&c"), ("Key", "d"), ("NextContinuationToken", "t==")]);
        assert!(texts("", &["Key"]).is_err());
    }
}
