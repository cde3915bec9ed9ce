//! The append: one transaction that updates the metadata, puts the events, and puts the messages into the outbox.
//!
//! In reading order: `transaction`: its items; `claims`: those of unique values; `deadlines`: those of deadlines; `batch`: the items of several decisions;
//! `joint`: those of several aggregates; `call`: sends the transaction and interprets a failure; `error`: the errors of an append; `import`: appends of events that
//! exist already.

pub(crate) mod batch;
mod call;
mod claims;
mod deadlines;
mod error;
mod import;
mod joint;
mod transaction;

pub(crate) use self::batch::{Batch, FirstEvent};
pub(crate) use self::call::AppendCall;
pub(crate) use self::claims::{ClaimHolders, read_claim};
pub use self::error::AppendError;
pub(crate) use self::joint::NotBuilt;
pub use self::transaction::{ImportWrite, NewEvents};
