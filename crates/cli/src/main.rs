//! The `daybook` command.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use daybook_cli::commands::DaybookArgs;
use tokio::runtime::Runtime;
use tracing_subscriber::EnvFilter;

/// How long the end of the process waits for connections and files to be closed.
const CLOSING: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    // The engine warns of every failed condition, but a lost race is normal. A command reports missing configuration itself,
    // so the warnings of `aws_config` are not shown.
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,dynoxide=error,aws_config=error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let args = DaybookArgs::parse();
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("daybook: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let exit = match runtime.block_on(args.run()) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("daybook: {}", daybook_function_runtime::with_causes(&error));
            error.exit_code()
        }
    };
    // Ends connections whose clients never finish, and then closes the data file.
    runtime.shutdown_timeout(CLOSING);
    exit
}
