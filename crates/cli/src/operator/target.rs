//! Which table, bus and queue, by the environment variables of the functions; where they are is also an option each.
//!
//! Invariant: at a deployed stack nothing that decides what a verb finds, sends or keeps has a default. The functions may run
//! with another value, and then a verb sees less than there is, or retires what should stay.

use std::net::IpAddr;
use std::num::NonZeroU32;

use aws_sdk_sqs::config::ProvideCredentials;
use axum::http::Uri;
use clap::Args;
use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::SdkConfig;
use daybook_settings::{Environment, SettingError};
use daybook_stream_relay::Resend;

use super::OperateError;
use crate::aws::{DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT};

/// What each verb's `--help` ends with.
pub const HELP: &str = "\
To point it at a stack:
  A deployed one: its output OperatorEnvironment has all settings. Load them into a shell of their own, with credentials
  that are keys (docs/runbook.md, \"Before you begin\"):
    export STACK=daybook-prod
    export STACK $(aws cloudformation describe-stacks --stack-name $STACK --output text \\
      --query \"Stacks[0].Outputs[?OutputKey=='OperatorEnvironment'].OutputValue\")
  The one of `daybook dev` on this machine, in another shell than the one that runs it:
    export AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:8000 TABLE_NAME=daybook-dev
    export AWS_ENDPOINT_URL_EVENTBRIDGE=http://127.0.0.1:8001 EVENT_BUS_NAME=daybook EVENT_SOURCE=com.example.daybook
    export AWS_ENDPOINT_URL_SQS=http://127.0.0.1:8001 DLQ_URL=http://127.0.0.1:8001/000000000000/daybook-dlq
  Other settings have the functions' defaults there.

Exit status: 0 all is well; 1 something was found wrong or is left over, and was printed; 2 a wrong option or setting;
3 AWS did not let it be done, or the output could not be written; 130 ended by Ctrl-C; 141 ended because nobody
reads the output any more.";

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

/// The settings that decide which aggregates and messages a verb finds.
pub const TO_FIND: &[&str] = &["EVENT_TYPE_SHARDS"];

/// The settings that decide which snapshots it takes and which it keeps, too.
pub const TO_TAKE_SNAPSHOTS: &[&str] = &["EVENT_TYPE_SHARDS", "SNAPSHOT_EVERY", "SNAPSHOT_KEEP"];

impl TableOptions {
    /// The store's settings. At a deployed stack, those that are `decisive` must be set.
    ///
    /// # Errors
    ///
    /// When a setting is missing or wrong.
    pub fn settings(
        &self,
        environment: &Environment,
        decisive: &[&'static str],
    ) -> Result<StoreSettings, OperateError> {
        let options = [("TABLE_NAME", &self.table), ("EVENT_TYPE_SHARDS", &self.event_type_shards)];
        let given = with(environment, &options, &["SNAPSHOT_EVERY", "SNAPSHOT_KEEP"]);
        let setting = |fault| setting(environment, &options, fault);
        let settings = store_settings(&given).map_err(setting)?;
        if !is_local(environment, DYNAMODB_ENDPOINT) {
            decisive.iter().try_for_each(|name| given.required(name).map(drop)).map_err(setting)?;
        }
        Ok(settings)
    }

    /// The store over the table, with these [`settings`](Self::settings).
    ///
    /// # Errors
    ///
    /// Those of the settings, and when nothing says where AWS is or with whose credentials.
    pub async fn connect(
        &self,
        environment: &Environment,
        decisive: &[&'static str],
    ) -> Result<EventStore, OperateError> {
        let settings = self.settings(environment, decisive)?;
        Ok(EventStore::new(&aws(environment, DYNAMODB_ENDPOINT).await?, settings))
    }
}

impl BusOptions {
    /// The relay's settings, but for the queue.
    ///
    /// # Errors
    ///
    /// When a setting is missing or wrong.
    pub fn settings(&self, environment: &Environment) -> Result<daybook_stream_relay::RelaySettings, OperateError> {
        let options = [("EVENT_BUS_NAME", &self.event_bus), ("EVENT_SOURCE", &self.event_source)];
        let settings = daybook_stream_relay::RelaySettings::read_bus(&with(environment, &options, &[]));
        settings.map_err(|fault| setting(environment, &options, fault))
    }

    /// A sender to the bus at a rate.
    ///
    /// # Errors
    ///
    /// Those of the [`settings`](Self::settings), and when nothing says where AWS is or with whose credentials.
    pub async fn connect(&self, environment: &Environment, per_second: NonZeroU32) -> Result<Resend, OperateError> {
        let settings = self.settings(environment)?;
        let aws = aws(environment, EVENTBRIDGE_ENDPOINT).await?;
        Ok(Resend::new(daybook_stream_relay::clients::eventbridge(&aws), settings, per_second))
    }
}

impl QueueOptions {
    /// The queue's URL.
    ///
    /// # Errors
    ///
    /// When it is missing.
    pub fn url(&self, environment: &Environment) -> Result<String, OperateError> {
        let options = [("DLQ_URL", &self.dlq_url)];
        let url = with(environment, &options, &[]).required("DLQ_URL");
        url.map_err(|fault| setting(environment, &options, fault))
    }

    /// The client of the queue, and its URL.
    ///
    /// # Errors
    ///
    /// When the URL is missing, or where AWS is.
    pub async fn connect(&self, environment: &Environment) -> Result<(aws_sdk_sqs::Client, String), OperateError> {
        let url = self.url(environment)?;
        Ok((aws_sdk_sqs::Client::new(&aws(environment, SQS_ENDPOINT).await?), url))
    }
}

/// The variables that are asked for, an option before the environment.
fn with(environment: &Environment, options: &[(&str, &Option<String>)], others: &[&str]) -> Environment {
    let given = options.iter().map(|(name, option)| (*name, (*option).clone().or_else(|| environment.optional(name))));
    let others = others.iter().map(|name| (*name, environment.optional(name)));
    given.chain(others).filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Whether the environment names an endpoint on this machine for the service, as `daybook dev` has it.
fn is_local(environment: &Environment, variable: &str) -> bool {
    let uri = environment.optional(variable).and_then(|url| url.parse::<Uri>().ok());
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// At the endpoint that the environment names for the service, else wherever the AWS environment leads.
async fn aws(environment: &Environment, variable: &str) -> Result<SdkConfig, OperateError> {
    let config = match crate::aws::at_endpoint(environment, variable).await {
        Some(config) => config,
        None => daybook_function_runtime::aws_config().await,
    };
    if config.region().is_none() {
        return Err(OperateError::Usage(
            "no region is set: set AWS_REGION, which the stack's output OperatorEnvironment has".to_owned(),
        ));
    }
    let Some(provider) = config.credentials_provider() else { return Err(no_credentials("nobody gives any")) };
    provider
        .provide_credentials()
        .await
        .map_err(|fault| no_credentials(&daybook_function_runtime::with_causes(&fault)))?;
    Ok(config)
}

fn no_credentials(why: &str) -> OperateError {
    let cure = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile with keys or a role";
    OperateError::Usage(format!("no AWS credentials: {cure}: {why}"))
}

/// A wrong setting, by the option that it came from, else by its variable.
fn setting(environment: &Environment, options: &[(&str, &Option<String>)], fault: SettingError) -> OperateError {
    let name = match &fault {
        SettingError::Missing { name } | SettingError::Bad { name, .. } => *name,
    };
    let option = match name {
        "TABLE_NAME" => Some("--table"),
        "EVENT_TYPE_SHARDS" => Some("--event-type-shards"),
        "EVENT_BUS_NAME" => Some("--event-bus"),
        "EVENT_SOURCE" => Some("--event-source"),
        "DLQ_URL" => Some("--dlq-url"),
        _ => None,
    };
    if let (SettingError::Bad { value, expected, .. }, Some(option)) = (&fault, option) {
        // The option takes its variable's value too.
        let typed = options
            .iter()
            .any(|(known, given)| *known == name && given.is_some() && **given != environment.optional(name));
        if typed {
            return OperateError::Usage(format!("{option} is {value:?}, expected {expected}"));
        }
    }
    let or_give = option.map(|option| format!(", or give {option}")).unwrap_or_default();
    OperateError::Setting { or_give, fault }
}

/// The store's settings, as far as operator commands need them.
fn store_settings(environment: &Environment) -> Result<StoreSettings, SettingError> {
    let settings = StoreSettings::new(environment.required("TABLE_NAME")?);
    let (every, keep, shards) = (settings.snapshot_every, settings.snapshot_keep, settings.event_type_shards);
    Ok(StoreSettings {
        snapshot_every: environment.number("SNAPSHOT_EVERY", every, StoreSettings::SNAPSHOT_EVERY)?,
        snapshot_keep: environment.number("SNAPSHOT_KEEP", keep, StoreSettings::SNAPSHOT_KEEP)?,
        event_type_shards: environment.number("EVENT_TYPE_SHARDS", shards, StoreSettings::EVENT_TYPE_SHARDS)?,
        ..settings
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_endpoint_is_one_on_this_machine() {
        let local = |url: &str| is_local(&[(DYNAMODB_ENDPOINT, url)].into_iter().collect(), DYNAMODB_ENDPOINT);
        for url in ["http://127.0.0.1:8000", "http://localhost:8000", "http://[::1]:8000/", "http://127.1.2.3"] {
            assert!(local(url), "{url}");
        }
        for url in [
            "",
            "https://dynamodb.eu-central-1.amazonaws.com",
            "http://10.0.0.1:8000",
            "http://localhost.example.com",
            "http://127.0.0.1.example.com",
        ] {
            assert!(!local(url), "{url}");
        }
    }
}
