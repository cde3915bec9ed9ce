//! The table, bus and queue of a command. The same environment variables as for the functions set them; some can also
//! be set by options.
//!
//! Invariant: for a deployed stack, no setting that decides which items a command finds, sends or stores has a default. The
//! functions may run with another value; the command would then miss items, or let snapshots expire that should stay.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use axum::http::Uri;
use clap::Args;
use daybook_event_store::{EventStore, StoreSettings};
use daybook_settings::{Environment, SettingError};
use daybook_stream_relay::{BusCheck, RelaySettings, Resend};
use daybook_view_store::ViewStore;
use serde_json::{Value, json};

use super::call_usage::CallMeter;
use super::changes_queue::ChangesQueue;
use super::checkpoint::CheckpointOwner;
use super::credentials::aws_config;
use super::dead_letter_queue::DeadLetterQueue;
use super::discarded_objects::DiscardedObjects;
use super::error::OperatorError;
use crate::aws::{DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT, service_config};
use crate::http::Signer;

/// The end of each operator command's `--help`.
pub const STACK_HELP: &str = "\
To select the stack:
  A deployed stack: its output OperatorEnvironment contains all settings. Load them into a separate shell that has access
  keys as credentials (docs/runbook.md, \"Before you begin\"):
    export STACK=daybook-prod
    export STACK $(aws cloudformation describe-stacks --stack-name $STACK --output text \\
      --query \"Stacks[0].Outputs[?OutputKey=='OperatorEnvironment'].OutputValue\")
  The local stack of `daybook dev`, in another shell than the one that runs it:
    export AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:8000 TABLE_NAME=daybook-dev
    export AWS_ENDPOINT_URL_EVENTBRIDGE=http://127.0.0.1:8001 EVENT_BUS_NAME=daybook EVENT_SOURCE=com.example.daybook
    export AWS_ENDPOINT_URL_SQS=http://127.0.0.1:8001 DLQ_URL=http://127.0.0.1:8001/000000000000/daybook-dlq
    export AWS_ENDPOINT_URL_S3=http://127.0.0.1:8001 DISCARDED_RECORDS_BUCKET=daybook-discarded
    export VIEWS_TABLE_NAME=daybook-dev-views CHANGES_QUEUE_URL=http://127.0.0.1:8001/000000000000/daybook-changes
  For the local stack, other settings have the defaults of the functions, except FEED_DELAY_MS, which is 0.

Exit status: 0 success, and nothing is wrong; 1 something is wrong or left over, and was printed; 2 a wrong option or
setting, or no region or credentials; 3 AWS did not allow or complete the operation or part of it, or the output could not
be written; 130 Ctrl-C or SIGTERM ended the command; 141 the reader of the output has closed it.";

/// Which table.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which stack")]
pub struct TableArgs {
    /// The table.
    #[arg(long, env = "TABLE_NAME", value_name = "NAME", hide_env_values = true)]
    pub table: Option<String>,
    /// The number of index partitions that hold the events of a type; the same value as for the functions.
    #[arg(long, env = "EVENT_TYPE_SHARDS", value_name = "N", hide_env_values = true)]
    pub event_type_shards: Option<String>,
}

/// Which bus.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which stack")]
pub struct BusArgs {
    /// The name or ARN of the bus.
    #[arg(long, env = "EVENT_BUS_NAME", value_name = "NAME", hide_env_values = true)]
    pub event_bus: Option<String>,
    /// The source of every message; the same value as for the relay.
    #[arg(long, env = "EVENT_SOURCE", value_name = "SOURCE", hide_env_values = true)]
    pub event_source: Option<String>,
}

/// Which queue.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which stack")]
pub struct QueueArgs {
    /// The URL of the dead-letter queue.
    #[arg(long, env = "DLQ_URL", value_name = "URL", hide_env_values = true)]
    pub dlq_url: Option<String>,
}

/// Which views.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which stack")]
pub struct ViewsArgs {
    /// The table of the views.
    #[arg(long, env = "VIEWS_TABLE_NAME", value_name = "NAME", hide_env_values = true)]
    pub views_table: Option<String>,
}

/// Which queue of the projector.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which stack")]
pub struct ChangesArgs {
    /// The URL of the projector's queue.
    #[arg(long, env = "CHANGES_QUEUE_URL", value_name = "URL", hide_env_values = true)]
    pub changes_queue_url: Option<String>,
}

/// Which bucket.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which stack")]
pub struct DiscardedArgs {
    /// The bucket of discarded records.
    #[arg(long, env = "DISCARDED_RECORDS_BUCKET", value_name = "NAME", hide_env_values = true)]
    pub discarded_bucket: Option<String>,
}

/// Which relay.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which stack")]
pub struct RelayArgs {
    /// The name of the relay's function.
    #[arg(long, env = "STREAM_RELAY_NAME", value_name = "NAME", hide_env_values = true)]
    pub relay_function: Option<String>,
    /// The log group of the relay.
    #[arg(long, env = "STREAM_RELAY_LOGS", value_name = "NAME", hide_env_values = true)]
    pub relay_logs: Option<String>,
}

/// The environment variables of some settings.
pub type SettingNames = &'static [&'static str];

/// The settings that decide which aggregates and messages a command finds.
pub const SETTINGS_TO_FIND: SettingNames = &["EVENT_TYPE_SHARDS"];

/// The settings that decide which aggregates `verify` finds, and which epochs their messages may have.
pub const SETTINGS_TO_VERIFY: SettingNames = &["EVENT_TYPE_SHARDS", "EPOCH"];

/// The settings that decide which events a command finds, and which part of a time window is settled.
pub const SETTINGS_TO_REPUBLISH: SettingNames = &["EVENT_TYPE_SHARDS", "FEED_DELAY_MS"];

/// The settings that decide which aggregates a command finds, which snapshots it takes, and how many older snapshots
/// stay.
pub const SETTINGS_TO_TAKE_SNAPSHOTS: SettingNames = &["EVENT_TYPE_SHARDS", "SNAPSHOT_EVERY", "SNAPSHOT_KEEP"];

/// The settings that decide how imported events are stored and verified.
pub const SETTINGS_TO_IMPORT: SettingNames = &["EVENT_TYPE_SHARDS", "SNAPSHOT_EVERY", "EPOCH"];

/// The settings that decide how imported events and their messages are stored.
pub const SETTINGS_TO_IMPORT_MESSAGES: SettingNames =
    &["EVENT_TYPE_SHARDS", "SNAPSHOT_EVERY", "EPOCH", "OUTBOX_TTL_DAYS"];

/// An option, the name of its variable, and its value; clap also fills the value from the variable.
struct TargetOption<'a> {
    flag: &'static str,
    name: &'static str,
    value: &'a Option<String>,
}

