//! Messages in any order, each three times, with faults, killed processes, two instances at the same time, and a body of no
//! message in each batch: each message is applied exactly once, and in the order of its aggregate.
//!
//! `CONSUMER_SEEDS` sets the number of seeds, 250 by default, and `CONSUMER_FIRST_SEED` the first one. A failure prints its
//! seed.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use daybook_consumer::BusMessage;
use daybook_consumer::testing::message;
use fastrand::Rng;
use futures_util::future::join;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::database::Process;
use crate::journal::{POISON, Setup, batch, event, failures, first, noted, soon};

const SEEDS: u64 = 250;

/// Bodies of no message.
const ODD: [&str; 8] = ["", "[]", "7", "true", r#""text""#, "null", "{}", r#"{"detail":{"metadata":[1]"#];

/// Longer than any call is under way.
const QUIET: Duration = Duration::from_secs(10);

/// The messages of a seed.
struct Schedule {
    rng: Rng,
    /// The number of messages of each aggregate.
    aggregates: BTreeMap<String, u64>,
    messages: Vec<BusMessage>,
    /// The message that is not delivered at first.
    withheld: BusMessage,
    /// The aggregate and the number of a message that cannot be applied at first.
    poison: Option<(String, u64)>,
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let aggregates: BTreeMap<_, _> = (0..3).map(|id| (format!("note/{id}"), rng.u64(3..=6))).collect();
        let withheld = noted("note/0", rng.u64(1..aggregates["note/0"]));
        let poison = (rng.u8(..4) == 0).then(|| ("note/1".to_owned(), rng.u64(1..=aggregates["note/1"])));
        let of = |(aggregate, count): (&String, &u64)| {
            let is_poison = |number| poison == Some((aggregate.clone(), number));
            let of_number = |number| match is_poison(number) {
                true => message(aggregate, number, (POISON, 1), json!({"number": number})),
                false => noted(aggregate, number),
            };
            (1..=*count).map(of_number).collect::<Vec<_>>()
        };
        let messages = aggregates.iter().flat_map(of).filter(|message| *message != withheld).collect();
        Self { rng, aggregates, messages, withheld, poison }
    }

    /// Each message three times, shuffled; every tenth of them after all others.
    fn deliveries(&mut self) -> Vec<BusMessage> {
        let mut deliveries: Vec<_> = self.messages.iter().cycle().take(3 * self.messages.len()).cloned().collect();
        self.rng.shuffle(&mut deliveries);
        let numbered = deliveries.into_iter().enumerate();
        let (late, early): (Vec<_>, Vec<_>) = numbered.partition(|(number, _)| number % 10 == 9);
        early.into_iter().chain(late).map(|(_, message)| message).collect()
    }

    /// The number of messages of an aggregate that can be applied while one is withheld and one is poison.
    fn reachable(&self, aggregate: &str) -> u64 {
        let withheld = Some(&self.withheld).filter(|message| message.aggregate().to_string() == aggregate);
        let poison = self.poison.as_ref().filter(|(of, _)| of == aggregate).map(|(_, number)| *number);
        let stops = [withheld.map(|message| message.metadata.message_seq), poison];
        stops.into_iter().flatten().min().map_or(self.aggregates[aggregate], |stop| stop - 1)
    }
}

/// A queue without a limit of deliveries, whose messages come in order until one must be delivered again.
struct Queue {
    messages: Mutex<Vec<BusMessage>>,
    rng: Mutex<Rng>,
}

impl Queue {
    fn new(deliveries: Vec<BusMessage>, rng: &mut Rng) -> Self {
        Self { messages: Mutex::new(deliveries), rng: Mutex::new(rng.fork()) }
    }

    fn take(&self) -> Vec<BusMessage> {
        let mut messages = self.messages.lock().unwrap();
        let count = self.rng.lock().unwrap().usize(1..=10).min(messages.len());
        messages.drain(..count).collect()
    }

    fn put_back(&self, message: BusMessage) {
        let mut messages = self.messages.lock().unwrap();
        let place = self.rng.lock().unwrap().usize(..=messages.len());
        messages.insert(place, message);
    }

