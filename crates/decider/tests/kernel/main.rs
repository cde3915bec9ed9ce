//! Tests of the kernel through the interface that the other crates use: a registry of models, without the types behind
//! them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod authorize;
mod batch;
mod commands;
mod context;
mod counter;
mod deadlines;
mod floats;
mod fold;
mod history;
mod ids;
mod joint;
mod json;
mod last_event;
mod messages;
mod opening;
mod process;
mod properties;
mod registry;
mod state_json;
mod strict;
mod support;
#[expect(unreachable_pub, reason = "it is a module of `daybook-test-support`, which depends on the kernel")]
#[path = "../../../../tests/support/src/timer.rs"]
mod timer;
mod upcasting;
