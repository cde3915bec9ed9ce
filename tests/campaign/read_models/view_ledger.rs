//! What the views must show: each transaction of the views table is compared, when it takes effect, with a fold of the
//! events that its positions name. A row is therefore at any time what one prefix of each aggregate's events makes it, no
//! event counts twice, and no row goes back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use daybook_decider::{Json, RecordedEvent};
use daybook_projection::{ProjectionModel, Projections};
use daybook_table::{AggregateKey, EventItem, keys};
use serde_json::Value;

use crate::log::Log;
use crate::read_models::strokes::projections;

/// A part of a row: the name of its view, its number and its key.
pub(crate) type PartKey = (String, u32, String);

/// The events that were committed, and the views.
pub(crate) struct ViewLedger {
    log: Arc<Log>,
    projections: Projections,
    /// The projections with their defect, which decide which suspensions are right.
    defective: Projections,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    events: BTreeMap<AggregateKey, Vec<RecordedEvent>>,
    positions: BTreeMap<(String, AggregateKey), Followed>,
    parts: BTreeMap<PartKey, Vec<PartVersion>>,
    /// The number of transactions of the views table so far.
    commits: u64,
}

/// How far an aggregate's events are folded into a view.
#[derive(Clone, Debug, Default)]
struct Followed {
    seq_num: u64,
    state: Option<Json>,
    is_suspended: bool,
    /// The transaction that folded each event.
    folded_by: Vec<u64>,
}

/// A part of a row from a transaction on.
#[derive(Clone, Debug)]
struct PartVersion {
    commit: u64,
    /// The id of the write, unless the part does not exist.
    write_id: Option<String>,
    row: Option<Json>,
}

impl ViewLedger {
    pub(crate) fn new(log: Arc<Log>) -> Self {
        Self { log, projections: projections(true), defective: projections(false), state: Mutex::default() }
    }

    /// Receives a transaction that has taken effect.
    pub(crate) fn committed(&self, request: &Value) {
        let items = request["TransactItems"].as_array().unwrap();
        let is_of_events = items.iter().any(|item| item["Put"]["Item"]["eventId"].is_object());
        if is_of_events {
            self.add_events(items);
        } else if items.iter().any(|item| !keys_of(item).0.starts_with("AGGREGATE#")) {
            self.check_write(items);
        }
    }

    fn add_events(&self, items: &[Value]) {
        let mut state = self.state.lock().unwrap();
        for item in items.iter().map(|item| &item["Put"]["Item"]).filter(|item| item["eventId"].is_object()) {
            let item: serde_dynamo::Item = serde_json::from_value(item.clone()).unwrap();
            let item: EventItem = serde_dynamo::from_item(item).unwrap();
            let key = keys::aggregate_of_pk(&item.pk).unwrap();
            state.events.entry(key).or_default().push(item.into_event().unwrap());
        }
    }

    /// Folds the events between the old positions and the new ones, and compares the rows.
    fn check_write(&self, items: &[Value]) {
        let mut state = self.state.lock().unwrap();
        state.commits += 1;
        let mut changed = BTreeSet::new();
        for item in items.iter().filter(|item| item["Put"].is_object()) {
            let position = &item["Put"]["Item"];
            if let Some(of_position) = position["pk"]["S"].as_str().and_then(|pk| pk.strip_prefix("POSITION#")) {
                changed.extend(self.follow(&mut state, of_position, position));
            }
        }
        let mut written = BTreeSet::new();
        for item in items {
            let (pk, key) = keys_of(item);
            let Some(pk) = pk.strip_prefix("VIEW#") else { continue };
            let (view, number) = pk.rsplit_once('#').unwrap();
            let part = (view.to_owned(), number.parse().unwrap(), key.to_owned());
            let image = &item["Put"]["Item"];
            let text = |name: &str| image[name]["S"].as_str();
            let expected = state.row(&part).map(|row| row.text().to_owned());
            self.log.expect(expected.as_deref() == text("row"), || {
                format!("{part:?} is {image}, and the events up to its positions make it {expected:?}")
            });
            let (commit, row) = (state.commits, state.row(&part));
            let versions = state.parts.entry(part.clone()).or_default();
            versions.retain(|version| version.commit < commit);
            versions.push(PartVersion { commit, write_id: text("writeId").map(str::to_owned), row });
            written.insert(part);
        }
        for part in changed.difference(&written) {
            let is_same = state.parts[part].iter().rev().nth(1).map(|version| version.row.clone()).unwrap_or_default()
                == state.row(part);
            self.log.expect(is_same, || format!("{part:?} was not written with the positions of its events"));
        }
    }

