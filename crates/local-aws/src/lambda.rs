//! Functions as Lambda runs them: a program in a process of its own, which gets its events over the Lambda Runtime API.
//!
//! Left out: more than one process of a function at a time, extensions, response streams, limits of memory and of the
//! size of an event.
//!
//! In reading order:
//! - [`LocalFunction`]: starts the program and invokes it.
//! - `runtime_api`: the API that the program calls.

mod function;
mod runtime_api;

pub use function::{FunctionProgram, InvocationError, LocalFunction};
