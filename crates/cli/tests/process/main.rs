//! `daybook dev` as a process: how it ends, what survives, and what a change of a source file does.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod daybook;
mod found;
mod kill;
mod projection;
mod replaced_functions;
mod restart;
mod restore;
mod stop;
mod traces;
