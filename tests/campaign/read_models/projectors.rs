//! The projector as Lambda runs it behind its queue: several instances at once, which crash, run out of time, or whose
//! responses are lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_event_store::{EventStore, StoreSettings};
use daybook_projector::{Projector, QueueBatch, QueueRecord, QueueResponse};
use daybook_table::{AggregateKey, ChangedAggregates};
use daybook_view_store::ViewStore;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::database::TABLE;
use crate::dice::Dice;
use crate::process::{Crash, Process, until_poll};
use crate::read_models::VIEWS_TABLE;
use crate::read_models::changes_queue::{ChangesQueue, Received};
use crate::read_models::strokes::projections;
use crate::read_models::torn::TornTables;
use crate::read_models::view_ledger::ViewLedger;
use crate::writers::Work;

/// The function.
pub(crate) struct Projectors {
    work: Arc<Work>,
    queue: ChangesQueue,
    ledger: Arc<ViewLedger>,
    tables: Arc<TornTables>,
    dice: Dice,
    until: Instant,
    /// The share of invocations with a fault.
    rate: f64,
    timeout: Duration,
    /// Maximum invocations at the same time.
    concurrency: usize,
    /// The time until the queue is read: all messages are then there at once.
    begins_after: Duration,
    is_repaired: bool,
    idle: Arc<Mutex<Vec<Instance>>>,
}

/// A process with a projector.
struct Instance {
    process: Arc<Process>,
    projector: Projector,
}

/// The faults of an invocation.
#[derive(Debug, Default)]
struct InvocationFaults {
    crash: Option<Crash>,
    /// The time after which Lambda stops it, if that is not the time-out.
    stopped_after: Option<Duration>,
    response_lost: bool,
}

impl Projectors {
    pub(crate) fn new(
        work: &Arc<Work>,
        queue: &ChangesQueue,
        ledger: &Arc<ViewLedger>,
        tables: &Arc<TornTables>,
        until: Instant,
    ) -> Self {
        let mut dice = Dice::new(work.seed, "projectors");
        Self {
            work: Arc::clone(work),
            queue: queue.clone(),
            ledger: Arc::clone(ledger),
            tables: Arc::clone(tables),
            until,
            rate: dice.one_of(&[0.0, 0.2, 0.6]),
            timeout: Duration::from_millis(dice.one_of(&[1_200, 5_000, 30_000])),
            concurrency: dice.one_of(&[1, 3, 6]),
            begins_after: Duration::from_millis(dice.one_of(&[0, 0, 400, 3_000])),
            is_repaired: false,
            idle: Arc::default(),
            dice,
        }
    }

    /// Replaces the code by one without the defect.
    pub(crate) fn deploy_repair(&mut self) {
        self.is_repaired = true;
        self.idle = Arc::default();
    }

    /// Receives messages until `ended`, and the queue is empty.
    pub(crate) async fn run(&mut self, ended: &Notify, deadline: Instant) {
        sleep(std::mem::take(&mut self.begins_after)).await;
        let (mut running, mut ends) = (JoinSet::new(), false);
        loop {
            while running.len() < self.concurrency {
                let received = self.queue.receive();
                if received.is_empty() {
                    break;
                }
                running.spawn(self.invocation(received));
            }
            let (queued, dead) = self.queue.counts();
            if ends && queued == 0 && running.is_empty() {
                if dead == 0 {
                    return;
                }
                self.queue.redrive();
            }
            if Instant::now() >= deadline {
                return self.work.log.violation(format!("{queued} changes are still in the queue, {dead} are dead"));
            }
            let is_full = running.len() == self.concurrency;
            tokio::select! {
                biased;
                Some(ended) = running.join_next(), if !running.is_empty() => ended.unwrap(),
                () = ended.notified(), if !ends => ends = true,
                () = self.queue.wait(), if !is_full => {}
            }
        }
    }

