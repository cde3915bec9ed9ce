//! The simulated table: events, messages, snapshots, claims and stored answers.
//!
//! Invariant: an append is stored as a whole, and only if all that its decision has looked at is as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::once;
use std::sync::Arc;

use daybook_decider::record::FIRST_EPOCH;
use daybook_decider::{
    Addressed, AggregateKey, Claim, CommandError, CommandRejection, Decided, DecisionInput, Decisions, DomainRejection,
    Due, Folded, Involved, JointError, Json, Meta, Model, Need, OutboxMessage, RecordedEvent, Registry, joint,
    personal,
};
use jiff::Timestamp;
use serde_json::Value;
use ulid::Ulid;

use crate::fault::Fault;
use crate::request::{Cause, InputOf, Pending, Request, Row};

/// The answer to a request that has an effect.
pub(crate) const ACCEPTED: &str = "accepted";

/// The events between two snapshots: few, so that states are often restored from one, and often folded further.
const SNAPSHOT_EVERY: u64 = 2;

pub(crate) struct Stream {
    pub(crate) events: Vec<RecordedEvent>,
    pub(crate) messages: Vec<OutboxMessage>,
    /// Folded from the first event.
    pub(crate) folded: Folded,
    pub(crate) state: Json,
    pending: Pending,
    snapshot: Option<(Folded, Json)>,
}

#[derive(Default)]
pub(crate) struct Table {
    pub(crate) registry: Registry,
    pub(crate) streams: BTreeMap<AggregateKey, Stream>,
    claims: BTreeMap<Claim, AggregateKey>,
    /// Requests with their answers, by their first aggregate and `Idempotency-Key`.
    pub(crate) answers: BTreeMap<(AggregateKey, String), (Request, Answer)>,
    /// The subjects of personal values that were forgotten, in this order.
    pub(crate) forgotten: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) rejection: Option<CommandRejection>,
}

pub(crate) struct ReadyDecision {
    own: AggregateKey,
    version: u64,
    decisions: Decisions,
    involved: Involved,
    /// The number of subjects that were forgotten before.
    forgotten: usize,
}

/// Why nothing is appended.
pub(crate) enum NotAppended {
    /// This has changed since the decision, and the aggregate, if it is one.
    LostRace(String, Option<AggregateKey>),
    Answered(Answer),
    Fault(Fault),
}

impl From<Fault> for NotAppended {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Answer {
    /// The answer to a request without effect, and the name of the rejection, if it was a command of a process.
    fn without_effect(name: &str, text: String) -> Self {
        Self { rejection: Some(CommandRejection { name: name.to_owned(), detail: text.clone() }), text }
    }
}

impl Table {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self { registry: registry.clone(), ..Self::default() }
    }

    fn model(&self, of: &AggregateKey) -> Result<&dyn Model, Fault> {
        self.registry.get(&of.aggregate_type).ok_or_else(|| Fault::new("a type is not registered", of))
    }

    /// The aggregate as a function loads it: from its snapshot and the events after that.
    fn load(&self, of: &AggregateKey) -> Result<Folded, Fault> {
        let model = self.model(of)?;
        let Some(stream) = self.streams.get(of) else { return Ok(model.before_first_event()) };
        let Some((at, state)) = &stream.snapshot else { return Ok(stream.folded.clone()) };
        let (before, after) = stream.events.split_at(at.version() as usize);
        let restored = model.restore(at.version(), at.message_seq(), state);
        let unreadable = format!("a snapshot of {} cannot be read", of.aggregate_type);
        let restored =
            restored.map_err(|error| Fault::new(unreadable, error))?.with_last_event(&before[before.len() - 1]);
        fold(model, restored, after)
    }

