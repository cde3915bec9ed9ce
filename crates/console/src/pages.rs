//! The pages, one file each. Parts of *An aggregate* are in `timeline` and `version`, and parts of *Stream* in `projections` and
//! `deadlines`. Several pages use `copied_test` and `latest_events`; `live` is what *Events* and *Bus* share.

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
