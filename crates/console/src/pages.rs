//! The pages, in the order of the navigation.
//!
//! - `aggregates`: the types, the latest aggregates, and the search for one by its id.
//! - `model`: what the application consists of, and what follows what.
//! - `aggregate`: one aggregate; `timeline`: its events with what became of their messages; `version`: its state at a version.
//!   `raw`: rows and values as they are stored.
//! - `events`: the latest events.
//! - `command`: sends a command. `copied_test`: the test that the copy shows.
//! - `bus`: the messages on the bus.
//! - `view`: the rows of a projection.
//! - `dead_letters`, `correlation`. `stream`; `projections`, `deadlines`: their parts of it. `health`: the alarms of a
//!   stack on AWS. `faults`.
//! - `latest_events`: the latest events of a type. `live`: what *Events* and *Bus* share.

pub(crate) mod aggregate;
pub(crate) mod aggregates;
pub(crate) mod bus;
pub(crate) mod command;
pub(crate) mod copied_test;
pub(crate) mod correlation;
pub(crate) mod dead_letters;
mod deadlines;
pub(crate) mod events;
pub(crate) mod faults;
pub(crate) mod health;
mod latest_events;
mod live;
pub(crate) mod model;
pub(crate) mod projections;
pub(crate) mod raw;
pub(crate) mod stream;
mod timeline;
mod version;
pub(crate) mod view;
