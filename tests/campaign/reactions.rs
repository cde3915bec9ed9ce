//! The reactor behind its queue, with ticks and an operator: several instances with wrong clocks, while every part fails.
//!
//! Checked in each schedule:
//! - The relay settles the record of a deadline that is due soon only after the queue has accepted it.
//! - After the faults, ticks lead to an end without a pending deadline whose time has come. What cannot be decided is marked as
//!   failed, and nothing else is. Once the code is repaired, and an operator retries it, it fires.
//! - When nothing fails any more, deadlines fire within [`PROMPT`] of their time.
//! - A rebuild beside writers and firings finds nothing to correct.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use daybook_admin::{AdminCalls, Corrected, Derived};
use daybook_decider::{AggregateKey, Registry};
use daybook_event_store::{DeadlineMark, EventStore, PositionMove, StoreSettings, StoredDeadline};
use daybook_function_runtime::{QueueBatch, QueueResponse};
use daybook_queue::{Queue, SqsClient};
use daybook_reactor::{Reactor, ReactorEvent};
use daybook_table::{ChangedAggregates, DeadlineState, keys};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::dice::Dice;
use crate::hint_queue::{HintQueue, Hints, Received, URL};
use crate::ledger::retry_policy;
use crate::live_stream::LiveStream;
use crate::network;
use crate::process::Process;
use crate::queue_function::{QueueFunction, QueueHandler};
use crate::torn::TornTables;
use crate::writers::{CLOCK_ERROR, Work};

/// The time between two ticks.
const TICK: Duration = Duration::from_secs(60);

/// The longest time from a deadline to its firing when nothing fails: some ticks.
const PROMPT: Duration = Duration::from_secs(180);

/// The maximum time of a schedule after the end of all faults.
const PATIENCE: Duration = Duration::from_secs(2 * 60 * 60);

/// The time of deadlines that are not due in a schedule.
pub(crate) const FAR: SignedDuration = SignedDuration::from_hours(24);

/// The name of the deadlines whose commands cannot be decided until the code is repaired.
pub(crate) const BREAK: &str = "break";

/// The aggregates with their repaired code, or with that before.
pub(crate) type Registries = fn(is_repaired: bool) -> Registry;

/// The reactor of a schedule, and what is beside it.
pub(crate) struct Reactions {
    work: Arc<Work>,
    store: EventStore,
    tables: Arc<TornTables>,
    queue: HintQueue,
    function: Arc<QueueFunction<ReactorCode>>,
    until: Instant,
    /// The names and times of the deadlines that the operator has dropped, of aggregates.
    pub(crate) dropped: RefCell<BTreeSet<(AggregateKey, String, Timestamp)>>,
}

impl Reactions {
    pub(crate) fn start(
        work: &Arc<Work>,
        settings: StoreSettings,
        hints: Hints,
        registries: Registries,
        dice: &mut Dice,
    ) -> Self {
        let tables = Arc::new(TornTables::new(work.seed, Arc::clone(&work.log), Box::new(|_| {})));
        work.database.tear(Arc::clone(&tables));
        work.database.start_faults();
        if dice.chance(0.3) {
            let from = Instant::now() + dice.milliseconds(0..=60_000);
            work.database.fail_transactions(from..from + dice.milliseconds(5_000..=120_000));
        }
        let until = Instant::now() + Duration::from_secs(dice.one_of(&[0, 30, 200]));
        let queue = HintQueue::new(hints, work.seed, Arc::clone(&work.log), until);
        let store = work.database.store(Arc::default(), settings.clone());
        let code = ReactorCode::new(work, &queue, settings, registries);
        let function = Arc::new(QueueFunction::new(work, &queue, code, until));
        Self { work: Arc::clone(work), store, tables, queue, function, until, dropped: RefCell::default() }
    }