    /// Moves a position. Returns the parts of rows that change.
    fn follow(&self, state: &mut State, of_position: &str, item: &Value) -> Vec<PartKey> {
        let mut names = of_position.splitn(3, '#');
        let (view, aggregate_type, id) = (names.next().unwrap(), names.next().unwrap(), names.next().unwrap());
        let key = AggregateKey::new(aggregate_type, id);
        let name = view.split('@').next().unwrap();
        let model = self.projections.read_version(name, None).unwrap();
        let before = state.positions.get(&(view.to_owned(), key.clone())).cloned().unwrap_or_default();
        let seq_num: u64 = item["seqNum"]["N"].as_str().unwrap().parse().unwrap();
        let is_suspended = item["suspended"].is_object();
        let events = state.events.get(&key).cloned().unwrap_or_default();
        let moves = before.seq_num < seq_num || (before.seq_num == seq_num && is_suspended);
        self.log.expect(moves && seq_num <= events.len() as u64, || {
            format!("{view}: the position of {key} goes from {} to {seq_num} of {}", before.seq_num, events.len())
        });
        let goes_on = before.is_suspended && !is_suspended;
        self.log.expect(!goes_on, || format!("{view}: {key} goes on although it is suspended"));
        if !moves || seq_num > events.len() as u64 {
            return Vec::new();
        }
        let (from, to) = (usize::try_from(before.seq_num).unwrap(), usize::try_from(seq_num).unwrap());
        let advanced = model.advance(&key.aggregate_type, &key.id, before.state.as_ref(), &events[from..to]);
        let text = advanced.state.as_ref().map(Json::text);
        self.log.expect(text == item["state"]["S"].as_str() || from == to, || {
            format!("{view}: the state of {key} after event {seq_num} is {}, expected {text:?}", item["state"])
        });
        let number = part_of(&key, model.part_count());
        let commit = state.commits;
        let mut changed = Vec::new();
        for (row_key, change) in advanced.steps.iter().flat_map(|step| &step.changes) {
            let part = (view.to_owned(), number, row_key.clone());
            let row = model.apply(state.row(&part).as_ref(), &[change]).unwrap();
            let versions = state.parts.entry(part.clone()).or_default();
            versions.retain(|version| version.commit < commit);
            versions.push(PartVersion { commit, write_id: None, row });
            changed.push(part);
        }
        if is_suspended {
            self.log.count("aggregate suspended");
            let next = events.get(to);
            let fails = next.is_some_and(|event| self.fails(name, &key, advanced.state.as_ref(), event));
            self.log.expect(fails, || format!("{view}: {key} is suspended before {next:?}"));
        }
        let mut folded_by = before.folded_by;
        folded_by.resize(to, commit);
        let after = Followed { seq_num, state: advanced.state, is_suspended, folded_by };
        state.positions.insert((view.to_owned(), key), after);
        changed
    }

    /// Whether the projection with its defect cannot fold an event.
    fn fails(&self, name: &str, key: &AggregateKey, state: Option<&Json>, event: &RecordedEvent) -> bool {
        let model = self.defective.read_version(name, None).unwrap();
        let advanced = model.advance(&key.aggregate_type, &key.id, state, std::slice::from_ref(event));
        let changes = advanced.steps.iter().flat_map(|step| &step.changes);
        advanced.stopped.is_some() || changes.into_iter().any(|(_, change)| model.apply(None, &[change]).is_err())
    }

    /// Receives that an operator has resumed an aggregate.
    pub(crate) fn resumed(&self, view: &str, key: &AggregateKey) {
        if let Some(position) = self.state.lock().unwrap().positions.get_mut(&(view.to_owned(), key.clone())) {
            position.is_suspended = false;
        }
    }

    /// The number of events of an aggregate that are committed.
    pub(crate) fn events(&self, key: &AggregateKey) -> u64 {
        self.state.lock().unwrap().events.get(key).map_or(0, |events| events.len() as u64)
    }

