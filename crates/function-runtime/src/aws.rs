//! The configuration of AWS clients: credentials, endpoints and trusted certificates.

use aws_config::environment::{EnvironmentVariableCredentialsProvider, EnvironmentVariableRegionProvider};
use aws_config::{BehaviorVersion, ConfigLoader, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{HttpClient, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use daybook_settings::{Environment, SettingError};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

/// The variable for a file of root certificates, as other AWS SDKs and the AWS CLI read it.
const CA_BUNDLE: &str = "AWS_CA_BUNDLE";

/// The root certificates for AWS: all five that <https://www.amazontrust.com/repository> lists for trust stores.
/// Reading the more than one hundred roots of a platform would take most of a function's initialization.
const AMAZON_ROOTS: &[u8] = include_bytes!("../roots/amazon.pem");

/// The prefixes of the regions where AWS has other certificate authorities: China, the sovereign cloud, and the
/// regions that are not on the internet.
const OTHER_AUTHORITIES: [&str; 4] = ["cn-", "eusc-", "us-iso", "eu-iso"];

/// The configuration for a function in Lambda: region, credentials and endpoints come from the environment variables
/// that Lambda sets.
///
/// It trusts the roots of Amazon Trust Services. If `AWS_CA_BUNDLE`, `SSL_CERT_FILE` or `SSL_CERT_DIR` is set, it
/// trusts those of that file or folder instead; the first of them decides. In regions where AWS has other authorities,
/// it trusts those of the platform.
pub async fn aws_config_in_lambda(environment: &Environment) -> Result<SdkConfig, SettingError> {
    let loader = loader(trust_store(environment)?)
        .region(EnvironmentVariableRegionProvider::new())
        .credentials_provider(EnvironmentVariableCredentialsProvider::new());
    Ok(loader.load().await)
}

/// The configuration for an operator's machine: region, credentials and endpoints from wherever the SDK finds them,
/// profiles included, and the roots of the platform. The environment may name another region or profile than the process has.
pub async fn aws_config(environment: &Environment) -> SdkConfig {
    let mut loader = loader(TrustStore::default());
    if let Some(region) = environment.optional("AWS_REGION") {
        loader = loader.region(Region::new(region));
    }
    if let Some(profile) = environment.optional("AWS_PROFILE") {
        loader = loader.profile_name(profile);
    }
    loader.load().await
}

/// The configuration for a local endpoint, which accepts any credentials.
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

/// The SDK's defaults with one TLS stack for all clients.
fn loader(trusted: TrustStore) -> ConfigLoader {
    let tls = TlsContext::builder().with_trust_store(trusted).build().expect("building a TLS context never fails");
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .tls_context(tls)
        .build_https();
    aws_config::defaults(BehaviorVersion::latest()).http_client(WithoutEarlyConnector(http))
}

/// An HTTP client that makes a connector only when a call needs one.
///
/// With each AWS client, the SDK makes a connector that it drops at once, so that the root certificates are read before the
/// first call. The functions make their first call during initialization anyway, and reading the certificates one more time
/// would be a tenth of it. So this client leaves out `validate_base_client_config`, in which the SDK's own does that.
#[derive(Debug)]
struct WithoutEarlyConnector(SharedHttpClient);

impl HttpClient for WithoutEarlyConnector {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        self.0.http_connector(settings, components)
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.0.connector_metadata()
    }
}

fn trust_store(environment: &Environment) -> Result<TrustStore, SettingError> {
    if let Some(file) = environment.optional(CA_BUNDLE) {
        let roots = read_roots(&file).map_err(|reason| SettingError::Bad {
            name: CA_BUNDLE,
            value: file,
            expected: format!("a PEM file of root certificates: {reason}"),
        })?;
        return Ok(TrustStore::empty().with_pem_certificate(roots));
    }
    Ok(if trusts_platform_roots(environment) {
        TrustStore::default() // reads the SSL variables
    } else {
        TrustStore::empty().with_pem_certificate(AMAZON_ROOTS)
    })
}

/// The contents of a PEM file, if every certificate in it can be a root and there is at least one.
fn read_roots(file: &str) -> Result<Vec<u8>, String> {
    let pem = std::fs::read(file).map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("it contains no certificate".to_owned()) } else { Ok(pem) }
}

fn trusts_platform_roots(environment: &Environment) -> bool {
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| environment.optional(name).is_some());
    let region = environment.optional("AWS_REGION").unwrap_or_default();
    named || OTHER_AUTHORITIES.iter().any(|prefix| region.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn bundled_roots_are_those_that_amazon_publishes() {
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
    fn platform_roots_are_trusted_in_special_regions_and_with_ssl_variables() {
        let platform = |variables: &[(&str, &str)]| trusts_platform_roots(&variables.iter().copied().collect());
        for region in ["eu-central-1", "us-east-1", "us-gov-west-1"] {
            assert!(!platform(&[("AWS_REGION", region)]), "{region}");
            assert!(platform(&[("AWS_REGION", region), ("SSL_CERT_FILE", "/opt/roots.pem")]), "{region}");
        }
        for region in ["cn-north-1", "eusc-de-east-1", "us-iso-east-1", "us-isob-east-1", "eu-isoe-west-1"] {
            assert!(platform(&[("AWS_REGION", region)]), "{region}");
        }
    }

    #[test]
    fn ca_bundle_is_a_readable_file_of_certificates() {
        let read = |file: &str| {
            let environment = [("AWS_REGION", "eu-central-1"), (CA_BUNDLE, file)].into_iter().collect();
            trust_store(&environment).map(drop).map_err(|error| error.to_string())
        };
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/");
        assert_eq!(read(&format!("{folder}roots/amazon.pem")), Ok(()));
        for (file, reason) in [
            ("roots/none.pem", "No such file or directory"),
            ("roots", "Is a directory"),
            ("Cargo.toml", "it contains no certificate"),
        ] {
            let error = read(&format!("{folder}{file}")).unwrap_err();
            let expected = format!(
                "environment variable AWS_CA_BUNDLE is \"{folder}{file}\", expected a PEM file of root certificates: {reason}"
            );
            assert!(error.starts_with(&expected), "{error}");
        }
        let damaged = std::env::temp_dir().join(format!("daybook-damaged-{}.pem", std::process::id()));
        std::fs::write(&damaged, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        let error = read(damaged.to_str().unwrap());
        std::fs::remove_file(damaged).unwrap();
        assert!(error.unwrap_err().contains("invalid peer certificate: BadEncoding"));
    }
}
