//! The stack that an operation works on, which the environment variables of its functions select; and what CloudFormation knows of it.
//!
//! Invariant: for a deployed stack, no setting that decides which items an operation finds, sends or stores has a default. The
//! functions may run with another value; the operation would then miss items, or let snapshots expire that should stay.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use daybook_aws_clients::{
    CallMeter, DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, KMS_ENDPOINT, SQS_ENDPOINT, service_config,
};
use daybook_console::is_of_this_machine;
use daybook_decider::{Model, Registry};
use daybook_event_store::{EventStore, Sealing, StoreSettings};
use daybook_function_runtime::SdkConfig;
use daybook_projection::{ProjectionRegistrationError, Projections};
use daybook_settings::{Environment, SettingError};
use daybook_stream_relay::{BusCheck, RelaySettings, Resend};
use daybook_view_store::ViewStore;
use http::Uri;

use crate::discarded_objects::DiscardedObjects;
use crate::error::OperatorError;
use crate::pacing::Interrupt;
use crate::queues::StackQueue;
use crate::signed_calls::{SignedCalls, aws_config};

#[derive(Clone)]
pub struct Stack {
    pub environment: Environment,
    pub registry: Registry,
    pub projections: fn() -> Result<Projections, ProjectionRegistrationError>,
    pub interrupt: Interrupt,
    pub progress: Progress,
    /// Counts the calls to tables and queues.
    pub meter: Option<CallMeter>,
}

/// A function that gets the fraction that is done, if it is known, and the current activity.
pub type Progress = Arc<dyn Fn(Option<f64>, String) + Send + Sync>;

/// The environment variables of the settings that decide which items an operation finds, sends or stores.
pub type SettingNames = &'static [&'static str];

pub const SETTINGS_TO_FIND: SettingNames = &["EVENT_TYPE_SHARDS"];
pub const SETTINGS_TO_VERIFY: SettingNames = &["EVENT_TYPE_SHARDS", "EPOCH"];
pub const SETTINGS_TO_REPUBLISH: SettingNames = &["EVENT_TYPE_SHARDS", "FEED_DELAY_MS"];
pub const SETTINGS_TO_TAKE_SNAPSHOTS: SettingNames = &["EVENT_TYPE_SHARDS", "SNAPSHOT_EVERY"];
pub const SETTINGS_TO_IMPORT: SettingNames = &["EVENT_TYPE_SHARDS", "SNAPSHOT_EVERY", "EPOCH"];
pub const SETTINGS_TO_IMPORT_MESSAGES: SettingNames =
    &["EVENT_TYPE_SHARDS", "SNAPSHOT_EVERY", "EPOCH", "OUTBOX_TTL_DAYS"];

/// The environment variables of the queues: the dead-letter queue, and those of the projector and of the reactor.
pub const DEAD_LETTERS: &str = "DLQ_URL";
pub const CHANGES_QUEUE: &str = "CHANGES_QUEUE_URL";
pub const REACTIONS_QUEUE: &str = "REACTIONS_QUEUE_URL";

impl Stack {
    /// The stack that the environment names. Nothing shows the progress.
    pub fn new(
        environment: Environment,
        registry: Registry,
        projections: fn() -> Result<Projections, ProjectionRegistrationError>,
        interrupt: Interrupt,
    ) -> Self {
        Self { environment, registry, projections, interrupt, progress: Arc::new(|_, _| {}), meter: None }
    }

    fn read<T>(&self, read: impl FnOnce(&Environment) -> Result<T, SettingError>) -> Result<T, OperatorError> {
        read(&self.environment).map_err(OperatorError::Setting)
    }

    pub fn required(&self, name: &'static str) -> Result<String, OperatorError> {
        self.read(|given| given.required(name))
    }

    pub fn optional(&self, name: &str) -> Option<String> {
        self.environment.optional(name)
    }

    pub fn is_local(&self) -> bool {
        self.optional(DYNAMODB_ENDPOINT).is_some_and(|url| is_loopback(&url))
    }

