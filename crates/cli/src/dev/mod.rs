//! `daybook dev`: the table, the API, the two stream functions behind their mappings, and the bus, in one process.
//!
//! Invariants:
//! - The functions run the handlers that Lambda runs, with the settings that template.yaml gives them.
//! - Everything it starts ends with it.
//!
//! In reading order:
//! - `options`: what can be asked for.
//! - `stack`: starting and stopping it all.
//! - `environment`: the functions' settings.
//! - `functions`: a stream function behind its mapping.
//! - `stream`: the table's stream, record by record.
//! - `endpoints`: what only this stack answers, under `/_dev/`.

mod endpoints;
mod environment;
mod functions;
mod options;
mod stack;
mod stream;

pub use options::Options;
pub use stack::{DevError, Stack};

/// Runs the stack until Ctrl-C, and says what passes over the bus.
///
/// # Errors
///
/// When it cannot be started.
#[expect(clippy::print_stdout, reason = "the person at the terminal reads it")]
pub async fn run(options: Options) -> Result<(), DevError> {
    let mut stack = Stack::start(options).await?;
    println!("Daybook is running. Ctrl-C stops it.");
    println!("  API       {}", stack.api_url());
    println!("  DynamoDB  {}  (table {})", stack.dynamodb_url(), stack.table_name());
    if let Some(url) = stack.bus_url() {
        println!("  Bus, DLQ  {url}  (what arrived: {}/_dev/bus and /_dev/dlq)", stack.api_url());
    }
    let ctrl_c = tokio::signal::ctrl_c();
    tokio::pin!(ctrl_c);
    loop {
        tokio::select! {
            // Without a signal handler there is nothing to wait for, so that ends it too.
            _ = &mut ctrl_c => break,
            Some(message) = stack.next_message() => {
                println!("{} {} {}", message.detail_type, message.resources.join(" "), message.detail);
            }
        }
    }
    stack.stop().await;
    Ok(())
}
