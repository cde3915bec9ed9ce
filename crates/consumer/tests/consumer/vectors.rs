//! The cases for consumers in all languages, which `consumers/vectors.json` describes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use daybook_consumer::{BusMessage, Changes, Consumer, ConsumerFunction, HandleError, RowKey, Rows};
use fastrand::Rng;
use futures_util::future::join;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::database::{Database, Process, TABLE};
use crate::journal::soon;

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<Case>,
    shuffled: Shuffled,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    steps: Vec<Step>,
    aggregates: BTreeMap<String, State>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Step {
    deliver: Vec<Value>,
    failed: BTreeSet<String>,
    repaired: bool,
    request: Option<Value>,
    response: Option<Value>,
    waiting: Option<Value>,
    stopped: Value,
}

#[derive(Deserialize)]
struct Shuffled {
    seeds: u64,
    copies: usize,
    messages: Vec<Value>,
    aggregates: BTreeMap<String, State>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct State {
    applied: Vec<(u32, u64)>,
    position: (u32, u64),
    attempts: u32,
    stored: Vec<(u32, u64)>,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../../../consumers/vectors.json")).unwrap()
}

/// The consumer of the cases.
#[derive(Clone, Default)]
struct Listing {
    is_repaired: Arc<AtomicBool>,
}

impl Consumer for Listing {
    const NAME: &'static str = "listing";
    const MAX_ATTEMPTS: u32 = 3;

    fn reads(&self, message: &BusMessage) -> Result<Vec<RowKey>, HandleError> {
        Ok(vec![RowKey::new(message.aggregate().to_string(), "#LIST"), RowKey::new("total", "#TOTAL")])
    }

    fn handle(&self, message: &BusMessage, rows: &Rows<'_>) -> Result<Changes, HandleError> {
        let name = message.message_type.as_str();
        if name == "Poison" && !self.is_repaired.load(Ordering::Relaxed) {
            return Err(HandleError::new("it is poison"));
        }
        let [list_key, total_key] = self.reads(message)?.try_into().expect("`reads` returns two keys");
        let mut list: Vec<(u32, u64)> = rows.get(&list_key)?.unwrap_or_default();
        list.push((message.number().epoch, message.number().message_seq));
        let total: u64 = rows.get(&total_key)?.unwrap_or_default();
        let mut changes = Changes::none();
        changes.put(total_key, &(total + 1))?;
        if name == "LargeRow" {
            changes.put(RowKey::new(&list_key.partition, "large"), &"x".repeat(500_000))?;
        }
        for row in 0..if name == "ManyRows" { 101 } else { 0 } {
            changes.put(RowKey::new(&list_key.partition, format!("row-{row}")), &row)?;
        }
        changes.put(list_key, &list)?;
        Ok(changes)
    }
}

struct Setup {
    database: Database,
    consumer: Listing,
    function: ConsumerFunction<Listing>,
}

impl Setup {
    async fn new() -> Self {
        let (database, consumer) = (Database::new(1), Listing::default());
        let function = ConsumerFunction::new(consumer.clone(), &database.config(Process::reliable()), TABLE);
        function.table().create().await.unwrap();
        Self { database, consumer, function }
    }

    /// Delivers a batch. Returns the ids of the deliveries that must be repeated.
    async fn deliver(&self, messages: &[Value]) -> BTreeSet<String> {
        let records = expanded(messages).into_iter().enumerate().map(|(id, message)| record(id, &message));
        let response = self.function.handle(json!({"Records": records.collect::<Vec<_>>()}), soon()).await.unwrap();
        let failures = response["batchItemFailures"].as_array().unwrap().iter();
        failures.map(|failure| failure["itemIdentifier"].as_str().unwrap().to_owned()).collect()
    }

    async fn take(&self, step: &Step) {
        self.consumer.is_repaired.fetch_or(step.repaired, Ordering::Relaxed);
        assert_eq!(self.deliver(&step.deliver).await, step.failed);
        let Some(request) = &step.request else { return };
        let response = self.function.handle(request.clone(), soon()).await.unwrap();
        assert!(step.response.as_ref().is_none_or(|expected| *expected == response), "{response}");
        let Some(waiting) = &step.waiting else { return };
        let aggregates = || response["aggregates"].as_array().unwrap().iter();
        let of = |one: &Value| (one["aggregate"].as_str().unwrap().to_owned(), one["waiting"].clone());
        assert_eq!(aggregates().map(of).collect::<Value>(), *waiting);
        let stopped = aggregates().filter(|one| one["failed"]["isStopped"] == true);
        assert_eq!(stopped.map(|one| one["aggregate"].clone()).collect::<Value>(), step.stopped);
    }

