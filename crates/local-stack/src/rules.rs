//! The rules of the stack's bus, and the workers that invoke their functions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daybook_console::stack::{Rule, RuleFunction};
use daybook_function_runtime::with_causes;
use daybook_local_aws::messaging::{Bus, QueueTarget, ReceivedMessage};
use tokio::task::JoinSet;

use crate::aws::{DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT};
use crate::error::DevError;
use crate::rule_function;
use crate::rule_option::RuleOption;
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
    functions: Arc<Mutex<BTreeMap<String, RuleFunction>>>,
}

/// The worker of the function of one queue.
struct RuleWorker {
    function: rule_function::RuleFunction,
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
            let function = rule.function.as_ref().map(|function| RuleFunction {
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
        let created = daybook_consumer::create_table(&services.dynamodb, &table).await;
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
    let external = services.elsewhere.iter().find(|(variable, _)| *variable != DYNAMODB_ENDPOINT);
    if let (Some((variable, _)), false) = (external, rules.is_empty()) {
        return Err(DevError::RuleWithoutBus { variable });
    }
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
            function: rule_function::RuleFunction::new(function, timeout, environment, bus.clone()),
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

/// The variables with which a function reaches the services of the stack, unless this process has them.
fn function_environment(services: &Services) -> Vec<(String, String)> {
    let bus = services.bus_url();
    let variables = [
        (DYNAMODB_ENDPOINT, services.dynamodb.endpoint_url()),
        (EVENTBRIDGE_ENDPOINT, bus),
        (SQS_ENDPOINT, bus),
        ("AWS_REGION", Some("us-east-1")),
        ("AWS_ACCESS_KEY_ID", Some("local")),
        ("AWS_SECRET_ACCESS_KEY", Some("local")),
    ];
    let is_set = |name: &str| std::env::var_os(name).is_some();
    let missing = variables.into_iter().filter(|(name, _)| !is_set(name));
    missing.filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect()
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
