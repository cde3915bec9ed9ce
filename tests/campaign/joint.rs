//! The schedules of decisions over several aggregates: processes that send commands to overlapping nodes, in all orders,
//! while calls and responses are lost and processes crash.
//!
//! Checked in each schedule:
//! - All parts of a decision are stored, or none; an acknowledged one is stored, a failed one is not. What each aggregate
//!   stores is complete as if it had been alone: [`check_table`].
//! - Transfers change no sum, and two guards never have more than one together, although the decision of each only looks at the
//!   other one. Both are also true of what decisions have seen of all nodes at once, at any time.
//! - A tag belongs to one node, whose state has it, also when nodes exchange tags.
//! - A request with an idempotency key takes effect at most once, and each answer to it is the same.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_admin::AdminCalls;
use daybook_decider::{
    Addressed, AggregateKey, Caller, CommandError, CommandRequest, Decided, DecisionInput, Decisions, Folded, Involved,
    JointError, Json, Meta, Model, Registry, joint,
};
use daybook_event_store::{
    CommandResponse, Decide, EventStore, IdempotencyKey, LoadPolicy, ResponseDetail, StoreError, StoreSettings,
    TransactError, TransactOptions, Transacted, Undecided,
};
use daybook_table::keys;
use daybook_test_support::node::{Node, State, tag_claim};
use futures_util::future::{Either, join_all, select};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use ulid::Ulid;

use crate::checks::check_table;
use crate::clock::{Clock, in_virtual_time};
use crate::database::{Database, TABLE};
use crate::dice::Dice;
use crate::log::{Log, LogContents};
use crate::process::{Crash, Process, until_poll};
use crate::requests::{Attempt, WriteResult};
use crate::schedule::verify;
use crate::writers::{CLOCK_ERROR, Work};

/// The nodes that transfer amounts among each other, and exchange tags.
const PURSES: [&str; 4] = ["b", "d", "f", "h"];

/// The total of each of them in the beginning.
const PURSE: i64 = 100;

/// The nodes of which each looks at the other one.
const GUARDS: [&str; 2] = ["c", "g"];

/// The node that looks at all others.
const OBSERVER: &str = "e";

const TAGS: [&str; 3] = ["x", "y", "z"];

/// Runs the schedule of a seed and returns its log.
pub(crate) fn run(seed: u64, verbose: bool) -> LogContents {
    in_virtual_time(async {
        fastrand::seed(seed);
        let clock = Clock::start();
        let log = Arc::new(Log::new(clock, verbose));
        let mut dice = Dice::new(seed, "joint");
        let database = Database::new(seed, clock, Arc::clone(&log));
        let (nodes, registry) = (|| PURSES.into_iter().chain(GUARDS), Registry::new().with::<Node>().unwrap());
        let keys = nodes().chain([OBSERVER]).map(node).collect();
        let work = Work { seed, clock, log, database, keys, registry, volume: 0 };
        let mut schedule = Schedule { work, decisions: Mutex::default(), answers: Mutex::default() };
        let store = EventStore::new(&schedule.work.database.config(Arc::default()), StoreSettings::new(TABLE));
        store.admin().create_table().await.unwrap();
        for id in nodes().chain([OBSERVER]) {
            let total = if PURSES.contains(&id) { PURSE } else { 0 };
            let commands = vec![addressed(id, "Make", json!({"add": [total]}))];
            let dice = Mutex::new(Dice::new(seed, &format!("joint make {id}")));
            let request = Request { commands, key: None, clock_error: SignedDuration::ZERO, dice };
            schedule.execute(&store, &request, Duration::from_secs(8)).await;
        }
        schedule.work.database.start_faults();
        let processes = dice.number(2..=4);
        join_all((0..processes).map(|number| Writer::new(&schedule, number).run())).await;
        schedule.work.database.stop_faults();
        // Calls that were sent still arrive.
        sleep(Duration::from_secs(60)).await;
        schedule.check(&store).await;
        schedule.work.log.contents()
    })
}

fn node(id: &str) -> AggregateKey {
    AggregateKey::new("node", id)
}