impl TableArgs {
    /// The store's settings. For a deployed stack, those in `required` must be set.
    ///
    /// # Errors
    ///
    /// When a setting is missing or wrong.
    pub fn settings(&self, environment: &Environment, required: SettingNames) -> Result<StoreSettings, OperatorError> {
        let options = [
            TargetOption { flag: "--table", name: "TABLE_NAME", value: &self.table },
            TargetOption { flag: "--event-type-shards", name: "EVENT_TYPE_SHARDS", value: &self.event_type_shards },
        ];
        read_settings(environment, &options, |given| {
            let mut settings = store_settings(given)?;
            if !is_local(environment, DYNAMODB_ENDPOINT) {
                required.iter().try_for_each(|name| given.required(name).map(drop))?;
            } else if given.optional("FEED_DELAY_MS").is_none() {
                settings.feed_delay = Duration::ZERO;
            }
            Ok(settings)
        })
    }

    /// The store over the table, with these [`settings`](Self::settings).
    ///
    /// # Errors
    ///
    /// Those of the settings, and when no region or credentials are set.
    pub async fn connect(
        &self,
        environment: &Environment,
        required: SettingNames,
    ) -> Result<EventStore, OperatorError> {
        let settings = self.settings(environment, required)?;
        Ok(EventStore::new(&aws_config(environment, DYNAMODB_ENDPOINT).await?, settings))
    }

