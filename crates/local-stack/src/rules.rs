//! The rules of the stack's bus, and the workers that invoke their functions: with one event of the bus, or with a batch of
//! messages of a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daybook_console::stack::{Rule, RuleFunction as FunctionState};
use daybook_function_runtime::{aws_config_at, with_causes};
use daybook_local_aws::lambda::{FunctionProgram, LocalFunction};
use daybook_local_aws::messaging::{Bus, QueueTarget, ReceivedMessage};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::error::DevError;
use crate::http::{DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, HttpClient, SQS_ENDPOINT};
use crate::rule_option::{FunctionCode, FunctionOption, RuleOption};
use crate::services::Services;
use crate::termination::StopSignal;

/// The pause before the second attempt to process a message; each further pause is longer by the same time. The pauses
/// of SQS and Lambda are longer.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The time for which a message stays hidden beyond the timeout of the function.
const AFTER_TIMEOUT: Duration = Duration::from_secs(5);

/// The rules, for the endpoint that shows them. Clones share them.
#[derive(Clone)]
pub(crate) struct RuleStates {
    bus: Bus,
    rules: Arc<[RuleOption]>,
    /// The invocations of the function of each queue.
    functions: Arc<Mutex<BTreeMap<String, FunctionState>>>,
}

/// The worker of the function of one queue.
struct RuleWorker {
    function: RuleFunction,
    queue: String,
    timeout: Duration,
    bus: Bus,
    states: RuleStates,
    stop: StopSignal,
}

impl RuleStates {
    pub(crate) fn all(&self) -> Vec<Rule> {
        let functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let rule = |rule: &RuleOption| {
            let (visible, hidden) = self.bus.message_counts(&rule.queue);
            let dead_letter_queue = format!("{}-dlq", rule.queue);
            let (dead, dead_hidden) = self.bus.message_counts(&dead_letter_queue);
            let function = rule.function.as_ref().map(|function| FunctionState {
                name: function.code.name(),
                ..functions.get(&rule.queue).cloned().unwrap_or_default()
            });
            let (rule, queue) = (rule.text.clone(), rule.queue.clone());
            Rule { rule, queue, visible, hidden, dead_letter_queue, dead_letters: dead + dead_hidden, function }
        };
        self.rules.iter().map(rule).collect()
    }

    fn count(&self, queue: &str, error: Option<String>) {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        let state = functions.entry(queue.to_owned()).or_default();
        state.invocations += 1;
        if error.is_some() {
            state.failures += 1;
            state.last_error = error;
        }
    }
}

/// Creates the table of each function, unless it exists: a consumer needs one.
pub(crate) async fn create_tables(rules: &[RuleOption], services: &Services) -> Result<(), DevError> {
    let tables: BTreeSet<_> = rules.iter().filter_map(RuleOption::table_name).collect();
    for table in tables {
        let created = daybook_consumer::create_table(&aws_config_at(services.database.url()), &table).await;
        created.map_err(|source| DevError::ConsumerTable { table, source })?;
    }
    Ok(())
}

/// Creates the rules on an event bus, and starts a worker for each function.
pub(crate) fn start(
    rules: &[RuleOption],
    timeout: Duration,
    services: &Services,
    event_bus: &str,
    workers: &mut JoinSet<()>,
    stop: &StopSignal,
) -> Result<RuleStates, DevError> {
    let bus = services.bus.clone();
    let states = RuleStates { bus: bus.clone(), rules: rules.into(), functions: Arc::default() };
    let environment = function_environment(services);
    let mut queues: BTreeMap<&str, &RuleOption> = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        let known = queues.entry(&rule.queue).or_insert(rule);
        if known.function != rule.function {
            return Err(DevError::TwoFunctions { queue: rule.queue.clone() });
        }
        let target = QueueTarget { queue: &rule.queue, max_receives: rule.max_receives() };
        bus.create_rule(event_bus, &format!("dev-{index}"), rule.pattern.clone(), &target);
    }
    for (queue, rule) in queues {
        let Some(function) = &rule.function else { continue };
        // A variable of this process names the table of the stack, which is no table for a consumer.
        let table = rule.table_name().map(|table| ("TABLE_NAME".to_owned(), table));
        let environment: Vec<_> = environment.iter().cloned().chain(table).collect();
        let worker = RuleWorker {
            function: RuleFunction::new(function, timeout, environment, bus.clone()),
            queue: queue.to_owned(),
            timeout,
            bus: bus.clone(),
            states: states.clone(),
            stop: stop.clone(),
        };
        workers.spawn(worker.run());
    }
    Ok(states)
}