    /// The views that have folded fewer events of an aggregate than this number, although they have not suspended it.
    pub(crate) fn behind(&self, key: &AggregateKey, events: u64) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let following = self.projections.following(&key.aggregate_type).map(view_of);
        let is_behind = |view: &String| {
            let position = state.positions.get(&(view.clone(), key.clone()));
            position.map_or(events > 0, |position| position.seq_num < events && !position.is_suspended)
        };
        following.filter(is_behind).collect()
    }

    /// The aggregates that have events.
    pub(crate) fn aggregates(&self) -> Vec<AggregateKey> {
        self.state.lock().unwrap().events.keys().cloned().collect()
    }

    /// The rows that ever existed: view and key.
    pub(crate) fn rows(&self) -> Vec<(String, String)> {
        let state = self.state.lock().unwrap();
        let rows: BTreeSet<_> = state.parts.keys().map(|(view, _, key)| (view.clone(), key.clone())).collect();
        rows.into_iter().collect()
    }

    /// The rows of a view that was folded from the first event, aggregate by aggregate, with all parts of a row as one.
    /// Events after a suspension do not count.
    pub(crate) fn folded_anew(&self, model: &dyn ProjectionModel) -> BTreeMap<String, Json> {
        let state = self.state.lock().unwrap();
        let mut rows: BTreeMap<String, Json> = BTreeMap::new();
        for (key, events) in &state.events {
            if !model.follows().contains(&key.aggregate_type.as_str()) {
                continue;
            }
            let position = state.positions.get(&(view_of(model), key.clone())).filter(|position| position.is_suspended);
            let count = position.map_or(events.len(), |position| usize::try_from(position.seq_num).unwrap());
            let advanced = model.advance(&key.aggregate_type, &key.id, None, &events[..count]);
            for (key, change) in advanced.steps.iter().flat_map(|step| &step.changes) {
                if let Some(row) = model.apply(rows.remove(key).as_ref(), &[change]).unwrap() {
                    rows.insert(key.clone(), row);
                }
            }
        }
        rows
    }

    /// Checks the parts that a read of a row returned, by the ids of their writes. `read` holds the version of each part
    /// that the same reader has seen before: a part never goes back.
    pub(crate) fn check_read(&self, view: &str, key: &str, write_ids: &[&str], read: &mut BTreeMap<PartKey, usize>) {
        let state = self.state.lock().unwrap();
        let mut known = 0;
        for (part, versions) in state.parts.iter().filter(|((of, _, row), _)| of == view && row == key) {
            let first = read.get(part).copied().unwrap_or_default();
            let is_read = |version: &PartVersion| match &version.write_id {
                Some(write_id) => write_ids.contains(&write_id.as_str()),
                None => false,
            };
            let any = versions.iter().rposition(is_read);
            known += usize::from(any.is_some());
            // A part that was not returned did not exist.
            let absent = || (first..versions.len()).find(|&at| versions[at].write_id.is_none());
            let found = any.or_else(absent);
            let never = any.is_none() && first == 0;
            self.log.expect(found.is_some_and(|found| found >= first) || never, || {
                format!("{part:?} goes back from version {first} to {found:?} of {}", versions.len())
            });
            if let Some(found) = found {
                read.insert(part.clone(), found.max(first));
            }
        }
        self.log.expect(known == write_ids.len(), || format!("{view} {key}: unknown writes among {write_ids:?}"));
    }

    /// Checks that a row shows an event: its part is at least the one that the event's transaction left.
    pub(crate) fn check_seen(&self, view: &str, key: &str, write_ids: &[&str], seen: (&AggregateKey, u64)) {
        let (aggregate, seq_num) = seen;
        let model = self.projections.read_version(view.split('@').next().unwrap(), None).unwrap();
        let part = (view.to_owned(), part_of(aggregate, model.part_count()), key.to_owned());
        let state = self.state.lock().unwrap();
        let Some(versions) = state.parts.get(&part) else { return };
        let position = &state.positions[&(view.to_owned(), aggregate.clone())];
        let commit = position.folded_by[usize::try_from(seq_num).unwrap() - 1];
        let Some(oldest) = versions.iter().rposition(|version| version.commit <= commit) else { return };
        let is_read = |version: &PartVersion| match &version.write_id {
            Some(write_id) => write_ids.contains(&write_id.as_str()),
            None => false,
        };
        let shown = versions.iter().rposition(is_read);
        let is_absent = versions[oldest..].iter().any(|version| version.write_id.is_none());
        self.log.expect(shown.map_or(is_absent, |shown| shown >= oldest), || {
            format!(
                "{part:?} is read as {shown:?} of {}, and event {seq_num} of {aggregate} as {oldest}",
                versions.len()
            )
        });
    }
}

impl State {
    /// The part of a row as the events up to the positions make it.
    fn row(&self, part: &PartKey) -> Option<Json> {
        self.parts.get(part)?.last()?.row.clone()
    }
}

/// The name of a view in keys.
pub(crate) fn view_of(model: &dyn ProjectionModel) -> String {
    format!("{}@{}", model.name(), model.version())
}

/// The part of each row that an aggregate changes.
fn part_of(key: &AggregateKey, part_count: u32) -> u32 {
    let text = format!("{}/{}", key.aggregate_type, key.id);
    u32::try_from(keys::stable_hash(&text) % u64::from(part_count)).unwrap()
}

/// The partition and sort key of a part of a transaction.
fn keys_of(item: &Value) -> (&str, &str) {
    let of = item.as_object().unwrap().values().next().unwrap();
    let key = if of["Key"].is_object() { &of["Key"] } else { &of["Item"] };
    (key["pk"]["S"].as_str().unwrap(), key["sk"]["S"].as_str().unwrap())
}
