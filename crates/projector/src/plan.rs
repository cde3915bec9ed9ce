//! Selects the events that fit into one transaction, and applies their changes to the rows.

use std::collections::{BTreeMap, BTreeSet};

use daybook_decider::{Json, RecordedEvent};
use daybook_event_store::limits::MAX_TRANSACTION_ITEMS;
use daybook_projection::{Advanced, ErasedChange, EventStep, ProjectionModel, Stopped};
use daybook_table::AggregateKey;
use daybook_view_store::{PartKey, Position, PositionWrite, RowWrite, StoredPart, ViewWrite, part_of};

/// An aggregate with events that a view does not show yet.
#[derive(Debug)]
pub(crate) struct Unfolded {
    pub(crate) key: AggregateKey,
    /// How far the view shows its events; `None` before the first.
    pub(crate) position: Option<Position>,
    pub(crate) events: Vec<RecordedEvent>,
    /// The number of the first event that cannot be folded, and why.
    pub(crate) cannot_fold: Option<(u64, String)>,
    pub(crate) more: bool,
}

impl Unfolded {
    /// The number of the last event that the view shows; 0 before the first.
    pub(crate) fn shown(&self) -> u64 {
        self.position.as_ref().map_or(0, |position| position.seq_num)
    }
}

/// The part of an aggregate's events that one transaction folds: events 4 to 9, if the view shows 3 and `through` is 9.
#[derive(Debug)]
pub(crate) struct Planned<'a> {
    pub(crate) aggregate: &'a Unfolded,
    pub(crate) through: u64,
    pub(crate) part: u32,
    pub(crate) steps: Vec<EventStep>,
    pub(crate) state: Json,
    /// Why the event after the part cannot be folded.
    pub(crate) suspended: Option<String>,
    pub(crate) more: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    pub(crate) aggregates: Vec<Planned<'a>>,
    pub(crate) rows: BTreeSet<PartKey>,
    /// The aggregates with an event that only a newer release can read.
    pub(crate) newer: Vec<(AggregateKey, String)>,
}

impl<'a> Plan<'a> {
    /// Plans as many events as fit into one transaction, up to `max_events`.
    pub(crate) fn of(model: &dyn ProjectionModel, unfolded: &'a [Unfolded], mut max_events: usize) -> Self {
        let mut plan = Self::default();
        for aggregate in unfolded {
            if max_events == 0 || plan.items() >= MAX_TRANSACTION_ITEMS {
                break;
            }
            max_events = plan.add(model, aggregate, max_events);
        }
        plan
    }

    fn items(&self) -> usize {
        self.aggregates.len() + self.rows.len()
    }

    /// Adds the part of an aggregate's events that still fits. Returns how many more events the plan may contain.
    fn add(&mut self, model: &dyn ProjectionModel, aggregate: &'a Unfolded, max_events: usize) -> usize {
        let Unfolded { key, position, events, cannot_fold, more } = aggregate;
        let readable = cannot_fold.as_ref().map_or(events.as_slice(), |(seq_num, _)| {
            &events[..events.partition_point(|event| event.seq_num < *seq_num)]
        });
        let offered = &readable[..readable.len().min(max_events)];
        let state_before = position.as_ref().map(|position| &position.state);
        let advance = |events| model.advance(&key.aggregate_type, &key.id, state_before, events);
        let advanced = advance(offered);
        let part = part_of(key, model.part_count());
        let fitting = self.fitting(&advanced.steps, part);
        let Advanced { steps, state, stopped } =
            if fitting < advanced.steps.len() { advance(&offered[..fitting]) } else { advanced };
        let cut = steps.len() < readable.len();
        let fits_never = fitting == 0 && cut && stopped.is_none() && self.items() == 0;
        let suspended = match (&stopped, cannot_fold) {
            _ if fits_never => Some(format!(
                "event {}: it changes more rows than the {} that a transaction can hold besides the position",
                offered[0].seq_num,
                MAX_TRANSACTION_ITEMS - 1
            )),
            (Some(stopped), _) if stopped.is_newer() => {
                self.newer.push((key.clone(), stopped.to_string()));
                None
            }
            (Some(stopped), _) => Some(stopped.to_string()),
            (None, Some((_, reason))) if !cut => Some(reason.clone()),
            (None, _) => None,
        };
        if steps.is_empty() && suspended.is_none() {
            return max_events;
        }
        let state = state.or_else(|| state_before.cloned()).unwrap_or_else(Json::empty_object);
        let left = max_events - steps.len();
        let keys = steps.iter().flat_map(|step| &step.changes).map(|(key, _)| PartKey { key: key.clone(), part });
        self.rows.extend(keys);
        let through = steps.last().map_or(aggregate.shown(), |step| step.seq_num);
        let more = suspended.is_none()
            && (cut || *more)
            && stopped.as_ref().is_none_or(|stopped: &Stopped| !stopped.is_newer());
        self.aggregates.push(Planned { aggregate, through, part, steps, state, suspended, more });
        left
    }

    /// The number of events whose rows still fit, together with the position.
    fn fitting(&self, steps: &[EventStep], part: u32) -> usize {
        let mut rows = BTreeSet::new();
        for (count, step) in steps.iter().enumerate() {
            let keys = step.changes.iter().map(|(key, _)| PartKey { key: key.clone(), part });
            rows.extend(keys.filter(|key| !self.rows.contains(key)));
            if self.items() + 1 + rows.len() > MAX_TRANSACTION_ITEMS {
                return count;
            }
        }
        steps.len()
    }
}

/// The write that carries out the plan: its rows and positions, before and after. The error is an aggregate, the number
/// of its event that cannot be folded, and why.
pub(crate) fn fold(
    model: &dyn ProjectionModel,
    plan: &Plan<'_>,
    mut stored: BTreeMap<PartKey, StoredPart>,
) -> Result<ViewWrite, (AggregateKey, (u64, String))> {
    let mut changes: BTreeMap<&PartKey, Vec<(&ErasedChange, &AggregateKey, u64)>> = BTreeMap::new();
    let rows: BTreeMap<(&str, u32), &PartKey> =
        plan.rows.iter().map(|key| ((key.key.as_str(), key.part), key)).collect();
    for planned in &plan.aggregates {
        for step in &planned.steps {
            for (key, change) in &step.changes {
                let row = rows[&(key.as_str(), planned.part)];
                changes.entry(row).or_default().push((change, &planned.aggregate.key, step.seq_num));
            }
        }
    }
    let mut write = ViewWrite::default();
    for (key, changes) in changes {
        let before = stored.remove(key);
        let of_row: Vec<_> = changes.iter().map(|(change, ..)| *change).collect();
        let after = model.apply(before.as_ref().map(|row| &row.row), &of_row).map_err(|error| {
            let (_, aggregate, seq_num) = changes[error.index];
            (aggregate.clone(), (seq_num, format!("row {:?}: {error}", key.key)))
        })?;
        write.rows.insert(key.clone(), RowWrite { before: before.map(|row| row.write_id), after });
    }
    for Planned { aggregate, through, state, suspended, .. } in &plan.aggregates {
        let after =
            Position { seq_num: *through, state: state.clone(), suspended: suspended.clone(), resumed_at: None };
        let position = aggregate.position.as_ref();
        let before = position.map(|position| position.seq_num);
        let resumed_at = position.and_then(|position| position.resumed_at.clone());
        write.positions.insert(aggregate.key.clone(), PositionWrite { before, resumed_at, after });
    }
    Ok(write)
}
