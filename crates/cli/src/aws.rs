//! AWS configuration for services at endpoints that the environment names.

use daybook_function_runtime::SdkConfig;
use daybook_settings::Environment;

/// The variables that name an endpoint, as AWS's own tools read them.
pub(crate) const DYNAMODB_ENDPOINT: &str = "AWS_ENDPOINT_URL_DYNAMODB";
pub(crate) const EVENTBRIDGE_ENDPOINT: &str = "AWS_ENDPOINT_URL_EVENTBRIDGE";
pub(crate) const SQS_ENDPOINT: &str = "AWS_ENDPOINT_URL_SQS";

/// The configuration of a service at the endpoint that `variable` holds; none when it holds nothing. An endpoint of plain
/// HTTP is assumed to accept any credentials when the environment names none.
pub(crate) async fn config_at_endpoint(environment: &Environment, variable: &str) -> Option<SdkConfig> {
    let url = environment.optional(variable)?;
    let has_credentials = ["AWS_ACCESS_KEY_ID", "AWS_PROFILE"].iter().any(|name| environment.optional(name).is_some());
    Some(if has_credentials || !url.starts_with("http://") {
        daybook_function_runtime::aws_config().await.to_builder().endpoint_url(url).build()
    } else {
        daybook_function_runtime::aws_config_at(&url)
    })
}
