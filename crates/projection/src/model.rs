//! A projection with its Rust types erased, so that the same code serves every registered projection: the model, its implementation
//! for every [`Projection`], and how it follows the events of one aggregate type.

use std::any::Any;
use std::collections::BTreeMap;

use daybook_decider::panics::{AggregatePanic, calling, catch};
use daybook_decider::{Aggregate, Authorization, Caller, FollowedEvent, Json, RecordedEvent, personal, read_stored};
use schemars::Schema;
use schemars::generate::SchemaSettings;

use crate::projection::{
    FollowFn, FollowedChanges, Follows, KeyedChanges, MAX_KEY, MAX_KEY_BYTES, Projection, Source, Stopped, ViewAccess,
};

/// Why the downcast of a change cannot fail.
const OWN_CHANGE: &str = "a change is only passed to the projection that made it";

/// A registered projection.
pub trait ProjectionModel: Send + Sync {
    /// [`Projection::NAME`].
    fn name(&self) -> &'static str;

    /// [`Projection::VERSION`].
    fn version(&self) -> u32;

    /// The number of parts of each row.
    fn part_count(&self) -> u32;

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
    fn apply(&self, row: Option<&Json>, changes: &[&ErasedChange]) -> Result<Option<Json>, ApplyError>;

    /// The row that is merged from its parts; `None` when there is no part. Fails if the projection's code panics, or a part is
    /// not a row of this version.
    fn merge(&self, parts: &[Json]) -> Result<Option<Json>, RowError>;

    /// [`Projection::authorize`]. Fails if the projection's code panics, or the row is not a row of
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
    pub changes: Vec<(String, ErasedChange)>,
}

/// A change of one row, with its Rust type erased, for the projection that made it.
pub struct ErasedChange(Box<dyn Any + Send + Sync>);

impl std::fmt::Debug for ErasedChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ErasedChange").finish_non_exhaustive()
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

/// The [`ProjectionModel`] of the projection `P`.
pub(crate) struct ProjectionModelOf<P: Projection> {
    follows: Vec<&'static str>,
    sources: BTreeMap<&'static str, FollowFn<P>>,
}

impl<P: Projection> ProjectionModelOf<P> {
    pub(crate) fn new(sources: Vec<Source<P>>) -> Self {
        let follows = sources.iter().map(|source| source.aggregate_type).collect();
        Self { follows, sources: sources.into_iter().map(|source| (source.aggregate_type, source.follow)).collect() }
    }
}

impl<P: Projection> ProjectionModel for ProjectionModelOf<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn version(&self) -> u32 {
        P::VERSION
    }

    fn part_count(&self) -> u32 {
        P::PARTS.count
    }

    fn follows(&self) -> &[&'static str] {
        &self.follows
    }

    fn row_schema(&self) -> Schema {
        // The schema of the serialized row, as responses contain it.
        let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        personal::nullable(generator.into_root_schema_for::<P::Row>())
    }

    fn advance(&self, aggregate_type: &str, id: &str, state: Option<&Json>, events: &[RecordedEvent]) -> Advanced {
        let Some(follow) = self.sources.get(aggregate_type) else {
            return Advanced { steps: Vec::new(), state: state.cloned(), stopped: None };
        };
        let followed = follow(id, state, events);
        let erase = |(key, change)| (key, ErasedChange(Box::new(change) as Box<_>));
        let step = |(seq_num, changes): (u64, Vec<_>)| EventStep {
            seq_num,
            changes: changes.into_iter().map(erase).collect(),
        };
        Advanced {
            steps: followed.events.into_iter().map(step).collect(),
            state: followed.state,
            stopped: followed.stopped,
        }
    }

    fn apply(&self, row: Option<&Json>, changes: &[&ErasedChange]) -> Result<Option<Json>, ApplyError> {
        let at = |index| move |reason| ApplyError { index, reason };
        let mut row: Option<P::Row> = row.map(read::<P>).transpose().map_err(at(0))?;
        for (index, change) in changes.iter().enumerate() {
            let change: &P::Change = change.0.downcast_ref().expect(OWN_CHANGE);
            let changed = catch(P::NAME, || calling("apply", || P::apply(row, change)));
            row = changed.map_err(|panic| at(index)(panic.into()))?;
        }
        let last = changes.len().saturating_sub(1);
        row.map(|row| write::<P>(&row)).transpose().map_err(at(last))
    }

    fn merge(&self, parts: &[Json]) -> Result<Option<Json>, RowError> {
        let [first, others @ ..] = parts else { return Ok(None) };
        let mut merged = read::<P>(first)?;
        // Most rows have one part, which is not written again.
        let Some(merge) = P::PARTS.merge.filter(|_| !others.is_empty()) else { return Ok(Some(first.clone())) };
        for part in others {
            let part = read::<P>(part)?;
            merged = catch(P::NAME, || calling("merge", || merge(merged, part)))?;
        }
        write::<P>(&merged).map(Some)
    }

    fn authorize(
        &self,
        caller: &Caller,
        access: ViewAccess<'_>,
        row: Option<&Json>,
    ) -> Result<Authorization, RowError> {
        let row = row.map(read::<P>).transpose()?;
        Ok(catch(P::NAME, || calling("authorize", || P::authorize(caller, access, row.as_ref())))?)
    }
}

