//! Errors as `application/problem+json` (RFC 9457): a stable `type`, and never an internal text.
//!
//! Each type of problem is defined once, as a [`ProblemType`], next to the function that words its details. A new type
//! needs this definition, and a place among the problems of the endpoints that answer with it; the document takes it
//! from there.
//!
//! In reading order:
//! - `response`: a problem as an answer, and its line in the log.
//! - `request`, `aggregate`, `service`: the types, by what is wrong.
//! - `errors`: which problems errors of the store and of aggregates are.

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
pub(crate) use self::response::{ExtensionMembers, PROBLEM_JSON, Problem, ProblemType};
pub(crate) use self::service::*;
