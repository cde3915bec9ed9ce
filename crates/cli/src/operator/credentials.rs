//! The AWS configuration of a command, with a region and credentials.

use aws_sdk_sqs::config::ProvideCredentials;
use daybook_function_runtime::SdkConfig;
use daybook_local_stack::aws::service_config;
use daybook_settings::Environment;

use super::error::OperatorError;

/// The configuration of a service: at the endpoint or in the account that the environment names.
pub(crate) async fn aws_config(environment: &Environment, variable: &str) -> Result<SdkConfig, OperatorError> {
    let config = service_config(environment, variable, None).await;
    if config.region().is_none() {
        return Err(OperatorError::Usage(
            "no region is set: set AWS_REGION, which the stack's output OperatorEnvironment contains".to_owned(),
        ));
    }
    let why_not = match config.credentials_provider() {
        None => "no credentials provider is configured".to_owned(),
        Some(provider) => match provider.provide_credentials().await {
            Ok(_) => return Ok(config),
            Err(error) => daybook_function_runtime::with_causes(&error),
        },
    };
    let cure = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile with keys or a role";
    Err(OperatorError::Usage(format!("no AWS credentials: {cure}: {why_not}")))
}
