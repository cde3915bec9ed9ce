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
        for name in [
            "DeadlinesFired",
            "DeadlinesWithoutEffect",
            "CommandsDispatched",
            "EventsHandled",
            "ReactionsGivenUp",
            "ReactionAttemptsFailed",
        ] {
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

    /// Counts a dispatch that was sent, also one that its aggregate rejects.
    pub(crate) fn dispatched(&self) {
        counter!("CommandsDispatched").increment(1);
    }

    /// Counts an event that is input of a process, also one without effect.
    pub(crate) fn handled(&self) {
        counter!("EventsHandled").increment(1);
    }

    /// Counts a deadline or a dispatch that was marked as failed, or a position that was suspended.
    pub(crate) fn gave_up(&self) {
        counter!("ReactionsGivenUp").increment(1);
    }

    /// Counts an attempt of any kind that failed, also one that is made again.
    ///
    /// All kinds share one metric with this dimension, because CloudWatch bills each value of a dimension as a metric. Versions
    /// without failures have no value.
    pub(crate) fn failed(&self) {
        counter!("ReactionAttemptsFailed").increment(1);
        if let Some(version) = &self.function_version {
            counter!("ReactionAttemptsFailed", "FunctionVersion" => version.clone()).increment(1);
        }
    }

    /// Records how long the oldest deadline or dispatch has been due that is not done. Each tick has a value, also without such a
    /// deadline: an alarm notices if there are none.
    pub(crate) fn oldest(&self, overdue: Duration) {
        histogram!("OldestDeadline").record(overdue.as_secs_f64());
    }
}
