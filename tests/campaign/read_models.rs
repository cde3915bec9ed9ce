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
//! In reading order: [`projectors`]: the projector. [`strokes`]: a projection of the campaign's own.

mod projectors;
mod readers;
mod strokes;
mod view_ledger;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use daybook_admin::AdminCalls;
use daybook_decider::Json;
use daybook_event_store::{EventStore, StoreSettings};
use daybook_table::{AggregateKey, ChangedAggregates};
use daybook_view_store::{RowRange, SuspendedAggregate, View, ViewStore};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::bell::registry;
use crate::clock::in_virtual_time;
use crate::database::TABLE;
use crate::dice::Dice;
use crate::hint_queue::{HintQueue, Hints};
use crate::live_stream::LiveStream;
use crate::log::LogContents;
use crate::queue_function::QueueFunction;
use crate::torn::TornTables;
use crate::writers::Work;

use self::projectors::ProjectorCode;
use self::readers::read_views;
use self::strokes::projections;
use self::view_ledger::{ViewLedger, view_of};

pub(crate) const VIEWS_TABLE: &str = "daybook-campaign-views";

/// The maximum time of a schedule after the end of all faults.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// The maximum number of times that an operator resumes: a write that arrives late may suspend an aggregate again.
const RESUMPTIONS: usize = 5;

/// Runs the schedule of a seed and returns its log.
pub(crate) fn run(seed: u64, verbose: bool) -> LogContents {
    in_virtual_time(async {
        let mut dice = Dice::new(seed, "read models");
        let keys = aggregates(&mut dice);
        let work = Arc::new(Work::begin(seed, verbose, registry(), keys));
        Schedule::start(&work, &mut dice).await.run(&mut dice).await;
        work.log.contents()
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
    queue: HintQueue,
    function: Arc<QueueFunction<ProjectorCode>>,
    until: Instant,
}

impl Schedule {
    async fn start(work: &Arc<Work>, dice: &mut Dice) -> Self {
        let ledger = Arc::new(ViewLedger::new(Arc::clone(&work.log)));
        let events = Arc::clone(&ledger);
        let committed = Box::new(move |request: &Value| events.committed(request));
        let tables = Arc::new(TornTables::new(work.seed, Arc::clone(&work.log), committed));
        let config = work.database.config(Arc::default());
        EventStore::new(&config, StoreSettings::new(TABLE)).admin().create_table().await.unwrap();
        ViewStore::new(&config, VIEWS_TABLE).create_table().await.unwrap();
        work.database.tear(Arc::clone(&tables));
        work.database.start_faults();
        let until = Instant::now() + Duration::from_secs(dice.one_of(&[0, 1, 5, 30]));
        let queue = HintQueue::new(Hints::Changes, work.seed, Arc::clone(&work.log), until);
        let (of_code, events) = (Arc::clone(work), Arc::clone(&ledger));
        let code = ProjectorCode { work: of_code, ledger: events, tables: Arc::clone(&tables), is_repaired: false };
        let function = QueueFunction::new(work, &queue, code, until);
        Self { work: Arc::clone(work), ledger, tables, queue, function: Arc::new(function), until }
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
        self.function.deploy(|code| code.is_repaired = true);
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
        let (work, until, queue, delivered) = (Arc::clone(&self.work), self.until, &self.queue, Notify::new());
        let write = async {
            resume(&work, &self.ledger, queue, suspended).await;
            work.run(writers, requests).await;
        };
        let deliver = async {
            LiveStream::new(&work, queue, &self.tables, until).run(write).await;
            delivered.notify_one();
        };
        let readers =
            join_all((0..2).map(|number| read_views(Arc::clone(&self.work), Arc::clone(&self.ledger), number)));
        let deadline = until + PATIENCE;
        tokio::select! {
            biased;
            _ = async { tokio::join!(deliver, self.function.run(&delivered, deadline)) } => {}
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
            let (rows, _) = store.list(&view, model.part_count(), RowRange::default(), 1_000).await.unwrap();
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
async fn resume(work: &Work, ledger: &ViewLedger, queue: &HintQueue, suspended: &[SuspendedAggregate]) {
    if suspended.is_empty() {
        return;
    }
    let aggregates: BTreeSet<_> = suspended.iter().map(|one| one.aggregate.clone()).collect();
    queue.send(message(aggregates.clone()), Duration::ZERO);
    sleep(Duration::from_secs(10)).await;
    let store = ViewStore::new(&work.database.config(Arc::default()), VIEWS_TABLE);
    for SuspendedAggregate { view, aggregate, .. } in suspended {
        ledger.resumed(&view.to_string(), aggregate);
        let failed_event = store.resume(view, aggregate, Timestamp::now()).await.unwrap();
        work.log.expect(failed_event.is_some(), || format!("{view}: {aggregate} is not suspended any more"));
        work.log.count("aggregate resumed");
    }
    queue.send(message(aggregates), Duration::ZERO);
}

/// Rings aggregates at any time, as an operator may do. Never ends.
async fn ring_needlessly(work: &Work, queue: &HintQueue) {
    let mut dice = Dice::new(work.seed, "needless rings");
    let longest = dice.one_of(&[10, 100]);
    for _ in 0..dice.size(0..=12) {
        sleep(dice.milliseconds(0..=longest)).await;
        work.log.count("needless ring");
        queue.send(message(BTreeSet::from([dice.one_of(&work.keys)])), Duration::ZERO);
    }
    std::future::pending().await
}

fn message(aggregates: BTreeSet<AggregateKey>) -> String {
    ChangedAggregates::messages(&aggregates.into_iter().map(|key| (key, 0)).collect())[0].to_body()
}
