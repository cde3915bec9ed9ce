//! The stack that is checked, and what the checks have created in it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use daybook_operations::signed_calls::{DYNAMODB, SQS};
use daybook_operations::{OperatorError, Stack};
use daybook_table::{AggregateKey, OutboxItem, attributes, keys};
use serde_json::{Value, json};
use ulid::Ulid;

use super::aws_calls::{AwsCalls, CallError};

pub(super) const MESSAGE_TYPE: &str = "DeploymentChecked";

/// DynamoDB deletes rows that the checks could not delete after this time.
const ROW_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The aggregate type of all rows and messages of the checks. The names of registered types begin with a letter or a digit.
pub(super) const CHECK_TYPE: &str = "__check";

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
    pub(super) observer: Observer,
    /// The URL of the queue without a rule; empty until there is one.
    pub(super) delay_queue: String,
}

/// A rule of the bus that sends the messages of a run to a queue of its own.
#[derive(Default)]
pub(super) struct Observer {
    pub(super) has_rule: bool,
    pub(super) has_queue: bool,
    /// Whether the rule has effect.
    pub(super) is_ready: bool,
    /// Empty until the response to the creation arrives.
    pub(super) queue_url: String,
    /// The messages that were received, as the bus delivered them.
    pub(super) received: Vec<Value>,
}

impl Deployment {
    pub(super) async fn connect(stack: &Stack, timeout: Duration) -> Result<Self, OperatorError> {
        let (store, relay) = (stack.store_settings(&["FEED_DELAY_MS"])?, stack.bus_settings()?);
        Ok(Self {
            stack: stack.clone(),
            calls: AwsCalls::connect(&stack.environment, stack.is_local()).await?,
            table: store.table_name,
            bus: relay.event_bus_name,
            source: relay.event_source,
            dlq_url: stack.required("DLQ_URL")?,
            feed_delay: store.feed_delay,
            timeout,
            run_id: Ulid::generate().to_string(),
            rows: Vec::new(),
            observer: Observer::default(),
            delay_queue: String::new(),
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
        self.rows.push((keys::pk(aggregate), sk.to_owned()));
        let mut row = row_key(&keys::pk(aggregate), sk);
        row[attributes::TTL] = json!({"N": expiry().to_string()});
        row
    }

    pub(super) fn outbox_row(&self, aggregate: &AggregateKey, number: u64, detail: &str) -> OutboxItem {
        let sk = keys::outbox_sk(number, 0);
        OutboxItem {
            pk: keys::pk(aggregate),
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

    /// Reads a row; `None` if it does not exist.
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

    /// A queue that gets only the messages that a check sends, which is deleted at the end.
    pub(super) async fn delay_queue(&mut self) -> Result<String, CallError> {
        let request = json!({"QueueName": format!("daybook-check-{}-delay", self.run_id)});
        let created = self.calls.call(SQS, "CreateQueue", request).await?;
        self.delay_queue = created["QueueUrl"].as_str().unwrap_or_default().to_owned();
        Ok(self.delay_queue.clone())
    }

    /// Returns what could not be deleted.
    async fn delete_delay_queue(&mut self) -> Option<String> {
        let url = Some(std::mem::take(&mut self.delay_queue)).filter(|url| !url.is_empty())?;
        let deleted = self.calls.call(SQS, "DeleteQueue", json!({"QueueUrl": url})).await;
        deleted.err().map(|error| format!("the queue {url}: {error}"))
    }

    /// Deletes what the checks have created. Returns what could not be deleted.
    pub(super) async fn clean_up(&mut self) -> Vec<String> {
        let mut left_over = self.delete_observer().await;
        left_over.extend(self.delete_delay_queue().await);
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
