//! The stack that an operation works on. The environment variables of its functions select it.
//!
//! Invariant: for a deployed stack, no setting that decides which items an operation finds, sends or stores has a default. The
//! functions may run with another value; the operation would then miss items, or let snapshots expire that should stay.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use daybook_decider::{Model, Registry};
use daybook_event_store::{EventStore, StoreSettings};
use daybook_local_stack::CallMeter;
use daybook_local_stack::http::{DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT, service_config};
use daybook_projection::{ProjectionRegistrationError, Projections};
use daybook_settings::{Environment, SettingError};
use daybook_stream_relay::{BusCheck, RelaySettings, Resend};
use daybook_view_store::ViewStore;
use http::Uri;
use serde_json::{Value, json};

use crate::checkpoint::CheckpointOwner;
use crate::discarded_objects::DiscardedObjects;
use crate::error::OperatorError;
use crate::pacing::Interrupt;
use crate::queues::{ChangesQueue, DeadLetterQueue};
use crate::signed_calls::aws_config;

/// The stack of an operation, with the aggregates and the projections of its project.
#[derive(Clone)]
pub struct Stack {
    pub environment: Environment,
    pub registry: Registry,
    pub projections: fn() -> Result<Projections, ProjectionRegistrationError>,
    /// Whether the operation must end.
    pub interrupt: Interrupt,
    pub progress: Progress,
}

/// A function that gets the fraction that is done, if it is known, and the current activity.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<ShowProgress>>);

type ShowProgress = dyn Fn(Option<f64>, String) + Send + Sync;

/// The environment variables of some settings.
pub type SettingNames = &'static [&'static str];
/// The settings that decide which aggregates and messages a command finds.
pub const SETTINGS_TO_FIND: SettingNames = &["EVENT_TYPE_SHARDS"];

/// The settings that decide which aggregates `verify` finds, and which epochs their messages may have.
pub const SETTINGS_TO_VERIFY: SettingNames = &["EVENT_TYPE_SHARDS", "EPOCH"];

/// The settings that decide which events a command finds, and which part of a time window is complete.
pub const SETTINGS_TO_REPUBLISH: SettingNames = &["EVENT_TYPE_SHARDS", "FEED_DELAY_MS"];

/// The settings that decide which aggregates a command finds, which snapshots it takes, and how many older snapshots
/// stay.
pub const SETTINGS_TO_TAKE_SNAPSHOTS: SettingNames = &["EVENT_TYPE_SHARDS", "SNAPSHOT_EVERY", "SNAPSHOT_KEEP"];

/// The settings that decide how imported events are stored and verified.
pub const SETTINGS_TO_IMPORT: SettingNames = &["EVENT_TYPE_SHARDS", "SNAPSHOT_EVERY", "EPOCH"];

/// The settings that decide how imported events and their messages are stored.
pub const SETTINGS_TO_IMPORT_MESSAGES: SettingNames =
    &["EVENT_TYPE_SHARDS", "SNAPSHOT_EVERY", "EPOCH", "OUTBOX_TTL_DAYS"];

impl Progress {
    pub fn new(show: impl Fn(Option<f64>, String) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(show)))
    }

    pub fn show(&self, fraction: Option<f64>, doing: String) {
        if let Self(Some(show)) = self {
            show(fraction, doing);
        }
    }
}

impl Stack {
    /// The stack that the environment names. Nothing shows the progress.
    pub fn new(
        environment: Environment,
        registry: Registry,
        projections: fn() -> Result<Projections, ProjectionRegistrationError>,
        interrupt: Interrupt,
    ) -> Self {
        Self { environment, registry, projections, interrupt, progress: Progress::default() }
    }

    fn read<T>(&self, read: impl FnOnce(&Environment) -> Result<T, SettingError>) -> Result<T, OperatorError> {
        read(&self.environment).map_err(|error| OperatorError::Setting { or_give: String::new(), error })
    }

    /// The value of an environment variable.
    pub fn required(&self, name: &'static str) -> Result<String, OperatorError> {
        self.read(|given| given.required(name))
    }

    /// The value of an environment variable, if it is set.
    pub fn optional(&self, name: &str) -> Option<String> {
        self.environment.optional(name)
    }

    pub fn is_local(&self) -> bool {
        is_local_table(&self.environment)
    }

    /// The types of the first events of all aggregates.
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

    /// The store over the table, with these [`store_settings`](Self::store_settings).
    pub async fn store(&self, required: SettingNames) -> Result<EventStore, OperatorError> {
        self.metered_store(required, &CallMeter::default()).await
    }

