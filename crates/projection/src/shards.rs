//! Rows in several parts.

/// The parts of each row of a view, and how a read merges them.
#[derive(Debug)]
pub struct Shards<R> {
    pub(crate) count: u32,
    pub(crate) merge: Option<fn(R, R) -> R>,
}

impl<R> Shards<R> {
    /// Each row has one part.
    pub const fn one() -> Self {
        Self { count: 1, merge: None }
    }

    /// Each row has up to `count` parts. The changes of one aggregate always go to the same part of a row. `merge`
    /// combines two parts. Its result must not depend on their order.
    pub const fn merged(count: u32, merge: fn(R, R) -> R) -> Self {
        Self { count, merge: Some(merge) }
    }
}
