//! The console of `daybook dev`, over HTTP: each page and each action.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clock;
mod commands;
mod faults;
mod injection;
mod messages;
mod model;
mod stack;
mod suspended;
mod views;
mod visit;
