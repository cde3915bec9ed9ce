//! The import of events that exist already, from another table or another system.
//!
//! Unlike an append, an import writes events with times and ids of the past, so a reader of a feed who has passed these
//! ids does not see them.

mod aggregate;
mod batch;
mod replay;

pub use self::aggregate::{ImportFailure, ImportOutcome, Imported, Importer};
pub use self::batch::ImportBatch;
