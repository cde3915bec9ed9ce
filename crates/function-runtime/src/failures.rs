//! Counts of failures, also by the version of the function.

use metrics::counter;

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
