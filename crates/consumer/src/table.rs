//! The consumer's table: its client, its reads, and the pauses between attempts at a call.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, KeysAndAttributes, ScalarAttributeType,
};
use aws_types::SdkConfig;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::error::TableError;
use crate::items::{
    IncompleteItem, Item, PK, POSITION, PositionItem, RowItem, SK, WAITING, WaitingItem, incomplete_pk, position_pk,
    primary_key, read, row_key, waiting_sk,
};
use crate::message::{AggregateId, Number};
use crate::order::Messages;
use crate::rows::RowKey;

/// Maximum attempts of a read, the first one included.
const READ_ATTEMPTS: u32 = 4;

/// Time limit of one attempt. DynamoDB responds in milliseconds.
pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time limit of the warm-up: initialization must not wait for a service that does not respond.
const WARM_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum keys of a `BatchGetItem`.
const MAX_BATCH: usize = 100;

/// Maximum waiting messages that are read at a time.
const MAX_WAITING: i32 = 100;

/// The table of a consumer. Several consumers may share a table, because keys contain their names.
#[derive(Clone, Debug)]
pub struct ConsumerTable {
    pub(crate) client: Client,
    /// A client that sends each call once. It shares the connections of `client`.
    pub(crate) once: Client,
    pub(crate) table_name: String,
    pub(crate) consumer: &'static str,
}

/// The waiting messages of an aggregate.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) messages: Messages,
    /// When the first of them was stored.
    pub(crate) since: Option<String>,
    /// Whether there are more, which were not read.
    pub(crate) has_more: bool,
}

/// A row with the id of its last write.
#[derive(Clone, Debug)]
pub(crate) struct StoredRow {
    pub(crate) row: Value,
    pub(crate) write_id: String,
}