fn addressed(id: &str, command: &str, data: Value) -> Addressed<'static> {
    let command = CommandRequest { command: command.to_owned(), data: Json::of(&data).unwrap() };
    Addressed { to: Cow::Owned(node(id)), commands: vec![command].into() }
}

struct Schedule {
    work: Work,
    decisions: Mutex<Vec<JointAttempt>>,
    /// The first answer to each request with an idempotency key.
    answers: Mutex<BTreeMap<String, String>>,
}

/// One decision, with the append of each aggregate, and the idempotency key of its request.
struct JointAttempt {
    parts: Vec<Attempt>,
    body: String,
    key: Option<String>,
}

struct Request {
    commands: Vec<Addressed<'static>>,
    key: Option<String>,
    clock_error: SignedDuration,
    dice: Mutex<Dice>,
}

/// The decisions on a request.
struct Deciding<'a> {
    schedule: &'a Schedule,
    request: &'a Request,
    /// The indices of its decisions.
    made: Mutex<Vec<usize>>,
}

impl Decide for Deciding<'_> {
    type Error = String;

    fn decide(&self, before: &Folded, involved: &Involved) -> Result<Decisions, Undecided<String>> {
        let Request { commands, clock_error, dice, .. } = self.request;
        let now = self.schedule.work.clock.timestamp() + *clock_error;
        let seed = Ulid::from_parts(u64::try_from(now.as_millisecond()).unwrap(), dice.lock().unwrap().bits() >> 1);
        let input = DecisionInput::new(now, seed, Meta::default(), Caller::anonymous(), 1);
        let input = DecisionInput { involved: involved.clone(), ..input };
        let decided = match joint::decide(&self.schedule.work.registry, before, commands, &input) {
            Err(JointError { error: CommandError::Needs(needs), .. }) => return Err(Undecided::Needs(needs)),
            decided => decided.map_err(|error| error.to_string())?,
        };
        self.record(&decided);
        Ok(decided)
    }

    fn model(&self, aggregate_type: &str) -> Option<&dyn Model> {
        self.schedule.work.registry.get(aggregate_type)
    }

    fn respond(&self, _: &Folded, decisions: &Decisions, _: ResponseDetail) -> Result<CommandResponse, String> {
        let body = body(decisions);
        if let Some(rejection) = decisions.own.rejection.as_ref().filter(|_| body.is_empty()) {
            return Err(rejection.name.to_owned());
        }
        // A text that no other response has.
        let body = if body.is_empty() { format!("no {}", self.request.dice.lock().unwrap().bits()) } else { body };
        Ok(CommandResponse { status: 200, version: decisions.own.after.version(), state_version: 1, body })
    }
}

/// The ids of all events of a decision.
fn body(Decisions { own, others, .. }: &Decisions) -> String {
    let all = std::iter::once(own).chain(others.iter().map(|(_, other)| other));
    all.flat_map(|of| &of.events).map(|event| event.event_id.to_string()).collect::<Vec<_>>().join(" ")
}

impl Deciding<'_> {
    fn record(&self, decided: &Decisions) {
        let part = |(key, decided): (&AggregateKey, &Decided)| Attempt {
            key: key.clone(),
            idempotency: None,
            events: decided.events.iter().map(|event| (event.seq_num, event.event_id.to_string())).collect(),
            messages: decided.messages.clone(),
            result: WriteResult::Unknown,
        };
        let own = (&*self.request.commands[0].to, &decided.own);
        let parts = std::iter::once(own).chain(decided.others.iter().map(|(key, decided)| (key, decided)));
        let parts: Vec<_> = parts.map(part).filter(|part| !part.events.is_empty()).collect();
        if decided.own.rejection.is_some() {
            self.schedule.work.log.count(if parts.is_empty() { "joint rejection" } else { "joint rejection recorded" });
        }
        if parts.len() > 1 {
            self.schedule.work.log.count("joint decision");
        }
        if !parts.is_empty() {
            let mut decisions = self.schedule.decisions.lock().unwrap();
            self.made.lock().unwrap().push(decisions.len());
            decisions.push(JointAttempt { parts, body: body(decided), key: self.request.key.clone() });
        }
    }
}

