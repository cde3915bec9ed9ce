//! What a schedule finds to be wrong.

use std::fmt::Display;

use daybook_decider::AggregatePanic;

/// A broken invariant, or an error of the project's code.
pub(crate) struct Fault {
    /// What is wrong. Two schedules with the same text have found the same bug.
    pub(crate) what: String,
    /// The values of this schedule.
    pub(crate) detail: String,
}

impl Fault {
    pub(crate) fn new(what: impl Into<String>, detail: impl Display) -> Self {
        Self { what: what.into(), detail: detail.to_string() }
    }

    /// Panics, in a call of an invariant, which is caught.
    pub(crate) fn raise<T>(self) -> T {
        panic!("{}: {}", self.what, self.detail)
    }
}

impl From<AggregatePanic> for Fault {
    fn from(panic: AggregatePanic) -> Self {
        let AggregatePanic { aggregate_type, method, message, location } = panic;
        Self::new(format!("{method} of {aggregate_type} panicked at {location}"), message)
    }
}