    /// Decides a request on the aggregates as they are now. It reads those that earlier decisions have lost a race on, because a
    /// decision takes one that it creates for new.
    pub(crate) fn decide(
        &self,
        request: &Request,
        raced: &BTreeSet<AggregateKey>,
        now: Timestamp,
        random: u64,
    ) -> Result<ReadyDecision, NotAppended> {
        let own = &request.commands[0].0;
        let before = self.load(own)?;
        let mut commands = request.commands.clone();
        // The reactor leaves out what was forgotten since a command was set.
        let of_reactor = commands.iter_mut().filter(|_| request.cause.is_some());
        of_reactor.for_each(|(_, command)| {
            self.forgotten.iter().for_each(|subject| forget(&mut command.data, subject));
        });
        let commands = commands.iter().map(|(to, command)| Addressed::new(to, std::slice::from_ref(command)));
        let commands: Vec<_> = commands.collect();
        let seed = Ulid::from_parts(now.as_millisecond() as u64, u128::from(random) << 16);
        let meta = Meta { actor: request.caller.actor().map(str::to_owned), ..Meta::default() };
        let mut input = DecisionInput::new(now, seed, meta, request.caller.clone(), FIRST_EPOCH);
        let raced = raced.iter().filter(|key| *key != own).cloned().map(Need::Aggregate);
        self.read(raced.collect(), &mut input.involved)?;
        let decide = |before: &Folded, input: &DecisionInput| match &request.cause {
            Some(Cause { row: Row::Deadline(name, due, _), .. }) => {
                joint::decide_due(&self.registry, own, before, (name, *due), input)
            }
            _ => Some(joint::decide(&self.registry, before, &commands, input)),
        };
        let mut decisions = loop {
            match decide(&before, &input) {
                Some(Ok(decisions)) => break decisions,
                Some(Err(JointError { error: CommandError::Needs(needs), .. })) => {
                    self.read(needs, &mut input.involved)?;
                }
                Some(Err(error)) => return Err(not_decided(request, error)),
                None => {
                    let text = "the state does not declare it any more".to_owned();
                    return Err(NotAppended::Answered(Answer::without_effect("", text)));
                }
            }
        };
        let has_snapshot = |of| self.streams.get(of).is_some_and(|stream| stream.snapshot.is_some());
        if once(own).chain(input.involved.aggregates.keys()).any(has_snapshot) {
            let without = |of, loaded: &Folded| self.streams.get(of).map_or(loaded, |stream| &stream.folded).clone();
            let mut whole = input.clone();
            whole.involved.aggregates.iter_mut().for_each(|(of, loaded)| *loaded = without(of, loaded));
            // As values: the members of a map can have any order.
            let values = |decisions: &Decisions| -> Vec<_> {
                let events = parts(decisions).flat_map(|part| &part.events);
                events.map(|event| (event.event_type.clone(), event.data.read::<Value>().ok())).collect()
            };
            let other = decide(&without(own, &before), &whole).and_then(Result::ok).map(|decisions| values(&decisions));
            let with_snapshot = values(&decisions);
            if other.as_ref() != Some(&with_snapshot) {
                let what = format!("a decision of {} depends on a snapshot of a state", own.aggregate_type);
                return Err(Fault::new(what, format!("{own}: with it {with_snapshot:?}, without it {other:?}")).into());
            }
        }
        let subjects = subjects(&decisions);
        for subject in self.forgotten.iter().filter(|subject| subjects.contains(*subject)) {
            if request.cause.is_none() {
                let text = format!("not executed: {subject} is forgotten");
                return Err(NotAppended::Answered(Answer::without_effect("Forgotten", text)));
            }
            for part in once(&mut decisions.own).chain(decisions.others.iter_mut().map(|(_, part)| part)) {
                part.events.iter_mut().for_each(|event| forget(&mut event.data, subject));
                forget(Arc::make_mut(&mut part.state), subject);
            }
        }
        // Without events, only the answer is stored, and that of a rejection only for a process.
        let is_dispatch = request.cause.as_ref().is_some_and(|cause| matches!(cause.row, Row::Dispatch(..)));
        let is_stored = request.has_key && (is_dispatch || decisions.own.rejection.is_none());
        if !has_events(&decisions) && !is_stored {
            return Err(NotAppended::Answered(answer(&decisions)));
        }
        let (own, version, involved, forgotten) = (own.clone(), before.version(), input.involved, self.forgotten.len());
        Ok(ReadyDecision { own, version, decisions, involved, forgotten })
    }

