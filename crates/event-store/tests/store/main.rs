//! The store on the embedded engine, behind a proxy that records its calls and injects faults.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod append;
mod budgets;
mod claims;
mod deadline;
mod feed;
mod group;
mod group_properties;
mod group_retries;
mod idempotency;
mod in_flight;
mod joint;
mod joint_rows;
mod kept;
mod load;
mod outages;
mod positions;
mod properties;
mod settled;
mod snapshot;
mod support;
mod timers;
mod transact;
