//! The whole suite over HTTP, and the promises of its structure.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod account;
mod architecture;
mod bad_input;
mod budgets;
#[expect(unreachable_pub, reason = "it is written to be a module of `aggregates`")]
mod counter;
mod fixtures;
mod generated;
mod idempotency;
mod instance;
mod openapi;
mod order;
mod outages;
mod races;
mod readme;
mod snapshots;
mod template;
mod todo;