impl ConsumerTable {
    /// The rows of the consumer with this name in a table, at the endpoint of `aws`.
    pub(crate) fn new(aws: &SdkConfig, table_name: impl Into<String>, consumer: &'static str) -> Self {
        let config = aws_sdk_dynamodb::config::Builder::from(aws)
            .retry_config(RetryConfig::standard().with_max_attempts(READ_ATTEMPTS))
            .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIMEOUT).build());
        let client = Client::from_conf(config.build());
        let once = client.config().to_builder().retry_config(RetryConfig::disabled()).build();
        Self { client, once: Client::from_conf(once), table_name: table_name.into(), consumer }
    }

    /// Creates the table, unless it exists. For tests; a template creates the table of a deployment.
    pub async fn create(&self) -> Result<(), TableError> {
        let call = self.client.create_table().table_name(&self.table_name).billing_mode(BillingMode::PayPerRequest);
        let call = [(PK, KeyType::Hash), (SK, KeyType::Range)].into_iter().fold(call, |call, (name, key_type)| {
            let attribute =
                AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build();
            let key = KeySchemaElement::builder().attribute_name(name).key_type(key_type).build();
            call.attribute_definitions(attribute.expect("name and type are set"))
                .key_schema(key.expect("name and type are set"))
        });
        match call.send().await {
            Err(error) if !matches!(error.as_service_error(), Some(CreateTableError::ResourceInUseException(_))) => {
                Err(TableError::of_call("create the table", error))
            }
            _ => Ok(()),
        }
    }

    /// Reads an item that does not exist, with one attempt, so that the connection is open before the first invocation.
    pub async fn warm(&self) -> Result<(), TableError> {
        const DOING: &str = "open a connection";
        let key = primary_key(incomplete_pk(self.consumer), "#WARM".to_owned());
        let read = self.once.get_item().table_name(&self.table_name).set_key(Some(key));
        match timeout(WARM_TIMEOUT, read.send()).await {
            Ok(output) => output.map(drop).map_err(|error| TableError::of_call(DOING, error)),
            Err(elapsed) => Err(TableError::Unavailable { doing: DOING, source: elapsed.into() }),
        }
    }

    /// The row with this key, if it exists, strongly consistent.
    pub async fn row(&self, key: &RowKey) -> Result<Option<Value>, TableError> {
        let item = self.item(row_key(self.consumer, key), "read a row").await?;
        item.map(|item| Ok(stored_row(item)?.row)).transpose()
    }

    /// The rows of a partition in the order of `sort`, strongly consistent.
    pub async fn partition(&self, partition: &str) -> Result<Vec<(RowKey, Value)>, TableError> {
        let key = RowKey::new(partition, "");
        let Some(AttributeValue::S(pk)) = row_key(self.consumer, &key).remove(PK) else { return Ok(Vec::new()) };
        let items = self.query(pk, "").into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        let items = items.map_err(|error| TableError::of_call("read a partition", error))?;
        items.into_iter().map(|item| Ok((RowKey::new(partition, text(&item, SK)), stored_row(item)?.row))).collect()
    }

    /// The position of an aggregate, strongly consistent.
    pub(crate) async fn position(&self, aggregate: &AggregateId) -> Result<PositionItem, TableError> {
        let key = primary_key(position_pk(self.consumer, aggregate), POSITION.to_owned());
        self.item(key, "read a position").await?.map_or_else(|| Ok(PositionItem::default()), read)
    }

    /// The first waiting messages of an aggregate whose position is in this epoch, strongly consistent.
    pub(crate) async fn waiting(&self, aggregate: &AggregateId, epoch: u32) -> Result<Waiting, TableError> {
        let later = waiting_sk(Number { epoch: epoch.saturating_add(1), message_seq: 0 });
        let mut waiting = Waiting::default();
        // If not all are read, the next one may be the first of a later epoch, behind those of lost events.
        for from in [WAITING, &later] {
            let query = self.query(position_pk(self.consumer, aggregate), from).limit(MAX_WAITING);
            let page = query.send().await.map_err(|error| TableError::of_call("read waiting messages", error))?;
            waiting.has_more |= page.last_evaluated_key.is_some();
            for item in page.items.unwrap_or_default() {
                let name = format!("{} {}", text(&item, PK), text(&item, SK));
                let item: WaitingItem = read(item)?;
                let since = waiting.since.take();
                waiting.since = Some(since.map_or(item.stored_at.clone(), |since| since.min(item.stored_at.clone())));
                let message = item.message().map_err(|source| TableError::Corrupt { item: name, source })?;
                waiting.messages.insert(message.number(), message);
            }
            if !waiting.has_more {
                break;
            }
        }
        Ok(waiting)
    }

    /// Whether a message of an aggregate waits.
    pub(crate) async fn is_waiting(&self, aggregate: &AggregateId, number: Number) -> Result<bool, TableError> {
        let key = primary_key(position_pk(self.consumer, aggregate), waiting_sk(number));
        Ok(self.item(key, "read a waiting message").await?.is_some())
    }

    /// The aggregates whose messages wait, with the time since when they wait.
    pub(crate) async fn incomplete(&self) -> Result<Vec<(AggregateId, String)>, TableError> {
        let items = self.query(incomplete_pk(self.consumer), "").into_paginator().items().send();
        let items: Result<Vec<Item>, _> = items.collect().await;
        let items = items.map_err(|error| TableError::of_call("list aggregates that wait", error))?;
        let read = |item| {
            let IncompleteItem { aggregate_type, aggregate_id, since } = read(item)?;
            Ok((AggregateId { aggregate_type, id: aggregate_id }, since))
        };
        items.into_iter().map(read).collect()
    }

    /// The rows with these keys; `None` for a row that does not exist. Strongly consistent. Reads the rows that DynamoDB
    /// leaves out after a pause, until `cutoff`.
    pub(crate) async fn rows(
        &self,
        keys: BTreeSet<RowKey>,
        cutoff: Instant,
    ) -> Result<BTreeMap<RowKey, Option<StoredRow>>, TableError> {
        const DOING: &str = "read rows";
        let mut left: Vec<Item> = keys.iter().map(|key| row_key(self.consumer, key)).collect();
        let by_key: BTreeMap<_, _> = keys.iter().map(|key| (name_of(&row_key(self.consumer, key)), key)).collect();
        let mut rows: BTreeMap<_, _> = keys.iter().map(|key| (key.clone(), None)).collect();
        let mut pauses = Pauses::until(cutoff);
        while !left.is_empty() {
            let rest = left.split_off(left.len().min(MAX_BATCH));
            let request = KeysAndAttributes::builder().consistent_read(true).set_keys(Some(left)).build();
            let call = self.client.batch_get_item().request_items(&self.table_name, request.expect("keys are set"));
            let page = call.send().await.map_err(|error| TableError::of_call(DOING, error))?;
            for item in page.responses.into_iter().flatten().flat_map(|(_, items)| items) {
                if let Some(&key) = by_key.get(&name_of(&item)) {
                    rows.insert(key.clone(), Some(stored_row(item)?));
                }
            }
            // DynamoDB leaves out rows that exceed the size limit of a response, and rows of partitions that it throttles.
            let unprocessed = page.unprocessed_keys.into_iter().flatten().flat_map(|(_, keys)| keys.keys);
            left = unprocessed.collect();
            if !left.is_empty() && !pauses.wait().await {
                let source = "DynamoDB left keys unprocessed again and again".into();
                return Err(TableError::Unavailable { doing: DOING, source });
            }
            left.extend(rest);
        }
        Ok(rows)
    }

    async fn item(&self, key: Item, doing: &'static str) -> Result<Option<Item>, TableError> {
        let get = self.client.get_item().table_name(&self.table_name).set_key(Some(key)).consistent_read(true);
        Ok(get.send().await.map_err(|error| TableError::of_call(doing, error))?.item)
    }

    /// The items of a partition from a sort key on.
    fn query(&self, pk: String, from: &str) -> QueryFluentBuilder {
        let query = self.client.query().table_name(&self.table_name).consistent_read(true);
        let query = query.expression_attribute_values(":pk", AttributeValue::S(pk));
        if from.is_empty() {
            return query.key_condition_expression(format!("{PK} = :pk"));
        }
        query
            .key_condition_expression(format!("{PK} = :pk AND {SK} >= :from"))
            .expression_attribute_values(":from", AttributeValue::S(from.to_owned()))
    }
}

