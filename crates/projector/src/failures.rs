//! Counts of failures, also by the version of the function.

use metrics::{Unit, counter, describe_counter};

#[derive(Clone, Debug, Default)]
pub(crate) struct FailureCounter {
    function_version: Option<String>,
}

impl FailureCounter {
    pub(crate) fn describe() {
        for name in ["ChangesFailed", "ProjectionsFailed", "ProjectionsSuspended", "TargetsFailed"] {
            describe_counter!(name, Unit::Count, "");
        }
    }

    /// A counter that also counts each failure under this version of the function.
    pub(crate) fn of_version(function_version: Option<String>) -> Self {
        Self { function_version }
    }

    pub(crate) fn count(&self, name: &'static str) {
        counter!(name).increment(1);
        self.count_of_version();
    }

    /// Counts a failure of any kind, also that of a message that cannot be read.
    ///
    /// All kinds of failures share one metric with this dimension, because CloudWatch bills each value of a dimension
    /// as a metric. Versions without failures have no value.
    pub(crate) fn count_of_version(&self) {
        if let Some(version) = &self.function_version {
            counter!("ChangesFailed", "FunctionVersion" => version.clone()).increment(1);
        }
    }
}
