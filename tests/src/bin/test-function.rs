//! The function of the tests of `daybook dev --rule`: a program that speaks the Lambda Runtime API.
//!
//! It writes each event to a file beside itself, with the extension `log`. The title of a to-do says what it does with the
//! first N attempts: `fail N`, `exit N` or `hang N`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::run(service_fn(handle)).await
}

async fn handle(LambdaEvent { payload, context }: LambdaEvent<Value>) -> Result<Value, Error> {
    let Some(records) = payload["Records"].as_array() else {
        return if process(&payload, 1, &context).await? {
            Ok(Value::Null)
        } else {
            Err("the event asks for it".into())
        };
    };
    let mut failures = Vec::new();
    for record in records {
        let event = serde_json::from_str(record["body"].as_str().unwrap_or_default())?;
        if !process(&event, records.len(), &context).await? {
            failures.push(json!({"itemIdentifier": record["messageId"]}));
        }
    }
    Ok(json!({"batchItemFailures": failures}))
}

/// Writes an event to the file, and does what its title says. Returns false if the event should fail.
async fn process(event: &Value, of_batch: usize, context: &lambda_runtime::Context) -> Result<bool, Error> {
    let path = PathBuf::from(std::env::args_os().next().unwrap_or_default()).with_extension("log");
    let id = event["detail"]["metadata"]["messageId"].as_str().unwrap_or_default();
    let attempt = fs::read_to_string(&path).unwrap_or_default().lines().filter(|line| line.contains(id)).count() + 1;
    let line = json!({
        "event": event, "attempt": attempt, "ofBatch": of_batch, "process": std::process::id(),
        "arn": context.invoked_function_arn, "sqs": std::env::var("AWS_ENDPOINT_URL_SQS").ok(),
        "table": std::env::var("TABLE_NAME").ok(), "now": daybook_consumer::now().to_string(),
    });
    writeln!(OpenOptions::new().create(true).append(true).open(&path)?, "{line}")?;
    let title = event["detail"]["data"]["title"].as_str().unwrap_or_default();
    let (action, times) = title.split_once(' ').unwrap_or((title, "0"));
    if attempt > times.parse().unwrap_or(0) {
        return Ok(true);
    }
    match action {
        "exit" => std::process::exit(3),
        "hang" => tokio::time::sleep(Duration::from_secs(60)).await,
        _ => {}
    }
    Ok(false)
}
