//! The [`Projection`] and [`Follows`] traits and their types. A new projection implements them in one file and is
//! registered in one line.

use daybook_decider::panics::AggregatePanic;
use daybook_decider::{
    Aggregate, Authorization, Caller, FollowedEvent, Json, RecordedEvent, UnreadableEvent, UnreadableKind,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The code of a read model: it folds the events of many aggregates into the rows of a view.
///
/// A projection also implements [`Follows`] for each aggregate type that it follows. All functions are synchronous and
/// pure. When another writer changed a row first, changes are applied again to the newer row, so
/// [`apply`](Self::apply) may run several times for one change.
pub trait Projection: Sized + Send + Sync + 'static {
    /// The name of the view in keys and URLs, lower-kebab. Stored format: never change it.
    const NAME: &'static str;

    /// The version of the rows, from 1 on. Raise it when the meaning of rows, changes or states changes. Rows of
    /// different versions are stored separately: register the new version beside the previous one, fill it, and then
    /// switch the readers to it.
    const VERSION: u32;

    /// The number of parts of each row. A row that very many aggregates change, such as a total over all of them, is
    /// spread over several parts, which a read merges.
    const PARTS: Parts<Self::Row> = Parts::one();

    /// A row, in the form that readers get.
    type Row: Clone + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;

    /// A change of one row.
    type Change: Send + Sync + 'static;

    /// The aggregate types that the projection follows: `vec![Source::of::<Order>()]`.
    fn sources() -> Vec<Source<Self>>;

    /// The row after a change. `row` and the result are `None` when there is no such row. A change is a fact, so this
    /// function must accept every change.
    fn apply(row: Option<Self::Row>, change: &Self::Change) -> Option<Self::Row>;

    /// Whether the caller may read this row or list these rows. By default, every caller that the API's authorizer
    /// admits may. `row` is `None` for a list, and for a row that does not exist.
    fn authorize(_caller: &Caller, _access: ViewAccess<'_>, _row: Option<&Self::Row>) -> Authorization {
        Authorization::Unrestricted
    }
}

/// How a projection follows the events of the aggregates of one type.
pub trait Follows<A: Aggregate>: Projection {
    /// What the projection must know of an aggregate from its earlier events. For example, an `OrderShipped` event
    /// holds neither the total of the order nor its previous status; this state does. It should be small, because it is
    /// stored for every aggregate. `Default` is the state before the first event.
    type State: Default + Clone + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// The state after one more event.
    fn advance(state: Self::State, event: &FollowedEvent<'_, A::Event>) -> Self::State;

    /// The changes that one event causes, each with the key of its row. `before` and `after` are the states before and
    /// after the event. A key has 1 to 512 characters in up to 1,020 bytes.
    fn changes(
        before: &Self::State,
        event: &FollowedEvent<'_, A::Event>,
        after: &Self::State,
    ) -> Vec<(String, Self::Change)>;
}

/// The parts of each row of a view, and how a read merges them.
#[derive(Debug)]
pub struct Parts<R> {
    pub(crate) count: u32,
    pub(crate) merge: Option<fn(R, R) -> R>,
}

impl<R> Parts<R> {
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

/// An aggregate type that the projection `P` follows.
pub struct Source<P: Projection> {
    pub(crate) aggregate_type: &'static str,
    pub(crate) follow: FollowFn<P>,
}

/// Computes the changes of events from the id of their aggregate, the state before them, and the events.
pub(crate) type FollowFn<P> = fn(&str, Option<&Json>, &[RecordedEvent]) -> FollowedChanges<P>;

/// The changes of each event, and the state after the last of them.
pub(crate) struct FollowedChanges<P: Projection> {
    pub(crate) events: Vec<(u64, KeyedChanges<P>)>,
    /// `None` when the state cannot be read or written.
    pub(crate) state: Option<Json>,
    pub(crate) stopped: Option<Stopped>,
}

/// The changes of one event, each with the key of its row.
pub(crate) type KeyedChanges<P> = Vec<(String, <P as Projection>::Change)>;

/// What a caller asks to do with a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewAccess<'a> {
    /// Read the row with this key.
    Read(&'a str),
    /// List the rows whose keys begin with this prefix.
    List(&'a str),
}

/// Maximum characters of a row's key.
pub const MAX_KEY: usize = 512;

/// Maximum bytes of a row's key in UTF-8. A sort key of DynamoDB has up to 1,024 bytes, and the query of a list adds up
/// to four to a key.
pub const MAX_KEY_BYTES: usize = 1020;

/// Why an event of an aggregate cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// The event cannot be read.
    #[error(transparent)]
    Unreadable(UnreadableEvent),
    /// The projection's code panicked.
    #[error(transparent)]
    Panicked(AggregatePanic),
    /// The projection's state of the aggregate cannot be read or written.
    #[error("the state of the projection cannot be read or written: {0}; was it changed without a new VERSION?")]
    State(String),
    /// A key that no row can have.
    #[error(
        "a key has {length} characters in {bytes} bytes, expected 1 to {MAX_KEY} characters in up to {MAX_KEY_BYTES} bytes"
    )]
    BadKey {
        /// The number of its characters.
        length: usize,
        /// The number of its bytes in UTF-8.
        bytes: usize,
    },
}

impl Stopped {
    /// Whether only a newer release can read the event.
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Unreadable(event) if event.kind == UnreadableKind::Newer)
    }
}
