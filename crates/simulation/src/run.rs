//! The actions of a schedule, and their execution. The invariants are checked after each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use daybook_decider::record::timestamp;
use daybook_decider::{AggregateKey, Json};
use jiff::{SignedDuration, Timestamp};

use crate::consumer::Message;
use crate::fault::Fault;
use crate::random::hash;
use crate::request::Request;
use crate::simulation::Simulation;
use crate::table::{ACCEPTED, Answer, NotAppended, ReadyDecision, Table};
use crate::world::World;

/// Maximum actions at the end of a schedule until it must have come to rest, or waits for a deadline.
const MAX_ACTIONS: usize = 2_000;

/// Maximum deadlines that it waits for at the end, because each may set the next one.
const MAX_WAITS: usize = 50;

/// No function decides and appends over a longer time: API Gateway waits 30 seconds.
const LONGEST_REQUEST: SignedDuration = SignedDuration::from_secs(30);

/// One step of a schedule. It names what it concerns, so that the rest of a schedule still makes sense without it.
#[derive(Clone)]
pub(crate) enum Action {
    /// A client sends a request, under an id for later attempts.
    Send { id: String, request: Box<Request>, attempt: Attempt },
    /// A request without an answer goes on, or is sent again; or the system sends one.
    Attempt { id: String, attempt: Attempt },
    /// A message arrives at the consumer of this index, perhaps a second time.
    Deliver { consumer: usize, of: AggregateKey, seq: u64, crash: bool },
    /// The next event of an aggregate is folded into the view of this index.
    Fold { view: usize, of: AggregateKey },
    /// This time passes, or that up to the next deadline.
    Wait(Option<SignedDuration>),
}

/// How far an attempt at a request gets.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Attempt {
    Whole,
    /// It is decided, and the append comes later.
    Delay,
    /// The function crashes before the append.
    Crash,
    LoseAnswer,
}

/// A request without an answer.
struct InFlight {
    request: Request,
    /// The `Idempotency-Key`.
    key: Option<String>,
    decided: u64,
    /// The decision whose append comes later, and its time.
    delayed: Option<(ReadyDecision, Timestamp)>,
    /// The aggregates on which its decisions have lost a race.
    raced: BTreeSet<AggregateKey>,
    /// The id of the request after whose answer it is sent.
    after: Option<String>,
}

pub(crate) struct Run<'p> {
    simulation: &'p Simulation,
    seed: u64,
    world: World<'p>,
    /// By id.
    in_flight: BTreeMap<String, InFlight>,
    /// The first answers to requests of clients.
    pub(crate) answers: Vec<String>,
    /// What has happened: each step with its effects.
    pub(crate) log: Vec<String>,
    steps: usize,
}

impl<'p> Run<'p> {
    pub(crate) fn new(simulation: &'p Simulation, seed: u64) -> Self {
        let table = Table::new(&simulation.registry);
        let world = World::new(table, &simulation.projections, &simulation.consumers);
        Self { simulation, seed, world, in_flight: BTreeMap::new(), answers: Vec::new(), log: Vec::new(), steps: 0 }
    }

    /// Executes the requests that come before all others.
    pub(crate) fn set_up(&mut self) -> Result<(), Fault> {
        for request in &self.simulation.first {
            self.log.push(format!("     at first, {request}"));
            let (id, lines) = (format!("setup {}", self.log.len()), self.log.len());
            self.put_in_flight(&id, request.clone(), &id);
            let answer = self.attempt(&id, Attempt::Whole)?.unwrap_or_default();
            if answer != ACCEPTED {
                return Err(Fault::new("a request of `.starting_with(…)` changes nothing", answer));
            }
            self.log.truncate(lines);
        }
        self.steps = 0;
        self.check()
    }

