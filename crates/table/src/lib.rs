//! The shape of the table: how keys are built and what each item holds.
//!
//! Invariant: no other crate spells an attribute name or a key prefix. Everything here is a stored format: what was once
//! written must stay readable.
//!
//! In reading order:
//! - [`keys`]: partition and sort keys of the table and its index.
//! - [`attributes`]: attribute names, for expressions.
//! - [`items`]: the items as structs.
//! - [`trace`]: what a trace header looks like.

pub mod attributes;
pub mod items;
pub mod keys;
pub mod trace;

pub use items::{EventItem, IdempotencyItem, Metadata, OutboxItem, SnapshotItem, StoredText, UnreadableItem};
pub use keys::AggregateKey;