    /// What to do after an interrupt; `None` without one.
    pub fn how_to_go_on(&self) -> Option<&'static str> {
        self.interrupt.is_cancelled().then_some("run it again")
    }

    pub fn first_events(&self) -> Vec<&str> {
        self.registry.iter().flat_map(Model::opening_events).collect()
    }

    /// The store's settings. For a deployed stack, those in `required` must be set.
    pub fn store_settings(&self, required: SettingNames) -> Result<StoreSettings, OperatorError> {
        self.read(|given| {
            let mut settings = StoreSettings::read(given)?;
            if !self.is_local() {
                required.iter().try_for_each(|name| given.required(name).map(drop))?;
            } else if given.optional("FEED_DELAY_MS").is_none() {
                settings.feed_delay = Duration::ZERO;
            }
            Ok(settings)
        })
    }

    async fn config(&self, endpoint_variable: &str) -> Result<SdkConfig, OperatorError> {
        let config = aws_config(&self.environment, endpoint_variable).await?;
        Ok(self.meter.as_ref().map_or_else(|| config.clone(), |meter| meter.metered(&config)))
    }

    /// The store over the table, with these [`store_settings`](Self::store_settings).
    pub async fn store(&self, required: SettingNames) -> Result<EventStore, OperatorError> {
        let settings = self.store_settings(required)?;
        let store = EventStore::new(&self.config(DYNAMODB_ENDPOINT).await?, settings);
        if self.optional("KEYS_TABLE_NAME").is_none() {
            return Ok(store);
        }
        let kms = aws_config(&self.environment, KMS_ENDPOINT).await?;
        self.read(|environment| store.with_keys(environment, &kms))
    }

    pub fn bus_settings(&self) -> Result<RelaySettings, OperatorError> {
        self.read(RelaySettings::read_bus)
    }

    /// A sender to the bus with a maximum of `per_second` messages per second. If it `sends`, checks that the bus exists, before
    /// anything is sent or deleted: EventBridge returns event ids for messages to a bus that does not exist. Without the
    /// permission for the check, the operation goes on.
    pub async fn bus(&self, per_second: NonZeroU32, sends: bool) -> Result<Resend, OperatorError> {
        let settings = self.bus_settings()?;
        let aws = self.config(EVENTBRIDGE_ENDPOINT).await?;
        let resend = Resend::new(daybook_stream_relay::clients::eventbridge(&aws), settings, per_second);
        match if sends { resend.check_bus().await } else { BusCheck::Exists } {
            BusCheck::Exists => {}
            BusCheck::Missing(missing) => return Err(OperatorError::NoSuchBus(missing)),
            BusCheck::Failed(reason) => {
                return Err(OperatorError::Failed(format!(
                    "cannot check that the event bus exists: {reason}; nothing was sent, run it again"
                )));
            }
            BusCheck::NotAllowed(reason) => tracing::warn!(reason, "whether the event bus exists was not checked"),
        }
        Ok(resend)
    }

    pub async fn discarded(&self) -> Result<DiscardedObjects, OperatorError> {
        DiscardedObjects::connect(&self.environment, self.required("DISCARDED_RECORDS_BUCKET")?).await
    }

    pub fn has_views(&self) -> bool {
        self.optional("VIEWS_TABLE_NAME").is_some()
    }

    pub async fn views(&self) -> Result<ViewStore, OperatorError> {
        let name = self.required("VIEWS_TABLE_NAME")?;
        // An operation reads how far the views are, and no values.
        Ok(ViewStore::new(&self.config(DYNAMODB_ENDPOINT).await?, name).with_sealing(&Sealing::leaving()))
    }

    /// Whether the stack has processes, whose reactor also gets changed aggregates.
    pub fn has_processes(&self) -> bool {
        self.optional("REACTOR").as_deref() == Some("processes")
    }

    /// The queue; `None` if it is not set, as for a stack without read models or without a reactor.
    pub async fn queue_if_set(&self, variable: &'static str) -> Result<Option<StackQueue>, OperatorError> {
        match self.optional(variable) {
            Some(_) => self.queue(variable).await.map(Some),
            None => Ok(None),
        }
    }

    pub async fn queue(&self, variable: &'static str) -> Result<StackQueue, OperatorError> {
        let url = self.required(variable)?;
        Ok(StackQueue::new(aws_sdk_sqs::Client::new(&self.config(SQS_ENDPOINT).await?), url))
    }

    pub fn table_name(&self) -> String {
        self.optional("TABLE_NAME").unwrap_or_default()
    }

    pub async fn missing_table(&self) -> OperatorError {
        let config = service_config(&self.environment, DYNAMODB_ENDPOINT).await;
        let (table, region) = (self.table_name(), config.region().map(ToString::to_string).unwrap_or_default());
        let endpoint = config.endpoint_url().map(|url| format!("the endpoint {url}"));
        let endpoint = endpoint.unwrap_or_else(|| "AWS's endpoint of the region".to_owned());
        OperatorError::Failed(format!(
            "the table {table:?} does not exist in the region {region}, at {endpoint}; check TABLE_NAME or --table, AWS_REGION and \
             AWS_ENDPOINT_URL_DYNAMODB"
        ))
    }
}

