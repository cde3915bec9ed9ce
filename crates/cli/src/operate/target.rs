//! Which table, bus and queue: by the same environment variables as the functions, or by options of the same meaning.

use std::num::NonZeroU32;

use clap::Args;
use event_store::EventStore;
use startup::{Environment, SdkConfig, SettingError};
use stream_relay::Resend;

use super::OperateError;

/// What each verb's `--help` ends with.
pub const HELP: &str = "\
To point it at a stack:
  A deployed one: the usual AWS environment (AWS_PROFILE, AWS_REGION, …), and the names as the deployment's outputs tell:
    export TABLE_NAME=… EVENT_BUS_NAME=… EVENT_SOURCE=… DLQ_URL=…
  The one that `daybook dev` runs on this machine:
    export AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:8000 TABLE_NAME=daybook-dev
    export AWS_ENDPOINT_URL_EVENTBRIDGE=http://127.0.0.1:8001 EVENT_BUS_NAME=daybook EVENT_SOURCE=com.example.daybook
    export AWS_ENDPOINT_URL_SQS=http://127.0.0.1:8001 DLQ_URL=http://127.0.0.1:8001/000000000000/daybook-dlq

Exit status: 0 all is well; 1 something was found wrong or is left over, and was printed; 2 a wrong option or setting;
3 AWS did not let it be done; 130 ended by Ctrl-C.";

/// Which table.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which stack")]
pub struct TableOptions {
    /// The table.
    #[arg(long, env = "TABLE_NAME", value_name = "NAME", hide_env_values = true)]
    pub table: Option<String>,
    /// Over how many index partitions the events of a type are spread; as the functions have it.
    #[arg(long, env = "EVENT_TYPE_SHARDS", value_name = "N", hide_env_values = true)]
    pub event_type_shards: Option<String>,
}

/// Which bus.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which stack")]
pub struct BusOptions {
    /// The name or ARN of the bus.
    #[arg(long, env = "EVENT_BUS_NAME", value_name = "NAME", hide_env_values = true)]
    pub event_bus: Option<String>,
    /// The source of every message; as the relay has it.
    #[arg(long, env = "EVENT_SOURCE", value_name = "SOURCE", hide_env_values = true)]
    pub event_source: Option<String>,
}

/// Which queue.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which stack")]
pub struct QueueOptions {
    /// The URL of the dead-letter queue.
    #[arg(long, env = "DLQ_URL", value_name = "URL", hide_env_values = true)]
    pub dlq_url: Option<String>,
}

impl TableOptions {
    /// The store over the table.
    ///
    /// # Errors
    ///
    /// When a setting is missing or wrong.
    pub async fn connect(&self, environment: &Environment) -> Result<EventStore, OperateError> {
        let options = [("TABLE_NAME", &self.table), ("EVENT_TYPE_SHARDS", &self.event_type_shards)];
        let others = ["SNAPSHOT_EVERY", "SNAPSHOT_KEEP", "OUTBOX_TTL_DAYS"];
        let settings = event_store::Settings::read(&with(environment, &options, &others)).map_err(setting)?;
        Ok(EventStore::new(&aws(environment, "AWS_ENDPOINT_URL_DYNAMODB").await, settings))
    }
}

impl BusOptions {
    /// A sender to the bus at a rate.
    ///
    /// # Errors
    ///
    /// When a setting is missing or wrong.
    pub async fn connect(&self, environment: &Environment, per_second: NonZeroU32) -> Result<Resend, OperateError> {
        let options = [("EVENT_BUS_NAME", &self.event_bus), ("EVENT_SOURCE", &self.event_source)];
        let settings = stream_relay::Settings::read_bus(&with(environment, &options, &[])).map_err(setting)?;
        let aws = aws(environment, "AWS_ENDPOINT_URL_EVENTBRIDGE").await;
        Ok(Resend::new(stream_relay::clients::eventbridge(&aws), settings, per_second))
    }
}

impl QueueOptions {
    /// The client of the queue, and its URL.
    ///
    /// # Errors
    ///
    /// When the setting is missing.
    pub async fn connect(&self, environment: &Environment) -> Result<(aws_sdk_sqs::Client, String), OperateError> {
        let url = with(environment, &[("DLQ_URL", &self.dlq_url)], &[]).required("DLQ_URL").map_err(setting)?;
        Ok((aws_sdk_sqs::Client::new(&aws(environment, "AWS_ENDPOINT_URL_SQS").await), url))
    }
}

/// The variables that are asked for, an option before the environment.
fn with(environment: &Environment, options: &[(&str, &Option<String>)], others: &[&str]) -> Environment {
    let given = options.iter().map(|(name, option)| (*name, (*option).clone().or_else(|| environment.optional(name))));
    let others = others.iter().map(|name| (*name, environment.optional(name)));
    given.chain(others).filter_map(|(name, value)| Some((name, value?))).collect()
}

/// At the endpoint that the environment names for the service, else wherever the AWS environment leads.
async fn aws(environment: &Environment, variable: &str) -> SdkConfig {
    match crate::aws::at_endpoint(environment, variable).await {
        Some(config) => config,
        None => startup::aws_config().await,
    }
}

fn setting(fault: SettingError) -> OperateError {
    let name = match &fault {
        SettingError::Missing { name } | SettingError::Bad { name, .. } => *name,
    };
    let option = match name {
        "TABLE_NAME" => "--table",
        "EVENT_TYPE_SHARDS" => "--event-type-shards",
        "EVENT_BUS_NAME" => "--event-bus",
        "EVENT_SOURCE" => "--event-source",
        "DLQ_URL" => "--dlq-url",
        _ => "none",
    };
    OperateError::Setting { option, fault }
}