    /// Executes an action, if it is possible now.
    pub(crate) fn perform(&mut self, action: Action) -> Result<(), Fault> {
        match action {
            Action::Send { id, request, attempt } => {
                self.put_in_flight(&id, *request, &id);
                let answer = self.attempt(&id, attempt)?;
                self.answers.extend(answer);
            }
            Action::Attempt { id, attempt } => drop(self.attempt(&id, attempt)?),
            Action::Deliver { consumer, of, seq, crash } => self.deliver(consumer, &of, seq, crash)?,
            Action::Fold { view, of } => self.fold(view, &of)?,
            Action::Wait(duration) => {
                let Some(duration) = duration.or_else(|| self.until_deadline()) else { return Ok(()) };
                self.world.now += duration;
                self.step(format!("{duration:#} pass, it is {}", timestamp(self.world.now)));
                let oldest = self.world.now - LONGEST_REQUEST;
                self.in_flight.retain(|_, flight| {
                    let is_given_up = flight.delayed.take_if(|(_, decided)| *decided < oldest).is_some();
                    // What the system sends comes again as long as its row is there.
                    flight.request.cause.is_none() || !is_given_up && duration <= LONGEST_REQUEST
                });
                // A deadline may fire in the very moment of its time.
                return self.check();
            }
        }
        self.world.now += SignedDuration::from_millis(1);
        self.check()
    }

    fn check(&self) -> Result<(), Fault> {
        self.simulation.always.iter().try_for_each(|invariant| invariant.check(&self.world))
    }

    /// Completes everything without further faults, and checks what must hold then.
    pub(crate) fn come_to_rest(&mut self) -> Result<(), Fault> {
        self.log.push("     from here on, nothing fails, and everything is completed".to_owned());
        let mut waits = 0;
        let mut actions = 0;
        while actions < MAX_ACTIONS {
            let attempt = |id| Action::Attempt { id, attempt: Attempt::Whole };
            let next = self.requests().into_iter().next().map(attempt);
            let next = next.or_else(|| self.deliveries(false).into_iter().next());
            let next = next.or_else(|| self.folds().into_iter().next());
            let wait = || self.until_deadline().filter(|_| waits < MAX_WAITS).map(|_| Action::Wait(None));
            let Some(next) = next.or_else(wait) else {
                return self.simulation.finally.iter().try_for_each(|invariant| invariant.check(&self.world));
            };
            (waits, actions) = if matches!(next, Action::Wait(_)) { (waits + 1, 0) } else { (waits, actions + 1) };
            self.perform(next)?;
        }
        Err(Fault::new("the project does not come to rest", format!("It was stopped after {MAX_ACTIONS} actions.\n")))
    }

    /// The ids of the requests without an answer, and of those that the system sends now.
    pub(crate) fn requests(&self) -> Vec<String> {
        let due = self.world.table.due(self.world.now).filter_map(|request| Some(request.cause.as_ref()?.to_string()));
        self.in_flight.keys().filter(|id| !self.must_wait(id)).cloned().chain(due).collect()
    }

    /// Whether a request is only sent after another one is answered.
    fn must_wait(&self, id: &str) -> bool {
        let after = self.in_flight.get(id).and_then(|flight| flight.after.as_ref());
        after.is_some_and(|after| self.in_flight.contains_key(after))
    }

    pub(crate) fn until_deadline(&self) -> Option<SignedDuration> {
        let times = self.world.table.times().map(|due| due.duration_since(self.world.now));
        times.filter(SignedDuration::is_positive).min()
    }

    pub(crate) fn event_types(&self) -> impl Iterator<Item = &str> {
        self.world.table.streams.values().flat_map(|stream| &stream.events).map(|event| event.event_type.as_str())
    }

    /// The messages that can arrive at consumers: those that they have not applied, or those that they have.
    pub(crate) fn deliveries(&self, again: bool) -> Vec<Action> {
        let consumers = self.simulation.consumers.iter().zip(&self.world.consumers).enumerate();
        let all = consumers.flat_map(|consumer| self.world.table.streams.iter().map(move |stream| (consumer, stream)));
        let deliveries = all.flat_map(|((consumer, (code, at)), (of, stream))| {
            let seqs = stream.messages.iter().map(|message| message.message_seq);
            let seqs = seqs.filter(move |&seq| (at.deliveries(of, seq) > 0) == again && at.can_apply(code, of, seq));
            seqs.map(move |seq| Action::Deliver { consumer, of: of.clone(), seq, crash: false })
        });
        deliveries.collect()
    }

