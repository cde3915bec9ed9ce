//! Shared code for the tests of several crates. Only `dev-dependencies` name this crate, so no deployed binary contains
//! it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod badge;
pub mod clock;
pub mod collector;
pub mod commands;
pub mod engine;
pub mod fault_proxy;
pub mod fragile;
pub mod golden_rows;
pub mod log;
pub mod names;
pub mod network;
pub mod node;
pub mod notebook;
pub mod row;
pub mod stream_record;
pub mod subject;
pub mod table;
pub mod timer;