    /// One instance after the other handles the messages, until there are none.
    async fn consume(&self, setup: &Setup) {
        loop {
            let taken = self.take();
            if taken.is_empty() {
                return;
            }
            let (kind, call, is_executed, odd) = {
                let mut rng = self.rng.lock().unwrap();
                (rng.u8(..10), rng.usize(..12), rng.bool(), ODD[rng.usize(..ODD.len())])
            };
            let process = if kind < 3 { Process::killed_at(call, is_executed) } else { Process::reliable() };
            let function = setup.instance(process.clone());
            // A rule may also pass its events to the function itself.
            let (payload, taken) = match &taken[..] {
                [one] => (event(one), taken),
                _ => {
                    let mut batch = batch(&taken);
                    let odd = json!({"messageId": taken.len().to_string(), "body": odd});
                    batch["Records"].as_array_mut().unwrap().push(odd);
                    (batch, taken)
                }
            };
            let unsettled: Vec<usize> = tokio::select! {
                biased;
                () = process.killed() => (0..taken.len()).collect(),
                response = function.handle(payload, soon()) => match response {
                    Ok(Value::Null) => Vec::new(),
                    Ok(response) => {
                        let unsettled = failures(&response).into_iter();
                        let (odd, unsettled): (Vec<_>, _) = unsettled.partition(|index| *index == taken.len());
                        assert_eq!(odd.len(), 1, "a body of no message is settled");
                        unsettled
                    }
                    Err(_) => vec![0],
                },
            };
            for unsettled in unsettled {
                self.put_back(taken[unsettled].clone());
            }
        }
    }
}

async fn run(seed: u64) {
    let mut schedule = Schedule::new(seed);
    let setup = Setup::new(seed).await;
    setup.journal.fails.store(true, Ordering::Relaxed);
    setup.database.set_fault_rate([0.0, 0.05, 0.2][schedule.rng.usize(..3)]);
    let queue = Queue::new(schedule.deliveries(), &mut schedule.rng);
    join(queue.consume(&setup), queue.consume(&setup)).await;
    sleep(QUIET).await;

    // One message is missing, and one cannot be applied: only their aggregates wait.
    let fault_rate = std::mem::replace(&mut *setup.database.fault_rate(), 0.0);
    for aggregate in schedule.aggregates.keys() {
        assert_eq!(setup.applied(aggregate).await, first(schedule.reachable(aggregate)), "{aggregate}");
    }
    let report = setup.report().await;
    let missing = |aggregate: &str| {
        let all = report["aggregates"].as_array().unwrap().iter();
        all.filter(|one| one["aggregate"] == aggregate).map(|one| one["missing"].clone()).next()
    };
    let number = schedule.withheld.metadata.message_seq;
    assert_eq!(missing("note/0"), Some(json!([{"epoch": 1, "from": number, "to": number}])), "{report}");
    assert_eq!(missing("note/1"), schedule.poison.as_ref().map(|_| json!([])), "{report}");
    assert_eq!(missing("note/2"), None);

    // It arrives, and the consumer is corrected: everything is applied.
    setup.journal.fails.store(false, Ordering::Relaxed);
    setup.database.set_fault_rate(fault_rate);
    let again: Vec<_> = schedule.messages.iter().filter(|_| schedule.rng.u8(..4) == 0).cloned().collect();
    let deliveries = std::iter::once(schedule.withheld.clone()).chain(again).collect();
    let queue = Queue::new(deliveries, &mut schedule.rng);
    join(queue.consume(&setup), queue.consume(&setup)).await;
    sleep(QUIET).await;
    setup.database.set_fault_rate(0.0);
    if let Some((aggregate, _)) = &schedule.poison {
        setup.request(json!({"request": "resume", "aggregate": aggregate})).await;
    }
    for (aggregate, &count) in &schedule.aggregates {
        assert_eq!(setup.applied(aggregate).await, first(count), "{aggregate}");
    }
    assert_eq!(setup.total().await, schedule.aggregates.values().sum::<u64>());
    assert_eq!(setup.report().await, json!({"total": 0, "aggregates": []}));
    let left = setup.database.items().into_iter().filter(|item| {
        let starts_with = |name: &str, prefix: &str| item[name]["S"].as_str().unwrap().starts_with(prefix);
        starts_with("sk", "WAITING#") || starts_with("pk", "INCOMPLETE#")
    });
    assert_eq!(left.count(), 0);
}

/// Names the seed of a failure.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed is {0}: CONSUMER_SEEDS=1 CONSUMER_FIRST_SEED={0}", self.0);
        }
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[test]
fn shuffled_messages_are_applied_once_and_in_order_whatever_fails() {
    let first_seed = variable("CONSUMER_FIRST_SEED").unwrap_or_default();
    let (next, last) = (AtomicU64::new(first_seed), first_seed + variable("CONSUMER_SEEDS").unwrap_or(SEEDS));
    println!("seeds {first_seed} to {}", last - 1);
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        loop {
            let seed = Seed(next.fetch_add(1, Ordering::Relaxed));
            if seed.0 >= last {
                return;
            }
            runtime.block_on(run(seed.0));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
}
