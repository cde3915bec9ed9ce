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

pub(super) use code::start;
pub(super) use current::{Function, Functions};
pub(super) use settings::{ConsoleSettings, FunctionSettings, queue_of_projector};
pub(super) use update_requests::{UpdateQueue, UpdateRequests};
pub(super) use version::Version;
