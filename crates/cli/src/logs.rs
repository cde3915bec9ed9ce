//! The logs of the process, and the traces of the local stack.

use std::io;

use daybook_function_runtime::traces::SpanExporter;
use daybook_settings::{Environment, SettingError};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt, registry};

/// Starts the logs on standard error, and the traces if there is a collector for them.
///
/// # Errors
///
/// When the collector's URL or the headers for it are invalid.
pub fn start(collector: Option<&str>) -> Result<Option<SpanExporter>, SettingError> {
    // The engine warns of every failed condition, but a lost race is normal. A command reports missing configuration itself,
    // so the warnings of `aws_config` are not shown.
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,dynoxide=error,aws_config=error"));
    let headers = Environment::of_process().optional(SpanExporter::HEADERS);
    let variables = [(SpanExporter::ENDPOINT, collector.map(str::to_owned)), (SpanExporter::HEADERS, headers)];
    let environment: Environment = variables.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let exporter = SpanExporter::read(&environment, "daybook-dev")?;
    match &exporter {
        None => fmt().with_env_filter(filter).with_writer(io::stderr).init(),
        Some(exporter) => {
            let logs = fmt::layer().with_writer(io::stderr).with_filter(filter);
            registry().with(logs).with(exporter.layer()).init();
        }
    }
    Ok(exporter)
}

/// Runs a command, and exports its spans meanwhile and at its end.
pub async fn run_exporting<T>(exporter: Option<SpanExporter>, command: impl Future<Output = T>) -> T {
    let Some(exporter) = exporter else { return command.await };
    let exports = tokio::spawn(exporter.clone().export_continuously());
    let ended = command.await;
    exports.abort();
    exporter.flush().await;
    ended
}
