//! The store itself: its client, its settings, its cache, and the requests that most reads are built on; and one aggregate in it,
//! the subject of loads, appends and snapshots.

use std::ops::RangeInclusive;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use aws_types::SdkConfig;
use daybook_decider::{Caller, DecisionInput, Meta, Model};
use daybook_settings::{Environment, SettingError};
use daybook_table::{AggregateKey, Clock, attributes, keys};
use jiff::Timestamp;
use tokio::time::timeout;
use ulid::Ulid;

use crate::cache::{Cache, Loaded};
use crate::checksum;
use crate::contention::Contention;
use crate::error::{Cause, StoreError};
use crate::item::{Item, row_key};
use crate::settle::{InFlight, SETTLE_WRITES};
use crate::subject_keys::{Sealing, SubjectKeys};
use crate::turns::Turns;

/// Maximum attempts of a read. Reads are idempotent, so the SDK repeats them; an append is decided again instead.
const READ_ATTEMPTS: u32 = 4;

/// Maximum of the first pause between attempts; the SDK's own default is a second.
const READ_BACKOFF: Duration = Duration::from_millis(50);

/// Time limit of one attempt of a read: DynamoDB responds in milliseconds, so a call that takes this long is better
/// repeated.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum difference between the clocks of writers and readers. Those of Lambda differ by milliseconds.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(2);

/// Maximum time by which the index lags behind the table. It is usually less than a second.
const INDEX_LAG: Duration = Duration::from_secs(3);

/// Time limit of the warm-up: initialization must not wait for a service that does not respond.
const WARM_TIMEOUT: Duration = Duration::from_secs(1);

/// A client whose reads have time limits and are repeated.
pub fn dynamodb_client(aws: &SdkConfig) -> Client {
    let config = aws_sdk_dynamodb::config::Builder::from(aws)
        .retry_config(RetryConfig::standard().with_max_attempts(READ_ATTEMPTS).with_initial_backoff(READ_BACKOFF))
        .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIMEOUT).build());
    Client::from_conf(config.build())
}

/// A client that sends each call once. It shares the connections of `client`. If a call turned retries off for itself, the
/// SDK would build a configuration for that call.
pub fn without_retries(client: &Client) -> Client {
    Client::from_conf(client.config().to_builder().retry_config(RetryConfig::disabled()).build())
}

/// The events and snapshots of all aggregates in one table.
///
/// There is one for each process, because it holds the cache of folded states and the turns of the process's requests.
#[derive(Debug)]
pub struct EventStore {
    pub(crate) client: Client,
    /// A client that sends each call once.
    pub(crate) once: Client,
    pub(crate) settings: StoreSettings,
    pub(crate) cache: Cache,
    pub(crate) turns: Turns,
    pub(crate) contention: Contention,
    pub(crate) in_flight: InFlight,
    pub(crate) clock: Clock,
    pub(crate) sealing: Sealing,
}

impl EventStore {
    /// A store over the table that `settings` names, at the endpoint that `aws` names.
    pub fn new(aws: &SdkConfig, settings: StoreSettings) -> Self {
        let client = dynamodb_client(aws);
        Self {
            once: without_retries(&client),
            client,
            settings,
            cache: Cache::default(),
            turns: Turns::default(),
            contention: Contention::default(),
            in_flight: InFlight::default(),
            clock: Clock::default(),
            sealing: Sealing::default(),
        }
    }

