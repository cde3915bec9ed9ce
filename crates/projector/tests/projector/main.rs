//! The projector over the embedded engine, whose calls a proxy records and fails.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod exactly_once;
mod setup;
mod suspension;
mod targets;
mod transactions;
