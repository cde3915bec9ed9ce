//! Parses and checks requests.
//!
//! In reading order:
//! - `bounds`: the time that a request may take, and its correlation id.
//! - `path`, `query`, `headers`, `body`: its parts.
//! - `caller`, `trace`: who sent it, and the trace that it belongs to. `span`: its span in that trace.
//! - `idempotency`: the key that makes a repetition harmless.
//! - `write_request`: the parts that a write needs.

pub(crate) mod body;
pub(crate) mod bounds;
mod caller;
mod headers;
mod idempotency;
mod path;
mod query;
mod span;
mod trace;
mod write_request;

pub(crate) use self::caller::{RequestCaller, RequestReader};
pub(crate) use self::path::PathParameters;
pub(crate) use self::query::{NoQuery, QueryParameters};
pub(crate) use self::span::AGGREGATE_TYPE;
pub(crate) use self::write_request::{WriteQuery, WriteRequest};
