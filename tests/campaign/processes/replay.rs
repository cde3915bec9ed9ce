//! The changes of the table, in the order in which they were committed, and what each of them may do then.

use std::collections::{BTreeMap, BTreeSet};

use daybook_decider::{Aggregate, AggregateKey};
use daybook_table::keys;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::reactions::BREAK;
use crate::writers::Work;

use super::diary;
use super::errand::{Asked, Errand, Event, Note, Origin, POSTBOXES, PostboxEvent, State, WAIT};

/// The rejection of an outcome, if there is one.
type Outcome = Option<String>;

pub(crate) struct Replay<'a> {
    work: &'a Work,
    /// The errands and names of the dispatches that the operator has dropped.
    dropped: BTreeSet<(String, String)>,
    errands: BTreeMap<String, State>,
    /// The input of errands, and that of diaries.
    errand_inputs: Inputs,
    diary_inputs: Inputs,
    /// The outcomes of dispatches and of their answers, and those that took effect.
    sent: BTreeMap<Asked, Outcome>,
    put: BTreeSet<Asked>,
    answers: BTreeMap<Asked, Outcome>,
    answered: BTreeSet<Asked>,
    /// The dispatches that have failed: those after them do not wait.
    failed: BTreeSet<Asked>,
    /// By post box and by errand, the number of the last event.
    last_events: BTreeMap<String, u64>,
}

/// The input of the processes of a type.
#[derive(Default)]
struct Inputs {
    /// The events, each with the id of its process, and what the note does that it posts.
    posted: BTreeMap<Origin, (String, Note)>,
    /// The outcomes of those that were input, and those that took effect.
    outcomes: BTreeMap<Origin, Outcome>,
    heard: BTreeSet<Origin>,
    /// By source, the position with the number of processes that are behind it.
    positions: BTreeMap<String, (u64, usize)>,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(work: &'a Work, dropped: BTreeSet<(AggregateKey, String, Timestamp)>) -> Self {
        Self {
            work,
            dropped: dropped.into_iter().map(|(key, name, _)| (key.id, name)).collect(),
            errands: BTreeMap::new(),
            errand_inputs: Inputs::default(),
            diary_inputs: Inputs::default(),
            sent: BTreeMap::new(),
            put: BTreeSet::new(),
            answers: BTreeMap::new(),
            answered: BTreeSet::new(),
            failed: BTreeSet::new(),
            last_events: BTreeMap::new(),
        }
    }

    pub(crate) fn run(mut self) {
        for record in self.work.database.stream() {
            let (of_row, row) = (&record["dynamodb"]["Keys"], &record["dynamodb"]["NewImage"]);
            let (pk, sk) = (of_row["pk"]["S"].as_str().unwrap(), of_row["sk"]["S"].as_str().unwrap());
            let (Some(key), Some((kind, name))) = (keys::aggregate_of_pk(pk), sk.split_once('#')) else { continue };
            match kind {
                "EVENT" if key.aggregate_type == "postbox" => self.post(key.id, row),
                "EVENT" if key.aggregate_type == "errand" => self.evolve(key.id, row),
                "EVENT" => {
                    let diary::Event::Written { from } = event(row);
                    self.hear("diary", from);
                }
                "IDEMPOTENCY" => self.settle(&key, name, row),
                "POSITION" => self.move_position(name, key.id, row),
                "DEADLINE" if !row.is_null() => self.mark(key.id, name, row),
                _ => {}
            }
        }
        self.check_end();
    }

    fn expect(&self, holds: bool, what: impl FnOnce() -> String) {
        self.work.log.expect(holds, what);
    }

    fn inputs(&mut self, process: &str) -> &mut Inputs {
        if process == "errand" { &mut self.errand_inputs } else { &mut self.diary_inputs }
    }

    /// An event takes effect in a process.
    fn hear(&mut self, process: &str, from: Origin) {
        let is_first = self.inputs(process).heard.insert(from.clone());
        self.expect(is_first, || format!("{from:?} takes effect twice in {process}"));
    }

    /// Notes of a diary always have an effect.
    fn expect_in_diary(&mut self, from: Origin, of: String) {
        self.diary_inputs.posted.insert(from, (of, Note::of("write")));
    }

