//! Concurrent writers: each sends requests to its process, and repeats those with an idempotency key.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_decider::{CommandRequest, Json, Registry};
use daybook_event_store::{EventStore, StoreSettings};
use daybook_table::AggregateKey;
use futures_util::future::{FutureExt, join_all};
use jiff::SignedDuration;
use serde_json::json;
use tokio::time::sleep;

use crate::clock::Clock;
use crate::database::{Database, TABLE};
use crate::dice::Dice;
use crate::log::Log;
use crate::process::{Crash, Process};
use crate::requests::{Request, Written, execute};

/// The maximum by which the clock of a writer is ahead or behind.
pub(crate) const CLOCK_ERROR: Duration = Duration::from_secs(3);

/// The e-mail addresses of all customers: few, so that they collide.
pub(crate) const EMAILS: [&str; 3] = ["a@personal.example", "B@personal.example", "b@personal.example"];

/// The name of each customer, and a part of each e-mail address: no call has it in plain text.
pub(crate) const PERSONAL: &str = "personal.example";

/// The work of a schedule's writers.
pub(crate) struct Work {
    pub(crate) seed: u64,
    pub(crate) clock: Clock,
    pub(crate) log: Arc<Log>,
    pub(crate) database: Database,
    pub(crate) keys: Vec<AggregateKey>,
    pub(crate) registry: Registry,
    /// Bytes in each message of a bell.
    pub(crate) volume: usize,
}

impl Work {
    /// The work of a schedule that begins.
    pub(crate) fn begin(seed: u64, verbose: bool, registry: Registry, keys: Vec<AggregateKey>) -> Self {
        fastrand::seed(seed);
        let clock = Clock::start();
        let log = Arc::new(Log::new(clock, verbose));
        let database = Database::new(seed, clock, Arc::clone(&log));
        Self { seed, clock, log, database, keys, registry, volume: 20 }
    }

    /// Whether the messages of a few aggregates exceed the size of a request.
    pub(crate) fn is_large(&self) -> bool {
        self.volume > 1_000
    }

    /// Whether the messages of all aggregates exceed the number of entries of a request.
    pub(crate) fn is_many(&self) -> bool {
        self.keys.len() > 10
    }

