//! The `daybook` command.

use std::process::ExitCode;

use clap::Parser;
use daybook_cli::commands::DaybookArgs;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    // The engine warns of every failed condition, but a lost race is normal. A command reports missing configuration itself,
    // so the warnings of `aws_config` are not shown.
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,dynoxide=error,aws_config=error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match DaybookArgs::parse().run().await {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("daybook: {}", daybook_function_runtime::with_causes(&error));
            error.exit_code()
        }
    }
}
