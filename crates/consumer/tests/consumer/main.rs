//! Tests of a consumer over the embedded engine, whose calls fail and whose processes are killed.
//!
//! - [`journal`]: the consumer under test. [`database`]: its table, behind a network that loses calls.
//! - [`shuffled`]: messages in any order, several times, with faults: each is applied once, and in order.
//! - [`gaps`], [`failures`], [`epochs`], [`limits`]: single rules. [`costs`]: calls and units. [`format`]: stored items.
//! - [`envelope`]: the message of the suite is the one that this crate reads. [`page`]: the code of docs/consumers.md.
//!   [`vectors`]: the cases for consumers in all languages.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod costs;
mod database;
mod envelope;
mod epochs;
mod failures;
mod format;
mod gaps;
mod journal;
mod limits;
mod page;
mod shuffled;
mod vectors;
