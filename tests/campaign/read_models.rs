//! The schedules of read models: writers, the stream, the relay that rings the projector's queue, several projectors and
//! readers, all at once, while every part fails.
//!
//! Checked in each schedule:
//! - Each transaction of the views table writes what the events up to its positions make of the rows: [`view_ledger`]. So a row
//!   is at any time explained by one prefix of each aggregate's events, and no event counts twice.
//! - A reader never sees a row go back, although the items of a transaction become visible one after the other: [`readers`].
//!   After a position was read, a row shows the events up to it.
//! - The relay settles the change of an aggregate only after the queue has accepted it. A message is deleted only after the
//!   views show all events that its aggregates had when the projector received it.
//! - An event that cannot be folded suspends its aggregate before it, and nothing else: in the end, the views show all
//!   other events. After the code was repaired and the aggregate resumed, they show all events.
//!
//! In reading order: [`torn`]: transactions that take time. [`live_stream`]: the stream and the relay. [`changes_queue`]: the
//! queue. [`projectors`]: the projector. [`strokes`]: a projection of the campaign's own.

pub(crate) mod changes_queue;
mod live_stream;
mod projectors;
mod readers;
mod strokes;
pub(crate) mod torn;
mod view_ledger;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use daybook_admin::AdminCalls;
use daybook_decider::Json;
use daybook_event_store::{EventStore, StoreSettings};
use daybook_table::{AggregateKey, ChangedAggregates};
use daybook_view_store::{SuspendedAggregate, View, ViewStore};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::bell::registry;
use crate::clock::{Clock, in_virtual_time};
use crate::database::{Database, TABLE};
use crate::dice::Dice;
use crate::log::{Log, LogContents};
use crate::writers::Work;

use self::changes_queue::ChangesQueue;
use self::live_stream::LiveStream;
use self::projectors::Projectors;
use self::readers::read_views;
use self::strokes::projections;
use self::torn::{Committed, TornTables};
use self::view_ledger::{ViewLedger, view_of};

pub(crate) const VIEWS_TABLE: &str = "daybook-campaign-views";

/// The maximum time of a schedule after the end of all faults.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// The maximum number of times that an operator resumes: a write that arrives late may suspend an aggregate again.
const RESUMPTIONS: usize = 5;

/// Runs the schedule of a seed and returns its log.
pub(crate) fn run(seed: u64, verbose: bool) -> LogContents {
    in_virtual_time(async {
        fastrand::seed(seed);
        let clock = Clock::start();
        let log = Arc::new(Log::new(clock, verbose));
        let mut dice = Dice::new(seed, "read models");
        let database = Database::new(seed, clock, Arc::clone(&log));
        let keys = aggregates(&mut dice);
        let work = Work { seed, clock, log: Arc::clone(&log), database, keys, registry: registry(), volume: 20 };
        Schedule::start(work, &mut dice).await.run(&mut dice).await;
        log.contents()
    })
}

/// The aggregates of a schedule: of several types, or many that share rows.
fn aggregates(dice: &mut Dice) -> Vec<AggregateKey> {
    let types: &[&str] = match dice.number(0..=3) {
        0 => &["order"; 6],
        1 => &["bell"; 6],
        _ => &["bell", "order", "account", "bell", "order", "bell", "todo"],
    };
    let mut keys: Vec<_> = types.iter().zip(0..).map(|(of, id)| AggregateKey::new(*of, format!("{id}"))).collect();
    dice.shuffle(&mut keys);
    keys.truncate(dice.size(1..=6));
    keys
}

/// The parts of a schedule.
struct Schedule {
    work: Arc<Work>,
    ledger: Arc<ViewLedger>,
    tables: Arc<TornTables>,
    queue: ChangesQueue,
    projectors: Projectors,
    commits: Arc<Commits>,
    until: Instant,
}

/// Passes on transactions that have taken effect.
struct Commits {
    ledger: Arc<ViewLedger>,
    visible: Arc<Notify>,
}

impl Committed for Arc<Commits> {
    fn took_effect(&self, request: &Value) {
        self.ledger.committed(request);
    }

    fn is_visible(&self) {
        self.visible.notify_one();
    }
}

impl Schedule {
    async fn start(work: Work, dice: &mut Dice) -> Self {
        let ledger = Arc::new(ViewLedger::new(Arc::clone(&work.log)));
        let commits = Arc::new(Commits { ledger: Arc::clone(&ledger), visible: Arc::default() });
        let tables = TornTables::new(work.seed, Arc::clone(&work.log), Box::new(Arc::clone(&commits)));
        let tables = Arc::new(tables);
        let config = work.database.config(Arc::default());
        EventStore::new(&config, StoreSettings::new(TABLE)).admin().create_table().await.unwrap();
        ViewStore::new(&config, VIEWS_TABLE).create_table().await.unwrap();
        work.database.tear(Arc::clone(&tables));
        work.database.start_faults();
        let until = Instant::now() + Duration::from_secs(dice.one_of(&[0, 1, 5, 30]));
        let work = Arc::new(work);
        let queue = ChangesQueue::new(work.seed, Arc::clone(&work.log), until);
        let projectors = Projectors::new(&work, &queue, &ledger, &tables, until);
        Self { work, ledger, tables, queue, projectors, commits, until }
    }

