//! The consumer as a Lambda function behind its queue.

use std::process::ExitCode;

use daybook_consumer::ConsumerFunction;
use daybook_function_runtime::{Error, Metrics, aws_config_in_lambda, handle_invocations, log_failed_warm_up};
use daybook_order_mails::OrderMails;
use daybook_settings::Environment;
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    daybook_function_runtime::run(run()).await
}

async fn run() -> Result<(), Error> {
    let environment = Environment::of_process();
    let metrics = Metrics::collect(&environment);
    let table_name = environment.required("TABLE_NAME")?;
    let config = aws_config_in_lambda(&environment).await?;
    let function = ConsumerFunction::new(OrderMails, &config, table_name);
    log_failed_warm_up(function.table().warm().await);
    handle_invocations(metrics, async |payload: Value, deadline| function.handle(payload, deadline).await).await
}
