//! The `daybook` command.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use daybook_cli::commands::DaybookArgs;
use daybook_function_runtime::traces::SpanExporter;
use daybook_settings::{Environment, SettingError};
use tokio::runtime::Runtime;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt, registry};

/// How long the end of the process waits for connections and files to be closed.
const CLOSING: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    // The engine warns of every failed condition, but a lost race is normal. A command reports missing configuration itself,
    // so the warnings of `aws_config` are not shown.
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,dynoxide=error,aws_config=error"));
    let args = DaybookArgs::parse();
    let exporter = match exporter(&args) {
        Ok(exporter) => exporter,
        Err(error) => {
            eprintln!("daybook: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match &exporter {
        None => fmt().with_env_filter(filter).with_writer(std::io::stderr).init(),
        Some(exporter) => {
            let logs = fmt::layer().with_writer(std::io::stderr).with_filter(filter);
            registry().with(logs).with(exporter.layer()).init();
        }
    }
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("daybook: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let exports = exporter.clone().map(|exporter| runtime.spawn(exporter.export_continuously()));
    let ended = runtime.block_on(args.run());
    if let (Some(exporter), Some(exports)) = (exporter, exports) {
        exports.abort();
        runtime.block_on(exporter.flush());
    }
    let exit = match ended {
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

/// The exporter of the local stack's traces, if there is a collector for them.
fn exporter(args: &DaybookArgs) -> Result<Option<SpanExporter>, SettingError> {
    let Some(collector) = args.collector() else { return Ok(None) };
    let process = Environment::of_process();
    let headers = process.optional(SpanExporter::HEADERS).map(|headers| (SpanExporter::HEADERS, headers));
    let collector = (SpanExporter::ENDPOINT, collector.to_owned());
    SpanExporter::read(&[collector].into_iter().chain(headers).collect(), "daybook-dev")
}
