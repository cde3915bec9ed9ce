//! Tests of the golden files of aggregates. They contain events as they were once stored, in `golden/<type>.json`: every event
//! in the table must stay readable, and a stored form cannot change without a new version.
//!
//! An entry contains the name of an event, its version, the shape of that version, and an example. If the form is not
//! written any more, the entry also contains the events that it is read as today. To change a stored form, raise the
//! version in `EVENTS`, write the upcast, and add an entry. Existing entries stay forever; only `reads` changes.
//!
//! `golden/<type>/state-<STATE_VERSION>.json` contains the states that these events are folded into.
//!
//! Invariant: a difference panics, because the callers are tests. With `GOLDEN=write` in the environment, what is missing is
//! added, and what is there never changes. With `GOLDEN=replace`, files that contain only first versions are written again.
//!
//! In reading order:
//! - [`GoldenFiles`]: the files and their entries.
//! - `events`, `states`: the checks. `shape`: the shape of an event's data, or of a state.

#![warn(missing_docs)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod events;
mod files;
mod shape;
mod states;

pub use files::GoldenFiles;
