//! The stack that is checked, and what the checks have created in it: rows, and a rule and a queue with which they see the messages on
//! the bus.

use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use daybook_operations::signed_calls::{DYNAMODB, EVENTBRIDGE, SQS};
use daybook_operations::{OperatorError, Stack};
use daybook_table::{AggregateKey, OutboxItem, attributes, keys};
use serde_json::{Value, json};
use tokio::time::Instant;
use ulid::Ulid;

use super::aws_calls::{AwsCalls, CallError};

pub(super) const MESSAGE_TYPE: &str = "DeploymentChecked";

/// DynamoDB deletes rows that the checks could not delete after this time.
const ROW_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The aggregate type of all rows and messages of the checks. The names of registered types begin with a letter or a digit.
const CHECK_TYPE: &str = "__check";

pub(super) const CANARY: &str = "__canary/deployments";

/// The source of the messages that the checks themselves send to the bus.
pub(super) const CHECK_SOURCE: &str = "daybook.check";

const TARGET: &str = "queue";

const WAIT_SECONDS: u32 = 1;

/// How long one message may take that shows whether the rule has effect, before the next is sent.
const PROBE_PAUSE: Duration = Duration::from_secs(2);

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
    observer: Observer,
    /// The URL of the queue without a rule; empty until there is one.
    delay_queue: String,
}

/// A rule of the bus that sends the messages of a run to a queue of its own.
#[derive(Default)]
struct Observer {
    has_rule: bool,
    has_queue: bool,
    /// Whether the rule has effect.
    is_ready: bool,
    /// Empty until the response to the creation arrives.
    queue_url: String,
    /// The messages that were received, as the bus delivered them.
    received: Vec<Value>,
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

    /// Makes sure that messages of this run reach the queue of the observer: creates it, and waits until its rule has effect,
    /// which takes up to a minute.
    pub(super) async fn observe(&mut self) -> Result<(), CallError> {
        if self.observer.is_ready {
            return Ok(());
        }
        let (name, prefix) = (self.observer_name(), format!("{CHECK_TYPE}/{}", self.run_id));
        let pattern = json!({"source": [self.source, CHECK_SOURCE], "resources": [{"prefix": prefix}, CANARY]});
        let rule = json!({
            "Name": name, "EventBusName": self.bus, "EventPattern": pattern.to_string(), "State": "ENABLED",
            "Description": "Created by daybook check-deployment or daybook deploy, which deletes it at its end.",
        });
        // It is noted before the call: an interrupted check leaves nothing behind.
        self.observer.has_rule = true;
        let created = self.calls.call(EVENTBRIDGE, "PutRule", rule).await;
        self.observer.has_rule = may_exist(&created);
        self.add_queue(&name, &created?["RuleArn"]).await?;
        let (ready, end) = (format!("{prefix}-ready"), Instant::now() + self.timeout);
        while Instant::now() < end {
            let entry = json!({
                "EventBusName": self.bus, "Source": CHECK_SOURCE, "DetailType": "Ready", "Detail": "{}", "Resources": [ready],
            });
            self.calls.call(EVENTBRIDGE, "PutEvents", json!({"Entries": [entry]})).await?;
            if !self.messages_of(&ready, PROBE_PAUSE, |messages| !messages.is_empty()).await?.is_empty() {
                self.observer.is_ready = true;
                return Ok(());
            }
        }
        Err(CallError::NotSeen { what: format!("the new rule delivered no message within {:?}", self.timeout) })
    }

