//! The logs of the process, and the traces of the local stack.

use std::io;

use daybook_function_runtime::log_levels;
use daybook_function_runtime::traces::SpanExporter;
use daybook_settings::{Environment, SettingError};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

/// Starts the logs on standard error, and the traces if there is a collector for them.
pub fn start(collector: Option<&str>) -> Result<Option<SpanExporter>, SettingError> {
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
pub async fn run_exporting<T>(exporter: Option<SpanExporter>, command: impl Future<Output = T>) -> T {
    let Some(exporter) = exporter else { return command.await };
    let exports = tokio::spawn(exporter.clone().export_continuously());
    let ended = command.await;
    exports.abort();
    exporter.flush().await;
    ended
}
