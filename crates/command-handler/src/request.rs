//! Parses and checks requests.
//!
//! In reading order:
//! - `bounds`: the time that a request may take, and its correlation id.
//! - `parameters`, `body`: its parts. Parameters are in the path, in the query and in headers.
//! - `caller`, `trace`: who sent it, and the trace that it belongs to, with its span.
//! - `write_request`: the parts that a write needs, with the key that makes a repetition harmless.

pub(crate) mod body;
pub(crate) mod bounds;
mod caller;
mod parameters;
mod trace;
mod write_request;

pub(crate) use self::caller::{RequestCaller, RequestReader};
pub(crate) use self::parameters::{NoQuery, PathParameters, QueryParameters};
pub(crate) use self::trace::AGGREGATE_TYPE;
pub(crate) use self::write_request::{WriteQuery, WriteRequest};
