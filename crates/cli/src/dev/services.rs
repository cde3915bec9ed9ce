//! The services of the local stack: DynamoDB, EventBridge and SQS.

use daybook_function_runtime::SdkConfig;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_local_aws::messaging::Bus;
use daybook_settings::Environment;

use super::args::DevArgs;
use super::error::DevError;
use super::servers::HttpServers;
use crate::aws::{DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT, service_config};

/// The services, each at the endpoint that the environment names or at the stack's own.
pub(super) struct Services {
    pub(super) dynamodb: SdkConfig,
    pub(super) eventbridge: SdkConfig,
    pub(super) sqs: SdkConfig,
    /// The stack's own DynamoDB.
    pub(super) database: Option<LocalDynamoDb>,
    /// The URL of the stack's own EventBridge and SQS.
    pub(super) bus_url: Option<String>,
    /// The endpoints that the environment names, by variable.
    pub(super) elsewhere: Vec<(&'static str, String)>,
}

impl Services {
    /// Starts the services for which the environment names no endpoint.
    pub(super) async fn start(args: &DevArgs, bus: &Bus, servers: &mut HttpServers) -> Result<Self, DevError> {
        let process = Environment::of_process();
        let endpoints = [DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT];
        let elsewhere = endpoints.into_iter().filter_map(|variable| Some((variable, process.optional(variable)?)));
        let elsewhere: Vec<_> = elsewhere.collect();
        let is_elsewhere = |variable| elsewhere.iter().any(|(name, _)| *name == variable);
        let mut database = None;
        if !is_elsewhere(DYNAMODB_ENDPOINT) {
            let listener = servers.listen(args.dynamodb_port, "--dynamodb-port").await?;
            database = Some(LocalDynamoDb::start(args.data.as_deref(), listener)?);
        }
        let mut bus_url = None;
        if !(is_elsewhere(EVENTBRIDGE_ENDPOINT) && is_elsewhere(SQS_ENDPOINT)) {
            bus_url = Some(servers.serve(args.bus_port, "--bus-port", bus.router()).await?);
        }
        Ok(Self {
            dynamodb: service_config(&process, DYNAMODB_ENDPOINT, database.as_ref().map(LocalDynamoDb::url)).await,
            eventbridge: service_config(&process, EVENTBRIDGE_ENDPOINT, bus_url.as_deref()).await,
            sqs: service_config(&process, SQS_ENDPOINT, bus_url.as_deref()).await,
            database,
            bus_url,
            elsewhere,
        })
    }
}
