//! The `daybook` command: the command line, and operator commands for a deployed or local stack.
//!
//! In reading order:
//! - [`commands`]: the command line; a file for each command, or for a few that share an idea.
//! - [`operator`]: the shared parts of operator commands: the options that select the stack, and the output.
//! - [`main`]: the entry, which runs a process, with its logs and the traces of the local stack.
//!
//! What the operator commands do is in the crates `daybook-operations` and `daybook-deployment-check`. The local stack,
//! [`Project`] and [`fixtures`] are in `daybook-local-stack`, the files of a project in `daybook-scaffold`, and the documents
//! that describe the messages in `daybook-api-documents`.

pub mod commands;
pub mod operator;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use daybook_function_runtime::log_levels;
use daybook_function_runtime::traces::SpanExporter;
pub use daybook_local_stack::{Project, fixtures};
use daybook_settings::{Environment, SettingError};
use tokio::runtime::Runtime;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

use self::commands::DaybookArgs;

/// How long the end of the process waits for connections and files to be closed.
const CLOSING: Duration = Duration::from_millis(500);

pub fn main(project: Project) -> ExitCode {
    let args = DaybookArgs::parse();
    let exporter = start_logs(args.collector()).map_err(|error| error.to_string());
    let started = exporter.and_then(|exporter| Ok((exporter, Runtime::new().map_err(|error| error.to_string())?)));
    let (exporter, runtime) = match started {
        Ok(started) => started,
        Err(error) => {
            eprintln!("daybook: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let exit = match runtime.block_on(run_exporting(exporter, args.run(project))) {
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

/// Starts the logs on standard error, and the traces if there is a collector for them.
fn start_logs(collector: Option<&str>) -> Result<Option<SpanExporter>, SettingError> {
    // The engine warns of every failed condition, but a lost race is normal. A command reports missing configuration itself,
    // so the warnings of `aws_config` are not shown.
    let levels = Targets::new().with_default(LevelFilter::WARN);
    let levels = levels.with_targets([("dynoxide", LevelFilter::ERROR), ("aws_config", LevelFilter::ERROR)]);
    let process = Environment::of_process();
    let filter = log_levels(&process, levels);
    let headers = process.optional(SpanExporter::HEADERS);
    let variables = [(SpanExporter::ENDPOINT, collector.map(str::to_owned)), (SpanExporter::HEADERS, headers)];
    let environment: Environment = variables.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let exporter = SpanExporter::read(&environment, "daybook-dev")?;
    let logs = fmt::layer().with_writer(io::stderr);
    match &exporter {
        None => registry().with(logs).with(filter).init(),
        Some(exporter) => registry().with(logs.with_filter(filter)).with(exporter.layer()).init(),
    }
    Ok(exporter)
}

/// Runs a command, and exports its spans meanwhile and at its end.
async fn run_exporting<T>(exporter: Option<SpanExporter>, command: impl Future<Output = T>) -> T {
    let Some(exporter) = exporter else { return command.await };
    let exports = tokio::spawn(exporter.clone().export_continuously());
    let ended = command.await;
    exports.abort();
    exporter.flush().await;
    ended
}