impl Schedule {
    /// Executes a request. Returns whether there is an answer.
    async fn execute(&self, store: &EventStore, request: &Request, time: Duration) -> bool {
        let own = &request.commands[0];
        let idempotency = request.key.as_deref();
        let options = TransactOptions {
            policy: LoadPolicy::Incremental,
            creates: own.commands[0].command == "Make",
            expected_version: None,
            idempotency: idempotency.map(|key| IdempotencyKey { key, digest: key, ttl: Duration::from_hours(24) }),
            deadline: Instant::now() + time,
        };
        let deciding = Deciding { schedule: self, request, made: Mutex::default() };
        let outcome = store.transact(self.work.registry.get("node").unwrap(), &own.to, &deciding, &options).await;
        self.work.log.line(|| format!("{:?}: {outcome:?}", request.commands));
        self.record(deciding, &outcome);
        outcome.is_ok()
    }

    fn record(
        &self,
        Deciding { request, made, .. }: Deciding<'_>,
        outcome: &Result<Transacted, TransactError<String>>,
    ) {
        let log = &self.work.log;
        let stored = match outcome {
            Ok(Transacted::Decided(response)) => Some(response.body.as_str()),
            Ok(Transacted::Replayed(response)) if request.key.is_some() => {
                log.count("joint response replayed");
                Some(response.body.as_str())
            }
            Err(TransactError::OutcomeUnknown { .. }) => None,
            Err(TransactError::Store(StoreError::Unavailable { .. })) => Some(""),
            Err(TransactError::Decide(_) | TransactError::Contended | TransactError::ClaimTaken { .. }) => Some(""),
            Ok(Transacted::Replayed(_)) | Err(_) => {
                log.violation(format!("{:?}: {outcome:?}", request.commands));
                None
            }
        };
        match outcome {
            Err(TransactError::ClaimTaken { .. }) => log.count("joint claim taken"),
            Err(TransactError::Contended) => log.count("joint append contended"),
            _ => {}
        }
        if let (Some(key), Ok(Transacted::Decided(response) | Transacted::Replayed(response))) = (&request.key, outcome)
        {
            let mut answers = self.answers.lock().unwrap();
            let first = answers.entry(key.clone()).or_insert_with(|| response.body.clone());
            log.expect(*first == response.body, || format!("answered {response:?}, and first {first:?}"));
        }
        let mut decisions = self.decisions.lock().unwrap();
        for index in made.into_inner().unwrap() {
            let JointAttempt { parts, body, .. } = &mut decisions[index];
            let result = match stored {
                None => WriteResult::Unknown,
                Some(stored) if stored == body => WriteResult::Stored,
                Some(_) => WriteResult::NotStored,
            };
            if parts.len() > 1 {
                log.count(&format!("joint append {result:?}"));
            }
            parts.iter_mut().for_each(|part| part.result = result);
        }
    }