    pub(crate) fn table_name(&self) -> &str {
        &self.settings.table_name
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn settings(&self) -> &StoreSettings {
        &self.settings
    }

    /// Resolves credentials and opens a connection, so that the first request does not have to: reads an item that
    /// does not exist, with one attempt. After a failure, the first request tries again.
    pub async fn warm(&self) -> Result<(), StoreError> {
        const DOING: &str = "open a connection";
        let key = row_key("WARM".to_owned(), "WARM".to_owned());
        let read = self.once.get_item().table_name(&self.settings.table_name).set_key(Some(key));
        match timeout(WARM_TIMEOUT, read.send()).await {
            Ok(output) => output.map(drop).map_err(|error| StoreError::of_call(DOING, error)),
            Err(elapsed) => Err(StoreError::timed_out(DOING, elapsed)),
        }
    }

    /// Opens and seals personal values, if the environment names a table with keys; `kms` is the configuration of KMS.
    pub fn with_keys(mut self, environment: &Environment, kms: &SdkConfig) -> Result<Self, SettingError> {
        self.sealing.keys = SubjectKeys::read(environment, self.client.clone(), kms.clone())?;
        Ok(self)
    }

    /// What opens and seals personal values, for other stores of this process.
    pub fn sealing(&self) -> &Sealing {
        &self.sealing
    }

    pub fn with_cache(self, cache: Cache) -> Self {
        Self { cache, ..self }
    }

    /// Replaces the machine's clock. Events, their ids, and the rows that expire have the times of the clock.
    pub fn with_clock(self, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { clock: Clock::new(now), ..self }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The input of a decision at this time, with these metadata and caller, and of no other aggregate.
    pub fn decision_input(&self, meta: Meta, caller: Caller) -> DecisionInput {
        let seed = Ulid::from_datetime(self.now().into());
        let now = i64::try_from(seed.timestamp_ms()).unwrap_or_default();
        let now = Timestamp::from_millisecond(now).unwrap_or_default();
        DecisionInput::new(now, seed, meta, caller, self.settings.epoch)
    }

    pub(crate) fn stream<'a>(&'a self, model: &'a dyn Model, key: &'a AggregateKey) -> EventStream<'a> {
        EventStream { store: self, model, key }
    }

    /// The aggregate as this process last read or wrote it, without a call. Other processes may have written since, so
    /// only an append may use it, because the append's condition checks the version. It has no values that are forgotten.
    pub fn cached(&self, key: &AggregateKey) -> Option<Loaded> {
        let (loaded, since) = self.cache.get(key)?;
        if self.sealing.is_current(&loaded, since) {
            return Some(loaded);
        }
        self.cache.remove(key);
        None
    }

    /// One row of an aggregate, if it exists, with a strongly consistent read. `doing` is its purpose, for errors.
    pub async fn row(&self, doing: &'static str, key: &AggregateKey, sk: String) -> Result<Option<Item>, StoreError> {
        let get = self.client.get_item().table_name(&self.settings.table_name);
        let get = get.set_key(Some(row_key(keys::pk(key), sk))).consistent_read(true);
        // Boxed for the same reason as `load_with`: most writes contain this call and do not make it.
        Ok(Box::pin(get.send()).await.map_err(|error| StoreError::of_call(doing, error))?.item)
    }

    /// Puts a row in place of the one with this checksum, or where there is none. Returns the row that is there then. The client
    /// repeats a call whose response is lost, so a changed row may contain what this call has written.
    pub(crate) async fn replace_row(
        &self,
        doing: &'static str,
        checksum: Option<&AttributeValue>,
        row: Item,
    ) -> Result<Item, StoreError> {
        let put = self.client.put_item().table_name(&self.settings.table_name).set_item(Some(row.clone()));
        let (unchanged, values) = checksum::unchanged(checksum);
        let put = put.condition_expression(unchanged).set_expression_attribute_values(values);
        let put = put.expression_attribute_names("#sum", attributes::CHECKSUM);
        match put.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld).send().await {
            Ok(_) => Ok(row),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(changed)) => {
                    Ok(changed.item().cloned().unwrap_or_default())
                }
                _ => Err(StoreError::of_call(doing, error)),
            },
        }
    }

    /// The rows of an aggregate from one sort key to another, both included.
    pub fn rows_between(&self, key: &AggregateKey, first: String, last: String) -> QueryFluentBuilder {
        let condition = format!("{} = :pk AND {} BETWEEN :first AND :last", attributes::PK, attributes::SK);
        self.query(condition, [(":pk", keys::pk(key)), (":first", first), (":last", last)]).consistent_read(true)
    }

    /// The events of an index partition from one id to another, both included. An index cannot be read consistently.
    pub fn index_between(&self, partition: String, first: Ulid, last: Ulid) -> QueryFluentBuilder {
        let condition = format!("{} = :pk AND {} BETWEEN :first AND :last", attributes::GSI1PK, attributes::GSI1SK);
        let values = [(":pk", partition), (":first", keys::gsi1sk(first)), (":last", keys::gsi1sk(last))];
        self.query(condition, values).index_name(attributes::GSI1)
    }

    pub fn query<const N: usize>(&self, condition: String, values: [(&str, String); N]) -> QueryFluentBuilder {
        let values = values.map(|(name, value)| (name.to_owned(), AttributeValue::S(value)));
        let query = self.client.query().table_name(&self.settings.table_name);
        query.key_condition_expression(condition).set_expression_attribute_values(Some(Item::from(values)))
    }
}

