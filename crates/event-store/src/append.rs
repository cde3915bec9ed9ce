//! The append: one transaction that updates the metadata, puts the events, and puts the messages into the outbox.
//!
//! In reading order: `transaction`: its items; `claims`: those of unique values; `batch`: the items of several decisions;
//! `call`: sends the transaction and interprets a failure; `error`: the errors of an append; `import`: appends of events that
//! exist already.

pub(crate) mod batch;
mod call;
mod claims;
mod error;
mod import;
mod transaction;

pub(crate) use self::batch::Batch;
pub(crate) use self::call::AppendCall;
pub(crate) use self::claims::read_claim;
pub use self::error::AppendError;
pub(crate) use self::transaction::Origin;
pub use self::transaction::{ImportOptions, NewEvents};