    /// The checks at the end.
    async fn check(&mut self, store: &EventStore) {
        let decisions = std::mem::take(self.decisions.get_mut().unwrap());
        let answers = self.answers.get_mut().unwrap();
        let (log, database) = (&self.work.log, &self.work.database);
        let all: BTreeSet<_> =
            decisions.iter().flat_map(|decision| &decision.parts).map(|part| part.key.clone()).collect();
        let all: BTreeSet<_> = all.into_iter().chain(self.work.keys.clone()).collect();
        let rows: BTreeMap<_, _> = all.iter().map(|key| (key.clone(), database.rows(&keys::pk(key)))).collect();
        let ids: BTreeSet<_> = rows.values().flatten().filter_map(|row| row["eventId"]["S"].as_str()).collect();
        let mut effects = BTreeMap::<&str, Vec<&str>>::new();
        for JointAttempt { parts, body, key } in &decisions {
            let stored: Vec<_> =
                parts.iter().map(|part| part.events.iter().all(|(_, id)| ids.contains(&**id))).collect();
            log.expect(stored.iter().all(|of_part| *of_part == stored[0]), || {
                format!("a partial append: {parts:?} {stored:?}")
            });
            if let (Some(key), true) = (key, stored[0]) {
                effects.entry(key).or_default().push(body);
            }
        }
        for (key, bodies) in effects {
            let answer = answers.get(key);
            log.expect(bodies.len() == 1 && answer.is_none_or(|answer| answer == bodies[0]), || {
                format!("request {key} was answered {answer:?}, and took effect in {bodies:?}")
            });
        }
        // What was unknown at first is known by a later answer.
        let attempts = decisions.into_iter().flat_map(|JointAttempt { mut parts, body, key }| {
            if let Some(answer) = key.and_then(|key| answers.get(&key)) {
                let result = if *answer == body { WriteResult::Stored } else { WriteResult::NotStored };
                parts.iter_mut().for_each(|part| part.result = result);
            }
            parts
        });
        check_table(&rows, &attempts.collect::<Vec<_>>(), log);

        let mut states = BTreeMap::new();
        for key in &all {
            let loaded = store.load(self.work.registry.get("node").unwrap(), key).await.unwrap();
            states.insert(key.id.clone(), loaded.state.read::<State>().unwrap());
        }
        let total = |id: &str| states[id].total;
        log.expect(PURSES.map(total).iter().sum::<i64>() == PURSE * PURSES.len() as i64, || {
            format!("a sum changed: {states:?}")
        });
        log.expect(GUARDS.map(total).iter().sum::<i64>() <= 1, || format!("write skew: {states:?}"));
        for tag in TAGS {
            let holder = store.claim(&tag_claim(tag)).await.unwrap().map(|row| row.holder().id);
            let by_states: Vec<_> = states.iter().filter(|(_, state)| state.tags.iter().any(|of| of == tag)).collect();
            let by_states: Vec<_> = by_states.into_iter().map(|(id, _)| id.clone()).collect();
            log.expect(holder.iter().eq(&by_states), || format!("{holder:?} has {tag}, by the states {by_states:?}"));
        }
        for row in &rows[&node(OBSERVER)] {
            let Some(data) = row["data"]["S"].as_str().filter(|_| row["eventType"]["S"] == "NodeAdded") else {
                continue;
            };
            let data: Value = serde_json::from_str(data).unwrap();
            let seen: Vec<_> = data["seen"].as_array().unwrap().iter().map(|seen| seen.as_i64().unwrap()).collect();
            if seen.is_empty() {
                continue;
            }
            let (purses, guards) = seen.split_at(PURSES.len());
            let right = purses.iter().sum::<i64>() == PURSE * PURSES.len() as i64 && guards.iter().sum::<i64>() <= 1;
            log.expect(right, || format!("a decision saw {seen:?}"));
            log.count("all seen at once");
        }
        self.work.keys = all.into_iter().collect();
        verify(&self.work).await;
    }
}

/// A process that sends requests.
struct Writer<'a> {
    schedule: &'a Schedule,
    number: u64,
    clock_error: SignedDuration,
    dice: Dice,
    process: Arc<Process>,
    store: EventStore,
    requests: u64,
}

impl<'a> Writer<'a> {
    fn new(schedule: &'a Schedule, number: u64) -> Self {
        let mut dice = Dice::new(schedule.work.seed, &format!("joint writer {number}"));
        let milliseconds = i64::try_from(dice.number(0..=CLOCK_ERROR.as_millis().try_into().unwrap())).unwrap();
        let clock_error = SignedDuration::from_millis(if dice.chance(0.5) { milliseconds } else { -milliseconds });
        let process = Arc::default();
        let store = Self::store(schedule, &process);
        Self { schedule, number, clock_error, dice, process, store, requests: 0 }
    }

    fn store(schedule: &Schedule, process: &Arc<Process>) -> EventStore {
        EventStore::new(&schedule.work.database.config(Arc::clone(process)), StoreSettings::new(TABLE))
    }

    async fn run(mut self) {
        let rounds = self.dice.size(3..=8);
        for _ in 0..rounds {
            let pause = self.dice.one_of(&[0, 1, 10, 50]);
            sleep(Duration::from_millis(pause)).await;
            let count = if self.dice.chance(0.3) { self.dice.size(2..=5) } else { 1 };
            let requests: Vec<_> = (0..count).map(|_| self.request()).collect();
            self.send(&requests).await;
            // A client repeats a request with an idempotency key, also after an answer that it has lost.
            for request in requests.iter().filter(|request| request.key.is_some()) {
                if self.dice.chance(0.5) {
                    self.schedule.work.log.count("joint request repeated");
                    self.send(std::slice::from_ref(request)).await;
                }
            }
        }
    }

