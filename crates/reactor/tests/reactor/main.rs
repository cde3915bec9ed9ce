//! The reactor over a table and a queue that can fail, with a clock that is moved.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod costs;
mod dispatches;
mod errand;
mod failures;
mod firing;
mod inputs;
mod outages;
mod process_setup;
mod setup;
mod tick;
mod timer;
mod witness;