fn read<P: Projection>(row: &Json) -> Result<P::Row, RowError> {
    catch(P::NAME, || row.read())?.map_err(|error| RowError::Json(error.to_string()))
}

fn write<P: Projection>(row: &P::Row) -> Result<Json, RowError> {
    let json = catch(P::NAME, || Json::of(row))?.map_err(|error| RowError::Json(error.to_string()))?;
    // Nothing about an aggregate is known here, so a value without a subject is found below.
    let json = personal::attributed(json, ("", "")).map_err(RowError::Json)?;
    if personal::subjects(json.text()).contains("/") {
        let reason = "a personal value has no subject: take it from the event, or make it with Personal::about";
        return Err(RowError::Json(reason.to_owned()));
    }
    Ok(json)
}

impl<P: Projection> Source<P> {
    /// The source that follows the aggregates of type `A`.
    pub fn of<A: Aggregate>() -> Self
    where
        P: Follows<A>,
    {
        Self { aggregate_type: A::TYPE, follow: follow::<P, A> }
    }
}

fn follow<P: Follows<A>, A: Aggregate>(
    aggregate_id: &str,
    state: Option<&Json>,
    events: &[RecordedEvent],
) -> FollowedChanges<P> {
    let mut followed = FollowedChanges { events: Vec::with_capacity(events.len()), state: None, stopped: None };
    let read = catch(P::NAME, || state.map(Json::read).transpose());
    let mut state: <P as Follows<A>>::State = match read {
        Ok(Ok(state)) => state.unwrap_or_default(),
        Ok(Err(error)) => return FollowedChanges { stopped: Some(Stopped::State(error.to_string())), ..followed },
        Err(panic) => return FollowedChanges { stopped: Some(Stopped::Panicked(panic)), ..followed },
    };
    for recorded in events {
        match catch(P::NAME, || follow_event::<P, A>(aggregate_id, state.clone(), recorded)) {
            Ok(Ok((after, changes))) => {
                state = after;
                followed.events.push((recorded.seq_num, changes));
            }
            Ok(Err(stopped)) => followed.stopped = Some(stopped),
            Err(panic) => followed.stopped = Some(Stopped::Panicked(panic)),
        }
        if followed.stopped.is_some() {
            break;
        }
    }
    let written = || {
        let state = Json::of(&state).map_err(|error| error.to_string())?;
        personal::attributed(state, (A::TYPE, aggregate_id))
    };
    match catch(P::NAME, written) {
        Ok(Ok(state)) => followed.state = Some(state),
        Ok(Err(reason)) => followed.stopped = Some(Stopped::State(reason)),
        Err(panic) => followed.stopped = Some(Stopped::Panicked(panic)),
    }
    followed
}

/// The state after a stored event, and the changes that the event causes. An event in an old stored form may be read as
/// several events or none.
fn follow_event<P: Follows<A>, A: Aggregate>(
    aggregate_id: &str,
    mut state: <P as Follows<A>>::State,
    recorded: &RecordedEvent,
) -> Result<(<P as Follows<A>>::State, KeyedChanges<P>), Stopped> {
    let RecordedEvent { seq_num, occurred_at, ref meta, .. } = *recorded;
    let mut changes = Vec::new();
    for event in &read_stored::<A>(aggregate_id, recorded).map_err(Stopped::Unreadable)? {
        let event = FollowedEvent { aggregate_id, seq_num, occurred_at, meta, event };
        let after = calling("advance", || P::advance(state.clone(), &event));
        changes.extend(calling("changes", || P::changes(&state, &event, &after)));
        state = after;
    }
    let fits = |key: &str| (1..=MAX_KEY).contains(&key.chars().count()) && key.len() <= MAX_KEY_BYTES;
    match changes.iter().find(|(key, _)| !fits(key)) {
        Some((key, _)) => Err(Stopped::BadKey { length: key.chars().count(), bytes: key.len() }),
        None => Ok((state, changes)),
    }
}