    /// The same store, whose calls are counted.
    pub(crate) async fn connect_metered(
        &self,
        environment: &Environment,
        required: SettingNames,
        meter: &CallMeter,
    ) -> Result<EventStore, OperatorError> {
        let settings = self.settings(environment, required)?;
        Ok(EventStore::new(&meter.metered(aws_config(environment, DYNAMODB_ENDPOINT).await?), settings))
    }
}

impl ViewsArgs {
    /// The views; `None` if the table is not set, as for a stack without read models.
    pub(crate) async fn connect_if_set(&self, environment: &Environment) -> Result<Option<ViewStore>, OperatorError> {
        if self.views_table.is_none() && environment.optional("VIEWS_TABLE_NAME").is_none() {
            return Ok(None);
        }
        self.connect(environment, &CallMeter::default()).await.map(Some)
    }

    /// The name of the table.
    ///
    /// # Errors
    ///
    /// When it is missing.
    pub fn name(&self, environment: &Environment) -> Result<String, OperatorError> {
        let name = "VIEWS_TABLE_NAME";
        let options = [TargetOption { flag: "--views-table", name, value: &self.views_table }];
        read_settings(environment, &options, |given| given.required(name))
    }

    /// The views in the table, by calls that are counted.
    pub(crate) async fn connect(
        &self,
        environment: &Environment,
        meter: &CallMeter,
    ) -> Result<ViewStore, OperatorError> {
        let name = self.name(environment)?;
        Ok(ViewStore::new(&meter.metered(aws_config(environment, DYNAMODB_ENDPOINT).await?), name))
    }
}

impl ChangesArgs {
    /// The URL of the queue.
    ///
    /// # Errors
    ///
    /// When it is missing.
    pub fn url(&self, environment: &Environment) -> Result<String, OperatorError> {
        let name = "CHANGES_QUEUE_URL";
        let options = [TargetOption { flag: "--changes-queue-url", name, value: &self.changes_queue_url }];
        read_settings(environment, &options, |given| given.required(name))
    }

    /// The queue, by calls that are counted.
    pub(crate) async fn connect(
        &self,
        environment: &Environment,
        meter: &CallMeter,
    ) -> Result<ChangesQueue, OperatorError> {
        let url = self.url(environment)?;
        let config = meter.metered(aws_config(environment, SQS_ENDPOINT).await?);
        Ok(ChangesQueue::new(aws_sdk_sqs::Client::new(&config), url))
    }

    /// The queue; `None` if it is not set, as for a stack without read models.
    pub(crate) async fn connect_if_set(
        &self,
        environment: &Environment,
    ) -> Result<Option<ChangesQueue>, OperatorError> {
        if self.changes_queue_url.is_none() && environment.optional("CHANGES_QUEUE_URL").is_none() {
            return Ok(None);
        }
        self.connect(environment, &CallMeter::default()).await.map(Some)
    }
}

impl TableArgs {
    /// The name of the table, if it is set.
    pub(crate) fn name(&self, environment: &Environment) -> String {
        self.table.clone().or_else(|| environment.optional("TABLE_NAME")).unwrap_or_default()
    }

    /// The error of a call to a table that does not exist.
    pub(crate) async fn missing(&self, environment: &Environment) -> OperatorError {
        let [table, region, endpoint] = self.place(environment).await;
        OperatorError::MissingTable { table, region, endpoint }
    }

