//! How AWS is reached: with whose credentials, at which endpoints, and which certificates are trusted.

use aws_config::environment::{EnvironmentVariableCredentialsProvider, EnvironmentVariableRegionProvider};
use aws_config::{BehaviorVersion, ConfigLoader, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};

use daybook_settings::Environment;

/// The roots that a trust store for AWS should hold, all five of them, says <https://www.amazontrust.com/repository>.
/// Reading the hundred and more of a platform would be most of a function's initialisation.
const AMAZON_ROOTS: &[u8] = include_bytes!("../roots/amazon.pem");

/// Where AWS has other authorities: China, the sovereign cloud, the regions that are not on the internet.
const OTHER_AUTHORITIES: [&str; 4] = ["cn-", "eusc-", "us-iso", "eu-iso"];

/// For a function in Lambda: region, credentials and endpoints from environment variables, where Lambda puts them.
///
/// It trusts the roots of Amazon Trust Services. `SSL_CERT_FILE` or `SSL_CERT_DIR` make it trust those of that file or
/// folder instead, and in regions where AWS has other authorities it trusts those of the platform.
pub async fn aws_config_in_lambda(environment: &Environment) -> SdkConfig {
    loader(trust_store(environment))
        .region(EnvironmentVariableRegionProvider::new())
        .credentials_provider(EnvironmentVariableCredentialsProvider::new())
        .load()
        .await
}

/// For a person's machine: region, credentials and endpoints from wherever the SDK finds them, profiles included, and the
/// roots of the platform.
pub async fn aws_config() -> SdkConfig {
    loader(TrustStore::default()).load().await
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

/// One TLS stack for all clients.
fn loader(trusted: TrustStore) -> ConfigLoader {
    let tls = TlsContext::builder().with_trust_store(trusted).build().expect("it names no server");
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .tls_context(tls)
        .build_https();
    aws_config::defaults(BehaviorVersion::latest()).http_client(http)
}

fn trust_store(environment: &Environment) -> TrustStore {
    if trusts_the_platform(environment) {
        TrustStore::default() // which reads what the two variables name
    } else {
        TrustStore::empty().with_pem_certificate(AMAZON_ROOTS)
    }
}

fn trusts_the_platform(environment: &Environment) -> bool {
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| environment.optional(name).is_some());
    let region = environment.optional("AWS_REGION").unwrap_or_default();
    named || OTHER_AUTHORITIES.iter().any(|prefix| region.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_roots_are_those_that_amazon_publishes() {
        let fingerprint = |certificate: Result<CertificateDer<'static>, _>| {
            let digest = Sha256::digest(certificate.unwrap());
            digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let fingerprints: Vec<_> = CertificateDer::pem_slice_iter(AMAZON_ROOTS).map(fingerprint).collect();
        assert_eq!(
            fingerprints,
            [
                "8ecde6884f3d87b1125ba31ac3fcb13d7016de7f57cc904fe1cb97c6ae98196e",
                "1ba5b2aa8c65401a82960118f80bec4f62304d83cec4713a19c39c011ea46db4",
                "18ce6cfe7bf14e60b2e347b8dfe868cb31d02ebb3ada271569f50343b46db3a4",
                "e35d28419ed02025cfa69038cd623962458da5c695fbdea3c22b0bfb25897092",
                "568d6905a2c88708a4b3025190edcfedb1974a606a13c6e5290fcb2ae63edab5",
            ]
        );
    }

    #[test]
    fn other_roots_are_trusted_where_they_are_needed_or_named() {
        let platform = |variables: &[(&str, &str)]| trusts_the_platform(&variables.iter().copied().collect());
        for region in ["eu-central-1", "us-east-1", "us-gov-west-1"] {
            assert!(!platform(&[("AWS_REGION", region)]), "{region}");
            assert!(platform(&[("AWS_REGION", region), ("SSL_CERT_FILE", "/opt/roots.pem")]), "{region}");
        }
        for region in ["cn-north-1", "eusc-de-east-1", "us-iso-east-1", "us-isob-east-1", "eu-isoe-west-1"] {
            assert!(platform(&[("AWS_REGION", region)]), "{region}");
        }
    }
}
