//! The functions of the stack, in whichever version and process they run.
//!
//! In reading order:
//! - `current`: the version of the functions that is used now, how it is called, and how a newer one is asked for.
//! - `code`: the functions of a project and its console, in this process. `handlers`: the functions that are invoked with events.

mod code;
mod current;
mod handlers;

pub(crate) use code::{ConsoleSettings, FunctionSettings, queue_of_projector, start};
pub(crate) use current::{Function, Functions, UpdateQueue, UpdateRequests, Version};