    async fn run(mut self, dice: &mut Dice) {
        let (writers, requests) = (dice.number(1..=4), dice.size(1..=6));
        self.write_and_project(writers, requests, &[]).await;
        self.check().await;
        let mut suspended = self.suspended().await;
        if suspended.is_empty() {
            return;
        }
        self.work.log.count("schedule with a suspension");
        self.projectors.deploy_repair();
        for _ in 0..RESUMPTIONS {
            self.write_and_project(1, dice.size(0..=2), &suspended).await;
            suspended = self.suspended().await;
            if suspended.is_empty() {
                break;
            }
            self.work.log.count("suspended again by a late write");
        }
        self.work.log.expect(suspended.is_empty(), || format!("they cannot be resumed: {suspended:?}"));
        self.check().await;
    }

    /// Runs writers, and everything else until the queue is empty. Meanwhile, an operator resumes these aggregates.
    async fn write_and_project(&mut self, writers: u64, requests: usize, suspended: &[SuspendedAggregate]) {
        let (written, delivered) = (Arc::new(Notify::new()), Notify::new());
        let stream = LiveStream::new(&self.work, &self.queue, &self.tables, self.until);
        let stream = stream.run(Arc::clone(&self.commits.visible), Arc::clone(&written));
        let (work, until, queue) = (Arc::clone(&self.work), self.until, self.queue.clone());
        let ledger = Arc::clone(&self.ledger);
        let write = async {
            resume(&work, &ledger, &queue, suspended).await;
            work.run(writers, requests).await;
            tokio::time::sleep_until(until).await;
            work.database.stop_faults();
            // Calls that were sent still arrive.
            sleep(Duration::from_secs(60)).await;
            written.notify_one();
        };
        let deliver = async {
            let discarded = stream.await;
            if !discarded.is_empty() {
                work.log.count("operator rings discarded changes");
                queue.send(message(discarded));
            }
            delivered.notify_one();
        };
        let readers =
            join_all((0..2).map(|number| read_views(Arc::clone(&self.work), Arc::clone(&self.ledger), number)));
        let deadline = until + PATIENCE;
        tokio::select! {
            biased;
            _ = async { tokio::join!(write, deliver, self.projectors.run(&delivered, deadline)) } => {}
            _ = readers => {}
            () = ring_needlessly(&self.work, &self.queue) => {}
            () = tokio::time::sleep_until(deadline + Duration::from_secs(60)) => {
                self.work.log.expect(false, || "the stream is never delivered".to_owned());
            }
        }
        // Abandoned invocations have sent calls that still arrive.
        sleep(Duration::from_secs(60)).await;
    }

    /// Checks that every view shows all events, except those after a suspension.
    async fn check(&self) {
        let log = &self.work.log;
        for key in self.ledger.aggregates() {
            let behind = self.ledger.behind(&key, self.ledger.events(&key));
            log.expect(behind.is_empty(), || format!("{behind:?} do not show all events of {key}"));
        }
        let store = self.store();
        for model in projections(true).iter() {
            let view = View::new(model.name(), model.version());
            let (rows, _) = store.list(&view, model.shards(), "", None, 1_000).await.unwrap();
            let shown = rows.into_iter().map(|row| (row.key, model.merge(&row.parts).unwrap().unwrap()));
            let shown: BTreeMap<_, Json> = shown.collect();
            let expected = self.ledger.folded_anew(model);
            let texts = |rows: &BTreeMap<String, Json>| -> BTreeMap<String, String> {
                rows.iter().map(|(key, row)| (key.clone(), row.text().to_owned())).collect()
            };
            log.count_times("row shown", shown.len() as u64);
            log.expect(texts(&shown) == texts(&expected), || {
                format!("{} shows {shown:?}, expected {expected:?}", view_of(model))
            });
        }
    }

    async fn suspended(&self) -> Vec<SuspendedAggregate> {
        self.store().suspended().await.unwrap()
    }

    fn store(&self) -> ViewStore {
        ViewStore::new(&self.work.database.config(Arc::default()), VIEWS_TABLE)
    }
}

/// Resumes aggregates and rings them, as `daybook projection resume` does. They are rung before, too: until they are resumed,
/// nothing of them may be folded.
async fn resume(work: &Work, ledger: &ViewLedger, queue: &ChangesQueue, suspended: &[SuspendedAggregate]) {
    if suspended.is_empty() {
        return;
    }
    let aggregates: BTreeSet<_> = suspended.iter().map(|one| one.aggregate.clone()).collect();
    queue.send(message(aggregates.clone()));
    sleep(Duration::from_secs(10)).await;
    let store = ViewStore::new(&work.database.config(Arc::default()), VIEWS_TABLE);
    for SuspendedAggregate { view, aggregate, .. } in suspended {
        ledger.resumed(&view.to_string(), aggregate);
        let failed_event = store.resume(view, aggregate, Timestamp::now()).await.unwrap();
        work.log.expect(failed_event.is_some(), || format!("{view}: {aggregate} is not suspended any more"));
        work.log.count("aggregate resumed");
    }
    queue.send(message(aggregates));
}

/// Rings aggregates at any time, as an operator may do. Never ends.
async fn ring_needlessly(work: &Work, queue: &ChangesQueue) {
    let mut dice = Dice::new(work.seed, "needless rings");
    let longest = dice.one_of(&[10, 100]);
    for _ in 0..dice.size(0..=12) {
        sleep(dice.milliseconds(0..=longest)).await;
        work.log.count("needless ring");
        queue.send(message(BTreeSet::from([dice.one_of(&work.keys)])));
    }
    std::future::pending().await
}

fn message(aggregates: BTreeSet<AggregateKey>) -> String {
    ChangedAggregates::messages(&aggregates.into_iter().map(|key| (key, 0)).collect())[0].to_body()
}