    /// Runs everything until the clients have ended, and nothing is left to do, also after the code is repaired.
    /// `hint` returns messages about what may not exist.
    pub(crate) async fn run(
        &self,
        clients: impl Future<Output = ()>,
        hint: fn(&Work, &mut Dice) -> String,
        dice: &mut Dice,
    ) {
        let (calm, ended) = (Cell::new(None), Notify::new());
        let stream = LiveStream::new(&self.work, &self.queue, &self.tables, self.until);
        let write = async {
            clients.await;
            sleep_until(self.until).await;
            self.work.database.stop_faults();
            // Calls that were sent still arrive.
            sleep(Duration::from_secs(60)).await;
            calm.set(Some(Instant::now()));
            // The stream delivers what the reactor appends, too.
            ended.notified().await;
        };
        let react = async {
            self.fire(&calm).await;
            self.repair(dice).await;
            ended.notify_one();
        };
        tokio::select! {
            biased;
            _ = async { tokio::join!(stream.run(write), react) } => {}
            () = self.hint_needlessly(hint) => {}
            () = self.operate() => {}
        }
    }

    /// Runs the reactor until no deadline is pending that is due in this schedule, and no event is left for processes. `calm`:
    /// since when nothing fails, and no client sends requests.
    async fn fire(&self, calm: &Cell<Option<Instant>>) {
        let (ended, deadline) = (Notify::new(), self.until + PATIENCE);
        let tick = async {
            let mut dice = Dice::new(self.work.seed, "ticks");
            let is_done = || self.pending().is_empty() && self.unread().is_empty();
            while calm.get().is_none() || !is_done() && Instant::now() < deadline {
                self.tick(&mut dice).await;
                if self.queue.hints() == Hints::Deadlines
                    && calm.get().is_some_and(|since| since.max(self.function.begins_at).elapsed() > PROMPT)
                {
                    self.check_prompt();
                }
                if calm.get().is_some() {
                    self.queue.redrive();
                }
            }
            // Checked before the function ends: meanwhile, the operator may make a failed one pending again.
            self.work.log.expect(is_done(), || format!("still pending: {:?} {:?}", self.pending(), self.unread()));
            ended.notify_one();
        };
        tokio::join!(tick, self.function.run(&ended, deadline));
    }

    /// The deadlines that are pending, and due in this schedule, each with its time.
    fn pending(&self) -> BTreeMap<(AggregateKey, String), Timestamp> {
        let horizon = self.work.clock.timestamp() + FAR / 2;
        let rows = self.work.keys.iter().flat_map(|key| {
            let rows = self.work.database.rows(&keys::pk(key)).into_iter();
            let pending = rows.filter(|row| row["gsi1pk"]["S"].as_str().is_some_and(is_pending));
            pending.map(|row| {
                let name = keys::deadline_name(row["sk"]["S"].as_str().unwrap()).to_owned();
                ((key.clone(), name), row["due"]["S"].as_str().unwrap().parse().unwrap())
            })
        });
        rows.filter(|(_, due)| *due < horizon).collect()
    }

    /// The aggregates that have events after the position of a process type, unless it is suspended.
    fn unread(&self) -> Vec<AggregateKey> {
        let is_unread = |key: &&AggregateKey| {
            let rows = self.work.database.rows(&keys::pk(key));
            let with = |prefix: &str| rows.iter().rfind(|row| row["sk"]["S"].as_str().unwrap().starts_with(prefix));
            let number = |row: Option<&Value>| row.map(|row| row["seqNum"].clone());
            let last = number(with("EVENT#"));
            let mut processes = self.work.registry.iter().filter(|of| of.source(&key.aggregate_type).is_some());
            processes.any(|of| {
                let position = with(&keys::position_sk(of.type_name()));
                let behind = position.and_then(|row| row["suspended"]["M"].as_object()).into_iter().flatten();
                let is_resumed = behind.into_iter().any(|(_, one)| one["M"]["isResumed"]["BOOL"] == true);
                number(position) != last || is_resumed
            })
        };
        self.work.keys.iter().filter(is_unread).cloned().collect()
    }

