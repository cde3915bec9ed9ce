//! A rule and a queue, with which the checks see the messages on the bus.

use std::time::Duration;

use daybook_operations::signed_calls::{EVENTBRIDGE, SQS};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::aws_calls::{AwsCalls, CallError};

/// The aggregate type of all rows and messages of the checks. The names of registered types begin with a letter or a digit.
pub(super) const CHECK_TYPE: &str = "__check";

/// The aggregate that each deployment writes.
pub(super) const CANARY: &str = "__canary/deployments";

/// The source of the messages that the checks themselves send to the bus.
pub(super) const CHECK_SOURCE: &str = "daybook.check";

const TARGET: &str = "queue";

const WAIT_SECONDS: u32 = 1;

/// How long one message may take that shows whether the rule has effect, before the next is sent.
const PROBE_PAUSE: Duration = Duration::from_secs(2);

/// A rule of the bus that sends the messages of this run to a queue of its own.
#[derive(Default)]
pub(super) struct Observer {
    name: String,
    bus: String,
    pattern: Value,
    /// The aggregate name in the messages that show whether the rule has effect.
    ready: String,
    started: bool,
    has_rule: bool,
    has_queue: bool,
    /// Empty until the response to the creation arrives.
    queue_url: String,
    /// The messages that were received, as the bus delivered them.
    received: Vec<Value>,
}

impl Observer {
    /// An observer of the messages of a run. It makes no call yet.
    pub(super) fn new(bus: &str, source: &str, run_id: &str) -> Self {
        let prefix = format!("{CHECK_TYPE}/{run_id}");
        Self {
            name: format!("daybook-check-{run_id}"),
            bus: bus.to_owned(),
            ready: format!("{prefix}-ready"),
            pattern: json!({"source": [source, CHECK_SOURCE], "resources": [{"prefix": prefix}, CANARY]}),
            ..Self::default()
        }
    }

    /// Creates the rule and the queue, and waits until the rule has effect.
    pub(super) async fn start(&mut self, calls: &AwsCalls, limit: Duration) -> Result<(), CallError> {
        if self.started {
            return Ok(());
        }
        let rule = json!({
            "Name": self.name, "EventBusName": self.bus, "EventPattern": self.pattern.to_string(), "State": "ENABLED",
            "Description": "Created by daybook check-deployment or daybook deploy, which deletes it at its end.",
        });
        self.has_rule = true;
        let created = calls.call(EVENTBRIDGE, "PutRule", rule).await;
        self.has_rule = !matches!(created, Err(CallError::Service { .. } | CallError::NoService(_)));
        let rule_arn = created?["RuleArn"].clone();
        self.add_queue(calls, &rule_arn).await?;
        let end = Instant::now() + limit;
        let ready = self.ready.clone();
        while Instant::now() < end {
            let entry = json!({
                "EventBusName": self.bus, "Source": CHECK_SOURCE, "DetailType": "Ready", "Detail": "{}", "Resources": [ready],
            });
            calls.call(EVENTBRIDGE, "PutEvents", json!({"Entries": [entry]})).await?;
            if !self.wait_for(calls, &ready, PROBE_PAUSE, |messages| !messages.is_empty()).await?.is_empty() {
                self.started = true;
                return Ok(());
            }
        }
        Err(CallError::NotSeen { what: format!("the new rule delivered no message within {limit:?}") })
    }

    async fn add_queue(&mut self, calls: &AwsCalls, rule_arn: &Value) -> Result<(), CallError> {
        let policy = json!({"Version": "2012-10-17", "Statement": [{
            "Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage",
            "Resource": "*", "Condition": {"ArnEquals": {"aws:SourceArn": rule_arn}},
        }]});
        let attributes = json!({"MessageRetentionPeriod": "3600", "Policy": policy.to_string()});
        let created = json!({"QueueName": self.name, "Attributes": attributes});
        self.has_queue = true;
        let created = calls.call(SQS, "CreateQueue", created).await;
        self.has_queue = !matches!(created, Err(CallError::Service { .. } | CallError::NoService(_)));
        self.queue_url = created?["QueueUrl"].as_str().unwrap_or_default().to_owned();
        let wanted = json!({"QueueUrl": self.queue_url, "AttributeNames": ["QueueArn"]});
        let arn = calls.call(SQS, "GetQueueAttributes", wanted).await?["Attributes"]["QueueArn"].clone();
        let targets = json!({"Rule": self.name, "EventBusName": self.bus, "Targets": [{"Id": TARGET, "Arn": arn}]});
        calls.call(EVENTBRIDGE, "PutTargets", targets).await.map(drop)
    }

    /// Receives messages until `is_enough` is true for those of a resource, or until the time limit. Returns these.
    pub(super) async fn wait_for(
        &mut self,
        calls: &AwsCalls,
        resource: &str,
        limit: Duration,
        is_enough: impl Fn(&[Value]) -> bool,
    ) -> Result<Vec<Value>, CallError> {
        let end = Instant::now() + limit;
        loop {
            let of_resource = self.received.iter().filter(|message| message["resources"][0] == resource);
            let of_resource: Vec<_> = of_resource.cloned().collect();
            if is_enough(&of_resource) || Instant::now() >= end {
                return Ok(of_resource);
            }
            let request = json!({
                "QueueUrl": self.queue_url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": WAIT_SECONDS,
            });
            let response = calls.call(SQS, "ReceiveMessage", request).await?;
            for message in response["Messages"].as_array().into_iter().flatten() {
                let body = message["Body"].as_str().unwrap_or_default();
                self.received.push(serde_json::from_str(body).unwrap_or_default());
                let handle = json!({"QueueUrl": self.queue_url, "ReceiptHandle": message["ReceiptHandle"]});
                calls.call(SQS, "DeleteMessage", handle).await?;
            }
        }
    }

    /// Deletes the rule and the queue. Returns what could not be deleted.
    pub(super) async fn delete(&self, calls: &AwsCalls) -> Vec<String> {
        let Self { name, bus, queue_url, has_rule, has_queue, .. } = self;
        let targets = json!({"Rule": name, "EventBusName": bus, "Ids": [TARGET]});
        let rule = json!({"Name": name, "EventBusName": bus});
        let mut left_over = Vec::new();
        if *has_rule {
            let removed = calls.call(EVENTBRIDGE, "RemoveTargets", targets).await;
            let deleted = calls.call(EVENTBRIDGE, "DeleteRule", rule).await;
            if let Err(error) = removed.and(deleted) {
                left_over.push(format!("the rule {name} of the bus {bus}: {error}"));
            }
        }
        if *has_queue && queue_url.is_empty() {
            left_over.push(format!("the queue {name}, if it was created: there was no response"));
        } else if *has_queue {
            let queue = json!({"QueueUrl": queue_url});
            if let Err(error) = calls.call(SQS, "DeleteQueue", queue).await {
                left_over.push(format!("the queue {queue_url}: {error}"));
            }
        }
        left_over
    }
}
