//! Properties of every aggregate that ships: for any sequence of commands, and for the events that earlier code stored.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod golden;
mod properties;
