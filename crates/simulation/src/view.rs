//! The simulated projector: a view with its rows and positions.
//!
//! Invariant: the rows that an event changes and the position of its aggregate change together, so each event is folded once.

use std::collections::BTreeMap;

use daybook_decider::{AggregateKey, Json, RecordedEvent};
use daybook_projection::ProjectionModel;

use crate::fault::Fault;
use crate::random::hash;
use crate::table::forget;

#[derive(Default)]
pub(crate) struct View {
    /// The parts of the rows, by key and number.
    parts: BTreeMap<(String, u64), Json>,
    /// How far each aggregate is folded, and what the projection knows of it.
    positions: BTreeMap<AggregateKey, (u64, Option<Json>)>,
}

impl View {
    /// The number of events of an aggregate that are folded.
    pub(crate) fn position(&self, of: &AggregateKey) -> usize {
        self.positions.get(of).map_or(0, |(position, _)| *position as usize)
    }

    /// Folds an event, the one after the position of its aggregate. Returns the keys of the rows that it has changed.
    pub(crate) fn fold(
        &mut self,
        model: &dyn ProjectionModel,
        of: &AggregateKey,
        event: &RecordedEvent,
    ) -> Result<Vec<String>, Fault> {
        let failed =
            |error: String| Fault::new(format!("the view {} cannot fold {}", model.name(), event.event_type), error);
        let state = self.positions.get(of).and_then(|(_, state)| state.as_ref());
        let advanced = model.advance(&of.aggregate_type, &of.id, state, std::slice::from_ref(event));
        advanced.stopped.map_or(Ok(()), |stopped| Err(failed(stopped.to_string())))?;
        let number = hash(&[&of.aggregate_type, &of.id]) % u64::from(model.part_count());
        let changes: Vec<_> = advanced.steps.iter().flat_map(|step| &step.changes).collect();
        for (key, change) in &changes {
            let part = (key.clone(), number);
            match model.apply(self.parts.get(&part), &[change]).map_err(|error| failed(error.to_string()))? {
                Some(row) => self.parts.insert(part, row),
                None => self.parts.remove(&part),
            };
        }
        self.positions.insert(of.clone(), (event.seq_num, advanced.state));
        Ok(changes.into_iter().map(|(key, _)| key.clone()).collect())
    }

    /// Forgets the personal values about a subject.
    pub(crate) fn forget(&mut self, subject: &str) {
        let states = self.positions.values_mut().filter_map(|(_, state)| state.as_mut());
        self.parts.values_mut().chain(states).for_each(|json| forget(json, subject));
    }

    pub(crate) fn row(&self, model: &dyn ProjectionModel, key: &str) -> Result<Option<Json>, Fault> {
        let parts = self.parts.range((key.to_owned(), 0)..=(key.to_owned(), u64::MAX));
        let parts: Vec<_> = parts.map(|(_, part)| part.clone()).collect();
        model.merge(&parts).map_err(|error| Fault::new(format!("the view {} cannot merge a row", model.name()), error))
    }

    pub(crate) fn rows(&self, model: &dyn ProjectionModel) -> Result<BTreeMap<String, Json>, Fault> {
        let read = |(key, _): &(String, u64)| Some((key.clone(), self.row(model, key).transpose()?));
        self.parts.keys().filter_map(read).map(|(key, row)| Ok((key, row?))).collect()
    }
}