    /// The owner of a checkpoint: the command, the table, the number of index partitions, and the options in `options`, which
    /// must be a JSON object.
    pub(crate) async fn checkpoint_owner(
        &self,
        environment: &Environment,
        store: &EventStore,
        command: &str,
        mut options: Value,
    ) -> CheckpointOwner {
        let [table, region, endpoint] = self.place(environment).await;
        let shards = store.event_type_shards();
        let mut owner = json!({
            "command": command, "table": table, "region": region, "endpoint": endpoint, "EVENT_TYPE_SHARDS": shards,
        });
        [&mut owner, &mut options].into_iter().filter_map(Value::as_object_mut).flat_map(std::mem::take).collect()
    }

    /// The name of the table, its region and its endpoint.
    async fn place(&self, environment: &Environment) -> [String; 3] {
        let config = service_config(environment, DYNAMODB_ENDPOINT, None).await;
        let endpoint = config.endpoint_url().map(|url| format!("the endpoint {url}"));
        [
            self.name(environment),
            config.region().map(ToString::to_string).unwrap_or_default(),
            endpoint.unwrap_or_else(|| "AWS's endpoint of the region".to_owned()),
        ]
    }
}

impl BusArgs {
    /// The relay's settings, without the queue.
    ///
    /// # Errors
    ///
    /// When a setting is missing or wrong.
    pub fn settings(&self, environment: &Environment) -> Result<RelaySettings, OperatorError> {
        let options = [
            TargetOption { flag: "--event-bus", name: "EVENT_BUS_NAME", value: &self.event_bus },
            TargetOption { flag: "--event-source", name: "EVENT_SOURCE", value: &self.event_source },
        ];
        read_settings(environment, &options, RelaySettings::read_bus)
    }

    /// A sender to the bus with a maximum of `per_second` messages per second.
    ///
    /// # Errors
    ///
    /// Those of the [`settings`](Self::settings), and when no region or credentials are set.
    pub async fn connect(&self, environment: &Environment, per_second: NonZeroU32) -> Result<Resend, OperatorError> {
        let settings = self.settings(environment)?;
        let aws = aws_config(environment, EVENTBRIDGE_ENDPOINT).await?;
        Ok(Resend::new(daybook_stream_relay::clients::eventbridge(&aws), settings, per_second))
    }
}

/// Checks that the bus exists, before anything is sent or deleted: EventBridge returns event ids for messages to a bus that
/// does not exist. Without the permission for the check, the command goes on.
///
/// # Errors
///
/// When the bus does not exist, or the check has no result.
pub(crate) async fn check_bus(resend: &Resend) -> Result<(), OperatorError> {
    match resend.check_bus().await {
        BusCheck::Exists => Ok(()),
        BusCheck::Missing(missing) => Err(OperatorError::NoSuchBus(missing)),
        BusCheck::Failed(reason) => Err(OperatorError::BusNotChecked { reason }),
        BusCheck::NotAllowed(reason) => {
            tracing::warn!(reason, "whether the event bus exists was not checked");
            Ok(())
        }
    }
}

impl QueueArgs {
    /// The queue's URL.
    ///
    /// # Errors
    ///
    /// When it is missing.
    pub fn url(&self, environment: &Environment) -> Result<String, OperatorError> {
        let options = [TargetOption { flag: "--dlq-url", name: "DLQ_URL", value: &self.dlq_url }];
        read_settings(environment, &options, |given| given.required("DLQ_URL"))
    }

    /// The queue.
    ///
    /// # Errors
    ///
    /// When its URL is missing, or no region or credentials are set.
    pub async fn connect(&self, environment: &Environment) -> Result<DeadLetterQueue, OperatorError> {
        let url = self.url(environment)?;
        Ok(DeadLetterQueue::new(aws_sdk_sqs::Client::new(&aws_config(environment, SQS_ENDPOINT).await?), url))
    }
}

impl DiscardedArgs {
    /// The name of the bucket.
    ///
    /// # Errors
    ///
    /// When it is missing.
    pub fn name(&self, environment: &Environment) -> Result<String, OperatorError> {
        let name = "DISCARDED_RECORDS_BUCKET";
        let options = [TargetOption { flag: "--discarded-bucket", name, value: &self.discarded_bucket }];
        read_settings(environment, &options, |given| given.required(name))
    }

