//! The store on the embedded engine, behind a wire that counts its calls and fails those that a test tells it to.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod append;
mod budgets;
mod feed;
mod idempotency;
mod kept;
mod load;
#[path = "../../../../tests/log.rs"]
mod log;
mod notebook;
mod outages;
mod properties;
mod snapshot;
mod support;
mod transact;
mod verify;
