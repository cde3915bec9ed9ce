//! The local services over HTTP, as their clients see them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bus_parts;
mod kms;
mod messaging;
mod queue;
mod rules;
