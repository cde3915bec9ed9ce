//! Metrics as log lines in CloudWatch's embedded metric format (JSON); among them, failures by the version of the function.

use std::io;

use daybook_settings::Environment;
use metrics::counter;
use metrics_cloudwatch_embedded::{Builder, Collector};

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

/// The failures of a function, of which a metric also counts those of its version, by which a deployment is rolled back.
///
/// All kinds of failures share one metric with this dimension, because CloudWatch bills each value of a dimension as a metric.
/// Versions without failures have no value.
#[derive(Clone, Debug)]
pub struct FailureCounter {
    name: &'static str,
    function_version: Option<String>,
}

impl FailureCounter {
    /// A counter whose metric by version has this name.
    pub fn new(name: &'static str) -> Self {
        Self { name, function_version: None }
    }

    /// Also counts failures under this version of the function, if there is one.
    pub fn set_version(&mut self, function_version: Option<String>) {
        self.function_version = function_version;
    }

    /// Counts a failure of a kind that has a metric of this name, too.
    pub fn count(&self, name: &'static str) {
        counter!(name).increment(1);
        self.count_of_version(1);
    }

    /// Counts failures of any kind.
    pub fn count_of_version(&self, failures: u64) {
        if let Some(version) = self.function_version.as_ref().filter(|_| failures > 0) {
            counter!(self.name, "FunctionVersion" => version.clone()).increment(failures);
        }
    }
}
