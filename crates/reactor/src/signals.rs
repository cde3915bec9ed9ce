//! The metrics of the reactor.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

/// The counters, of which failures are also counted by the version of the function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    function_version: Option<String>,
}

impl Signals {
    pub(crate) fn describe() -> Self {
        for name in ["DeadlinesFired", "DeadlinesWithoutEffect", "DeadlinesFailed", "ReactionsFailed"] {
            describe_counter!(name, Unit::Count, "");
        }
        describe_histogram!("OldestDeadline", Unit::Seconds, "");
        Self::default()
    }

    pub(crate) fn of_version(self, function_version: Option<String>) -> Self {
        Self { function_version }
    }

    pub(crate) fn fired(&self) {
        counter!("DeadlinesFired").increment(1);
    }

    /// Counts a deadline whose command was rejected, or changed nothing.
    pub(crate) fn without_effect(&self) {
        counter!("DeadlinesWithoutEffect").increment(1);
    }

    /// Counts a deadline that was marked as failed.
    pub(crate) fn gave_up(&self) {
        counter!("DeadlinesFailed").increment(1);
    }

    /// Counts a failure of any kind, also one that is tried again.
    ///
    /// All kinds share one metric with this dimension, because CloudWatch bills each value of a dimension as a metric. Versions
    /// without failures have no value.
    pub(crate) fn failed(&self) {
        counter!("ReactionsFailed").increment(1);
        if let Some(version) = &self.function_version {
            counter!("ReactionsFailed", "FunctionVersion" => version.clone()).increment(1);
        }
    }

    /// Records how long the oldest deadline has been due that has not fired. Each tick has a value, also without such a
    /// deadline: an alarm notices if there are none.
    pub(crate) fn oldest(&self, overdue: Duration) {
        histogram!("OldestDeadline").record(overdue.as_secs_f64());
    }
}
