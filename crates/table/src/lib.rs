//! The shape of the table: its keys and the contents of its items.
//!
//! Invariant: no other crate spells an attribute name or a key prefix. Everything here is a stored format: items that
//! were once written must stay readable.
//!
//! In reading order:
//! - [`keys`]: partition and sort keys of the table and its index.
//! - [`attributes`]: attribute names, for expressions.
//! - [`items`]: the items as structs. `position`: that of processes, and how it moves.
//! - [`trace`]: the format of a trace header.
//! - `queue_messages`: the messages of the changes queue, and of the reactions queue. `clock`: the source of the current time.

pub mod attributes;
mod clock;
pub mod items;
pub mod keys;
mod position;
mod queue_messages;
pub mod trace;

pub use clock::Clock;
pub use daybook_decider::AggregateKey;
pub use items::{
    ClaimItem, DeadlineCause, DeadlineItem, DeadlineState, EventItem, IdempotencyItem, Metadata, OutboxItem,
    SnapshotItem, StoredText, UnreadableItem,
};
pub use position::{PositionItem, Suspension};
pub use queue_messages::{Changed, ChangedAggregates, DueDeadline, DueDeadlines};
