//! AWS configuration of a service.

use daybook_function_runtime::{SdkConfig, aws_config, aws_config_at};
use daybook_settings::Environment;

/// The variables that name an endpoint, as AWS's own tools read them.
pub const DYNAMODB_ENDPOINT: &str = "AWS_ENDPOINT_URL_DYNAMODB";
pub const EVENTBRIDGE_ENDPOINT: &str = "AWS_ENDPOINT_URL_EVENTBRIDGE";
pub const SQS_ENDPOINT: &str = "AWS_ENDPOINT_URL_SQS";

/// Returns the configuration of a service. The endpoint is the value of `variable`, or else `local_url`, or else the service's
/// own in the account that the environment names. If the environment names no credentials, an endpoint of plain HTTP is assumed
/// to accept any.
pub async fn service_config(environment: &Environment, variable: &str, local_url: Option<&str>) -> SdkConfig {
    let has_credentials = ["AWS_ACCESS_KEY_ID", "AWS_PROFILE"].iter().any(|name| environment.optional(name).is_some());
    match (environment.optional(variable), local_url) {
        (Some(url), _) if !has_credentials && url.starts_with("http://") => aws_config_at(&url),
        (Some(url), _) => aws_config().await.to_builder().endpoint_url(url).build(),
        (None, Some(url)) => aws_config_at(url),
        (None, None) => aws_config().await,
    }
}