    async fn add_queue(&mut self, name: &str, rule_arn: &Value) -> Result<(), CallError> {
        let policy = json!({"Version": "2012-10-17", "Statement": [{
            "Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage",
            "Resource": "*", "Condition": {"ArnEquals": {"aws:SourceArn": rule_arn}},
        }]});
        let attributes = json!({"MessageRetentionPeriod": "3600", "Policy": policy.to_string()});
        self.observer.has_queue = true;
        let created = self.calls.call(SQS, "CreateQueue", json!({"QueueName": name, "Attributes": attributes})).await;
        self.observer.has_queue = may_exist(&created);
        self.observer.queue_url = created?["QueueUrl"].as_str().unwrap_or_default().to_owned();
        let wanted = json!({"QueueUrl": self.observer.queue_url, "AttributeNames": ["QueueArn"]});
        let arn = self.calls.call(SQS, "GetQueueAttributes", wanted).await?["Attributes"]["QueueArn"].clone();
        let targets = json!({"Rule": name, "EventBusName": self.bus, "Targets": [{"Id": TARGET, "Arn": arn}]});
        self.calls.call(EVENTBRIDGE, "PutTargets", targets).await.map(drop)
    }

    /// Receives messages until `is_enough` is true for those of a resource, or until the time limit. Returns these.
    pub(super) async fn messages_of(
        &mut self,
        resource: &impl Display,
        limit: Duration,
        is_enough: impl Fn(&[Value]) -> bool,
    ) -> Result<Vec<Value>, CallError> {
        let (Self { calls, observer: Observer { queue_url, received, .. }, .. }, end) = (self, Instant::now() + limit);
        let resource = resource.to_string();
        loop {
            let of_resource = received.iter().filter(|message| message["resources"][0] == resource.as_str());
            let of_resource: Vec<_> = of_resource.cloned().collect();
            if is_enough(&of_resource) || Instant::now() >= end {
                return Ok(of_resource);
            }
            let request = json!({
                "QueueUrl": queue_url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": WAIT_SECONDS,
            });
            let response = calls.call(SQS, "ReceiveMessage", request).await?;
            for message in response["Messages"].as_array().into_iter().flatten() {
                let body = message["Body"].as_str().unwrap_or_default();
                received.push(serde_json::from_str(body).unwrap_or_default());
                let handle = json!({"QueueUrl": queue_url, "ReceiptHandle": message["ReceiptHandle"]});
                calls.call(SQS, "DeleteMessage", handle).await?;
            }
        }
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

    /// Returns what could not be deleted.
    async fn delete_delay_queue(&mut self) -> Option<String> {
        let url = Some(std::mem::take(&mut self.delay_queue)).filter(|url| !url.is_empty())?;
        let deleted = self.calls.call(SQS, "DeleteQueue", json!({"QueueUrl": url})).await;
        deleted.err().map(|error| format!("the queue {url}: {error}"))
    }

    /// Deletes the rule and the queue. Returns what could not be deleted.
    async fn delete_observer(&mut self) -> Vec<String> {
        let Observer { has_rule, has_queue, queue_url, .. } = std::mem::take(&mut self.observer);
        let (name, bus, calls) = (self.observer_name(), &self.bus, &self.calls);
        let mut left_over = Vec::new();
        if has_rule {
            let targets = json!({"Rule": name, "EventBusName": bus, "Ids": [TARGET]});
            let removed = calls.call(EVENTBRIDGE, "RemoveTargets", targets).await;
            let rule = json!({"Name": name, "EventBusName": bus});
            if let Err(error) = removed.and(calls.call(EVENTBRIDGE, "DeleteRule", rule).await) {
                left_over.push(format!("the rule {name} of the bus {bus}: {error}"));
            }
        }
        if has_queue && queue_url.is_empty() {
            left_over.push(format!("the queue {name}, if it was created: there was no response"));
        } else if has_queue && let Err(error) = calls.call(SQS, "DeleteQueue", json!({"QueueUrl": queue_url})).await {
            left_over.push(format!("the queue {queue_url}: {error}"));
        }
        left_over
    }

    fn observer_name(&self) -> String {
        format!("daybook-check-{}", self.run_id)
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

/// Whether a call may have created something: its response is not known to be an error.
fn may_exist(created: &Result<Value, CallError>) -> bool {
    !matches!(created, Err(CallError::Service { .. } | CallError::NoService(_)))
}
