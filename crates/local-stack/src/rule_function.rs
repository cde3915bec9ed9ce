//! The functions of rules, which are invoked with one event of the bus, or with a batch of messages of a queue; and what is known
//! of their invocations.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use daybook_aws_clients::http::HttpClient;
use daybook_console::stack::{Rule, RuleInvocations};
use daybook_function_runtime::with_causes;
use daybook_local_aws::lambda::{FunctionProgram, LocalFunction};
use daybook_local_aws::messaging::{Bus, ReceivedMessage};
use serde_json::{Value, json};

use crate::rule_option::{FunctionCode, FunctionOption, RuleOption};
use crate::services::Services;

/// The rules, for the endpoint that shows them. Clones share them.
#[derive(Clone)]
pub(crate) struct RuleStates {
    pub(crate) bus: Bus,
    pub(crate) rules: Arc<[RuleOption]>,
    /// The function of each queue.
    pub(crate) functions: Arc<BTreeMap<String, Arc<RuleFunction>>>,
}

impl RuleStates {
    pub(crate) fn all(&self) -> Vec<Rule> {
        let rule = |rule: &RuleOption| {
            let (visible, hidden) = self.bus.message_counts(&rule.queue);
            let dead_letter_queue = format!("{}-dlq", rule.queue);
            let (dead, dead_hidden) = self.bus.message_counts(&dead_letter_queue);
            let function = self.functions.get(&rule.queue).map(|function| function.state().clone());
            let (rule, pattern, queue) = (rule.text.clone(), rule.json.clone(), rule.queue.clone());
            let dead_letters = dead + dead_hidden;
            Rule { rule, pattern, queue, visible, hidden, dead_letter_queue, dead_letters, function }
        };
        self.rules.iter().map(rule).collect()
    }

    /// Invokes a function with an event that comes from no queue. Returns its response.
    pub(crate) async fn invoke(&self, name: &str, event: String) -> Result<String, (StatusCode, String)> {
        let function = self.functions.values().find(|function| function.name == name);
        let function = function.ok_or_else(|| (StatusCode::NOT_FOUND, format!("no rule has a function {name}")))?;
        function.invoke(event).await.map_err(|error| (StatusCode::BAD_GATEWAY, error))
    }
}

pub(crate) struct RuleFunction {
    name: String,
    code: Code,
    pub(crate) takes_batches: bool,
    timeout: Duration,
    bus: Bus,
    /// What is known of its invocations with messages.
    state: Mutex<RuleInvocations>,
}

enum Code {
    Program(LocalFunction),
    Url(HttpClient, String),
}

impl RuleFunction {
    /// The function, with these variables besides those of this process.
    pub(crate) fn new(
        FunctionOption { code, takes_batches }: &FunctionOption,
        timeout: Duration,
        environment: Vec<(String, String)>,
        Services { bus, clock, .. }: &Services,
    ) -> Self {
        let name = code.name();
        let code = match code {
            FunctionCode::Program(path) => Code::Program(LocalFunction::new(FunctionProgram {
                name: name.clone(),
                path: path.clone(),
                environment,
                clock: clock.clone(),
                timeout,
            })),
            FunctionCode::Url(url) => Code::Url(HttpClient::new(url, None), url.clone()),
        };
        let state = Mutex::new(RuleInvocations { name: name.clone(), ..RuleInvocations::default() });
        Self { name, code, takes_batches: *takes_batches, timeout, bus: bus.clone(), state }
    }

