//! The changes of the table, in the order in which they were committed, and what each of them may do then.

use std::collections::{BTreeMap, BTreeSet};

use daybook_decider::{Aggregate, AggregateKey};
use daybook_table::keys;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::reactions::BREAK;
use crate::writers::Work;

use super::errand::{Asked, Errand, Event, Note, Origin, PostboxEvent, State, WAIT};

/// The rejection of an outcome, if there is one.
type Outcome = Option<String>;

pub(crate) struct Replay<'a> {
    work: &'a Work,
    /// The errands and names of the dispatches that the operator has dropped.
    dropped: BTreeSet<(String, String)>,
    errands: BTreeMap<String, State>,
    /// The notes, each with its errand, and the outcomes of those that were input.
    posted: BTreeMap<Origin, (String, Note)>,
    inputs: BTreeMap<Origin, Outcome>,
    /// The notes that took effect.
    heard: BTreeSet<Origin>,
    /// The outcomes of dispatches and of their answers, and those that took effect.
    sent: BTreeMap<Asked, Outcome>,
    put: BTreeSet<Asked>,
    answers: BTreeMap<Asked, Outcome>,
    answered: BTreeSet<Asked>,
    /// The dispatches that have failed: those after them do not wait.
    failed: BTreeSet<Asked>,
    /// By post box, the number of the last event, and the position with whether it is suspended.
    last_events: BTreeMap<String, u64>,
    positions: BTreeMap<String, (u64, bool)>,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(work: &'a Work, dropped: BTreeSet<(AggregateKey, String, Timestamp)>) -> Self {
        Self {
            work,
            dropped: dropped.into_iter().map(|(key, name, _)| (key.id, name)).collect(),
            errands: BTreeMap::new(),
            posted: BTreeMap::new(),
            inputs: BTreeMap::new(),
            heard: BTreeSet::new(),
            sent: BTreeMap::new(),
            put: BTreeSet::new(),
            answers: BTreeMap::new(),
            answered: BTreeSet::new(),
            failed: BTreeSet::new(),
            last_events: BTreeMap::new(),
            positions: BTreeMap::new(),
        }
    }

    pub(crate) fn run(mut self) {
        for record in self.work.database.stream() {
            let (of_row, row) = (&record["dynamodb"]["Keys"], &record["dynamodb"]["NewImage"]);
            let (pk, sk) = (of_row["pk"]["S"].as_str().unwrap(), of_row["sk"]["S"].as_str().unwrap());
            let (Some(key), Some((kind, name))) = (keys::aggregate_of_pk(pk), sk.split_once('#')) else { continue };
            match kind {
                "EVENT" if key.aggregate_type == "postbox" => self.post(key.id, row),
                "EVENT" => self.evolve(key.id, row),
                "IDEMPOTENCY" => self.settle(&key, name, row),
                "POSITION" => self.move_position(key.id, row),
                "DEADLINE" if !row.is_null() => self.mark(key.id, name, row),
                _ => {}
            }
        }
        self.check_end();
    }

    fn expect(&self, holds: bool, what: impl FnOnce() -> String) {
        self.work.log.expect(holds, what);
    }

    fn post(&mut self, id: String, row: &Value) {
        let number = number(row);
        match event(row) {
            PostboxEvent::Posted { errand, note } => drop(self.posted.insert((id.clone(), number), (errand, note))),
            PostboxEvent::Put { asked } => {
                let is_first = self.put.insert(asked.clone());
                self.expect(is_first, || format!("{asked:?} takes effect twice"));
            }
            PostboxEvent::Opened {} | PostboxEvent::Removed {} => {}
        }
        self.last_events.insert(id, number);
    }

    fn evolve(&mut self, id: String, row: &Value) {
        let event: Event = event(row);
        let state = self.errands.remove(&id).unwrap_or_default();
        match &event {
            Event::Begun { from, .. } | Event::Heard { from, .. } => {
                let is_first = self.heard.insert(from.clone());
                self.expect(is_first, || format!("{from:?} takes effect twice"));
            }
            Event::Answered { asked, .. } => {
                let is_first = self.answered.insert(asked.clone());
                self.expect(is_first, || format!("{asked:?} is answered twice"));
            }
            Event::Rang { due } => {
                let at: Timestamp = row["occurredAt"]["S"].as_str().unwrap().parse().unwrap();
                let is_due = state.waits_until == Some(*due) && at >= *due;
                self.expect(is_due, || format!("{id} {due} fires at {at}: {state:?}"));
                self.work.log.count("deadline of a process fired");
            }
        }
        let before = state.asks.clone();
        let state = Errand::<false>::evolve(state, &event);
        let is_withdrawn = |ask: &&(Asked, String)| !state.asks.contains(ask) && !self.sent.contains_key(&ask.0);
        self.work.log.count_times("dispatch withdrawn", before.iter().filter(is_withdrawn).count() as u64);
        self.errands.insert(id, state);
    }

    /// An outcome is stored in an aggregate.
    fn settle(&mut self, of: &AggregateKey, key: &str, row: &Value) {
        let body: Option<Value> = row["body"]["S"].as_str().and_then(|body| serde_json::from_str(body).ok());
        let outcome = body.and_then(|body| Some(body["name"].as_str()?.to_owned()));
        let asked = |errand: &str, name: &str, number: &str| {
            let (errand, name) = (errand.to_owned(), name.to_owned());
            Asked { errand, name, number: number.parse().unwrap() }
        };
        let kind = match key.split(' ').collect::<Vec<_>>()[..] {
            ["input", postbox, number] => {
                let postbox = postbox.strip_prefix("postbox/").unwrap();
                let from = (postbox.to_owned(), number.parse().unwrap());
                let is_next = |(other, (errand, _)): &(&Origin, &(String, Note))| {
                    other.0 == from.0 && *errand == of.id && !self.inputs.contains_key(*other)
                };
                let next = self.posted.iter().find(is_next).map(|(next, _)| next);
                self.expect(next == Some(&from), || format!("{from:?} is input of {of}, and the next is {next:?}"));
                self.inputs.insert(from, outcome.clone());
                "input"
            }
            ["dispatch", errand, name, number] => {
                let asked = asked(errand.strip_prefix("errand/").unwrap(), name, number);
                self.check_turn(&asked);
                let is_first = self.sent.insert(asked.clone(), outcome.clone()).is_none();
                self.expect(is_first, || format!("{asked:?} is sent twice"));
                "dispatch"
            }
            ["answer", name, number] => {
                let asked = asked(&of.id, name, number);
                let is_first = self.answers.insert(asked.clone(), outcome.clone()).is_none();
                let is_sent = self.sent.contains_key(&asked);
                self.expect(is_first && is_sent, || format!("{asked:?} is answered, was sent: {is_sent}"));
                "answer"
            }
            // Of a client, or of a deadline.
            _ => return,
        };
        self.work.log.count(&format!("{kind} {}", outcome.as_deref().unwrap_or("accepted")));
    }

    /// Checks that a dispatch is declared when it is sent, and that those before it are done.
    fn check_turn(&self, asked: &Asked) {
        let state = self.errands.get(&asked.errand).filter(|state| !state.has_ended);
        let declared: Vec<_> = state.into_iter().flat_map(|state| &state.asks).map(|(asked, _)| asked).collect();
        self.expect(declared.contains(&asked), || format!("{asked:?} is sent, and declared are {declared:?}"));
        let before = declared.iter().take_while(|before| *before != &asked);
        let waits = |before: &&&Asked| !self.is_given_up(before) && !self.is_done(before);
        let open: Vec<_> = before.filter(waits).collect();
        self.expect(open.is_empty(), || format!("{asked:?} is sent before {open:?}"));
    }

    /// Whether it has an outcome, and the errand the answer.
    fn is_done(&self, asked: &Asked) -> bool {
        self.sent.contains_key(asked) && (asked.name == "quiet" || self.answers.contains_key(asked))
    }

    fn is_given_up(&self, asked: &Asked) -> bool {
        self.failed.contains(asked) || self.dropped.contains(&(asked.errand.clone(), asked.name.clone()))
    }

    fn move_position(&mut self, id: String, row: &Value) {
        let (to, is_suspended) = (number(row), !row["gsi1pk"].is_null());
        let after = |from: &Origin| from.0 == id && from.1 > to;
        let mut open = self.posted.keys().filter(|from| from.0 == id && !self.inputs.contains_key(*from));
        let open_before = open.find(|from| !after(from));
        self.expect(open_before.is_none(), || format!("the position of {id} is {to}, without {open_before:?}"));
        self.expect(to <= self.last_events[&id], || format!("the position of {id} is {to}"));
        if is_suspended {
            let next = self.posted.get(&(id.clone(), to + 1));
            self.expect(next.is_some_and(|(_, note)| note.kind == "jam"), || {
                format!("{id} {to}: suspended by {next:?}")
            });
            self.work.log.count("position suspended");
        }
        self.positions.insert(id, (to, is_suspended));
    }

    /// The row of a dispatch is set or marked.
    fn mark(&mut self, errand: String, name: &str, row: &Value) {
        let asked = Asked { errand, name: name.to_owned(), number: number(row) };
        match row["gsi1pk"]["S"].as_str() {
            Some(keys::FAILED_DEADLINES) => {
                self.expect(name == BREAK, || format!("{asked:?} fails"));
                self.work.log.count("dispatch failed");
                self.failed.insert(asked);
            }
            None if name != WAIT => {
                let is_right = self.is_done(&asked) || self.is_given_up(&asked);
                self.expect(is_right, || format!("{asked:?} is marked before it is done"));
            }
            _ => {}
        }
    }

    fn check_end(&self) {
        for (from, (_, note)) in &self.posted {
            let (outcome, is_heard) = (self.inputs.get(from), self.heard.contains(from));
            let is_right = outcome.is_some_and(|of| is_heard == (of.is_none() && note.kind != "idle"));
            self.expect(is_right, || format!("{from:?} {note:?}: {outcome:?}, took effect: {is_heard}"));
        }
        for (asked, outcome) in &self.sent {
            let has_effect = match (&*asked.name, outcome.as_deref()) {
                ("record", outcome) => outcome == Some("Refused"),
                ("idle", _) => false,
                (_, outcome) => outcome.is_none(),
            };
            self.expect(self.put.contains(asked) == has_effect, || format!("{asked:?}: {outcome:?}, {has_effect}"));
        }
        self.expect(self.put.iter().all(|asked| self.sent.contains_key(asked)), || {
            "a dispatch has no outcome".to_owned()
        });
        let accepted: BTreeSet<_> =
            self.answers.iter().filter(|(_, of)| of.is_none()).map(|(asked, _)| asked.clone()).collect();
        self.expect(accepted == self.answered, || format!("answered {:?}, accepted {accepted:?}", self.answered));
        for (id, state) in self.errands.iter().filter(|(_, state)| !state.has_ended) {
            let is_left =
                |asked: &&Asked| !self.is_done(asked) && !self.dropped.contains(&(id.clone(), asked.name.clone()));
            let left: Vec<_> = state.asks.iter().map(|(asked, _)| asked).filter(is_left).collect();
            let is_overdue = state.waits_until.is_some_and(|until| until <= self.work.clock.timestamp());
            self.expect(left.is_empty() && !is_overdue, || format!("{id} waits for {left:?}: {state:?}"));
        }
        for (id, last) in &self.last_events {
            let position = self.positions.get(id);
            self.expect(position == Some(&(*last, false)), || {
                format!("the position of {id} is {position:?} of {last}")
            });
        }
    }
}

fn number(row: &Value) -> u64 {
    row["seqNum"]["N"].as_str().unwrap().parse().unwrap()
}

fn event<E: DeserializeOwned>(row: &Value) -> E {
    let data: Value = serde_json::from_str(row["data"]["S"].as_str().unwrap()).unwrap();
    serde_json::from_value(json!({"type": row["eventType"]["S"], "data": data})).unwrap()
}