    pub(crate) async fn connect(&self, environment: &Environment) -> Result<DiscardedObjects, OperatorError> {
        DiscardedObjects::connect(environment, self.name(environment)?).await
    }
}

impl RelayArgs {
    /// The names of the function and of its log group.
    ///
    /// # Errors
    ///
    /// When one is missing.
    pub fn names(&self, environment: &Environment) -> Result<(String, String), OperatorError> {
        let name = "STREAM_RELAY_LOGS";
        let options = [TargetOption { flag: "--relay-logs", name, value: &self.relay_logs }];
        let function = self.function(environment)?;
        Ok((function, read_settings(environment, &options, |given| given.required(name))?))
    }

    /// The name of the function.
    ///
    /// # Errors
    ///
    /// When it is missing.
    pub fn function(&self, environment: &Environment) -> Result<String, OperatorError> {
        let name = "STREAM_RELAY_NAME";
        let options = [TargetOption { flag: "--relay-function", name, value: &self.relay_function }];
        read_settings(environment, &options, |given| given.required(name))
    }
}

/// Reads settings from the options, and the settings without an option value from the environment.
fn read_settings<T>(
    environment: &Environment,
    options: &[TargetOption<'_>],
    read: impl FnOnce(&Environment) -> Result<T, SettingError>,
) -> Result<T, OperatorError> {
    let given = options.iter().map(|option| (option.name, option.value.clone()));
    let others = ["SNAPSHOT_EVERY", "SNAPSHOT_KEEP", "OUTBOX_TTL_DAYS", "EPOCH", "FEED_DELAY_MS"];
    let all = given.chain(others.map(|name| (name, None)));
    let all = all.filter_map(|(name, value)| Some((name, value.or_else(|| environment.optional(name))?)));
    read(&all.collect()).map_err(|error| setting_error(environment, options, error))
}

/// Whether the environment names a loopback endpoint for the service, as for the local stack.
fn is_local(environment: &Environment, variable: &str) -> bool {
    environment.optional(variable).is_some_and(|url| is_loopback(&url))
}

/// Whether the environment names a table on this machine.
pub(crate) fn is_local_table(environment: &Environment) -> bool {
    is_local(environment, DYNAMODB_ENDPOINT)
}

/// Whether a URL is on this machine.
pub(crate) fn is_loopback(url: &str) -> bool {
    let uri = url.parse::<Uri>().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Signs requests to a service of AWS, with the operator's credentials.
pub(crate) async fn signer(
    environment: &Environment,
    variable: &str,
    service: &'static str,
) -> Result<Signer, OperatorError> {
    let config = aws_config(environment, variable).await?;
    let region = config.region().map(ToString::to_string).unwrap_or_default();
    let credentials = config.credentials_provider().expect("aws_config checks that there are credentials");
    Ok(Signer::new(credentials, region, service))
}

/// The error of a wrong setting. It names the option if that was given, or else the variable.
fn setting_error(environment: &Environment, options: &[TargetOption<'_>], error: SettingError) -> OperatorError {
    let (SettingError::Missing { name } | SettingError::Bad { name, .. }) = &error;
    let option = options.iter().find(|option| option.name == *name);
    if let (SettingError::Bad { value, expected, .. }, Some(option)) = (&error, option)
        && option.value.is_some()
        && *option.value != environment.optional(name)
    {
        return OperatorError::Usage(format!("{} is {value:?}, expected {expected}", option.flag));
    }
    let or_give = option.map(|option| format!(", or use {}", option.flag)).unwrap_or_default();
    OperatorError::Setting { or_give, error }
}

/// The store's settings: those of the command handler and of the snapshotter.
fn store_settings(environment: &Environment) -> Result<StoreSettings, SettingError> {
    let StoreSettings { snapshot_keep, .. } = daybook_snapshotter::store_settings(environment)?;
    Ok(StoreSettings { snapshot_keep, ..daybook_command_handler::store_settings(environment)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_endpoint_is_local() {
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