    /// Checks that nothing has been due for long, except what cannot be decided.
    fn check_prompt(&self) {
        let latest = self.work.clock.timestamp() - PROMPT;
        let late: Vec<_> =
            self.pending().into_iter().filter(|((_, name), due)| name != BREAK && *due < latest).collect();
        self.work.log.expect(late.is_empty(), || format!("they have not fired: {late:?}"));
    }

    /// One minute, and the tick at its end, which may be missing, or come twice.
    async fn tick(&self, dice: &mut Dice) {
        sleep(TICK + dice.milliseconds(0..=1_000)).await;
        let times = if Instant::now() < self.until { dice.one_of(&[0, 1, 1, 1, 2]) } else { 1 };
        if times != 1 {
            self.work.log.count(if times == 0 { "tick missed" } else { "two ticks at once" });
        }
        let tick = |_| {
            self.function.invoke("a tick", async |reactor, deadline| {
                reactor.handle(ReactorEvent::Tick { tick: true }, deadline).await
            })
        };
        join_all((0..times).map(tick)).await;
    }

    /// Sends messages that nobody needs. Never ends.
    async fn hint_needlessly(&self, hint: fn(&Work, &mut Dice) -> String) {
        let mut dice = Dice::new(self.work.seed, "needless hints");
        for _ in 0..dice.size(0..=10) {
            sleep(dice.milliseconds(0..=20_000)).await;
            self.work.log.count("needless hint");
            self.queue.send(hint(&self.work, &mut dice), Duration::ZERO);
        }
        std::future::pending().await
    }

    /// Acts as an operator, while everything goes on. Never ends.
    async fn operate(&self) {
        let mut dice = Dice::new(self.work.seed, "operator");
        for _ in 0..dice.size(0..=6) {
            sleep(dice.milliseconds(0..=60_000)).await;
            if dice.chance(0.2) {
                self.resume().await;
            } else if dice.chance(0.5) {
                let key = dice.one_of(&self.work.keys);
                let model = self.work.registry.get(&key.aggregate_type).unwrap();
                if let Ok(corrected) =
                    self.store.admin().correct(model, &key, Derived::Deadlines { sends: true }, true).await
                {
                    self.work.log.count("deadlines rebuilt");
                    self.work.log.expect(corrected == Corrected::default(), || format!("{key}: {corrected:?}"));
                }
            } else if let Ok(failed) = self.store.deadlines(DeadlineState::Failed, Timestamp::MAX, 1_000).await {
                join_all(failed.items.iter().map(|failed| self.mark(failed, dice.chance(0.2)))).await;
            }
        }
        std::future::pending().await
    }

    /// Retries a deadline that has failed, or drops it. Its row may change meanwhile.
    async fn mark(&self, failed: &StoredDeadline, drops: bool) {
        let StoredDeadline { aggregate, item, due, .. } = failed;
        self.work.log.expect(item.name() == BREAK, || format!("{failed:?}"));
        self.work.log.count(if drops { "deadline dropped by an operator" } else { "deadline retried" });
        if drops {
            self.dropped.borrow_mut().insert((aggregate.clone(), item.name().to_owned(), *due));
        }
        let mark = if drops { DeadlineMark::Fired } else { DeadlineMark::Pending };
        let marked = self.store.mark_deadline(failed, mark).await;
        self.work.log.line(|| format!("an operator marks {aggregate} {due}: {mark:?}, {marked:?}"));
    }

    /// Resumes the positions that are suspended, and sends the events after them.
    async fn resume(&self) {
        let Ok(found) = self.store.suspended_positions(1_000).await else { return };
        for mut position in found.items {
            let suspended: Vec<_> =
                position.item.all_suspended().map(|(who, one)| (who.to_owned(), one.seq_num)).collect();
            for (who, handled) in suspended {
                let to = PositionMove::Resume(&who, handled);
                if self.store.move_position(&mut position, to).await.is_ok() {
                    self.work.log.count("position resumed");
                    let message = ChangedAggregates::one(position.source.clone(), handled + 1);
                    self.queue.send(message.to_body(), Duration::ZERO);
                }
            }
        }
    }