    /// The aggregates in the form of the cases.
    fn aggregates(&self) -> BTreeMap<String, State> {
        let mut aggregates: BTreeMap<String, State> = BTreeMap::new();
        let mut total = 0;
        let items = self.database.items();
        for item in &items {
            let text = |name: &str| item[name]["S"].as_str().unwrap_or_default();
            let number = |name: &str| item[name]["N"].as_str().unwrap().parse::<u64>().unwrap();
            let (pk, sk) = (text("pk").split('#').collect::<Vec<_>>(), text("sk").split('#').collect::<Vec<_>>());
            match (&pk[..], &sk[..]) {
                (["POSITION", _, kind, id], ["", "POSITION"]) => {
                    let state = aggregates.entry(format!("{kind}/{id}")).or_default();
                    state.position = (u32::try_from(number("epoch")).unwrap(), number("messageSeq"));
                    state.attempts = u32::try_from(number("attempts")).unwrap();
                }
                (["POSITION", _, kind, id], ["WAITING", epoch, seq]) => {
                    let place = (epoch.parse().unwrap(), seq.parse().unwrap());
                    aggregates.entry(format!("{kind}/{id}")).or_default().stored.push(place);
                }
                (["ROW", _, aggregate], ["", "LIST"]) => {
                    let applied = serde_json::from_str(text("row")).unwrap();
                    aggregates.entry((*aggregate).to_owned()).or_default().applied = applied;
                }
                (_, ["", "TOTAL"]) => total = text("row").parse().unwrap(),
                _ => {}
            }
        }
        for state in aggregates.values_mut() {
            state.stored.sort_unstable();
        }
        assert_eq!(total, aggregates.values().map(|state| state.applied.len()).sum::<usize>());
        aggregates
    }
}

fn expanded(messages: &[Value]) -> Vec<Value> {
    let of = |message: &Value| -> Vec<Value> {
        let Some(range) = message["seqs"].as_array() else { return vec![message.clone()] };
        let with = |seq| {
            let mut one = message.clone();
            one["seq"] = json!(seq);
            one
        };
        (range[0].as_u64().unwrap()..=range[1].as_u64().unwrap()).map(with).collect()
    };
    messages.iter().flat_map(of).collect()
}

fn record(id: usize, message: &Value) -> Value {
    if let Some(record) = message.get("record") {
        return record.clone();
    }
    let body = message["body"].as_str().map_or_else(|| event(message).to_string(), str::to_owned);
    json!({"messageId": id.to_string(), "body": body})
}

fn event(message: &Value) -> Value {
    let text = |name: &str, default: &str| message[name].as_str().unwrap_or(default).to_owned();
    let (of, epoch, seq) = (text("of", "note/1"), message["epoch"].as_u64().unwrap_or(1), &message["seq"]);
    let (aggregate_type, aggregate_id) = of.split_once('/').unwrap();
    let id = text("id", &format!("{aggregate_type}-{aggregate_id}-{epoch}-{seq}"));
    let mut metadata = json!({
        "messageId": id, "aggregateType": aggregate_type, "aggregateId": aggregate_id, "seqNum": seq,
        "messageSeq": seq, "epoch": epoch, "previousEpoch": message["previousEpoch"], "eventId": format!("event-{id}"),
        "eventVersion": 1, "occurredAt": "2030-01-01T00:00:00.000Z",
    });
    let members = metadata.as_object_mut().unwrap();
    members.extend(message["metadata"].as_object().cloned().unwrap_or_default());
    members.retain(|_, value| !value.is_null());
    let data = json!({"text": "x".repeat(usize::try_from(message["bytes"].as_u64().unwrap_or_default()).unwrap())});
    json!({"detail-type": text("type", "Noted"), "detail": {"metadata": metadata, "data": data}})
}

#[tokio::test(start_paused = true)]
async fn each_case_ends_with_its_aggregates() {
    for Case { name, steps, aggregates } in vectors().cases {
        println!("{name}");
        let setup = Setup::new().await;
        for step in &steps {
            setup.take(step).await;
        }
        assert_eq!(setup.aggregates(), aggregates, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn messages_in_random_orders_give_the_same_aggregates() {
    let Shuffled { seeds, copies, messages, aggregates } = vectors().shuffled;
    let messages = expanded(&messages);
    for seed in 0..seeds {
        let (mut rng, setup) = (Rng::with_seed(seed), Setup::new().await);
        let mut queue: Vec<_> = messages.iter().cycle().take(copies * messages.len()).cloned().collect();
        rng.shuffle(&mut queue);
        let queue = Mutex::new((queue, rng));
        let consume = async || {
            loop {
                let batch: Vec<_> = {
                    let (queue, rng) = &mut *queue.lock().unwrap();
                    let count = rng.usize(1..=10).min(queue.len());
                    queue.drain(..count).collect()
                };
                if batch.is_empty() {
                    return;
                }
                assert_eq!(setup.deliver(&batch).await, BTreeSet::new(), "seed {seed}");
            }
        };
        join(consume(), consume()).await;
        assert_eq!(setup.aggregates(), aggregates, "seed {seed}");
    }
}
