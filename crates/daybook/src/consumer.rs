//! A consumer of the bus: applies each message once and in order. See the crate `daybook-consumer`.

use std::process::ExitCode;

pub use daybook_consumer::{
    AggregateId, BusMessage, Changes, Consumer, ConsumerFunction, ConsumerTable, HandleError, MAX_ROWS, Number, RowKey,
    Rows, TableError, now, testing,
};
use daybook_function_runtime::{Error, Metrics, aws_config_in_lambda, handle_invocations, log_failed_warm_up};
use daybook_settings::Environment;
use serde_json::Value;

/// Runs the consumer behind its queue until Lambda ends its process: the `main` of the function. `TABLE_NAME` names the
/// consumer's table.
#[tokio::main(flavor = "current_thread")]
pub async fn run(consumer: impl Consumer) -> ExitCode {
    daybook_function_runtime::run(serve(consumer)).await
}

async fn serve(consumer: impl Consumer) -> Result<(), Error> {
    let environment = Environment::of_process();
    let metrics = Metrics::collect(&environment);
    let table_name = environment.required("TABLE_NAME")?;
    let config = aws_config_in_lambda(&environment).await?;
    let function = ConsumerFunction::new(consumer, &config, table_name);
    log_failed_warm_up(function.table().warm().await);
    handle_invocations(metrics, async |payload: Value, deadline| function.handle(payload, deadline).await).await
}
