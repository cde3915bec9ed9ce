//! Metrics, as CloudWatch reads them out of the logs: lines of JSON in its embedded metric format.

use std::io;

use metrics_cloudwatch_embedded::{Builder, Collector};

use daybook_settings::Environment;

/// What the functions count, by the macros of the `metrics` crate, until it is written.
#[derive(Clone, Copy)]
pub struct Metrics(Option<&'static Collector>);

impl Metrics {
    /// Collects for this process from now on, for the CloudWatch namespace `METRICS_NAMESPACE`. Without that variable, or
    /// where something else collects already, nothing is collected and nothing written.
    pub fn collect(environment: &Environment) -> Self {
        let namespace = environment.optional("METRICS_NAMESPACE");
        Self(namespace.and_then(|namespace| Builder::new().cloudwatch_namespace(namespace).init().ok()))
    }

    /// Writes one line with all that was counted since the last, to standard output: to be called after each invocation.
    pub fn write(self) {
        self.write_to(io::stdout());
    }

    /// [`write`](Self::write), to somewhere else.
    pub fn write_to(self, writer: impl io::Write) {
        // Standard output fails when nobody reads it, and then nobody would read of it either.
        let _ = self.0.map(|collector| collector.flush(writer));
    }
}
