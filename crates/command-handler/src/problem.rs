//! Errors as `application/problem+json` (RFC 9457): a stable `type`, and no internal text.
//!
//! Each type of problem is defined once, as a [`ProblemType`], next to the function that writes its details. A new type
//! needs this definition, and an entry in the problems of the endpoints that return it; the OpenAPI document takes it
//! from there.
//!
//! In reading order:
//! - `response`: a problem as a response, and its line in the log.
//! - `request`, `aggregate`, `service`: the types, by what is wrong.
//! - `errors`: the problem for each error of the store and of an aggregate.

mod aggregate;
mod errors;
mod request;
mod response;
mod service;
#[cfg(test)]
mod tests;

pub(crate) use self::aggregate::*;
pub(crate) use self::errors::ABOUT_A_COMMAND;
pub(crate) use self::request::*;
pub(crate) use self::response::{ExtensionMembers, PROBLEM_JSON, Problem, ProblemType, log_problem};
pub(crate) use self::service::*;
