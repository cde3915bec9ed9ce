//! Calls to AWS services of which a command needs one operation. A signed request takes less code and less time to build than
//! the SDK crate of the service, and the commands need three such services.

use std::time::{Duration, SystemTime};

use aws_sdk_sqs::config::{Credentials, ProvideCredentials};
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode,
    sign,
};
use aws_sigv4::sign::v4;
use aws_smithy_http_client::Connector;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_runtime_api::client::identity::Identity;
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use daybook_function_runtime::{SdkConfig, with_causes};
use daybook_settings::Environment;
use serde_json::Value;

use super::error::OperatorError;
use super::target::aws_config;

/// Maximum time of a call.
const CALL_LIMIT: Duration = Duration::from_secs(20);

/// Maximum attempts of a call that AWS throttles or cannot complete, and the pause before the next.
const MAX_ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);

/// A service: the name that signatures contain, which is also the beginning of its host, and the variable for another endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AwsService {
    pub(crate) name: &'static str,
    pub(crate) endpoint_variable: &'static str,
}

pub(crate) const LAMBDA: AwsService = AwsService { name: "lambda", endpoint_variable: "AWS_ENDPOINT_URL_LAMBDA" };
pub(crate) const CLOUDWATCH: AwsService =
    AwsService { name: "monitoring", endpoint_variable: "AWS_ENDPOINT_URL_CLOUDWATCH" };
pub(crate) const CLOUDWATCH_LOGS: AwsService =
    AwsService { name: "logs", endpoint_variable: "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS" };

pub(crate) const S3: AwsService = AwsService { name: "s3", endpoint_variable: "AWS_ENDPOINT_URL_S3" };

/// A client of a service.
pub(crate) struct SignedCalls {
    service: AwsService,
    region: String,
    endpoint: String,
    identity: Identity,
    connector: Connector,
}

/// Why an attempt failed, and whether another may succeed.
struct Failure {
    cause: String,
    is_transient: bool,
}

impl SignedCalls {
    /// A client of the service in the account and region of the environment.
    pub(crate) async fn connect(environment: &Environment, service: AwsService) -> Result<Self, OperatorError> {
        let config = aws_config(environment, service.endpoint_variable).await?;
        let region = config.region().map(ToString::to_string).unwrap_or_default();
        let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let default = format!("https://{}.{region}.{suffix}", service.name);
        let endpoint = config.endpoint_url().map_or(default, |url| url.trim_end_matches('/').to_owned());
        let connector = if endpoint.starts_with("http://") {
            Connector::builder().build_http()
        } else {
            Connector::builder().tls_provider(Provider::Rustls(CryptoMode::Ring)).build()
        };
        Ok(Self { service, region, endpoint, identity: identity(&config).await?, connector })
    }

    /// A client of the local stack's API, which accepts any credentials.
    pub(crate) fn local(url: &str) -> Self {
        let identity = Credentials::from_keys("local", "local", None).into();
        let endpoint = url.trim_end_matches('/').to_owned();
        let service = AwsService { name: "local stack", endpoint_variable: "" };
        let connector = Connector::builder().build_http();
        Self { service, region: "us-east-1".to_owned(), endpoint, identity, connector }
    }

    /// Gets a resource.
    pub(crate) async fn get(&self, path_and_query: &str) -> Result<Value, OperatorError> {
        self.json(&self.call("GET", path_and_query, &[], "").await?)
    }

    /// Calls an operation of a service with the AWS JSON protocol. `version` is that of the protocol.
    pub(crate) async fn post(&self, target: &str, version: &str, body: &Value) -> Result<Value, OperatorError> {
        let content_type = format!("application/x-amz-json-{version}");
        let headers = [("content-type", content_type.as_str()), ("x-amz-target", target)];
        self.json(&self.call("POST", "/", &headers, &body.to_string()).await?)
    }

    /// Gets or deletes a resource that is not JSON.
    pub(crate) async fn bytes(&self, method: &'static str, path_and_query: &str) -> Result<Vec<u8>, OperatorError> {
        self.call(method, path_and_query, &[], "").await
    }

