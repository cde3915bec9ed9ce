//! Requests whose decisions may involve several aggregates, and the clients that send them: to processes that crash, several at
//! once, and again if they have an idempotency key.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_decider::{
    Addressed, AggregateKey, Caller, CommandError, CommandRequest, Decided, DecisionInput, Decisions, Folded, Involved,
    JointError, Json, Meta, Model, Registry, joint,
};
use daybook_event_store::{
    CommandResponse, Decide, EventStore, IdempotencyKey, LoadPolicy, ResponseDetail, StoreError, StoreSettings,
    TransactError, TransactOptions, Transacted, Undecided,
};
use daybook_table::keys;
use futures_util::future::join_all;
use jiff::SignedDuration;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use ulid::Ulid;

use crate::checks::{Rows, check_table};
use crate::dice::Dice;
use crate::process::{Crash, Process};
use crate::requests::{Attempt, WriteResult};
use crate::writers::{CLOCK_ERROR, Work};

pub(crate) fn addressed(key: AggregateKey, command: &str, data: Value) -> Addressed<'static> {
    let command = CommandRequest { command: command.to_owned(), data: Json::of(&data).unwrap() };
    Addressed { to: Cow::Owned(key), commands: vec![command].into() }
}

/// What is known about the requests of a schedule.
pub(crate) struct JointRequests {
    work: Arc<Work>,
    settings: StoreSettings,
    /// What an earlier release registers, if some processes have it.
    earlier: Option<Registry>,
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
    is_earlier: bool,
    clock_error: SignedDuration,
    dice: Mutex<Dice>,
}

/// The decisions on a request.
struct Deciding<'a> {
    requests: &'a JointRequests,
    request: &'a Request,
    /// The indices of its decisions.
    made: Mutex<Vec<usize>>,
}

impl Decide for Deciding<'_> {
    type Error = String;

    fn decide(&self, before: &Folded, involved: &Involved) -> Result<Decisions, Undecided<String>> {
        let Request { commands, clock_error, dice, .. } = self.request;
        let now = self.requests.work.clock.timestamp() + *clock_error;
        let seed = Ulid::from_parts(u64::try_from(now.as_millisecond()).unwrap(), dice.lock().unwrap().bits() >> 1);
        let input = DecisionInput::new(now, seed, Meta::default(), Caller::anonymous(), 1);
        let input = DecisionInput { involved: involved.clone(), ..input };
        let decided = match joint::decide(self.requests.registry(self.request), before, commands, &input) {
            Err(JointError { error: CommandError::Needs(needs), .. }) => return Err(Undecided::Needs(needs)),
            decided => decided.map_err(|error| error.to_string())?,
        };
        self.record(&decided);
        Ok(decided)
    }

    fn model(&self, aggregate_type: &str) -> Option<&dyn Model> {
        self.requests.registry(self.request).get(aggregate_type)
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
            self.requests.work.log.count(if parts.is_empty() { "joint rejection" } else { "joint rejection recorded" });
        }
        if parts.len() > 1 {
            self.requests.work.log.count("joint decision");
        }
        if !parts.is_empty() {
            let mut decisions = self.requests.decisions.lock().unwrap();
            self.made.lock().unwrap().push(decisions.len());
            decisions.push(JointAttempt { parts, body: body(decided), key: self.request.key.clone() });
        }
    }
}

impl JointRequests {
    pub(crate) fn new(work: &Arc<Work>, settings: StoreSettings) -> Self {
        let (work, decisions, answers) = (Arc::clone(work), Mutex::default(), Mutex::default());
        Self { work, settings, earlier: None, decisions, answers }
    }

    /// The same, with some processes of an earlier release.
    pub(crate) fn beside(self, earlier: Option<Registry>) -> Self {
        Self { earlier, ..self }
    }

    /// What the process of a request registers.
    fn registry(&self, request: &Request) -> &Registry {
        self.earlier.as_ref().filter(|_| request.is_earlier).unwrap_or(&self.work.registry)
    }

    /// Sends a command, in a schedule without faults.
    pub(crate) async fn send(&self, store: &EventStore, key: &AggregateKey, command: &str, data: Value) {
        let commands = vec![addressed(key.clone(), command, data)];
        let dice = Mutex::new(Dice::new(self.work.seed, &format!("{command} {key}")));
        let request = Request { commands, key: None, is_earlier: false, clock_error: SignedDuration::ZERO, dice };
        self.execute(store, &request, Duration::from_secs(8)).await;
    }

