//! The input and output of a function behind a DynamoDB stream: the wire format between Lambda's event source mapping
//! and the stream functions. The mapping of the local stack uses it too.
//!
//! Invariants:
//! - Records stay raw until they are read one by one: one invalid record cannot fail the others.
//! - The identifier in a response is never null or empty.
//!
//! In reading order: `batch`: the batch and the response. `sequence`: sequence numbers.

mod batch;
mod sequence;

pub use batch::{BatchResponse, StreamBatch};
pub use sequence::SequenceNumber;