/// Creates the table of a consumer at the endpoint of `aws`, unless it exists. For tests and for stacks on a developer's
/// machine; a template creates the table of a deployment.
pub async fn create_table(aws: &SdkConfig, table_name: &str) -> Result<(), TableError> {
    ConsumerTable::new(aws, table_name, "").create().await
}

fn stored_row(item: Item) -> Result<StoredRow, TableError> {
    let name = name_of(&item);
    let RowItem { row, write_id } = read(item)?;
    let row = serde_json::from_str(&row);
    let row =
        row.map_err(|error| TableError::Corrupt { item: format!("{} {}", name.0, name.1), source: error.into() })?;
    Ok(StoredRow { row, write_id })
}

fn name_of(item: &Item) -> (String, String) {
    (text(item, PK), text(item, SK))
}

fn text(item: &Item, name: &str) -> String {
    item.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default()
}

/// Maximum length of the first pause.
const FIRST: Duration = Duration::from_millis(10);

/// Maximum length of every pause.
const LONGEST: Duration = Duration::from_millis(500);

/// Pauses that become longer. They end before the time of the invocation is up.
#[derive(Debug)]
pub(crate) struct Pauses {
    longest: Duration,
    cutoff: Instant,
}

impl Pauses {
    pub(crate) fn until(cutoff: Instant) -> Self {
        Self { longest: FIRST, cutoff }
    }

    /// Waits a random time. Returns `false`, without waiting, if the pause would not end before the cutoff.
    pub(crate) async fn wait(&mut self) -> bool {
        let pause = self.longest.mul_f64(fastrand::f64());
        self.longest = LONGEST.min(self.longest * 2);
        let has_time = Instant::now() + pause < self.cutoff;
        if has_time {
            sleep(pause).await;
        }
        has_time
    }
}
