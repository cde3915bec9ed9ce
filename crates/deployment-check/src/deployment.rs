//! The stack that is checked, and what the checks have created in it.

use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use daybook_operations::signed_calls::DYNAMODB;
use daybook_operations::{OperatorError, Stack};
use daybook_table::{AggregateKey, OutboxItem, attributes, keys};
use serde_json::{Value, json};
use ulid::Ulid;

use super::aws_calls::{AwsCalls, CallError};
use super::observer::{CHECK_TYPE, Observer};

pub(super) const MESSAGE_TYPE: &str = "DeploymentChecked";

/// DynamoDB deletes rows that the checks could not delete after this time.
const ROW_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) struct Deployment {
    pub(super) stack: Stack,
    pub(super) calls: AwsCalls,
    pub(super) table: String,
    pub(super) bus: String,
    pub(super) source: String,
    pub(super) dlq_url: String,
    pub(super) feed_delay: Duration,
    pub(super) timeout: Duration,
    /// The beginning of the ids of this run.
    pub(super) run_id: String,
    /// The keys of the rows that the checks have written.
    rows: Vec<(String, String)>,
    /// The rule and the queue, once a check needs them.
    observer: Option<Observer>,
}

impl Deployment {
    pub(super) async fn connect(stack: &Stack, timeout: Duration) -> Result<Self, OperatorError> {
        let (store, relay) = (stack.store_settings(&["FEED_DELAY_MS"])?, stack.bus_settings()?);
        Ok(Self {
            stack: stack.clone(),
            calls: AwsCalls::connect(stack).await?,
            table: store.table_name,
            bus: relay.event_bus_name,
            source: relay.event_source,
            dlq_url: stack.required("DLQ_URL")?,
            feed_delay: store.feed_delay,
            timeout,
            run_id: Ulid::generate().to_string(),
            rows: Vec::new(),
            observer: None,
        })
    }

    pub(super) async fn dynamodb(&self, operation: &str, body: Value) -> Result<Value, CallError> {
        self.calls.call(DYNAMODB, operation, body).await
    }

    pub(super) fn aggregate(&self, check: &str) -> AggregateKey {
        AggregateKey::new(CHECK_TYPE, format!("{}-{check}", self.run_id))
    }

    /// A row of an aggregate, which is deleted at the end.
    pub(super) fn row(&mut self, aggregate: &AggregateKey, sk: &str) -> Value {
        self.rows.push((aggregate.pk(), sk.to_owned()));
        let mut row = row_key(&aggregate.pk(), sk);
        row[attributes::TTL] = json!({"N": expiry().to_string()});
        row
    }

    pub(super) fn outbox_row(&self, aggregate: &AggregateKey, number: u64, detail: &str) -> OutboxItem {
        let sk = keys::outbox_sk(number, 0);
        OutboxItem {
            pk: aggregate.pk(),
            sk,
            message_id: Ulid::generate().to_string(),
            message_type: MESSAGE_TYPE.to_owned(),
            message_seq: number,
            detail: detail.to_owned(),
            occurred_at: jiff::Timestamp::now().to_string(),
            seq_num: number,
            ttl: expiry(),
            trace_header: None,
        }
    }

    /// Puts an outbox row, which is deleted at the end.
    pub(super) async fn put_outbox_row(&mut self, item: &OutboxItem) -> Result<(), CallError> {
        self.rows.push((item.pk.clone(), item.sk.clone()));
        let row = serde_dynamo::to_item::<_, serde_dynamo::Item>(item).ok();
        self.put(row.and_then(|row| serde_json::to_value(row).ok()).unwrap_or_default()).await
    }

    pub(super) async fn put(&self, row: Value) -> Result<(), CallError> {
        self.dynamodb("PutItem", json!({"TableName": self.table, "Item": row})).await.map(drop)
    }

    pub(super) async fn delete(&self, pk: &str, sk: &str) -> Result<(), CallError> {
        let request = json!({"TableName": self.table, "Key": row_key(pk, sk)});
        self.dynamodb("DeleteItem", request).await.map(drop)
    }

    pub(super) async fn get(&self, row: &Value) -> Result<Option<Value>, CallError> {
        let key = json!({attributes::PK: row[attributes::PK], attributes::SK: row[attributes::SK]});
        let request = json!({"TableName": self.table, "Key": key, "ConsistentRead": true});
        Ok(self.dynamodb("GetItem", request).await?.get("Item").cloned())
    }

    /// The part of a transaction that puts a row that must not exist. If it does, the cancellation reason has its item.
    pub(super) fn put_new(&self, row: &Value) -> Value {
        json!({"Put": {
            "TableName": self.table, "Item": row,
            "ConditionExpression": format!("attribute_not_exists({})", attributes::PK),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }})
    }

    /// Makes sure that messages of this run reach the queue of the observer: creates it, and waits until its rule has effect,
    /// which takes up to a minute.
    pub(super) async fn observe(&mut self) -> Result<(), CallError> {
        let (bus, source, run_id) = (&self.bus, &self.source, &self.run_id);
        let observer = self.observer.get_or_insert_with(|| Observer::new(bus, source, run_id));
        // The observer is stored before its first call: an interrupted check leaves nothing behind.
        observer.start(&self.calls, self.timeout).await
    }

    /// Waits until the queue of the observer has received messages for which `is_enough` is true. Returns the messages with
    /// a resource.
    pub(super) async fn messages_of(
        &mut self,
        aggregate: &impl Display,
        limit: Duration,
        is_enough: impl Fn(&[Value]) -> bool,
    ) -> Result<Vec<Value>, CallError> {
        let Some(observer) = &mut self.observer else { return Ok(Vec::new()) };
        observer.wait_for(&self.calls, &aggregate.to_string(), limit, is_enough).await
    }

    /// Deletes what the checks have created. Returns what could not be deleted.
    pub(super) async fn clean_up(&mut self) -> Vec<String> {
        let mut left_over = Vec::new();
        if let Some(observer) = self.observer.take() {
            left_over.extend(observer.delete(&self.calls).await);
        }
        for (pk, sk) in std::mem::take(&mut self.rows) {
            if let Err(error) = self.delete(&pk, &sk).await {
                left_over.push(format!("the row {pk} {sk}, which expires in a day: {error}"));
            }
        }
        left_over
    }
}

fn row_key(pk: &str, sk: &str) -> Value {
    json!({attributes::PK: {"S": pk}, attributes::SK: {"S": sk}})
}

/// When rows of the checks expire, in seconds since 1970.
fn expiry() -> i64 {
    let at = SystemTime::now() + ROW_LIFETIME;
    i64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}
