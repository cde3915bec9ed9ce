//! A function as Lambda runs it behind its queue: several instances at once, which crash, run out of time, or whose responses
//! are lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_function_runtime::{QueueBatch, QueueRecord, QueueResponse};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::dice::Dice;
use crate::hint_queue::{HintQueue, Received};
use crate::process::{Crash, Process};
use crate::writers::Work;

/// The code of a function.
pub(crate) trait QueueHandler: 'static {
    const NAME: &'static str;

    /// The milliseconds of its time-out.
    const TIMEOUTS: [u64; 3];

    /// The milliseconds after which it begins to read its queue.
    const BEGINS_AFTER: [u64; 4];

    /// What an instance holds.
    type Instance: 'static;

    fn instance(&self, process: &Arc<Process>) -> Self::Instance;

    fn handle(instance: &Self::Instance, batch: QueueBatch, deadline: Instant) -> impl Future<Output = QueueResponse>;

    /// Called at the start of an invocation with these messages. Returns the check of its response.
    fn received(&self, received: &[Received]) -> Box<dyn FnOnce(&QueueResponse)>;
}

/// The function and its instances.
pub(crate) struct QueueFunction<H: QueueHandler> {
    work: Arc<Work>,
    queue: HintQueue,
    handler: Mutex<H>,
    dice: Mutex<Dice>,
    until: Instant,
    /// The share of invocations with a fault.
    rate: f64,
    timeout: Duration,
    /// Maximum invocations at the same time.
    concurrency: usize,
    /// The time from which on the queue is read: many messages are then there at once.
    pub(crate) begins_at: Instant,
    idle: Mutex<Vec<(Arc<Process>, H::Instance)>>,
}

/// The faults of an invocation.
#[derive(Debug, Default)]
struct InvocationFaults {
    crash: Option<Crash>,
    /// The time after which Lambda stops it, if that is not the time-out.
    stopped_after: Option<Duration>,
    response_lost: bool,
}

impl<H: QueueHandler> QueueFunction<H> {
    /// A function whose faults end at a time.
    pub(crate) fn new(work: &Arc<Work>, queue: &HintQueue, handler: H, until: Instant) -> Self {
        let mut dice = Dice::new(work.seed, &format!("{}s", H::NAME));
        Self {
            work: Arc::clone(work),
            queue: queue.clone(),
            handler: Mutex::new(handler),
            until,
            rate: dice.one_of(&[0.0, 0.2, 0.6]),
            timeout: Duration::from_millis(dice.one_of(&H::TIMEOUTS)),
            concurrency: dice.one_of(&[1, 3, 6]),
            begins_at: Instant::now() + Duration::from_millis(dice.one_of(&H::BEGINS_AFTER)),
            idle: Mutex::default(),
            dice: Mutex::new(dice),
        }
    }

    /// Changes the code.
    pub(crate) fn deploy(&self, change: impl FnOnce(&mut H)) {
        change(&mut self.handler.lock().unwrap());
        self.idle.lock().unwrap().clear();
    }

    /// Receives messages until `ended`, and the queue is empty.
    pub(crate) async fn run(self: &Arc<Self>, ended: &Notify, deadline: Instant) {
        sleep_until(self.begins_at).await;
        let (mut running, mut ends) = (JoinSet::new(), false);
        loop {
            while running.len() < self.concurrency {
                let received = self.queue.receive();
                if received.is_empty() {
                    break;
                }
                running.spawn_local(Arc::clone(self).process(received));
            }
            let (queued, dead) = self.queue.counts();
            if ends && queued == 0 && running.is_empty() {
                if dead == 0 {
                    return;
                }
                self.queue.redrive();
            }
            if Instant::now() >= deadline {
                return self.work.log.violation(format!("{queued} messages are still in the queue, {dead} are dead"));
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

    async fn process(self: Arc<Self>, received: Vec<Received>) {
        let ids: Vec<_> = received.iter().map(|message| message.id).collect();
        let check = self.handler.lock().unwrap().received(&received);
        let record = |message: Received| QueueRecord::new(message.id.to_string(), message.body);
        let batch = QueueBatch { records: received.into_iter().map(record).collect() };
        let with = format!("{ids:?}");
        let invoked = self.invoke(&with, async |instance, deadline| {
            let response = H::handle(instance, batch, deadline).await;
            check(&response);
            response
        });
        let Some(response) = invoked.await else { return };
        for id in ids {
            let name = id.to_string();
            if response.batch_item_failures.iter().any(|failure| failure.item_identifier == name) {
                self.queue.give_back(id);
            } else {
                self.queue.delete(id);
            }
        }
    }

    /// Invokes an instance. Returns the response, unless it crashes or the response is lost.
    pub(crate) async fn invoke<T>(&self, with: &str, act: impl AsyncFnOnce(&H::Instance, Instant) -> T) -> Option<T> {
        let log = &self.work.log;
        let InvocationFaults { crash, stopped_after, response_lost } = self.draw_faults(with);
        let idle = self.idle.lock().unwrap().pop();
        let (process, instance) = idle.unwrap_or_else(|| {
            let process = Arc::default();
            let instance = self.handler.lock().unwrap().instance(&process);
            (process, instance)
        });
        process.begin(crash);
        let acting = process.run(act(&instance, Instant::now() + self.timeout));
        let Ok(Some(response)) = timeout(stopped_after.unwrap_or(self.timeout), acting).await else {
            log.count(&format!("{} crash", H::NAME));
            return None;
        };
        self.idle.lock().unwrap().push((process, instance));
        if response_lost {
            log.count(&format!("response of the {} lost", H::NAME));
        }
        Some(response).filter(|_| !response_lost)
    }

    fn draw_faults(&self, with: &str) -> InvocationFaults {
        let (mut dice, none) = (self.dice.lock().unwrap(), InvocationFaults::default());
        let is_faulty = Instant::now() < self.until && dice.chance(self.rate);
        let faults = match dice.number(0..=4) {
            _ if !is_faulty => none,
            0 => InvocationFaults { crash: Some(Crash::BeforeCall(dice.size(0..=8))), ..none },
            1 => InvocationFaults { crash: Some(Crash::AfterCall(dice.size(0..=8))), ..none },
            2 => InvocationFaults { crash: Some(Crash::AtPoll(dice.size(0..=20))), ..none },
            3 => InvocationFaults { stopped_after: Some(dice.milliseconds(0..=200)), ..none },
            _ => InvocationFaults { response_lost: true, ..none },
        };
        self.work.log.line(|| format!("{} with {with}: {faults:?}", H::NAME));
        faults
    }
}