    /// The aggregates whose next event can be folded.
    pub(crate) fn folds(&self) -> Vec<Action> {
        let views = self.simulation.projections.iter().zip(&self.world.views).enumerate();
        let all = views.flat_map(|view| self.world.table.streams.iter().map(move |stream| (view, stream)));
        let folds = all.filter(|((_, (model, view)), (of, stream))| {
            model.follows().contains(&&*of.aggregate_type) && view.position(of) < stream.events.len()
        });
        folds.map(|((view, _), (of, _))| Action::Fold { view, of: of.clone() }).collect()
    }

    fn step(&mut self, text: String) {
        self.steps += 1;
        self.log.push(format!("{:3}. {text}", self.steps));
    }

    fn detail(&mut self, text: impl Display) {
        self.log.push(format!("       {text}"));
    }

    fn put_in_flight(&mut self, id: &str, request: Request, key: &str) {
        let key = request.has_key.then(|| key.to_owned());
        let (delayed, raced, after) = (None, BTreeSet::new(), None);
        self.in_flight.insert(id.to_owned(), InFlight { request, key, decided: 0, delayed, raced, after });
    }

    /// Puts a request of the system in flight, unless it is.
    fn put_row_in_flight(&mut self, request: Request) {
        let ids = request.cause.as_ref().map(|cause| (cause.to_string(), format!("{cause:?}")));
        if let Some((id, key)) = ids.filter(|(id, _)| !self.in_flight.contains_key(id)) {
            self.put_in_flight(&id, request, &key);
        }
    }

    /// Makes an attempt at a request that is in flight, or that the system sends now. Returns the answer, if it arrives.
    fn attempt(&mut self, id: &str, attempt: Attempt) -> Result<Option<String>, Fault> {
        let is_it = |request: &&Request| request.cause.as_ref().is_some_and(|cause| cause.to_string() == id);
        let due = self.world.table.due(self.world.now).find(is_it).cloned();
        due.into_iter().for_each(|request| self.put_row_in_flight(request));
        if self.must_wait(id) {
            return Ok(None);
        }
        let Some(mut flight) = self.in_flight.remove(id) else { return Ok(None) };
        let verb = match (&flight.delayed, flight.decided) {
            (None, 0) => "sends",
            (None, _) => "sends again",
            (Some(_), _) => "waits for the answer to",
        };
        self.step(format!("{id} {verb} {}", flight.request));
        loop {
            match self.advance(id, &mut flight, attempt) {
                Ok(()) => {
                    // What the system sends comes again as long as its row is there.
                    if flight.request.cause.is_none() || flight.delayed.is_some() {
                        self.in_flight.insert(id.to_owned(), flight);
                    }
                    return Ok(None);
                }
                Err(NotAppended::Answered(answer)) => {
                    if answer.text != ACCEPTED {
                        self.detail(&answer.text);
                    }
                    let next = self.world.table.answered(&flight.request, &answer)?;
                    next.into_iter().for_each(|next| self.put_row_in_flight(next));
                    return Ok(Some(answer.text));
                }
                Err(NotAppended::Fault(fault)) => return Err(fault),
                Err(NotAppended::LostRace(changed, of)) => {
                    flight.raced.extend(of);
                    self.detail(format!("{changed}: the append fails, and it is decided again"));
                }
            }
        }
    }