    fn state(&self) -> MutexGuard<'_, RuleInvocations> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Invokes the function with messages of a queue, and counts that. Returns those that it did not process.
    pub(crate) async fn process<'a>(
        &self,
        queue: &str,
        messages: &'a [ReceivedMessage],
    ) -> Result<Vec<&'a ReceivedMessage>, String> {
        let result = self.invoke_with(queue, messages).await;
        let mut state = self.state();
        state.invocations += 1;
        match &result {
            Ok(failed) if failed.is_empty() => {}
            Ok(failed) => {
                state.last_error = Some(format!("it reported {} messages in batchItemFailures", failed.len()));
            }
            Err(error) => {
                state.failures += 1;
                state.last_error = Some(error.clone());
            }
        }
        drop(state);
        result
    }

    async fn invoke_with<'a>(
        &self,
        queue: &str,
        messages: &'a [ReceivedMessage],
    ) -> Result<Vec<&'a ReceivedMessage>, String> {
        let event = match messages {
            [message] if !self.takes_batches => message.body.clone(),
            messages => batch(queue, messages).to_string(),
        };
        let fault = self.bus.invocation_fault(&self.name, &event);
        if let Some(fault) = &fault {
            tokio::time::sleep(Duration::from_millis(fault.delay_ms)).await;
        }
        if fault.as_ref().is_some_and(|fault| !fault.accept_then_drop) {
            return Err("injected fault".to_owned());
        }
        let response = self.invoke(event).await?;
        if fault.is_some() {
            return Err("injected fault after the invocation".to_owned());
        }
        if self.takes_batches { unprocessed(&response, messages) } else { Ok(Vec::new()) }
    }

    async fn invoke(&self, event: String) -> Result<String, String> {
        let (client, url) = match &self.code {
            Code::Program(function) => return function.invoke(event).await.map_err(|error| with_causes(&error)),
            Code::Url(client, url) => (client, url),
        };
        let headers = [("content-type".to_owned(), "application/json".to_owned())];
        let response = client.send("POST", url, &headers, Some(event));
        let response = tokio::time::timeout(self.timeout, response).await;
        let response = response.map_err(|_| format!("{url} did not respond within {:?}", self.timeout))?;
        let response = response.map_err(|error| format!("cannot call {url}: {}", with_causes(&*error)))?;
        let body: Value = serde_json::from_str(&response.body).unwrap_or_default();
        // An emulator of Lambda reports the error of a function with status 200.
        if !(200..300).contains(&response.status) || (body["errorType"].is_string() && body["errorMessage"].is_string())
        {
            return Err(format!("{url} responded with {}: {:.500}", response.status, response.body));
        }
        Ok(response.body)
    }
}

/// The event of a mapping of a queue, as Lambda passes it, without `md5OfBody`.
pub(crate) fn batch(queue: &str, messages: &[ReceivedMessage]) -> Value {
    let record = |message: &ReceivedMessage| {
        json!({
            "messageId": message.message_id,
            "receiptHandle": message.receipt_handle,
            "body": message.body,
            "attributes": {
                "ApproximateReceiveCount": message.receives.to_string(),
                "SentTimestamp": message.sent.to_string(),
                "SenderId": "events.amazonaws.com",
                "ApproximateFirstReceiveTimestamp": message.first_received.to_string(),
            },
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": format!("arn:aws:sqs:us-east-1:000000000000:{queue}"),
            "awsRegion": "us-east-1",
        })
    };
    json!({"Records": messages.iter().map(record).collect::<Vec<_>>()})
}

/// The messages that a response reports as failed, as Lambda reads it with `ReportBatchItemFailures`.
pub(crate) fn unprocessed<'a>(
    response: &str,
    messages: &'a [ReceivedMessage],
) -> Result<Vec<&'a ReceivedMessage>, String> {
    let response = if response.trim().is_empty() { "null" } else { response };
    let response: Value =
        serde_json::from_str(response).map_err(|error| format!("its response is not JSON: {error}"))?;
    let failures = match &response["batchItemFailures"] {
        Value::Null => return Ok(Vec::new()),
        Value::Array(failures) => failures,
        other => return Err(format!("batchItemFailures is {other}")),
    };
    let of_failure = |failure: &Value| {
        let id = failure["itemIdentifier"].as_str();
        let message = messages.iter().find(|message| id == Some(message.message_id.as_str()));
        message.ok_or_else(|| format!("batchItemFailures has {failure}, which is no message of the batch"))
    };
    failures.iter().map(of_failure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_reports_messages_as_lambda_reads_it() {
        let message = |id: &str| ReceivedMessage {
            message_id: id.to_owned(),
            receipt_handle: String::new(),
            body: String::new(),
            receives: 1,
            sent: 0,
            first_received: 0,
        };
        let messages = [message("a"), message("b")];
        let ids = |response: &str| {
            let found = unprocessed(response, &messages)?;
            Ok::<_, String>(found.into_iter().map(|message| message.message_id.clone()).collect::<Vec<_>>())
        };
        for everything in ["", "null", "{}", r#"{"batchItemFailures": null}"#, r#"{"batchItemFailures": []}"#] {
            assert_eq!(ids(everything), Ok(vec![]), "{everything}");
        }
        assert_eq!(ids(r#"{"batchItemFailures": [{"itemIdentifier": "b"}]}"#), Ok(vec!["b".to_owned()]));
        for nothing in [
            "{",
            r#"{"batchItemFailures": "a"}"#,
            r#"{"batchItemFailures": [{"itemIdentifier": ""}]}"#,
            r#"{"batchItemFailures": [{"itemIdentifier": "a"}, {"itemIdentifier": "c"}]}"#,
            r#"{"batchItemFailures": [{}]}"#,
        ] {
            assert!(ids(nothing).is_err(), "{nothing}");
        }
    }
}
