//! Concurrent writers: each decides on the state that it knows, appends, and records the outcomes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_decider::{
    Caller, CommandError, CommandRequest, Decided, DecisionInput, Folded, Json, Meta, Model, OutboxMessage, Registry,
};
use daybook_event_store::{
    CommandResponse, Decide, EventStore, LoadPolicy, ResponseDetail, StoreError, StoreSettings, TransactError,
    TransactOptions, Transacted,
};
use daybook_table::AggregateKey;
use jiff::SignedDuration;
use serde_json::json;
use tokio::time::{Instant, sleep};
use ulid::Ulid;

use crate::clock::Clock;
use crate::database::{Database, TABLE};
use crate::dice::Dice;
use crate::log::Log;
use crate::process::{Crash, Process, until_poll};

/// The maximum by which the clock of a writer is ahead or behind.
pub(crate) const CLOCK_ERROR: Duration = Duration::from_secs(3);

/// One append and its outcome.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) key: AggregateKey,
    /// Number and id of each event.
    pub(crate) events: Vec<(u64, String)>,
    pub(crate) messages: Vec<OutboxMessage>,
    pub(crate) result: WriteResult,
}

/// The outcome that the writer received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteResult {
    /// The append is stored.
    Stored,
    /// The append is not stored.
    NotStored,
    /// Unknown: the writer crashed or timed out before it received an outcome.
    Unknown,
}

/// The work of a schedule's writers.
pub(crate) struct Work {
    pub(crate) seed: u64,
    pub(crate) clock: Clock,
    pub(crate) log: Arc<Log>,
    pub(crate) database: Database,
    pub(crate) keys: Vec<AggregateKey>,
    pub(crate) registry: Arc<Registry>,
    /// Bytes in each message of a bell.
    pub(crate) volume: usize,
}

type Attempts = Arc<Mutex<Vec<Attempt>>>;

