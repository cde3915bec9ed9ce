//! The rules of the stack's bus, with a queue and a worker for each function.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use daybook_aws_clients::{DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT};
use daybook_function_runtime::aws_config_at;
use daybook_local_aws::messaging::QueueTarget;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::DevError;
use crate::queue_worker::{QueueFunction, QueueWorker};
use crate::rule_function::{RuleFunction, RuleStates};
use crate::rule_option::RuleOption;
use crate::services::Services;

pub(crate) async fn start(
    rules: &[RuleOption],
    timeout: Duration,
    services: &Services,
    event_bus: &str,
    api_url: &str,
    workers: &mut JoinSet<()>,
    stop: &CancellationToken,
) -> Result<RuleStates, DevError> {
    // The table of each function, unless it exists: a consumer needs one.
    let tables: BTreeSet<_> = rules.iter().filter_map(RuleOption::table_name).collect();
    for table in tables {
        let created = daybook_consumer::create_table(&aws_config_at(services.database.url()), &table).await;
        created.map_err(|source| DevError::ConsumerTable { table, source })?;
    }
    let bus = services.bus.clone();
    let environment = function_environment(services, api_url);
    let mut queues: BTreeMap<&str, &RuleOption> = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        let known = queues.entry(&rule.queue).or_insert(rule);
        if known.function != rule.function {
            return Err(DevError::TwoFunctions { queue: rule.queue.clone() });
        }
        let target = QueueTarget { queue: &rule.queue, max_receives: rule.max_receives() };
        bus.create_rule(event_bus, &format!("dev-{index}"), rule.pattern.clone(), &target);
    }
    let mut functions = BTreeMap::new();
    for (queue, rule) in queues {
        let Some(function) = &rule.function else { continue };
        // A variable of this process names the table of the stack, which is no table for a consumer.
        let table = rule.table_name().map(|table| ("TABLE_NAME".to_owned(), table));
        let environment: Vec<_> = environment.iter().cloned().chain(table).collect();
        let function = Arc::new(RuleFunction::new(function, timeout, environment, services));
        functions.insert(queue.to_owned(), function.clone());
        let worker = QueueWorker {
            function: QueueFunction::OfRule(function),
            queue: queue.to_owned(),
            timeout,
            bus: bus.clone(),
            stop: stop.clone(),
        };
        workers.spawn(worker.run());
    }
    Ok(RuleStates { bus, rules: rules.into(), functions: Arc::new(functions) })
}

/// The variables with which a function reaches the services of the stack. The region and the credentials of this process come
/// first.
fn function_environment(services: &Services, api_url: &str) -> Vec<(String, String)> {
    let of_process = [("AWS_REGION", "us-east-1"), ("AWS_ACCESS_KEY_ID", "local"), ("AWS_SECRET_ACCESS_KEY", "local")];
    let of_stack = [
        ("API_URL", api_url),
        (DYNAMODB_ENDPOINT, services.database.url()),
        (EVENTBRIDGE_ENDPOINT, services.bus_url()),
        (SQS_ENDPOINT, services.bus_url()),
    ];
    let missing = of_process.into_iter().filter(|(name, _)| std::env::var_os(name).is_none());
    missing.chain(of_stack).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
