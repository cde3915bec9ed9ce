//! The functions of the stack, in whichever version and process they run.
//!
//! In reading order:
//! - `settings`: what the functions get from the stack.
//! - `code`: the functions of a project and its console, in this process. `handlers`: the functions that are invoked with events.
//! - `version`: one version of the functions. `current`: the version that is used now, and how it is called.
//! - `update_requests`: asks for the version of the sources as they are now.

mod code;
mod current;
mod handlers;
mod settings;
mod update_requests;
mod version;

pub(crate) use code::start;
pub(crate) use current::{Function, Functions};
pub(crate) use settings::{ConsoleSettings, FunctionSettings, queue_of_projector};
pub(crate) use update_requests::{UpdateQueue, UpdateRequests};
pub(crate) use version::Version;
