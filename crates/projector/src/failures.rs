//! Counts of failures, also by the version of the function.

use metrics::{Unit, counter, describe_counter};

/// Counts the failures of the projector.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailureCounter {
    function_version: Option<String>,
}

impl FailureCounter {
    /// Describes the metrics of failures.
    pub(crate) fn describe() {
        for name in ["ChangesFailed", "ProjectionsFailed", "ProjectionsSuspended", "TargetsFailed"] {
            describe_counter!(name, Unit::Count, "");
        }
    }

    /// A counter that also counts each failure under this version of the function.
    pub(crate) fn of_version(function_version: Option<String>) -> Self {
        Self { function_version }
    }

    /// Counts a projection that could not read or write the tables.
    pub(crate) fn projection_failed(&self) {
        counter!("ProjectionsFailed").increment(1);
        self.count_of_version();
    }

    /// Counts an aggregate that is suspended from now on.
    pub(crate) fn aggregate_suspended(&self) {
        counter!("ProjectionsSuspended").increment(1);
        self.count_of_version();
    }

    /// Counts a target that did not accept the events of an aggregate.
    pub(crate) fn target_failed(&self) {
        counter!("TargetsFailed").increment(1);
        self.count_of_version();
    }

    /// Counts a failure of any kind, also that of a message that cannot be read.
    ///
    /// It is a metric of its own, because every value of a dimension is billed: most versions have no failures.
    pub(crate) fn count_of_version(&self) {
        if let Some(version) = &self.function_version {
            counter!("ChangesFailed", "FunctionVersion" => version.clone()).increment(1);
        }
    }
}