    fn json(&self, body: &[u8]) -> Result<Value, OperatorError> {
        serde_json::from_slice(body).map_err(|error| self.failed(error.to_string()))
    }

    fn failed(&self, cause: String) -> OperatorError {
        OperatorError::Call { service: self.service.name, endpoint: self.endpoint.clone(), cause }
    }

    async fn call(
        &self,
        method: &'static str,
        path: &str,
        headers: &[(&'static str, &str)],
        body: &str,
    ) -> Result<Vec<u8>, OperatorError> {
        let mut attempts = 1;
        loop {
            let attempt = tokio::time::timeout(CALL_LIMIT, self.attempt(method, path, headers, body)).await;
            let failure = match attempt {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(failure)) => failure,
                Err(_) => Failure { cause: format!("no response within {CALL_LIMIT:?}"), is_transient: true },
            };
            if !failure.is_transient || attempts == MAX_ATTEMPTS {
                return Err(self.failed(failure.cause));
            }
            attempts += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn attempt(
        &self,
        method: &'static str,
        path: &str,
        headers: &[(&'static str, &str)],
        body: &str,
    ) -> Result<Vec<u8>, Failure> {
        let request = self.signed(method, path, headers, body);
        let request = request.map_err(|cause| Failure { cause, is_transient: false })?;
        let transient = |cause| Failure { cause, is_transient: true };
        let response = self.connector.call(request).await.map_err(|error| transient(with_causes(&error)))?;
        let status = response.status().as_u16();
        let body = ByteStream::new(response.into_body()).collect().await;
        let body = body.map_err(|error| transient(with_causes(&error)))?.into_bytes();
        if (200..300).contains(&status) {
            return Ok(body.into());
        }
        let text: String = String::from_utf8_lossy(&body).chars().take(500).collect();
        let is_transient = status == 429 || status >= 500 || text.contains("Throttl");
        Err(Failure { cause: format!("status {status}: {text}"), is_transient })
    }

    /// S3 signs paths as they are, and requires the hash of the body.
    fn signing_settings(&self) -> SigningSettings {
        let mut settings = SigningSettings::default();
        if self.service.name == S3.name {
            settings.percent_encoding_mode = PercentEncodingMode::Single;
            settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
            settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        }
        settings
    }

    fn signed(
        &self,
        method: &'static str,
        path: &str,
        headers: &[(&'static str, &str)],
        body: &str,
    ) -> Result<HttpRequest, String> {
        let params = v4::SigningParams::builder()
            .identity(&self.identity)
            .region(&self.region)
            .name(self.service.name)
            .time(SystemTime::now())
            .settings(self.signing_settings())
            .build()
            .map_err(|error| error.to_string())?
            .into();
        let uri = format!("{}{path}", self.endpoint);
        let signable = SignableBody::Bytes(body.as_bytes());
        let signable = SignableRequest::new(method, &uri, headers.iter().copied(), signable);
        let signed = sign(signable.map_err(|error| error.to_string())?, &params).map_err(|error| error.to_string())?;
        let (signature, _) = signed.into_parts();
        let mut request = HttpRequest::new(SdkBody::from(body));
        request.set_method(method).map_err(|error| error.to_string())?;
        request.set_uri(uri).map_err(|error| error.to_string())?;
        let (of_signature, _) = signature.into_parts();
        for (name, value) in headers {
            request.headers_mut().insert(*name, (*value).to_owned());
        }
        for header in of_signature {
            request.headers_mut().insert(header.name(), header.value().to_owned());
        }
        Ok(request)
    }
}

async fn identity(config: &SdkConfig) -> Result<Identity, OperatorError> {
    let none = || OperatorError::Usage("no AWS credentials".to_owned());
    let provider = config.credentials_provider().ok_or_else(none)?;
    Ok(provider.provide_credentials().await.map_err(|_| none())?.into())
}
