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

use daybook_decider::aggregate_key::{ID_RULE, is_id};
use daybook_decider::{Aggregate, Caller, FollowedEvent, Meta};
use jiff::Timestamp;

use crate::projection::{Follows, Projection, ViewAccess};

/// Starts a test with an empty view.
pub fn given<P: Projection>() -> GivenView<P> {
    GivenView { rows: BTreeMap::new(), time: Timestamp::UNIX_EPOCH, caller: Caller::anonymous() }
}

/// The view under test, which [`given`] returns.
pub struct GivenView<P: Projection> {
    rows: BTreeMap<String, P::Row>,
    time: Timestamp,
    caller: Caller,
}

impl<P: Projection> GivenView<P> {
    /// Sets the time of the events that later calls add, in RFC 3339. Without it, the time is the beginning of 1970.
    ///
    /// # Panics
    ///
    /// When it is not a time.
    #[must_use]
    #[track_caller]
    pub fn at(self, time: &str) -> Self {
        Self { time: time.parse().expect("a time in RFC 3339"), ..self }
    }

    /// Sets the caller, who is anonymous otherwise.
    #[must_use]
    pub fn by(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// Adds an aggregate whose stream holds these events.
    ///
    /// # Panics
    ///
    /// When it is not an id.
    #[must_use]
    #[track_caller]
    pub fn aggregate<A: Aggregate>(mut self, id: &str, events: impl IntoIterator<Item = A::Event>) -> Self
    where
        P: Follows<A>,
    {
        assert!(is_id(id), "{id:?} cannot be an id: {ID_RULE}");
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

    /// Expects that the caller may do this.
    ///
    /// # Panics
    ///
    /// When it is denied.
    #[track_caller]
    pub fn allows(self, access: ViewAccess<'_>) -> Self {
        assert!(self.authorizes(access), "{access:?} is denied to {:?}", self.caller);
        self
    }

    /// Expects that the caller may not do this.
    ///
    /// # Panics
    ///
    /// When it is allowed.
    #[track_caller]
    pub fn forbids(self, access: ViewAccess<'_>) -> Self {
        assert!(!self.authorizes(access), "{access:?} is allowed to {:?}", self.caller);
        self
    }

    fn authorizes(&self, access: ViewAccess<'_>) -> bool {
        let row = match access {
            ViewAccess::Read(key) => self.rows.get(key),
            ViewAccess::List(_) => None,
        };
        P::authorize(&self.caller, access, row).is_whole()
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
