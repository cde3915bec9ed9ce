//! A rule and a queue, with which the checks see the messages on the bus.

use std::fmt::Display;
use std::time::Duration;

use daybook_operations::signed_calls::{EVENTBRIDGE, SQS};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::aws_calls::CallError;
use super::deployment::{CHECK_TYPE, Deployment, Observer};

/// The aggregate that each deployment writes.
pub(super) const CANARY: &str = "__canary/deployments";

/// The source of the messages that the checks themselves send to the bus.
pub(super) const CHECK_SOURCE: &str = "daybook.check";

const TARGET: &str = "queue";

const WAIT_SECONDS: u32 = 1;

/// How long one message may take that shows whether the rule has effect, before the next is sent.
const PROBE_PAUSE: Duration = Duration::from_secs(2);

impl Deployment {
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

    /// Deletes the rule and the queue. Returns what could not be deleted.
    pub(super) async fn delete_observer(&mut self) -> Vec<String> {
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

/// Whether a call may have created something: its response is not known to be an error.
fn may_exist(created: &Result<Value, CallError>) -> bool {
    !matches!(created, Err(CallError::Service { .. } | CallError::NoService(_)))
}