/// The variables with which a function reaches the services of the stack. The region and the credentials of this process come
/// first.
fn function_environment(services: &Services) -> Vec<(String, String)> {
    let of_process = [("AWS_REGION", "us-east-1"), ("AWS_ACCESS_KEY_ID", "local"), ("AWS_SECRET_ACCESS_KEY", "local")];
    let of_stack = [
        (DYNAMODB_ENDPOINT, services.database.url()),
        (EVENTBRIDGE_ENDPOINT, services.bus_url()),
        (SQS_ENDPOINT, services.bus_url()),
    ];
    let missing = of_process.into_iter().filter(|(name, _)| std::env::var_os(name).is_none());
    missing.chain(of_stack).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

impl RuleWorker {
    /// Invokes the function with the messages of the queue, until the stack stops.
    async fn run(self) {
        // A message stays hidden while the function may be processing it.
        let hidden = self.timeout + AFTER_TIMEOUT;
        loop {
            let received = tokio::select! {
                received = self.bus.receive(&self.queue, self.function.batch_size(), hidden) => received,
                () = self.stop.wait() => return,
            };
            match received {
                Ok(messages) if messages.is_empty() => {}
                Ok(messages) => self.invoke(&messages).await,
                Err(error) => {
                    tracing::error!(queue = self.queue, error = with_causes(&error), "cannot receive from the queue");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Invokes the function, deletes the messages that it has processed, and shows the others again after a pause.
    async fn invoke(&self, messages: &[ReceivedMessage]) {
        let result = self.function.process(&self.queue, messages).await;
        if let Err(error) = &result {
            tracing::error!(function = self.function.name, error, "the function failed");
        }
        let failed = match &result {
            Ok(failed) => failed.clone(),
            Err(_) => messages.iter().collect(),
        };
        self.states.count(&self.queue, result.err());
        for message in messages {
            if failed.contains(&message) {
                self.bus.hide(&self.queue, message, RETRY_PAUSE * message.receives);
            } else {
                self.bus.delete(&self.queue, message);
            }
        }
    }
}

/// A function that is ready to be invoked.
struct RuleFunction {
    name: String,
    code: Code,
    takes_batches: bool,
    timeout: Duration,
    /// Where the faults of invocations are.
    bus: Bus,
}

enum Code {
    Program(LocalFunction),
    Url(HttpClient, String),
}

impl RuleFunction {
    /// The function, with these variables besides those of this process.
    fn new(
        FunctionOption { code, takes_batches }: &FunctionOption,
        timeout: Duration,
        environment: Vec<(String, String)>,
        bus: Bus,
    ) -> Self {
        let name = code.name();
        let code = match code {
            FunctionCode::Program(path) => Code::Program(LocalFunction::new(FunctionProgram {
                name: name.clone(),
                path: path.clone(),
                environment,
                timeout,
            })),
            FunctionCode::Url(url) => Code::Url(HttpClient::new(url, None), url.clone()),
        };
        Self { name, code, takes_batches: *takes_batches, timeout, bus }
    }

    /// The maximum number of messages of an invocation.
    fn batch_size(&self) -> usize {
        if self.takes_batches { 10 } else { 1 }
    }

    /// Invokes the function with messages of a queue. Returns those that it did not process.
    async fn process<'a>(
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
fn batch(queue: &str, messages: &[ReceivedMessage]) -> Value {
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
fn unprocessed<'a>(response: &str, messages: &'a [ReceivedMessage]) -> Result<Vec<&'a ReceivedMessage>, String> {
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