    /// Replaces the code by one without the defect. An operator retries most of the deadlines that have failed, drops the others,
    /// and resumes the positions.
    async fn repair(&self, dice: &mut Dice) {
        self.function.deploy(|code| code.is_repaired = true);
        let found = self.store.deadlines(DeadlineState::Failed, Timestamp::MAX, 1_000).await.unwrap();
        join_all(found.items.iter().map(|failed| self.mark(failed, dice.chance(0.2)))).await;
        self.resume().await;
        self.fire(&Cell::new(Some(Instant::now()))).await;
    }
}

/// Whether an index partition is one of pending deadlines.
pub(crate) fn is_pending(partition: &str) -> bool {
    partition.starts_with("DEADLINE") && partition != keys::FAILED_DEADLINES
}

/// The code of the reactor.
struct ReactorCode {
    work: Arc<Work>,
    queue: HintQueue,
    settings: StoreSettings,
    registries: Registries,
    /// The maximum milliseconds by which a clock is wrong, and the seconds after which it is set.
    clock_error: u64,
    clock_set_every: u64,
    instances: AtomicU64,
    is_repaired: bool,
}

impl ReactorCode {
    fn new(work: &Arc<Work>, queue: &HintQueue, settings: StoreSettings, registries: Registries) -> Self {
        let mut dice = Dice::new(work.seed, "clocks of reactors");
        let (clock_error, clock_set_every) =
            (dice.one_of(&[0, 100, CLOCK_ERROR.as_millis().try_into().unwrap()]), dice.one_of(&[1, 20, 10_000]));
        let (work, queue, instances) = (Arc::clone(work), queue.clone(), AtomicU64::default());
        Self { work, queue, settings, registries, clock_error, clock_set_every, instances, is_repaired: false }
    }

    /// The clock of a new instance.
    fn clock(&self) -> impl Fn() -> Timestamp + Send + Sync + use<> {
        let (seed, clock) = (self.work.seed, self.work.clock);
        let (number, longest, every) =
            (self.instances.fetch_add(1, Ordering::Relaxed), self.clock_error, self.clock_set_every);
        move || {
            let mut dice = Dice::new(seed, &format!("clock {number} {}", clock.passed().as_secs() / every));
            let ahead = SignedDuration::from_millis(dice.amount(0..=2 * longest.cast_signed()));
            clock.timestamp() + ahead - SignedDuration::from_millis(longest.cast_signed())
        }
    }
}

impl QueueHandler for ReactorCode {
    const NAME: &'static str = "reactor";
    /// With less than twice the reserve for the last calls, an outdated cached state would never be read again.
    const TIMEOUTS: [u64; 3] = [3_000, 5_000, 30_000];
    const BEGINS_AFTER: [u64; 4] = [0, 0, 3_000, 400_000];

    type Instance = Reactor;

    fn instance(&self, process: &Arc<Process>) -> Reactor {
        let store = self.work.database.store(Arc::clone(process), self.settings.clone());
        let client = SqsClient::new(&network::config(self.queue.connection(Arc::clone(process))));
        let queue = Queue { client, url: URL.to_owned(), waits: retry_policy().waits };
        Reactor::new((self.registries)(self.is_repaired), store.with_clock(self.clock()), queue)
    }

    async fn handle(reactor: &Reactor, batch: QueueBatch, deadline: Instant) -> QueueResponse {
        reactor.handle(ReactorEvent::Messages(batch), deadline).await
    }

    fn received(&self, _: &[Received]) -> Box<dyn FnOnce(&QueueResponse)> {
        Box::new(|_| {})
    }
}
