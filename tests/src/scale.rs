//! A simulation of the load on a stack: calls, capacity units, partitions, concurrency and costs, and how commands race for one
//! aggregate. tests/src/scale/tables.md and the tables of docs/scale.md are its output. Tests compare it with the counted calls
//! of the event store.
//!
//! `command`: the calls and units of a command, a read and a projection. `load`: what a number of commands a second needs, and
//! which default quotas that exceeds. `hot_aggregate`: processes that write to the same aggregate; `pacing`: how they limit
//! their attempts. `tables`: the tables of the documents.

mod command;
mod hot_aggregate;
mod load;
mod pacing;
mod tables;

pub use command::{Command, WriteUnits, feed_queries, projection};
pub use hot_aggregate::{HotAggregate, Simulated};
pub use load::{Limit, Load};
pub use tables::{document, page_tables};