#[derive(Clone, Copy)]
pub(crate) struct EventStream<'a> {
    pub(crate) store: &'a EventStore,
    pub(crate) model: &'a dyn Model,
    pub(crate) key: &'a AggregateKey,
}

impl EventStream<'_> {
    pub(crate) fn put_in_cache(&self, loaded: &Loaded) {
        if loaded.version() > 0 {
            self.store.cache.put(self.key, loaded);
        }
    }

    pub(crate) fn corrupt(&self, source: impl Into<Cause>) -> StoreError {
        StoreError::corrupt(self.key.to_string(), source)
    }

    pub(crate) fn corrupt_state(&self, source: impl Into<Cause>) -> StoreError {
        StoreError::corrupt(format!("the state of {}", self.key), source)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    pub table_name: String,
    pub snapshot_every: u64,
    pub outbox_ttl_days: i64,
    /// The number of index partitions over which the events of one type are spread.
    pub event_type_shards: u32,
    /// The epoch of new messages: a number that an operator raises after a restore of the table, because numbers of
    /// events and messages are then assigned again.
    pub epoch: u32,
    /// The time after its decision for which feeds hold back an event. It must be long enough for the event to become
    /// visible to every reader, including the difference between clocks. With less than the default, a reader can miss an
    /// event, unless one process with one clock writes and reads, and the index does not lag.
    pub feed_delay: Duration,
}

impl StoreSettings {
    /// The allowed values of [`outbox_ttl_days`](Self::outbox_ttl_days). A stream stores records for a day, and a row
    /// must outlive every attempt to relay it.
    pub const OUTBOX_TTL_DAYS: RangeInclusive<i64> = 2..=365;

    /// The allowed values of [`event_type_shards`](Self::event_type_shards).
    pub const EVENT_TYPE_SHARDS: RangeInclusive<u32> = 1..=64;

    pub const DEFAULT_FEED_DELAY: Duration = SETTLE_WRITES.saturating_add(CLOCK_DIFFERENCE).saturating_add(INDEX_LAG);

    pub fn new(table_name: impl Into<String>) -> Self {
        Self {
            table_name: table_name.into(),
            snapshot_every: 100,
            outbox_ttl_days: 7,
            event_type_shards: 1,
            epoch: 1,
            feed_delay: Self::DEFAULT_FEED_DELAY,
        }
    }

    /// Reads `TABLE_NAME` and the other settings. A function has the variables that it needs.
    pub fn read(environment: &Environment) -> Result<Self, SettingError> {
        let default = Self::new(environment.required("TABLE_NAME")?);
        let shards = Self::EVENT_TYPE_SHARDS;
        let feed_delay = u64::try_from(default.feed_delay.as_millis()).unwrap_or(u64::MAX);
        Ok(Self {
            snapshot_every: environment.number("SNAPSHOT_EVERY", default.snapshot_every, 1..=10_000)?,
            outbox_ttl_days: environment.number("OUTBOX_TTL_DAYS", default.outbox_ttl_days, Self::OUTBOX_TTL_DAYS)?,
            event_type_shards: environment.number("EVENT_TYPE_SHARDS", default.event_type_shards, shards)?,
            epoch: environment.number("EPOCH", default.epoch, 1..=1_000_000)?,
            feed_delay: Duration::from_millis(environment.number("FEED_DELAY_MS", feed_delay, 0..=600_000)?),
            table_name: default.table_name,
        })
    }
}