    /// The requests of the system that were not answered yet.
    pub(crate) fn due(&self, now: Timestamp) -> impl Iterator<Item = &Request> {
        self.streams.values().flat_map(move |stream| stream.pending.due(now))
    }

    pub(crate) fn times(&self) -> impl Iterator<Item = Timestamp> {
        self.streams.values().flat_map(|stream| stream.pending.times())
    }

    /// Whether the row of a dispatch is gone, or was set again. The append of its target checks it.
    pub(crate) fn is_withdrawn(&self, request: &Request) -> bool {
        let Some(cause @ Cause { of, row: Row::Dispatch(..) }) = &request.cause else { return false };
        !self.streams.get(of).is_some_and(|stream| stream.pending.dispatches(cause))
    }

    /// Notes that a request of the system was answered, so that it is not sent again. Returns the command that its process gets
    /// for the answer to a dispatch; it is then not sent again after the answer to that.
    pub(crate) fn answered(&mut self, request: &Request, answer: &Answer) -> Result<Option<Request>, Fault> {
        let Some(cause) = &request.cause else { return Ok(None) };
        let mut done = cause.clone();
        match &cause.row {
            Row::Dispatch(name, seq) => {
                let (to, command) = &request.commands[0];
                self.answers
                    .entry((to.clone(), format!("{cause:?}")))
                    .or_insert_with(|| (request.clone(), answer.clone()));
                let source = self.model(&cause.of)?.source(&to.aggregate_type);
                let command =
                    source.map(|source| source.answered(&to.id, command, answer.rejection.as_ref())).transpose();
                let failed = |error| Fault::new(format!("an answer to {} is no input", cause.of.aggregate_type), error);
                if let Some(command) = command.map_err(failed)?.flatten() {
                    let cause = Cause { of: cause.of.clone(), row: Row::Answer(name.clone(), *seq) };
                    return Ok(Some(Request::of_row(vec![(cause.of.clone(), command)], cause)));
                }
            }
            Row::Answer(name, seq) => done.row = Row::Dispatch(name.clone(), *seq),
            Row::Deadline(..) | Row::Input(..) => {}
        }
        if let Some(stream) = self.streams.get_mut(&done.of) {
            stream.pending.done(&done);
        }
        Ok(None)
    }

    fn read(&self, needs: Vec<Need>, involved: &mut Involved) -> Result<(), Fault> {
        for need in needs {
            match need {
                Need::Aggregate(key) => drop(involved.aggregates.insert(key.clone(), self.load(&key)?)),
                Need::Holder(claim) => drop(involved.holders.insert(claim.clone(), self.claims.get(&claim).cloned())),
            }
        }
        Ok(())
    }

    /// Appends a decision on a request, with its answer under this `Idempotency-Key`. Returns the answer, and what has changed.
    pub(crate) fn append(
        &mut self,
        decision: ReadyDecision,
        key: Option<&str>,
        request: &Request,
    ) -> Result<(Answer, Vec<String>), NotAppended> {
        self.require_unchanged(&decision)?;
        let answer = answer(&decision.decisions);
        let own = decision.own.clone();
        let parts: Vec<_> = once((decision.own, decision.decisions.own)).chain(decision.decisions.others).collect();
        let mut claims = self.claims.clone();
        for (key, part) in &parts {
            claims.retain(|claim, holder| holder != key || !part.claims.released.contains(claim));
        }
        for (key, part) in &parts {
            for claim in &part.claims.taken {
                if let Some(holder) = claims.insert(claim.clone(), key.clone()).filter(|holder| holder != key) {
                    let text = format!("not executed: {holder} has the claim {claim}");
                    return Err(NotAppended::Answered(Answer::without_effect("ClaimTaken", text)));
                }
            }
        }
        self.claims = claims;
        let mut changes = Vec::new();
        for (key, part) in parts.into_iter().filter(|(_, part)| !part.events.is_empty()) {
            changes.extend(self.store(key, part)?);
        }
        key.map(|key| self.answers.insert((own, key.to_owned()), (request.clone(), answer.clone())));
        Ok((answer, changes))
    }