    /// Runs `count` writers, each with a number of requests. Returns what they know about the table.
    pub(crate) async fn run(self: &Arc<Self>, count: u64, requests: usize) -> Written {
        let written = Arc::<Mutex<Written>>::default();
        let used = Arc::<Mutex<Vec<_>>>::default();
        let writers: Vec<_> = (0..count)
            .map(|number| {
                let writer = Writer::new(Arc::clone(self), number, Arc::clone(&written), Arc::clone(&used));
                let to_create = (0..self.keys.len()).filter(|&key| key as u64 % count == number).collect();
                tokio::spawn(writer.run(to_create, requests))
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        let written = Arc::into_inner(written).expect("the writers have ended");
        let mut written = written.into_inner().unwrap();
        written.apply_answers();
        written
    }
}

struct Writer {
    work: Arc<Work>,
    number: u64,
    /// Whether its processes have the earlier release.
    is_earlier: bool,
    clock_error: SignedDuration,
    dice: Dice,
    written: Arc<Mutex<Written>>,
    /// The requests of all writers with idempotency keys, which were sent before.
    used: Arc<Mutex<Vec<Arc<Request>>>>,
    /// How much longer the calls of its processes take than those of others.
    slowness: u32,
    process: Arc<Process>,
    store: Arc<EventStore>,
    /// The number of requests that were sent together with others.
    together: u64,
}

impl Writer {
    fn new(work: Arc<Work>, number: u64, written: Arc<Mutex<Written>>, used: Arc<Mutex<Vec<Arc<Request>>>>) -> Self {
        let mut dice = Dice::new(work.seed, &format!("writer {number}"));
        let slowness = if dice.chance(0.2) { u32::try_from(dice.number(1..=9)).unwrap() } else { 0 };
        if slowness > 0 {
            work.log.count("process with slow calls");
        }
        let (process, store) = new_process(&work, &mut dice, slowness);
        let milliseconds = i64::try_from(dice.number(0..=CLOCK_ERROR.as_millis().try_into().unwrap())).unwrap();
        let clock_error = SignedDuration::from_millis(if dice.chance(0.5) { milliseconds } else { -milliseconds });
        let is_earlier = number % 2 == 1;
        Self { work, number, is_earlier, clock_error, dice, written, used, slowness, process, store, together: 0 }
    }

    /// Creates its share of the aggregates, and then sends requests to any aggregate.
    async fn run(mut self, to_create: Vec<usize>, requests: usize) {
        let mut to_create = to_create.into_iter();
        for number in 0..requests {
            self.pause().await;
            let request = Arc::new(self.request(to_create.next(), number));
            let mut answered = self.send(&request).await;
            if self.dice.chance(0.1) {
                self.repeat_used(&request.key).await;
            }
            if request.idempotency.is_none() {
                continue;
            }
            // A client repeats a request until it has an answer, and sometimes after an answer that it has lost.
            let repeats = self.dice.size(1..=3);
            for _ in 0..repeats {
                if answered && !self.dice.chance(0.3) {
                    break;
                }
                self.pause().await;
                self.work.log.count("request repeated");
                if self.dice.chance(0.3) {
                    (self.process, self.store) = new_process(&self.work, &mut self.dice, self.slowness);
                }
                answered |= self.send(&request).await;
            }
        }
    }

    /// Repeats requests to an aggregate many times, as clients do after an outage.
    async fn repeat_used(&mut self, key: &AggregateKey) {
        let times = self.dice.size(1..=10);
        for _ in 0..times {
            let Some(used) = self.used(key) else { return };
            self.send(&used).await;
        }
    }

    /// A request to an aggregate that some writer sent before.
    fn used(&mut self, key: &AggregateKey) -> Option<Arc<Request>> {
        let used = self.used.lock().unwrap();
        let used: Vec<_> = used.iter().filter(|request| request.key == *key).collect();
        let request = Arc::clone(used.get(self.dice.size(0..=used.len().max(1) - 1))?);
        self.work.log.count("used key repeated");
        Some(request)
    }

    async fn pause(&mut self) {
        let pause = self.dice.one_of(&[0, 1, 10, 50]);
        sleep(Duration::from_millis(pause)).await;
    }

    /// Sends a request to the writer's process, which may crash. Returns whether it has an answer. Sometimes, a request
    /// with an idempotency key is at the same time on its way to another process.
    async fn send(&mut self, request: &Arc<Request>) -> bool {
        if request.idempotency.is_some() && self.dice.chance(0.1) {
            self.work.log.count("request sent twice at the same time");
            let (_, store) = new_process(&self.work, &mut self.dice, self.slowness);
            let (work, written) = (Arc::clone(&self.work), Arc::clone(&self.written));
            let second = execute(work, (store, self.is_earlier), written, Arc::clone(request));
            let (first, second) = tokio::join!(self.send_once(request), second);
            return first || second;
        }
        self.send_once(request).await
    }

    async fn send_once(&mut self, request: &Arc<Request>) -> bool {
        let crash = self.dice.chance(0.05).then(|| self.crash());
        self.process.begin(crash);
        let (work, store) = (Arc::clone(&self.work), Arc::clone(&self.store));
        let mut requests = vec![Arc::clone(request)];
        // Sometimes the process has several requests to the aggregate at once, which it may append together.
        if self.dice.chance(0.3) {
            let count = self.dice.size(1..=5);
            for _ in 0..count {
                if self.dice.chance(0.2)
                    && let Some(used) = self.used(&request.key)
                {
                    requests.push(used);
                    continue;
                }
                self.together += 1;
                let id = format!("{}-together-{}", self.number, self.together);
                requests.push(Arc::new(self.request_to(request.key.clone(), false, id)));
            }
            self.work.log.count("requests sent together");
        }
        let with_keys = requests.iter().filter(|request| request.idempotency.is_some()).cloned();
        self.used.lock().unwrap().extend(with_keys);
        let process = || (Arc::clone(&store), self.is_earlier);
        let execute = |request| execute(Arc::clone(&work), process(), Arc::clone(&self.written), request);
        let executing = join_all(requests.into_iter().map(execute)).map(|answered| answered[0]);
        let done = self.process.run(executing).await;
        if done.is_none() {
            self.work.log.count("writer crash");
            self.work.log.line(|| format!("writer {} crashes: {crash:?}", self.number));
            (self.process, self.store) = new_process(&self.work, &mut self.dice, self.slowness);
        }
        done.unwrap_or_default()
    }

    fn crash(&mut self) -> Crash {
        let call = self.dice.size(0..=3);
        match self.dice.number(0..=2) {
            0 => Crash::BeforeCall(call),
            1 => Crash::AfterCall(call),
            _ => Crash::AtPoll(self.dice.size(1..=12)),
        }
    }

    fn request(&mut self, to_create: Option<usize>, number: usize) -> Request {
        let some_key = self.dice.one_of(&self.work.keys);
        let key = to_create.map_or(some_key, |key| self.work.keys[key].clone());
        self.request_to(key, to_create.is_some(), format!("{}-{number}", self.number))
    }

    fn request_to(&mut self, key: AggregateKey, creates: bool, id: String) -> Request {
        let count = if self.dice.chance(0.2) { self.dice.size(2..=4) } else { 1 };
        let commands = (0..count)
            .map(|number| {
                let creates = creates && number == 0;
                command(&mut self.dice, &self.work, &key.aggregate_type, creates)
            })
            .collect();
        Request {
            key,
            commands,
            // A warm instance decides on its cached state, a new one on the loaded state.
            from_cache: self.dice.chance(0.6),
            time: self.dice.one_of(&[30, 30, 300, 3_000, 20_000]),
            idempotency: self.dice.chance(0.15).then_some(id),
            writer: self.number,
            clock_error: self.clock_error,
            dice: Mutex::new(Dice::new(self.work.seed, &format!("request {}", self.dice.bits()))),
        }
    }
}

/// A new instance with an empty cache.
fn new_process(work: &Work, dice: &mut Dice, slowness: u32) -> (Arc<Process>, Arc<EventStore>) {
    let process = Arc::new(Process::slow(slowness));
    let snapshot_every = dice.one_of(&[1, 2, 5, 100]);
    let settings = StoreSettings { snapshot_every, ..StoreSettings::new(TABLE) };
    let store = work.database.store(Arc::clone(&process), settings);
    (process, Arc::new(store))
}

/// A command that the aggregate may accept, depending on its state.
fn command(dice: &mut Dice, work: &Work, aggregate_type: &str, creates: bool) -> CommandRequest {
    let volume = work.volume;
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
        ("customer", 0) => ("RegisterCustomer", json!({"email": dice.one_of(&EMAILS), "name": PERSONAL})),
        ("customer", 1) => ("DeleteCustomer", json!({})),
        ("customer", 2) => ("ForgetCustomer", json!({})),
        ("customer", _) => ("ChangeEmail", json!({"email": dice.one_of(&EMAILS)})),
        ("visit", 0) => {
            let customers: Vec<_> = work.keys.iter().filter(|key| key.aggregate_type == "customer").collect();
            ("Visit", json!({"customer": dice.one_of(&customers).id, "host": PERSONAL}))
        }
        ("visit", 1..=5) => ("Bring", json!({"guest": text})),
        ("visit", _) => ("Leave", json!({})),
        ("bell", 0) => ("Hang", json!({})),
        ("bell", _) if volume > 1_000 => ("Ring", json!({"strokes": 1, "volume": volume})),
        ("bell", _) => ("Ring", json!({"strokes": dice.number(0..=3), "volume": volume})),
        (other, _) => panic!("no commands for {other}"),
    };
    CommandRequest { command: command.to_owned(), data: Json::of(&data).unwrap() }
}