pub fn is_loopback(url: &str) -> bool {
    url.parse::<Uri>().is_ok_and(|url| url.host().is_some_and(is_of_this_machine))
}

/// The members of the description that are read.
const DESCRIBED: [&str; 6] =
    ["StackStatus", "LastUpdatedTime", "ParameterKey", "ParameterValue", "OutputKey", "OutputValue"];

/// Allows one update to replace the table.
const UPDATE_POLICY: &str =
    r#"{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "Update:*", "Resource": "*"}]}"#;

#[derive(Clone, Debug, Default)]
pub struct StackDescription {
    pub status: String,
    /// When its last update began; empty before the first one.
    pub updated: String,
    parameters: BTreeMap<String, String>,
    pub outputs: BTreeMap<String, String>,
}

impl StackDescription {
    /// The stack of this name; `None` if it does not exist.
    pub async fn read(cloudformation: &SignedCalls, name: &str) -> Result<Option<Self>, OperatorError> {
        let found = match cloudformation.query("DescribeStacks", &[("StackName", name)], &DESCRIBED).await {
            Err(OperatorError::Call { cause, .. }) if cause.contains("does not exist") => return Ok(None),
            found => found?,
        };
        let (mut stack, mut output, mut parameter) = (Self::default(), (None, None), String::new());
        for (name, text) in found {
            match name {
                "StackStatus" => stack.status = text,
                "LastUpdatedTime" => stack.updated = text,
                "ParameterKey" => parameter = text,
                "ParameterValue" => drop(stack.parameters.insert(parameter.clone(), text)),
                "OutputKey" => output.0 = Some(text),
                _ => output.1 = Some(text),
            }
            if let (Some(key), Some(value)) = &output {
                stack.outputs.insert(key.clone(), value.clone());
                output = (None, None);
            }
        }
        Ok(Some(stack))
    }

    pub fn output(&self, name: &str) -> &str {
        self.outputs.get(name).map(String::as_str).unwrap_or_default()
    }

    pub fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).map(String::as_str).unwrap_or_default()
    }

    pub fn settings_over(&self, environment: &Environment) -> Environment {
        let settings = self.output("OperatorEnvironment").split_whitespace();
        let settings = settings.filter_map(|setting| setting.split_once('='));
        settings.fold(environment.clone(), |environment, (name, value)| environment.with(name, value.to_owned()))
    }

    pub fn is_in_progress(&self) -> bool {
        self.status.ends_with("_IN_PROGRESS") && self.status != "REVIEW_IN_PROGRESS"
    }

    /// Begins an update with the template that is deployed, and with some other parameters. It may replace protected resources.
    pub(crate) async fn update(
        &self,
        cloudformation: &SignedCalls,
        name: &str,
        parameters: &[(&str, String)],
    ) -> Result<(), OperatorError> {
        let mut all: Vec<_> = [
            ("StackName", name),
            ("UsePreviousTemplate", "true"),
            ("Capabilities.member.1", "CAPABILITY_IAM"),
            ("Capabilities.member.2", "CAPABILITY_AUTO_EXPAND"),
            ("StackPolicyDuringUpdateBody", UPDATE_POLICY),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        for (number, key) in (1..).zip(self.parameters.keys()) {
            let changed =
                parameters.iter().find(|(name, _)| name == key).map(|(_, value)| ("ParameterValue", &**value));
            for (name, value) in [("ParameterKey", &**key), changed.unwrap_or(("UsePreviousValue", "true"))] {
                all.push((format!("Parameters.member.{number}.{name}"), value));
            }
        }
        cloudformation.query("UpdateStack", &all, &[]).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_endpoint_is_local() {
        for url in ["http://127.0.0.1:8000", "http://localhost:8000", "http://[::1]:8000/", "http://127.1.2.3"] {
            assert!(is_loopback(url), "{url}");
        }
        for url in [
            "",
            "https://dynamodb.eu-central-1.amazonaws.com",
            "http://10.0.0.1:8000",
            "http://localhost.example.com",
            "http://127.0.0.1.example.com",
        ] {
            assert!(!is_loopback(url), "{url}");
        }
    }
}