    fn require_unchanged(&self, decision: &ReadyDecision) -> Result<(), NotAppended> {
        let ReadyDecision { own, version, decisions, involved, forgotten } = decision;
        let others = decisions.others.iter().map(|(key, part)| (key, part.version_before()));
        let involved_aggregates = involved.aggregates.iter().map(|(key, folded)| (key, folded.version()));
        for (key, version) in once((own, *version)).chain(others).chain(involved_aggregates) {
            let now = self.streams.get(key).map_or(0, |stream| stream.folded.version());
            if now != version {
                let changed = format!("{key} is at version {now} now, and was at {version}");
                return Err(NotAppended::LostRace(changed, Some(key.clone())));
            }
        }
        let subjects = subjects(decisions);
        if let Some(subject) = self.forgotten[*forgotten..].iter().find(|subject| subjects.contains(*subject)) {
            return Err(NotAppended::LostRace(format!("{subject} is forgotten now"), None));
        }
        match involved.holders.iter().find(|(claim, holder)| self.claims.get(claim) != holder.as_ref()) {
            Some((claim, _)) => Err(NotAppended::LostRace(format!("the claim {claim} has moved"), None)),
            None => Ok(()),
        }
    }

    /// Forgets the personal values about a subject. Aggregates with such values are folded again.
    fn forget(&mut self, subject: String) -> Result<(), Fault> {
        for (key, stream) in &mut self.streams {
            stream.events.iter_mut().for_each(|event| forget(&mut event.data, &subject));
            let model = self.registry.get(&key.aggregate_type);
            let model = model.ok_or_else(|| Fault::new("a type is not registered", key))?;
            stream.folded = fold(model, model.before_first_event(), &stream.events)?;
            stream.state =
                model.state(&stream.folded).map_err(|error| Fault::new("a state cannot be written", error))?;
            stream.snapshot = None;
        }
        for key in self.streams.keys().cloned().collect::<Vec<_>>() {
            let stream = &self.streams[&key];
            let pending = stream.events.iter().filter(|event| stream.pending.has_input(event.seq_num, None));
            let inputs = self.inputs(&key, &pending.cloned().collect::<Vec<_>>())?;
            self.streams.entry(key.clone()).and_modify(|stream| stream.pending.renew(&key, inputs));
        }
        self.forgotten.push(subject);
        Ok(())
    }

    /// What events are for processes.
    fn inputs(&self, of: &AggregateKey, events: &[RecordedEvent]) -> Result<Vec<InputOf>, Fault> {
        let mut inputs = Vec::new();
        for process in self.registry.iter() {
            let source = process.source(&of.aggregate_type);
            for (source, event) in source.into_iter().flat_map(|source| events.iter().map(move |event| (source, event)))
            {
                let failed = |error| Fault::new(format!("an event is no input of {}", process.type_name()), error);
                let input = source.input(&of.id, event).map_err(failed)?;
                inputs.extend(input.map(|input| (process.type_name(), event.seq_num, input)));
            }
        }
        Ok(inputs)
    }