    /// Decides and appends, as far as the attempt gets.
    fn advance(&mut self, id: &str, flight: &mut InFlight, attempt: Attempt) -> Result<(), NotAppended> {
        let key = flight.key.as_deref();
        let stored = key.map(|key| (flight.request.commands[0].0.clone(), key.to_owned()));
        let stored = stored.and_then(|stored| self.world.table.answers.get(&stored));
        if let Some((request, Answer { text, rejection })) = stored.cloned() {
            let text = match flight.request.is_same(&request) {
                true => format!("it was executed before, and gets the stored answer: {text}"),
                false => format!("not executed: its `Idempotency-Key` was used for another request: {request}"),
            };
            return Err(NotAppended::Answered(Answer { text, rejection }));
        }
        let is_new = flight.delayed.is_none();
        if is_new {
            flight.decided += 1;
            let random = hash(&[&self.seed.to_string(), id, &flight.decided.to_string()]);
            let (now, table) = (self.world.now, &self.world.table);
            flight.delayed = Some((table.decide(&flight.request, &flight.raced, now, random)?, now));
        }
        if attempt == Attempt::Delay && is_new {
            self.detail("it is decided, and the append comes later");
            return Ok(());
        }
        let Some((decision, _)) = flight.delayed.take().filter(|_| attempt != Attempt::Crash) else {
            self.detail("the function crashes before the append");
            return Ok(());
        };
        if self.world.table.is_withdrawn(&flight.request) {
            self.detail("it was withdrawn meanwhile, so the append fails");
            return Ok(());
        }
        let before = self.world.table.forgotten.len();
        let (answer, changes) = match self.world.table.append(decision, key, &flight.request) {
            // No process gets this answer: the deadline is given up in the end.
            Err(NotAppended::Answered(answer)) if flight.request.is_of_deadline() => {
                return Err(Fault::new("the command of a deadline fails", answer.text).into());
            }
            appended => appended?,
        };
        for subject in &self.world.table.forgotten[before..] {
            self.world.views.iter_mut().for_each(|view| view.forget(subject));
        }
        changes.into_iter().for_each(|change| self.detail(change));
        if attempt == Attempt::LoseAnswer {
            self.detail("the answer is lost");
            return Ok(());
        }
        Err(NotAppended::Answered(answer))
    }

    fn deliver(&mut self, index: usize, of: &AggregateKey, seq: u64, crash: bool) -> Result<(), Fault> {
        let (code, consumer) = (&self.simulation.consumers[index], &mut self.world.consumers[index]);
        let stream = self.world.table.streams.get(of).filter(|_| consumer.can_apply(code, of, seq));
        let outbox = stream.and_then(|stream| stream.messages.iter().find(|message| message.message_seq == seq));
        let Some(outbox) = outbox else { return Ok(()) };
        let (deliveries, before) = (consumer.deliveries(of, seq), format!("{:?}", consumer.rows));
        let sent = consumer.apply(code, &Message { aggregate: of, outbox }, crash)?;
        let after = format!("{:?}", consumer.rows);
        if after == before && sent.is_empty() && !crash {
            return Ok(());
        }
        let again = if deliveries > 0 { format!(", delivery {}", deliveries + 1) } else { String::new() };
        let message = format!("message {seq} of {of}{again}");
        self.step(format!("{} receives {message}: {} {:?}", code.name, outbox.message_type, outbox.data));
        if after != before {
            self.detail(format!("its rows are now {after}"));
        }
        if crash {
            self.detail("it crashes, and sends nothing");
        }
        let mut before = None;
        for (number, request) in (1..).zip(sent) {
            self.detail(format!("it will send {request}"));
            let (id, key) = (
                format!("{} (request {number} for {message})", code.name),
                format!("{} {of} {seq} {number}", code.name),
            );
            self.put_in_flight(&id, request, &key);
            let after = before.replace(id.clone());
            self.in_flight.entry(id).and_modify(|flight| flight.after = after);
        }
        Ok(())
    }

    fn fold(&mut self, index: usize, of: &AggregateKey) -> Result<(), Fault> {
        let views = self.simulation.projections.iter().zip(&mut self.world.views);
        let Some((model, view)) = views.into_iter().nth(index) else { return Ok(()) };
        let stream = self.world.table.streams.get(of);
        let Some(event) = stream.and_then(|stream| stream.events.get(view.position(of))) else { return Ok(()) };
        let keys = view.fold(model, of, event)?;
        let rows = keys.into_iter().map(|key| Ok((view.row(model, &key)?, key))).collect::<Result<Vec<_>, Fault>>()?;
        if !rows.is_empty() {
            self.step(format!("the view {} folds event {} of {of}: {}", model.name(), event.seq_num, event.event_type));
        }
        for (row, key) in rows {
            self.detail(format!("its row {key:?} is now {}", row.as_ref().map_or("deleted", Json::text)));
        }
        Ok(())
    }
}
