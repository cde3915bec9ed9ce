//! HTTP requests to an API or to a service without an SDK client, signed with the operator's credentials if needed.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode,
    sign,
};
use aws_sigv4::sign::v4;
use aws_smithy_http_client::Connector;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorSettings};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use tokio::sync::Mutex;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for a response. API Gateway responds after 30 seconds at the latest.
const READ_TIMEOUT: Duration = Duration::from_secs(35);

/// Credentials that end within this time are fetched again.
const RENEW_BEFORE: Duration = Duration::from_secs(60);

pub type HttpError = Box<dyn std::error::Error + Send + Sync>;

/// A client that reuses its connections, and sends each request once.
#[derive(Debug)]
pub struct HttpClient {
    connector: Connector,
    signer: Option<Signer>,
}

#[derive(Debug)]
pub struct TextResponse {
    pub status: u16,
    pub body: String,
}

impl HttpClient {
    /// A client of the server at `url`. With a signer, it signs each request.
    pub fn new(url: &str, signer: Option<Signer>) -> Self {
        let settings =
            HttpConnectorSettings::builder().connect_timeout(CONNECT_TIMEOUT).read_timeout(READ_TIMEOUT).build();
        let connector = Connector::builder().connector_settings(settings);
        // Only a client of HTTPS reads the root certificates of the platform.
        let connector = if url.starts_with("https:") {
            connector.tls_provider(Provider::Rustls(CryptoMode::Ring)).build()
        } else {
            connector.build_http()
        };
        Self { connector, signer }
    }

    pub async fn send(
        &self,
        method: &str,
        url: &str,
        headers: &[(String, String)],
        body: Option<String>,
    ) -> Result<TextResponse, HttpError> {
        let body = body.unwrap_or_default();
        let mut request = HttpRequest::new(SdkBody::from(body.clone()));
        request.set_method(method)?;
        request.set_uri(url)?;
        for (name, value) in headers {
            request.headers_mut().try_insert(name.to_ascii_lowercase(), value.clone())?;
        }
        if let Some(signer) = &self.signer {
            let signature = signer.signature(method, url, &request, body.as_bytes()).await?;
            signature.into_iter().for_each(|(name, value)| drop(request.headers_mut().insert(name, value)));
        }
        let response: HttpResponse = self.connector.call(request).await?;
        let status = response.status().as_u16();
        let body = ByteStream::new(response.into_body()).collect().await?.into_bytes();
        Ok(TextResponse { status, body: String::from_utf8_lossy(&body).into_owned() })
    }
}

#[derive(Debug)]
pub struct Signer {
    credentials: SharedCredentialsProvider,
    region: String,
    /// The name under which the service checks signatures, such as `execute-api`.
    service: &'static str,
    /// The latest credentials: a provider may ask another service for them.
    latest: Mutex<Option<Credentials>>,
}

impl Signer {
    pub fn new(credentials: SharedCredentialsProvider, region: String, service: &'static str) -> Self {
        Self { credentials, region, service, latest: Mutex::default() }
    }

    async fn signature(
        &self,
        method: &str,
        url: &str,
        request: &HttpRequest,
        body: &[u8],
    ) -> Result<Vec<(String, String)>, HttpError> {
        let identity = self.credentials().await?.into();
        let parameters = v4::SigningParams::builder().identity(&identity).region(&self.region).name(self.service);
        let parameters = parameters.time(SystemTime::now()).settings(self.settings()).build()?.into();
        let signed = SignableRequest::new(method, url, request.headers().iter(), SignableBody::Bytes(body))?;
        let (instructions, _) = sign(signed, &parameters)?.into_parts();
        Ok(instructions.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// S3 signs paths as they are, and requires the hash of the body.
    fn settings(&self) -> SigningSettings {
        let mut settings = SigningSettings::default();
        if self.service == "s3" {
            settings.percent_encoding_mode = PercentEncodingMode::Single;
            settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
            settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        }
        settings
    }

    async fn credentials(&self) -> Result<Credentials, HttpError> {
        let mut latest = self.latest.lock().await;
        let is_usable = |credentials: &&Credentials| {
            credentials.expiry().is_none_or(|expiry| expiry > SystemTime::now() + RENEW_BEFORE)
        };
        if let Some(credentials) = latest.as_ref().filter(is_usable) {
            return Ok(credentials.clone());
        }
        Ok(latest.insert(self.credentials.provide_credentials().await?).clone())
    }
}