    /// Stores the events of one aggregate. Returns what has changed.
    fn store(&mut self, of: AggregateKey, mut decided: Decided) -> Result<Vec<String>, Fault> {
        if decided.forgets {
            let subject = of.to_string();
            decided.events.iter_mut().for_each(|event| forget(&mut event.data, &subject));
            self.forget(subject)?;
        }
        let model = self.model(&of)?;
        let before = self.streams.get(&of).map_or_else(|| model.before_first_event(), |stream| stream.folded.clone());
        let (version_before, has_snapshots) = (before.version(), !model.full_history());
        let folded = fold(model, before, &decided.events)?;
        let failed =
            || format!("the state of {}, folded from the first event, is not that from a snapshot", model.type_name());
        let state = model.state(&folded).map_err(|error| Fault::new(failed(), error))?;
        // As values: the members of a map can have any order.
        let [value, other] = [&state, &decided.state].map(|state| state.read::<Value>().ok());
        if value != other {
            return Err(Fault::new(failed(), format!("{of}: {state:?}, and not {:?}\n", decided.state)));
        }
        let shown = |event: &RecordedEvent| format!("{of} {}: {} {:?}", event.seq_num, event.event_type, event.data);
        let mut changes: Vec<_> = decided.events.iter().map(shown).collect();
        changes.push(format!("{of} is now {state:?}"));
        let (set, declared) = (decided.deadlines.set, model.deadlines(&folded)?);
        for (name, due) in &set {
            changes.push(match due {
                Due::At(_) => format!("{of} has the deadline {name} at {due}"),
                Due::Now(to) => format!("{of} dispatches {name} to {to}"),
            });
        }
        let inputs = self.inputs(&of, &decided.events)?;
        let (now, state_now) = (folded.clone(), state.clone());
        let stream = self.streams.entry(of.clone()).or_insert_with(|| {
            let (events, messages, pending, snapshot) = (Vec::new(), Vec::new(), Pending::default(), None);
            Stream { events, messages, folded: now, state: state_now, pending, snapshot }
        });
        stream.pending.declare((&of, folded.version()), declared, &set);
        for (process, seq, input) in inputs {
            stream.pending.add(process, &of, seq, input);
        }
        if has_snapshots && version_before / SNAPSHOT_EVERY < folded.version() / SNAPSHOT_EVERY {
            stream.snapshot = Some((folded.clone(), state.clone()));
        }
        stream.events.extend(decided.events);
        stream.messages.extend(decided.messages);
        (stream.folded, stream.state) = (folded, state);
        Ok(changes)
    }
}

/// Leaves the personal values about a subject out of JSON.
pub(crate) fn forget(json: &mut Json, subject: &str) {
    *json = personal::forgotten(json.clone(), subject);
}

fn fold(model: &dyn Model, onto: Folded, events: &[RecordedEvent]) -> Result<Folded, Fault> {
    let unreadable = |error| Fault::new(format!("an event of {} cannot be folded", model.type_name()), error);
    model.fold(onto, events).map_err(unreadable)
}

/// The answer to a request that cannot be decided, or the error of the project's code.
fn not_decided(request: &Request, JointError { aggregate, error, .. }: JointError) -> NotAppended {
    let about = aggregate.map_or_else(|| request.commands[0].0.clone(), |aggregate| *aggregate);
    let name = error.rejection();
    match error {
        CommandError::Panicked(panic) => return Fault::from(panic).into(),
        CommandError::Unknown { .. } | CommandError::Invalid { .. } | CommandError::Unwritable { .. } => {
            return Fault::new(format!("a command to {} cannot be decided", about.aggregate_type), error).into();
        }
        // No answer helps a process: its rows wait for other code.
        _ if name.is_none() && request.cause.is_some() => {
            return Fault::new(format!("a command of the system to {} fails", about.aggregate_type), error).into();
        }
        _ => {}
    }
    NotAppended::Answered(Answer::without_effect(name.unwrap_or_default(), format!("not executed by {about}: {error}")))
}

fn parts(decisions: &Decisions) -> impl Iterator<Item = &Decided> {
    once(&decisions.own).chain(decisions.others.iter().map(|(_, part)| part))
}

fn has_events(decisions: &Decisions) -> bool {
    parts(decisions).any(|part| !part.events.is_empty())
}

fn subjects(decisions: &Decisions) -> BTreeSet<String> {
    parts(decisions).flat_map(|part| &part.events).flat_map(|event| personal::subjects(event.data.text())).collect()
}

fn answer(decisions: &Decisions) -> Answer {
    let effect = if has_events(decisions) { "" } else { ", without effect" };
    let Some(DomainRejection { name, detail, by, .. }) = decisions.own.rejection.clone() else {
        return Answer { text: format!("{ACCEPTED}{effect}"), rejection: None };
    };
    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
    let text = format!("rejected{by}: {name}, {detail}");
    Answer { text, rejection: Some(CommandRejection { name: name.to_owned(), detail }) }
}