impl Work {
    /// Runs `count` writers, each with a number of commands. Returns their attempts.
    pub(crate) async fn run(self: &Arc<Self>, count: u64, commands: usize) -> Vec<Attempt> {
        let attempts = Attempts::default();
        let writers: Vec<_> = (0..count)
            .map(|number| {
                let writer = Writer::new(Arc::clone(self), number, Arc::clone(&attempts));
                let to_create = (0..self.keys.len()).filter(|&key| key as u64 % count == number).collect();
                tokio::spawn(writer.run(to_create, commands))
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        Arc::into_inner(attempts).expect("the writers have ended").into_inner().unwrap()
    }
}

struct Writer {
    work: Arc<Work>,
    number: u64,
    clock_error: SignedDuration,
    dice: Dice,
    attempts: Attempts,
    process: Arc<Process>,
    store: Arc<EventStore>,
}

impl Writer {
    fn new(work: Arc<Work>, number: u64, attempts: Attempts) -> Self {
        let mut dice = Dice::new(work.seed, &format!("writer {number}"));
        let (process, store) = new_process(&work, &mut dice);
        let milliseconds = i64::try_from(dice.number(0..=CLOCK_ERROR.as_millis().try_into().unwrap())).unwrap();
        let clock_error = SignedDuration::from_millis(if dice.chance(0.5) { milliseconds } else { -milliseconds });
        Self { work, number, clock_error, dice, attempts, process, store }
    }

    /// Creates its share of the aggregates, and then executes commands on any aggregate.
    async fn run(mut self, to_create: Vec<usize>, commands: usize) {
        let mut to_create = to_create.into_iter();
        for _ in 0..commands {
            let pause = self.dice.one_of(&[0, 1, 10, 50]);
            sleep(Duration::from_millis(pause)).await;
            let crash = self.dice.chance(0.05).then(|| self.crash());
            self.process.begin(crash);
            let request = self.request(to_create.next());
            let (work, store) = (Arc::clone(&self.work), Arc::clone(&self.store));
            let executing = execute(work, store, Arc::clone(&self.attempts), request);
            let polls = if let Some(Crash::AtPoll(polls)) = crash { polls } else { usize::MAX };
            let done = tokio::select! {
                biased;
                done = until_poll(executing, polls) => done,
                () = self.process.crashed() => None,
            };
            if done.is_none() {
                self.work.log.count("writer crash");
                self.work.log.line(|| format!("writer {} crashes: {crash:?}", self.number));
                (self.process, self.store) = new_process(&self.work, &mut self.dice);
            }
        }
    }

    fn crash(&mut self) -> Crash {
        let call = self.dice.size(0..=3);
        match self.dice.number(0..=2) {
            0 => Crash::BeforeCall(call),
            1 => Crash::AfterCall(call),
            _ => Crash::AtPoll(self.dice.size(1..=12)),
        }
    }

    fn request(&mut self, to_create: Option<usize>) -> Request {
        let some_key = self.dice.one_of(&self.work.keys);
        let key = to_create.map_or(some_key, |key| self.work.keys[key].clone());
        let count = if self.dice.chance(0.2) { self.dice.size(2..=4) } else { 1 };
        let commands = (0..count)
            .map(|number| {
                let creates = to_create.is_some() && number == 0;
                command(&mut self.dice, &key.aggregate_type, creates, self.work.volume)
            })
            .collect();
        Request {
            key,
            commands,
            // A warm instance decides on its cached state, a new one on the loaded state.
            from_cache: self.dice.chance(0.6),
            time: self.dice.one_of(&[30, 300, 3_000, 20_000]),
            number: self.number,
            clock_error: self.clock_error,
            dice: Mutex::new(Dice::new(self.work.seed, &format!("request {}", self.dice.bits()))),
        }
    }
}

/// A new instance with an empty cache.
fn new_process(work: &Work, dice: &mut Dice) -> (Arc<Process>, Arc<EventStore>) {
    let process = Arc::new(Process::default());
    let snapshot_every = dice.one_of(&[2, 5, 100]);
    let settings = StoreSettings { snapshot_every, ..StoreSettings::new(TABLE) };
    let store = EventStore::new(&work.database.config(Arc::clone(&process)), settings);
    (process, Arc::new(store))
}

struct Request {
    key: AggregateKey,
    commands: Vec<CommandRequest>,
    from_cache: bool,
    /// Milliseconds.
    time: u64,
    /// The number of the writer.
    number: u64,
    /// How far the writer's clock is ahead.
    clock_error: SignedDuration,
    dice: Mutex<Dice>,
}

/// A command that the aggregate may accept, depending on its state.
fn command(dice: &mut Dice, aggregate_type: &str, creates: bool, volume: usize) -> CommandRequest {
    let text = format!("text {}", dice.number(0..=9));
    // Sometimes, an existing aggregate is created again.
    let choice = if creates { 0 } else { dice.number(0..=20) };
    let (command, data) = match (aggregate_type, choice) {
        ("account", 0) => ("OpenAccount", json!({})),
        ("account", 1..=3) => ("UpdateOwner", json!({"ownerFirst": text, "ownerLast": "Brown"})),
        ("account", _) => ("RecordTransaction", json!({"desc": text, "amount": dice.amount(-900..=500)})),
        ("todo", 0) => ("CreateTodo", json!({"title": "é", "message": text})),
        ("todo", 1) => ("DeleteTodo", json!({})),
        ("todo", _) => ("UpdateTodo", json!({"title": "Ü", "message": text})),
        ("order", 0) => {
            let items = json!([{"productId": "p", "quantity": 1}]);
            ("PlaceOrder", json!({"customerId": "c", "items": items, "total": 100}))
        }
        ("order", 1..=6) => ("ProcessPayment", json!({"amount": 100})),
        ("order", 7..=12) => ("ShipOrder", json!({"trackingNumber": text})),
        ("order", 13..=18) => ("DeliverOrder", json!({})),
        ("order", _) => ("RefundOrder", json!({"amount": 100})),
        ("bell", 0) => ("Hang", json!({})),
        ("bell", _) if volume > 1_000 => ("Ring", json!({"strokes": 1, "volume": volume})),
        ("bell", _) => ("Ring", json!({"strokes": dice.number(0..=3), "volume": volume})),
        (other, _) => panic!("no commands for {other}"),
    };
    CommandRequest { command: command.to_owned(), data: Json::of(&data).unwrap() }
}

/// Executes a request, and records the result of each decision on it.
async fn execute(work: Arc<Work>, store: Arc<EventStore>, attempts: Attempts, request: Request) {
    let model: &dyn Model = work.registry.get(&request.key.aggregate_type).unwrap();
    let options = TransactOptions {
        policy: if request.from_cache { LoadPolicy::Incremental } else { LoadPolicy::Rebuild },
        creates: request.commands[0].command == model.commands().create,
        expected_version: None,
        idempotency: None,
        deadline: Instant::now() + Duration::from_millis(request.time),
    };
    let decisions = Decisions { work: &work, model, request: &request, attempts, made: Mutex::default() };
    let outcome = store.transact(model, &request.key, &decisions, &options).await;
    work.log.line(|| format!("writer {} appends to {}: {outcome:?}", request.number, request.key));
    decisions.record(&outcome);
}

/// The decisions on a request.
struct Decisions<'a> {
    work: &'a Work,
    model: &'a dyn Model,
    request: &'a Request,
    attempts: Attempts,
    made: Mutex<Made>,
}

/// The decisions that were made.
#[derive(Default)]
struct Made {
    /// The versions that were decided on.
    versions: BTreeSet<u64>,
    /// The indices of the attempts.
    attempts: Vec<usize>,
}

impl Decide for Decisions<'_> {
    type Error = CommandError;