    fn invocation(&mut self, received: Vec<Received>) -> impl Future<Output = ()> + use<> {
        let injected = self.draw_faults();
        let (work, queue, ledger) = (Arc::clone(&self.work), self.queue.clone(), Arc::clone(&self.ledger));
        let rung = self.rung(&received);
        let instance = self.idle.lock().unwrap().pop().unwrap_or_else(|| self.instance());
        let (idle, timeout) = (Arc::clone(&self.idle), self.timeout);
        async move {
            let ids: Vec<_> = received.iter().map(|message| message.id).collect();
            work.log.line(|| format!("projector with {ids:?}: {injected:?}"));
            work.log.count("projection");
            instance.process.begin(injected.crash);
            let record = |message: Received| QueueRecord::new(message.id.to_string(), message.body);
            let batch = QueueBatch { records: received.into_iter().map(record).collect() };
            let polls = if let Some(Crash::AtPoll(polls)) = injected.crash { polls } else { usize::MAX };
            let response = tokio::select! {
                biased;
                response = until_poll(instance.projector.handle(batch, Instant::now() + timeout), polls) => response,
                () = instance.process.crashed() => None,
                () = sleep(injected.stopped_after.unwrap_or(timeout)) => None,
            };
            let Some(response) = response else {
                work.log.count("projector crash");
                return;
            };
            idle.lock().unwrap().push(instance);
            rung.check(&response, &ledger, &work);
            if injected.response_lost {
                work.log.count("response of the projector lost");
                return;
            }
            for id in ids {
                let name = id.to_string();
                if response.batch_item_failures.iter().any(|failure| failure.item_identifier == name) {
                    work.log.count("change returned to the queue");
                    queue.give_back(id);
                } else {
                    queue.delete(id);
                }
            }
        }
    }

    fn rung(&self, received: &[Received]) -> Rung {
        let visible = |key: AggregateKey| {
            let hidden = self.tables.first_hidden_event(TABLE, &key);
            let events = hidden.map_or_else(|| self.ledger.events(&key), |hidden| hidden - 1);
            (key, events)
        };
        let aggregates = |message: &Received| {
            let changed: ChangedAggregates = serde_json::from_str(&message.body).unwrap();
            (message.id, changed.keys().map(visible).collect())
        };
        Rung(received.iter().map(aggregates).collect())
    }

    fn draw_faults(&mut self) -> InvocationFaults {
        let Self { dice, until, rate, .. } = self;
        let none = InvocationFaults::default();
        if Instant::now() >= *until || !dice.chance(*rate) {
            return none;
        }
        match dice.number(0..=4) {
            0 => InvocationFaults { crash: Some(Crash::BeforeCall(dice.size(0..=8))), ..none },
            1 => InvocationFaults { crash: Some(Crash::AfterCall(dice.size(0..=8))), ..none },
            2 => InvocationFaults { crash: Some(Crash::AtPoll(dice.size(0..=20))), ..none },
            3 => InvocationFaults { stopped_after: Some(dice.milliseconds(0..=200)), ..none },
            _ => InvocationFaults { response_lost: true, ..none },
        }
    }

    fn instance(&self) -> Instance {
        let process = Arc::new(Process::default());
        let config = self.work.database.config(Arc::clone(&process));
        let events = EventStore::new(&config, StoreSettings::new(TABLE));
        let views = ViewStore::new(&config, VIEWS_TABLE);
        Instance { process, projector: Projector::new(projections(self.is_repaired), events, views) }
    }
}

/// The aggregates of each message, with the number of events that were visible when the invocation began.
struct Rung(BTreeMap<u64, Vec<(AggregateKey, u64)>>);

impl Rung {
    /// Checks that the views show all these events of the messages that are settled.
    fn check(&self, response: &QueueResponse, ledger: &ViewLedger, work: &Work) {
        for (id, aggregates) in &self.0 {
            if response.batch_item_failures.iter().any(|failure| failure.item_identifier == id.to_string()) {
                continue;
            }
            for (key, events) in aggregates {
                let behind = ledger.behind(key, *events);
                work.log.expect(behind.is_empty(), || {
                    format!("change {id} is settled, and {behind:?} do not show event {events} of {key}")
                });
            }
        }
    }
}
