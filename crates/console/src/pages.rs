//! The pages, in the order of the navigation.
//!
//! - `aggregates`: the types, and the latest aggregates.
//!   `search`: finds an aggregate by its id.
//! - `aggregate`: one aggregate; `timeline`: its events with their messages; `message_fates`: what became of these;
//!   `version`: its state at a version. `raw`: rows and values as they are stored.
//! - `command`: sends a command. `copied_test`: the test that the copy shows.
//! - `bus`: the messages on the bus. `messages`: the messages in the outbox, for a stack on
//!   AWS.
//! - `dead_letters`, `correlation`. `stream`; `projections`: their part of it. `health`: the alarms of a stack on AWS. `faults`.
//! - `latest_events`: the latest events of a type.

pub(crate) mod aggregate;
pub(crate) mod aggregates;
pub(crate) mod bus;
pub(crate) mod command;
pub(crate) mod copied_test;
pub(crate) mod correlation;
pub(crate) mod dead_letters;
pub(crate) mod faults;
pub(crate) mod health;
mod latest_events;
mod message_fates;
pub(crate) mod messages;
mod projections;
pub(crate) mod raw;
pub(crate) mod search;
pub(crate) mod stream;
mod timeline;
mod version;
