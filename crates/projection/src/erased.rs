//! The implementation of [`ProjectionModel`] for every [`Projection`]: the only code that knows the Rust types behind a
//! model.

use std::collections::BTreeMap;

use daybook_decider::panics::{calling, catch};
use daybook_decider::{Authorization, Caller, Json, RecordedEvent, personal};
use schemars::Schema;
use schemars::generate::SchemaSettings;

use crate::model::{Advanced, ApplyError, Change, EventStep, ProjectionModel, RowError};
use crate::projection::{FollowFn, Projection, Source, ViewAccess};

/// Why the downcast of a change cannot fail.
const OWN_CHANGE: &str = "a change is only passed to the projection that made it";

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

    fn shards(&self) -> u32 {
        P::SHARDS.count
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
        let erase = |(key, change)| (key, Change(Box::new(change) as Box<_>));
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

    fn apply(&self, row: Option<&Json>, changes: &[&Change]) -> Result<Option<Json>, ApplyError> {
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
        let Some(merge) = P::SHARDS.merge.filter(|_| !others.is_empty()) else { return Ok(Some(first.clone())) };
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
