//! Tests of a projection as a pure function: given these events, the view shows these rows.
//!
//! ```text
//! given::<OrdersByStatus>()
//!     .aggregate::<Order>("7", [placed(45), shipped()])
//!     .shows("shipped", Row { orders: 1, total: 45 })
//!     .shows_nothing_at("placed");
//! ```

use std::collections::BTreeMap;
use std::fmt::Debug;

use daybook_decider::{Aggregate, FollowedEvent, Meta};
use jiff::Timestamp;

use crate::projection::{Follows, Projection};

/// Starts a test with an empty view.
pub fn given<P: Projection>() -> GivenView<P> {
    GivenView { rows: BTreeMap::new(), time: Timestamp::UNIX_EPOCH }
}

/// The view under test, which [`given`] returns.
pub struct GivenView<P: Projection> {
    rows: BTreeMap<String, P::Row>,
    time: Timestamp,
}

impl<P: Projection> GivenView<P> {
    /// Sets the time of the events that later calls add. Without it, the time is the beginning of 1970.
    #[must_use]
    pub fn at(self, time: Timestamp) -> Self {
        Self { time, ..self }
    }

    /// Adds an aggregate whose stream holds these events.
    #[must_use]
    pub fn aggregate<A: Aggregate>(mut self, id: &str, events: impl IntoIterator<Item = A::Event>) -> Self
    where
        P: Follows<A>,
    {
        let (mut state, meta) = (<P as Follows<A>>::State::default(), Meta::default());
        for (seq_num, event) in (1..).zip(events) {
            let event = FollowedEvent { aggregate_id: id, seq_num, occurred_at: self.time, meta: &meta, event: &event };
            let after = <P as Follows<A>>::advance(state.clone(), &event);
            for (key, change) in <P as Follows<A>>::changes(&state, &event, &after) {
                if let Some(row) = P::apply(self.rows.remove(&key), &change) {
                    self.rows.insert(key, row);
                }
            }
            state = after;
        }
        self
    }

    /// Expects that the view has no row with this key.
    ///
    /// # Panics
    ///
    /// When the view has such a row.
    #[track_caller]
    pub fn shows_nothing_at(self, key: &str) -> Self {
        assert!(!self.rows.contains_key(key), "there is a row {key:?}");
        self
    }
}

impl<P: Projection> GivenView<P>
where
    P::Row: Debug + PartialEq,
{
    /// Expects that the view has this row.
    ///
    /// # Panics
    ///
    /// When the row differs or is missing.
    #[track_caller]
    pub fn shows(self, key: &str, row: P::Row) -> Self {
        let keys: Vec<_> = self.rows.keys().collect();
        let shown = self.rows.get(key).unwrap_or_else(|| panic!("there is no row {key:?}; the view has {keys:?}"));
        assert_eq!(*shown, row, "row {key:?}");
        self
    }
}
