//! The AWS configuration of an operation, with a region and credentials.

use aws_sdk_sqs::config::ProvideCredentials;
use daybook_function_runtime::SdkConfig;
use daybook_local_stack::aws::service_config;
use daybook_local_stack::http::Signer;
use daybook_settings::Environment;

use crate::error::OperatorError;

/// The configuration of a service: at the endpoint or in the account that the environment names.
pub async fn aws_config(environment: &Environment, variable: &str) -> Result<SdkConfig, OperatorError> {
    let config = service_config(environment, variable, None).await;
    if config.region().is_none() {
        return Err(OperatorError::Usage(
            "no region is set: set AWS_REGION, such as eu-central-1; the output OperatorEnvironment of a stack contains it".to_owned(),
        ));
    }
    let why_not = match config.credentials_provider() {
        None => "no credentials provider is configured".to_owned(),
        Some(provider) => match provider.provide_credentials().await {
            Ok(_) => return Ok(config),
            Err(error) => daybook_function_runtime::with_causes(&error),
        },
    };
    let cure = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile with keys or a role. After \
                `aws login` or `aws sso login`, this sets them: eval \"$(aws configure export-credentials --format env)\"";
    Err(OperatorError::Usage(format!("no AWS credentials: {cure}: {why_not}")))
}

/// Signs requests to a service with the credentials of the operator.
pub async fn signer(environment: &Environment, variable: &str, service: &'static str) -> Result<Signer, OperatorError> {
    let config = aws_config(environment, variable).await?;
    let region = config.region().map(ToString::to_string).unwrap_or_default();
    let credentials = config.credentials_provider().expect("aws_config checks that there are credentials");
    Ok(Signer::new(credentials, region, service))
}
