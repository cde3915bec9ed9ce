//! The stack of a command. The same environment variables as for the functions set it; some settings can also be given as
//! options.
//!
//! Invariant: for a deployed stack, no setting that decides which items a command finds, sends or stores has a default. The
//! functions may run with another value; the command would then miss items, or let snapshots expire that should stay.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use axum::http::Uri;
use clap::{Arg, Args, Command};
use daybook_event_store::{EventStore, StoreSettings};
use daybook_local_stack::aws::{DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT, service_config};
use daybook_local_stack::http::Signer;
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

/// The stack of a command. Every command has all of these options, and reads those that it needs.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which stack (a command requires only what it uses)")]
pub struct StackArgs {
    /// The table.
    #[arg(long, env = "TABLE_NAME", value_name = "NAME", hide_env_values = true)]
    pub table: Option<String>,
    /// The number of index partitions that hold the events of a type; the same value as for the functions.
    #[arg(long, env = "EVENT_TYPE_SHARDS", value_name = "N", hide_env_values = true)]
    pub event_type_shards: Option<String>,
    /// The name or ARN of the bus.
    #[arg(long, env = "EVENT_BUS_NAME", value_name = "NAME", hide_env_values = true)]
    pub event_bus: Option<String>,
    /// The source of every message; the same value as for the relay.
    #[arg(long, env = "EVENT_SOURCE", value_name = "SOURCE", hide_env_values = true)]
    pub event_source: Option<String>,
    /// The URL of the dead-letter queue.
    #[arg(long, env = "DLQ_URL", value_name = "URL", hide_env_values = true)]
    pub dlq_url: Option<String>,
    /// The table of the views.
    #[arg(long, env = "VIEWS_TABLE_NAME", value_name = "NAME", hide_env_values = true)]
    pub views_table: Option<String>,
    /// The URL of the projector's queue.
    #[arg(long, env = "CHANGES_QUEUE_URL", value_name = "URL", hide_env_values = true)]
    pub changes_queue_url: Option<String>,
    /// The bucket of discarded records.
    #[arg(long, env = "DISCARDED_RECORDS_BUCKET", value_name = "NAME", hide_env_values = true)]
    pub discarded_bucket: Option<String>,
    /// The name of the relay's function.
    #[arg(long, env = "STREAM_RELAY_NAME", value_name = "NAME", hide_env_values = true)]
    pub relay_function: Option<String>,
    /// The log group of the relay.
    #[arg(long, env = "STREAM_RELAY_LOGS", value_name = "NAME", hide_env_values = true)]
    pub relay_logs: Option<String>,
    /// The name of the stack, for its alarms.
    #[arg(long, env = "STACK", value_name = "NAME", hide_env_values = true)]
    pub stack: Option<String>,
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

impl StackArgs {
    /// The value of each option with the variable for the same setting.
    fn values(&self) -> [(&'static str, &Option<String>); 11] {
        [
            ("TABLE_NAME", &self.table),
            ("EVENT_TYPE_SHARDS", &self.event_type_shards),
            ("EVENT_BUS_NAME", &self.event_bus),
            ("EVENT_SOURCE", &self.event_source),
            ("DLQ_URL", &self.dlq_url),
            ("VIEWS_TABLE_NAME", &self.views_table),
            ("CHANGES_QUEUE_URL", &self.changes_queue_url),
            ("DISCARDED_RECORDS_BUCKET", &self.discarded_bucket),
            ("STREAM_RELAY_NAME", &self.relay_function),
            ("STREAM_RELAY_LOGS", &self.relay_logs),
            ("STACK", &self.stack),
        ]
    }

    /// The environment, with the options in place of their variables.
    fn over(&self, environment: &Environment) -> Environment {
        let given = self.values().into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
        given.fold(environment.clone(), |environment, (name, value)| environment.with(name, value))
    }

    /// Reads settings. An error names the option if that was given, or else the variable.
    fn read<T>(
        &self,
        environment: &Environment,
        read: impl FnOnce(&Environment) -> Result<T, SettingError>,
    ) -> Result<T, OperatorError> {
        read(&self.over(environment)).map_err(|error| {
            let (SettingError::Missing { name } | SettingError::Bad { name, .. }) = &error;
            let flag = flag(name);
            if let (SettingError::Bad { value, expected, .. }, Some(flag)) = (&error, &flag)
                && self.optional(environment, name) != environment.optional(name)
            {
                return OperatorError::Usage(format!("{flag} is {value:?}, expected {expected}"));
            }
            OperatorError::Setting { or_give: flag.map(|flag| format!(", or use {flag}")).unwrap_or_default(), error }
        })
    }

    fn required(&self, environment: &Environment, name: &'static str) -> Result<String, OperatorError> {
        self.read(environment, |given| given.required(name))
    }

    fn optional(&self, environment: &Environment, name: &str) -> Option<String> {
        self.over(environment).optional(name)
    }

    /// The store's settings. For a deployed stack, those in `required` must be set.
    pub fn store_settings(
        &self,
        environment: &Environment,
        required: SettingNames,
    ) -> Result<StoreSettings, OperatorError> {
        self.read(environment, |given| {
            let mut settings = store_settings(given)?;
            if !is_local_table(environment) {
                required.iter().try_for_each(|name| given.required(name).map(drop))?;
            } else if given.optional("FEED_DELAY_MS").is_none() {
                settings.feed_delay = Duration::ZERO;
            }
            Ok(settings)
        })
    }

    /// The store over the table, with these [`store_settings`](Self::store_settings).
    pub(crate) async fn store(
        &self,
        environment: &Environment,
        required: SettingNames,
    ) -> Result<EventStore, OperatorError> {
        let settings = self.store_settings(environment, required)?;
        Ok(EventStore::new(&aws_config(environment, DYNAMODB_ENDPOINT).await?, settings))
    }

    /// The same store, whose calls are counted.
    pub(crate) async fn metered_store(
        &self,
        environment: &Environment,
        required: SettingNames,
        meter: &CallMeter,
    ) -> Result<EventStore, OperatorError> {
        let settings = self.store_settings(environment, required)?;
        Ok(EventStore::new(&meter.metered(aws_config(environment, DYNAMODB_ENDPOINT).await?), settings))
    }

    /// The relay's settings, without the queue.
    pub fn bus_settings(&self, environment: &Environment) -> Result<RelaySettings, OperatorError> {
        self.read(environment, RelaySettings::read_bus)
    }

    /// A sender to the bus with a maximum of `per_second` messages per second.
    pub(crate) async fn bus(&self, environment: &Environment, per_second: NonZeroU32) -> Result<Resend, OperatorError> {
        let settings = self.bus_settings(environment)?;
        let aws = aws_config(environment, EVENTBRIDGE_ENDPOINT).await?;
        Ok(Resend::new(daybook_stream_relay::clients::eventbridge(&aws), settings, per_second))
    }

    /// The URL of the dead-letter queue.
    pub fn dlq_url(&self, environment: &Environment) -> Result<String, OperatorError> {
        self.required(environment, "DLQ_URL")
    }

    /// The dead-letter queue.
    pub(crate) async fn dead_letters(&self, environment: &Environment) -> Result<DeadLetterQueue, OperatorError> {
        let url = self.dlq_url(environment)?;
        Ok(DeadLetterQueue::new(aws_sdk_sqs::Client::new(&aws_config(environment, SQS_ENDPOINT).await?), url))
    }

    /// The bucket of discarded records.
    pub fn discarded_bucket(&self, environment: &Environment) -> Result<String, OperatorError> {
        self.required(environment, "DISCARDED_RECORDS_BUCKET")
    }

    /// The discarded records.
    pub(crate) async fn discarded(&self, environment: &Environment) -> Result<DiscardedObjects, OperatorError> {
        DiscardedObjects::connect(environment, self.discarded_bucket(environment)?).await
    }

    /// Whether the stack has read models.
    pub(crate) fn has_views(&self, environment: &Environment) -> bool {
        self.optional(environment, "VIEWS_TABLE_NAME").is_some()
    }

    /// The name of the table of the views.
    pub fn views_table(&self, environment: &Environment) -> Result<String, OperatorError> {
        self.required(environment, "VIEWS_TABLE_NAME")
    }

    /// The views, by calls that are counted.
    pub(crate) async fn views(&self, environment: &Environment, meter: &CallMeter) -> Result<ViewStore, OperatorError> {
        let name = self.views_table(environment)?;
        Ok(ViewStore::new(&meter.metered(aws_config(environment, DYNAMODB_ENDPOINT).await?), name))
    }

    /// The URL of the projector's queue.
    pub fn changes_queue_url(&self, environment: &Environment) -> Result<String, OperatorError> {
        self.required(environment, "CHANGES_QUEUE_URL")
    }

    /// The projector's queue, by calls that are counted.
    pub(crate) async fn changes_queue(
        &self,
        environment: &Environment,
        meter: &CallMeter,
    ) -> Result<ChangesQueue, OperatorError> {
        let url = self.changes_queue_url(environment)?;
        let config = meter.metered(aws_config(environment, SQS_ENDPOINT).await?);
        Ok(ChangesQueue::new(aws_sdk_sqs::Client::new(&config), url))
    }

    /// The projector's queue; `None` if it is not set, as for a stack without read models.
    pub(crate) async fn changes_queue_if_set(
        &self,
        environment: &Environment,
    ) -> Result<Option<ChangesQueue>, OperatorError> {
        match self.optional(environment, "CHANGES_QUEUE_URL") {
            Some(_) => self.changes_queue(environment, &CallMeter::default()).await.map(Some),
            None => Ok(None),
        }
    }

    /// The name of the relay's function.
    pub fn relay_function(&self, environment: &Environment) -> Result<String, OperatorError> {
        self.required(environment, "STREAM_RELAY_NAME")
    }

    /// The log group of the relay.
    pub fn relay_logs(&self, environment: &Environment) -> Result<String, OperatorError> {
        self.required(environment, "STREAM_RELAY_LOGS")
    }

    /// The name of the stack, if it is set.
    pub(crate) fn stack_name(&self, environment: &Environment) -> Option<String> {
        self.optional(environment, "STACK")
    }

    /// The name of the table, if it is set.
    pub(crate) fn table_name(&self, environment: &Environment) -> String {
        self.optional(environment, "TABLE_NAME").unwrap_or_default()
    }

    /// The error of a call to a table that does not exist.
    pub(crate) async fn missing_table(&self, environment: &Environment) -> OperatorError {
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
            self.table_name(environment),
            config.region().map(ToString::to_string).unwrap_or_default(),
            endpoint.unwrap_or_else(|| "AWS's endpoint of the region".to_owned()),
        ]
    }
}

/// The option for the setting of a variable, as on the command line.
fn flag(variable: &str) -> Option<String> {
    let command = StackArgs::augment_args(Command::new("stack"));
    let option = command.get_arguments().find(|arg| arg.get_env().is_some_and(|name| name == variable));
    option.and_then(Arg::get_long).map(|long| format!("--{long}"))
}

/// Checks that the bus exists, before anything is sent or deleted: EventBridge returns event ids for messages to a bus that
/// does not exist. Without the permission for the check, the command goes on.
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

/// Whether the environment names a table on this machine.
pub(crate) fn is_local_table(environment: &Environment) -> bool {
    environment.optional(DYNAMODB_ENDPOINT).is_some_and(|url| is_loopback(&url))
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

/// The store's settings: those of the command handler and of the snapshotter.
fn store_settings(environment: &Environment) -> Result<StoreSettings, SettingError> {
    let StoreSettings { snapshot_keep, .. } = daybook_snapshotter::store_settings(environment)?;
    Ok(StoreSettings { snapshot_keep, ..daybook_command_handler::store_settings(environment)? })
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    #[test]
    fn each_option_replaces_its_variable() {
        let command = StackArgs::augment_args(Command::new("stack"));
        let longs: Vec<_> = command.get_arguments().map(|arg| arg.get_long().unwrap().to_owned()).collect();
        let words = longs.iter().flat_map(|long| [format!("--{long}"), format!("value of --{long}")]);
        let matches = command.get_matches_from(std::iter::once("stack".to_owned()).chain(words));
        let args = StackArgs::from_arg_matches(&matches).unwrap();
        let environment = args.over(&[("TABLE_NAME", "other"), ("EPOCH", "3")].into_iter().collect());
        assert_eq!(args.values().len(), longs.len());
        for (name, _) in args.values() {
            assert_eq!(environment.optional(name), flag(name).map(|flag| format!("value of {flag}")), "{name}");
        }
        assert_eq!(environment.optional("EPOCH").as_deref(), Some("3"));
    }

    #[test]
    fn loopback_endpoint_is_local() {
        let local = |url: &str| is_local_table(&[(DYNAMODB_ENDPOINT, url)].into_iter().collect());
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
