//! What every Lambda does once, before its first event: read its settings, turn on its logs, configure AWS.
//!
//! Invariant: a setting that is missing or wrong stops the function here, with a message that names it, and never
//! surfaces as a failing request.

mod environment;

pub use aws_config::SdkConfig;
use aws_config::{BehaviorVersion, Region};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
pub use environment::{Environment, SettingError};
use tracing_subscriber::EnvFilter;

/// Logs as JSON lines on standard output, the form that CloudWatch Logs Insights queries. `RUST_LOG` sets the level,
/// `info` by default.
pub fn logs() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().json().flatten_event(true).with_current_span(false).with_env_filter(filter).init();
}

/// Region, credentials and endpoints from the environment, over one TLS stack.
pub async fn aws_config() -> SdkConfig {
    let http = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    aws_config::defaults(BehaviorVersion::latest()).http_client(http).load().await
}

/// For an endpoint on this machine, which takes any credentials.
pub fn aws_config_at(endpoint: &str) -> SdkConfig {
    let http = aws_smithy_http_client::Builder::new().build_http();
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(Credentials::from_keys("local", "local", None)))
        .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .http_client(http)
        .endpoint_url(endpoint)
        .build()
}