    /// Executes a request. Returns whether there is an answer.
    async fn execute(&self, store: &EventStore, request: &Request, time: Duration) -> bool {
        let own = &request.commands[0];
        let model = self.registry(request).get(&own.to.aggregate_type).unwrap();
        let idempotency = request.key.as_deref();
        let options = TransactOptions {
            policy: LoadPolicy::Incremental,
            creates: own.commands[0].command == model.commands().create,
            expected_version: None,
            idempotency: idempotency.map(|key| IdempotencyKey { key, digest: key, ttl: Duration::from_hours(24) }),
            deadline: Instant::now() + time,
        };
        let deciding = Deciding { requests: self, request, made: Mutex::default() };
        let outcome = store.transact(model, &own.to, &deciding, &options).await;
        // Without the ids: they may follow one of the reactor, which are not those of a seed.
        self.work.log.line(|| {
            let version =
                outcome.as_ref().map(|(Transacted::Decided(answer) | Transacted::Replayed(answer))| answer.version);
            format!("{:?}: {version:?}", request.commands)
        });
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
            Err(TransactError::Decide(name))
                if name == "TooMuch" && request.commands[0].commands[0].command == "Make" =>
            {
                log.count("twin rejected");
            }
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

    /// Checks what is stored. Returns the rows of all aggregates.
    pub(crate) fn check(&mut self) -> Rows {
        let decisions = std::mem::take(self.decisions.get_mut().unwrap());
        let answers = self.answers.get_mut().unwrap();
        let Work { log, database, keys, .. } = &*self.work;
        let all: BTreeSet<_> =
            decisions.iter().flat_map(|decision| &decision.parts).map(|part| part.key.clone()).collect();
        let all: BTreeSet<_> = all.into_iter().chain(keys.clone()).collect();
        let rows = |key: AggregateKey| (key.clone(), database.rows(&keys::pk(&key)));
        let rows: Rows = all.into_iter().map(rows).collect();
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
        rows
    }

    /// A store of a process, or without faults.
    pub(crate) fn store(&self, process: Arc<Process>) -> EventStore {
        self.work.database.store(process, self.settings.clone())
    }
}

/// What a client sends: the commands of a request, of which the client has sent this number before.
pub(crate) type Commands = fn(&Work, &mut Dice, usize) -> Vec<Addressed<'static>>;

/// A client, and the process that it sends its requests to.
pub(crate) struct Client<'a> {
    requests: &'a JointRequests,
    commands: Commands,
    /// The milliseconds between its requests.
    pauses: &'a [u64],
    number: u64,
    is_earlier: bool,
    clock_error: SignedDuration,
    dice: Dice,
    process: Arc<Process>,
    store: EventStore,
    sent: usize,
}

impl<'a> Client<'a> {
    pub(crate) fn new(requests: &'a JointRequests, number: u64, commands: Commands, pauses: &'a [u64]) -> Self {
        let mut dice = Dice::new(requests.work.seed, &format!("joint writer {number}"));
        let milliseconds = i64::try_from(dice.number(0..=CLOCK_ERROR.as_millis().try_into().unwrap())).unwrap();
        let clock_error = SignedDuration::from_millis(if dice.chance(0.5) { milliseconds } else { -milliseconds });
        let is_earlier = requests.earlier.is_some() && dice.chance(0.5);
        let process = Arc::<Process>::default();
        let store = requests.store(Arc::clone(&process));
        Self { requests, commands, pauses, number, is_earlier, clock_error, dice, process, store, sent: 0 }
    }

    pub(crate) async fn run(mut self) {
        let rounds = self.dice.size(3..=8);
        for _ in 0..rounds {
            let pause = self.dice.one_of(self.pauses);
            sleep(Duration::from_millis(pause)).await;
            let count = if self.dice.chance(0.3) { self.dice.size(2..=5) } else { 1 };
            let requests: Vec<_> = (0..count).map(|_| self.request()).collect();
            self.send(&requests).await;
            // A client repeats a request with an idempotency key, also after an answer that it has lost.
            for request in requests.iter().filter(|request| request.key.is_some()) {
                if self.dice.chance(0.5) {
                    self.requests.work.log.count("joint request repeated");
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
        let executing = join_all(requests.iter().map(|request| self.requests.execute(&self.store, request, time)));
        if self.process.run(executing).await.is_none() {
            self.requests.work.log.count("joint writer crash");
            self.process = Arc::default();
            self.store = self.requests.store(Arc::clone(&self.process));
        }
    }

    fn request(&mut self) -> Request {
        self.sent += 1;
        let key = self.dice.chance(0.4).then(|| format!("{}-{}", self.number, self.sent));
        let work = &self.requests.work;
        let dice = Dice::new(work.seed, &format!("joint request {}-{}", self.number, self.sent));
        let commands = (self.commands)(work, &mut self.dice, self.sent);
        let (is_earlier, clock_error) = (self.is_earlier, self.clock_error);
        Request { commands, key, is_earlier, clock_error, dice: Mutex::new(dice) }
    }
}