    fn post(&mut self, id: String, row: &Value) {
        let number = number(row);
        match event(row) {
            PostboxEvent::Posted { errand, note } => {
                self.expect_in_diary((id.clone(), number), errand.clone());
                self.errand_inputs.posted.insert((id.clone(), number), (errand, note));
            }
            PostboxEvent::Put { asked, version } => {
                self.expect(version == asked.number, || format!("{asked:?} is that of version {version}"));
                let is_first = self.put.insert(asked.clone());
                self.expect(is_first, || format!("{asked:?} takes effect twice"));
            }
            PostboxEvent::Opened {} | PostboxEvent::Removed {} => {}
        }
        self.last_events.insert(id, number);
    }

    fn evolve(&mut self, id: String, row: &Value) {
        let event: Event = event(row);
        self.expect_in_diary((id.clone(), number(row)), id.clone());
        self.last_events.insert(id.clone(), number(row));
        let state = self.errands.remove(&id).unwrap_or_default();
        match &event {
            Event::Begun { from, .. } | Event::Heard { from, .. } => self.hear("errand", from.clone()),
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
            ["input", source, number] => {
                let from = (source.split_once('/').unwrap().1.to_owned(), number.parse().unwrap());
                let inputs = self.inputs(&of.aggregate_type);
                let is_next = |(other, (process, _)): &(&Origin, &(String, Note))| {
                    other.0 == from.0 && *process == of.id && !inputs.outcomes.contains_key(*other)
                };
                let next = inputs.posted.iter().find(is_next).map(|(next, _)| next.clone());
                inputs.outcomes.insert(from.clone(), outcome.clone());
                self.expect(next.as_ref() == Some(&from), || {
                    format!("{from:?} is input of {of}, and the next is {next:?}")
                });
                if of.aggregate_type == "errand" { "input" } else { "input of a diary" }
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

    fn move_position(&mut self, process: &str, id: String, row: &Value) {
        let to = number(row);
        let suspended = row["suspended"]["M"].as_object().into_iter().flatten();
        let suspended: BTreeMap<_, _> =
            suspended.map(|(who, one)| (who.clone(), (number(&one["M"]), one["M"]["isResumed"].is_null()))).collect();
        let inputs = self.inputs(process);
        let handled = |of: &String| suspended.get(of).map_or(to, |(handled, _)| *handled);
        let mut before = inputs.posted.iter().filter(|(from, (of, _))| from.0 == id && from.1 <= handled(of));
        let open = before.find(|(from, _)| !inputs.outcomes.contains_key(*from)).map(|(from, _)| from.clone());
        let next = |handled: u64| inputs.posted.get(&(id.clone(), handled + 1));
        let wrong: Vec<_> = suspended
            .iter()
            .filter(|(_, (_, is_suspended))| *is_suspended)
            .filter(|(who, (at, _))| next(*at).is_none_or(|(of, note)| note.kind != "jam" || of != *who))
            .collect();
        let is_new = suspended.len() > inputs.positions.get(&id).map_or(0, |(_, suspended)| *suspended);
        inputs.positions.insert(id.clone(), (to, suspended.len()));
        self.expect(wrong.is_empty(), || format!("{process} {id} {to}: suspended are {wrong:?}"));
        self.expect(open.is_none(), || format!("the position of {process} in {id} is {to}, without {open:?}"));
        self.expect(to <= self.last_events[&id], || format!("the position of {process} in {id} is {to}"));
        if is_new {
            self.work.log.count("position suspended");
        }
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
        self.check_inputs(&self.errand_inputs, |id| POSTBOXES.contains(&id));
        self.check_inputs(&self.diary_inputs, |_| true);
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
    }

    fn check_inputs(&self, inputs: &Inputs, is_source: fn(&str) -> bool) {
        for (from, (process, note)) in &inputs.posted {
            let (outcome, is_heard) = (inputs.outcomes.get(from), inputs.heard.contains(from));
            let is_right = outcome.is_some_and(|of| is_heard == (of.is_none() && note.kind != "idle"));
            self.expect(is_right, || format!("{from:?} {note:?}: {outcome:?}, took effect in {process}: {is_heard}"));
        }
        for (id, last) in self.last_events.iter().filter(|(id, _)| is_source(id)) {
            let position = inputs.positions.get(id);
            self.expect(position == Some(&(*last, 0)), || format!("the position in {id} is {position:?} of {last}"));
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
