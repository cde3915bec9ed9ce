//! Metrics as log lines in CloudWatch's embedded metric format (JSON).

use std::io;

use metrics_cloudwatch_embedded::{Builder, Collector};

use daybook_settings::Environment;

/// The metrics that functions record with the macros of the `metrics` crate, until they are written.
#[derive(Clone, Copy)]
pub struct Metrics(Option<&'static Collector>);

impl Metrics {
    /// Starts collecting in this process, for the CloudWatch namespace `METRICS_NAMESPACE`. Without that variable, or
    /// when another recorder is installed already, nothing is collected and nothing written.
    pub fn collect(environment: &Environment) -> Self {
        let namespace = environment.optional("METRICS_NAMESPACE");
        Self(namespace.and_then(|namespace| Builder::new().cloudwatch_namespace(namespace).init().ok()))
    }

    /// Writes one line with everything recorded since the last call to standard output. To be called after each
    /// invocation.
    pub fn write(self) {
        self.write_to(io::stdout());
    }

    /// Like [`write`](Self::write), to any writer.
    pub fn write_to(self, writer: impl io::Write) {
        // Writing to standard output fails only when nobody reads it; then nobody could read the error either.
        let _ = self.0.map(|collector| collector.flush(writer));
    }
}
