//! The configuration of the bare functions' AWS clients: what the SDK recommends, with the TLS implementation that the functions
//! of Daybook have too.

use aws_config::{BehaviorVersion, SdkConfig};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;

/// Region, credentials and endpoint from the environment variables of Lambda.
pub async fn aws_config() -> SdkConfig {
    let http = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    aws_config::defaults(BehaviorVersion::latest()).http_client(http).load().await
}
