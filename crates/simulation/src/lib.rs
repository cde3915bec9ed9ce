//! Simulates a project: runs its aggregates, processes, projections and consumers through a simulated table, bus, projector and
//! clock, with races, crashes, repeats, delays and lost answers that a seed determines, and checks the project's own invariants.
//!
//! Invariant: nothing here performs I/O, waits or reads a clock. The same code and the same seed lead to the same schedule.
//!
//! In reading order:
//! - `simulation`: what a test describes. `request`: what clients and consumers send, and what the reactor sends for deadlines,
//!   dispatches, and input of processes. `world`: what invariants see.
//! - `table`: decisions and appends. `view`: the projector. `consumer`: messages, and the consumers that receive them.
//! - `run`: the actions of a schedule, and their execution.
//! - `search`: the schedules of the seeds, from `random`, and the shortest one that fails. `fault`: what is wrong.

#![warn(missing_docs)]

mod consumer;
mod fault;
mod random;
mod request;
mod run;
mod search;
mod simulation;
mod table;
mod view;
mod world;

pub use consumer::Message;
pub use random::Random;
pub use request::Request;
pub use simulation::{Simulation, simulate};
pub use world::World;
