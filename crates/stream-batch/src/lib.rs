//! What a function behind a DynamoDB stream is handed, and what it returns: the wire format between Lambda's event source
//! mapping and the stream functions, which the mapping of the dev stack uses too.
//!
//! Invariants:
//! - Records stay raw until they are read one by one: an odd one cannot fail the others.
//! - The identifier in a response is never null or empty.
//!
//! In reading order: `batch`: the batch and the response. `sequence`: sequence numbers.

mod batch;
mod sequence;

pub use batch::{BatchResponse, StreamBatch};
pub use sequence::SequenceNumber;
