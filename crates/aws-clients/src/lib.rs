//! Clients for tools: for the local stack, and for the commands of an operator. No Lambda function depends on it.
//!
//! In reading order:
//! - This file: the endpoints and the configuration of AWS clients, from the environment.
//! - [`http`]: requests to an API, or to a service without an SDK client, signed if needed.
//! - `calls`: [`CallMeter`], which counts the calls of a client and their units; clients that send no tokens with transactions.

mod calls;
pub mod http;

use daybook_function_runtime::{SdkConfig, aws_config, aws_config_at};
use daybook_settings::Environment;

pub use calls::{CallMeter, CallUsage, without_tokens};

/// The variables that name an endpoint, as AWS's own tools read them.
pub const DYNAMODB_ENDPOINT: &str = "AWS_ENDPOINT_URL_DYNAMODB";
pub const EVENTBRIDGE_ENDPOINT: &str = "AWS_ENDPOINT_URL_EVENTBRIDGE";
pub const KMS_ENDPOINT: &str = "AWS_ENDPOINT_URL_KMS";
pub const SQS_ENDPOINT: &str = "AWS_ENDPOINT_URL_SQS";

/// The configuration of a service. The endpoint is the value of `variable`, or else the service's own in the account that the
/// environment names. If the environment names no credentials, an endpoint of plain HTTP is assumed to accept any.
pub async fn service_config(environment: &Environment, variable: &str) -> SdkConfig {
    let has_credentials = ["AWS_ACCESS_KEY_ID", "AWS_PROFILE"].iter().any(|name| environment.optional(name).is_some());
    match environment.optional(variable) {
        Some(url) if !has_credentials && url.starts_with("http://") => aws_config_at(&url),
        Some(url) => aws_config(environment).await.to_builder().endpoint_url(url).build(),
        None => aws_config(environment).await,
    }
}