    fn decide(&self, before: &Folded) -> Result<Decided, CommandError> {
        let Request { key, commands, number, clock_error, dice, .. } = self.request;
        let now = self.work.clock.timestamp() + *clock_error;
        let milliseconds = u64::try_from(now.as_millisecond()).unwrap();
        let input = DecisionInput {
            now,
            seed: Ulid::from_parts(milliseconds, dice.lock().unwrap().bits() >> 1),
            meta: Meta { actor: Some(format!("writer-{number}")), ..Meta::default() },
            caller: Caller::anonymous(),
        };
        let mut made = self.made.lock().unwrap();
        made.versions.insert(before.version());
        let decided = self.model.decide(before, &key.id, commands, &input)?;
        if decided.rejection.is_some() {
            self.work.log.count(if decided.events.is_empty() { "rejection" } else { "rejection recorded" });
        }
        if !decided.events.is_empty() {
            made.attempts.push(record_attempt(&self.attempts, key, &decided));
        }
        Ok(decided)
    }

    /// A response whose body is the id of the first event.
    fn respond(&self, _: &Folded, decided: &Decided, _: ResponseDetail) -> Result<CommandResponse, CommandError> {
        let body = decided.events.first().map(|event| event.event_id.to_string()).unwrap_or_default();
        Ok(CommandResponse { status: 200, version: decided.after.version(), state_version: None, body })
    }
}

impl Decisions<'_> {
    fn record(self, outcome: &Result<Transacted, TransactError<CommandError>>) {
        let Self { work, request, attempts, made, .. } = self;
        let Made { versions, attempts: made } = made.into_inner().unwrap();
        if versions.len() > 1 {
            work.log.count("append conflict");
        }
        let stored = match outcome {
            Ok(Transacted::Decided(response)) => Some(response.body.as_str()),
            Err(TransactError::OutcomeUnknown { .. }) => None,
            Err(TransactError::Decide(_) | TransactError::Contended) => Some(""),
            Err(TransactError::Store(StoreError::Unavailable { .. })) => Some(""),
            Ok(Transacted::Replayed(_)) | Err(_) => {
                work.log.violation(format!("an append to {}: {outcome:?}", request.key));
                None
            }
        };
        let mut attempts = attempts.lock().unwrap();
        for at in made {
            let attempt = &mut attempts[at];
            attempt.result = match stored {
                None => WriteResult::Unknown,
                Some(id) if attempt.events[0].1 == id => WriteResult::Stored,
                Some(_) => WriteResult::NotStored,
            };
            work.log.count(&format!("append {:?}", attempt.result));
        }
        if let Err(TransactError::Contended) = outcome {
            work.log.count("append contended");
        }
    }
}

fn record_attempt(attempts: &Attempts, key: &AggregateKey, decided: &Decided) -> usize {
    let attempt = Attempt {
        key: key.clone(),
        events: decided.events.iter().map(|event| (event.seq_num, event.event_id.to_string())).collect(),
        messages: decided.messages.clone(),
        result: WriteResult::Unknown,
    };
    let mut attempts = attempts.lock().unwrap();
    attempts.push(attempt);
    attempts.len() - 1
}

/// The messages of all attempts by their ids.
pub(crate) fn messages(attempts: &[Attempt]) -> BTreeMap<String, &OutboxMessage> {
    attempts
        .iter()
        .flat_map(|attempt| &attempt.messages)
        .map(|message| (message.message_id.to_string(), message))
        .collect()
}
