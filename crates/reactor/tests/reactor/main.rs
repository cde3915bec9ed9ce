//! The reactor over a table and a queue that can fail, with a clock that is moved.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod costs;
mod failures;
mod firing;
mod outages;
mod setup;
mod tick;
mod timer;
