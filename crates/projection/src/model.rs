//! A projection with its Rust types erased, so that the same code serves every registered projection.

use std::any::Any;

use daybook_decider::panics::AggregatePanic;
use daybook_decider::{Authorization, Caller, Json, RecordedEvent};
use schemars::Schema;

use crate::projection::{Stopped, ViewAccess};

/// A registered projection.
pub trait ProjectionModel: Send + Sync {
    /// [`Projection::NAME`](crate::Projection::NAME).
    fn name(&self) -> &'static str;

    /// [`Projection::VERSION`](crate::Projection::VERSION).
    fn version(&self) -> u32;

    /// The number of parts of each row.
    fn shards(&self) -> u32;

    /// The aggregate types that the projection follows.
    fn follows(&self) -> &[&'static str];

    /// The JSON Schema of a row.
    fn row_schema(&self) -> Schema;

    /// The changes that `events` of an aggregate cause. The events have no gap, and follow directly on the event after
    /// which the aggregate had `state`. `state` is `None` before the first event of the aggregate. Stops before an
    /// event that cannot be followed.
    fn advance(&self, aggregate_type: &str, id: &str, state: Option<&Json>, events: &[RecordedEvent]) -> Advanced;

    /// The row after these changes, applied in this order. `row` and the result are `None` when there is no such row. Fails if a
    /// change cannot be applied.
    fn apply(&self, row: Option<&Json>, changes: &[&Change]) -> Result<Option<Json>, ApplyError>;

    /// The row that is merged from its parts; `None` when there is no part. Fails if the projection's code panics, or a part is
    /// not a row of this version.
    fn merge(&self, parts: &[Json]) -> Result<Option<Json>, RowError>;

    /// [`Projection::authorize`](crate::Projection::authorize). Fails if the projection's code panics, or the row is not a row of
    /// this version.
    fn authorize(&self, caller: &Caller, access: ViewAccess<'_>, row: Option<&Json>)
    -> Result<Authorization, RowError>;
}

/// The result of following an aggregate's events.
#[derive(Debug)]
pub struct Advanced {
    /// The events that were followed, in order.
    pub steps: Vec<EventStep>,
    /// The state after these events; `None` when the state before them cannot be read, or this one cannot be written.
    pub state: Option<Json>,
    /// Why the next event cannot be followed; `None` if all were followed.
    pub stopped: Option<Stopped>,
}

/// The changes of one event.
#[derive(Debug)]
pub struct EventStep {
    /// The number of the event.
    pub seq_num: u64,
    /// The changes in order, each with the key of its row.
    pub changes: Vec<(String, Change)>,
}

/// A change of one row, for the projection that made it.
pub struct Change(pub(crate) Box<dyn Any + Send + Sync>);

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Change").finish_non_exhaustive()
    }
}

/// A change that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ApplyError {
    /// The index of the change, counted from 0.
    pub index: usize,
    /// What is wrong.
    #[source]
    pub reason: RowError,
}

/// A row that cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The JSON does not fit the row's type, or the row has no JSON form.
    #[error("the row cannot be read or written: {0}; was it changed without a new VERSION?")]
    Json(String),
    /// The projection's code panicked.
    #[error(transparent)]
    Panicked(#[from] AggregatePanic),
}