    /// Sends requests at the same time to the process, which may crash.
    async fn send(&mut self, requests: &[Request]) {
        let crash = self.dice.chance(0.05).then(|| match self.dice.number(0..=2) {
            0 => Crash::BeforeCall(self.dice.size(0..=4)),
            1 => Crash::AfterCall(self.dice.size(0..=4)),
            _ => Crash::AtPoll(self.dice.size(1..=12)),
        });
        self.process.begin(crash);
        let time = self.dice.milliseconds(100..=8_000);
        let executing = join_all(requests.iter().map(|request| self.schedule.execute(&self.store, request, time)));
        let polls = if let Some(Crash::AtPoll(polls)) = crash { polls } else { usize::MAX };
        let executing = Box::pin(until_poll(executing, polls));
        let done = match select(executing, Box::pin(self.process.crashed())).await {
            Either::Left((done, _)) => done.is_some(),
            Either::Right(_) => false,
        };
        if !done {
            self.schedule.work.log.count("joint writer crash");
            self.process = Arc::default();
            self.store = Self::store(self.schedule, &self.process);
        }
    }

    fn request(&mut self) -> Request {
        self.requests += 1;
        let key = self.dice.chance(0.4).then(|| format!("{}-{}", self.number, self.requests));
        let dice = Dice::new(self.schedule.work.seed, &format!("joint request {}-{}", self.number, self.requests));
        Request { commands: self.commands(), key, clock_error: self.clock_error, dice: Mutex::new(dice) }
    }

    fn commands(&mut self) -> Vec<Addressed<'static>> {
        let mut purses = PURSES;
        self.dice.shuffle(&mut purses);
        let [from, to, by, _] = purses;
        let amount = self.dice.amount(1..=9);
        let (takes, gives) = (json!({"add": [-amount]}), json!({"add": [amount]}));
        let sent = |id: &str, plan: &Value| json!([id, {"command": "Do", "data": plan}]);
        let mut guards = GUARDS;
        self.dice.shuffle(&mut guards);
        match self.dice.number(0..=9) {
            // A transfer: named in the request, sent by one of the two, or by a third one.
            0 | 1 => vec![addressed(from, "Do", takes), addressed(to, "Do", gives)],
            2 => vec![addressed(from, "Do", json!({"add": [-amount], "send": [sent(to, &gives)]}))],
            3 => vec![addressed(by, "Do", json!({"send": [sent(from, &takes), sent(to, &gives)]}))],
            // A transfer that the second aggregate rejects; only it records that.
            4 => {
                let rejects = json!({"add": [amount], "most": -1_000_000, "records": self.dice.chance(0.7)});
                vec![addressed(from, "Do", takes), addressed(to, "Do", rejects)]
            }
            5 => vec![addressed(guards[0], "Do", json!({"look": [guards[1]], "add": [1], "most": 1}))],
            6 if self.dice.chance(0.4) => vec![addressed(guards[0], "Do", json!({"add": [-1]}))],
            6 => {
                let all: Vec<_> = PURSES.into_iter().chain(GUARDS).collect();
                vec![addressed(OBSERVER, "Do", json!({"look": all, "add": [0]}))]
            }
            7 => vec![addressed(from, "Do", json!({"makes_new": true}))],
            8 => vec![addressed(from, "Do", json!({"tags": self.tags(0)}))],
            _ => {
                // Two that change their tags together, which may be an exchange.
                let (first, second) = (self.tags(0), self.tags(1));
                self.schedule.work.log.count("tags exchanged");
                vec![addressed(from, "Do", json!({"tags": first})), addressed(to, "Do", json!({"tags": second}))]
            }
        }
    }

    /// Some tags; those of two parts have nothing in common.
    fn tags(&mut self, part: usize) -> Vec<&'static str> {
        let tags = TAGS.into_iter().enumerate().filter(|(index, _)| (index + self.requests as usize) % 2 == part);
        let tags: Vec<_> = tags.map(|(_, tag)| tag).collect();
        tags.into_iter().filter(|_| self.dice.chance(0.7)).collect()
    }
}