    /// The same store, whose calls are counted.
    pub async fn metered_store(&self, required: SettingNames, meter: &CallMeter) -> Result<EventStore, OperatorError> {
        let settings = self.store_settings(required)?;
        Ok(EventStore::new(&meter.metered(&aws_config(&self.environment, DYNAMODB_ENDPOINT).await?), settings))
    }

    pub fn bus_settings(&self) -> Result<RelaySettings, OperatorError> {
        self.read(RelaySettings::read_bus)
    }

    /// A sender to the bus with a maximum of `per_second` messages per second.
    pub async fn bus(&self, per_second: NonZeroU32) -> Result<Resend, OperatorError> {
        let settings = self.bus_settings()?;
        let aws = aws_config(&self.environment, EVENTBRIDGE_ENDPOINT).await?;
        Ok(Resend::new(daybook_stream_relay::clients::eventbridge(&aws), settings, per_second))
    }

    pub async fn dead_letters(&self) -> Result<DeadLetterQueue, OperatorError> {
        let url = self.required("DLQ_URL")?;
        Ok(DeadLetterQueue::new(aws_sdk_sqs::Client::new(&aws_config(&self.environment, SQS_ENDPOINT).await?), url))
    }

    pub async fn discarded(&self) -> Result<DiscardedObjects, OperatorError> {
        DiscardedObjects::connect(&self.environment, self.required("DISCARDED_RECORDS_BUCKET")?).await
    }

    pub fn has_views(&self) -> bool {
        self.optional("VIEWS_TABLE_NAME").is_some()
    }

    /// The views, by calls that are counted.
    pub async fn views(&self, meter: &CallMeter) -> Result<ViewStore, OperatorError> {
        let name = self.required("VIEWS_TABLE_NAME")?;
        Ok(ViewStore::new(&meter.metered(&aws_config(&self.environment, DYNAMODB_ENDPOINT).await?), name))
    }

    /// The projector's queue, by calls that are counted.
    pub async fn changes_queue(&self, meter: &CallMeter) -> Result<ChangesQueue, OperatorError> {
        let url = self.required("CHANGES_QUEUE_URL")?;
        let config = meter.metered(&aws_config(&self.environment, SQS_ENDPOINT).await?);
        Ok(ChangesQueue::new(aws_sdk_sqs::Client::new(&config), url))
    }

    /// The projector's queue; `None` if it is not set, as for a stack without read models.
    pub async fn changes_queue_if_set(&self) -> Result<Option<ChangesQueue>, OperatorError> {
        match self.optional("CHANGES_QUEUE_URL") {
            Some(_) => self.changes_queue(&CallMeter::default()).await.map(Some),
            None => Ok(None),
        }
    }

    pub fn table_name(&self) -> String {
        self.optional("TABLE_NAME").unwrap_or_default()
    }

    pub async fn missing_table(&self) -> OperatorError {
        let [table, region, endpoint] = self.place().await;
        OperatorError::MissingTable { table, region, endpoint }
    }

    /// The owner of a checkpoint: the command, the table, the number of index partitions, and the options in `options`, which
    /// must be a JSON object.
    pub async fn checkpoint_owner(&self, store: &EventStore, command: &str, mut options: Value) -> CheckpointOwner {
        let [table, region, endpoint] = self.place().await;
        let shards = store.settings().event_type_shards;
        let mut owner = json!({
            "command": command, "table": table, "region": region, "endpoint": endpoint, "EVENT_TYPE_SHARDS": shards,
        });
        [&mut owner, &mut options].into_iter().filter_map(Value::as_object_mut).flat_map(std::mem::take).collect()
    }

    async fn place(&self) -> [String; 3] {
        let config = service_config(&self.environment, DYNAMODB_ENDPOINT).await;
        let endpoint = config.endpoint_url().map(|url| format!("the endpoint {url}"));
        [
            self.table_name(),
            config.region().map(ToString::to_string).unwrap_or_default(),
            endpoint.unwrap_or_else(|| "AWS's endpoint of the region".to_owned()),
        ]
    }
}

/// Checks that the bus exists, before anything is sent or deleted: EventBridge returns event ids for messages to a bus that
/// does not exist. Without the permission for the check, the command goes on.
pub async fn check_bus(resend: &Resend) -> Result<(), OperatorError> {
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

pub fn is_local_table(environment: &Environment) -> bool {
    environment.optional(DYNAMODB_ENDPOINT).is_some_and(|url| is_loopback(&url))
}

pub fn is_loopback(url: &str) -> bool {
    let uri = url.parse::<Uri>().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

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
