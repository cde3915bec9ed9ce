//! The relay as Lambda runs it: instances are reused, crash, or are abandoned during an invocation, and responses are
//! lost.

use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use daybook_event_source_mapping::InvocationOutcome;
use daybook_stream_relay::{Relay, RelaySettings, StreamBatch, clients};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::clock::Clock;
use crate::dice::Dice;
use crate::evidence::Evidence;
use crate::faults::ServiceFaults;
use crate::ledger::{Delivery, Ledger, MARGIN, retry_policy};
use crate::log::Log;
use crate::process::{Crash, Process};
use crate::services::{Effect, Services};
use crate::shard::StreamFunction;
use crate::stream::{Content, MessageKind, ShardRecord};

/// The function.
#[derive(Clone)]
pub(crate) struct Function(Arc<Inner>);

struct Inner {
    clock: Clock,
    services: Services,
    log: Arc<Log>,
    faults: ServiceFaults,
    /// The share of invocations with a fault of their own.
    rate: f64,
    timeout: Duration,
    state: Mutex<State>,
}

struct State {
    dice: Dice,
    idle: Vec<Instance>,
    invocations: u64,
}

/// A process with a relay, which runs one invocation at a time.
struct Instance {
    process: Arc<Process>,
    ledger: Arc<Mutex<Option<Ledger>>>,
    evidence: Evidence,
    relay: Relay,
}

/// The faults of an invocation.
#[derive(Debug, Default)]
struct InvocationFaults {
    crash: Option<Crash>,
    /// The remaining time when the relay begins, if it is not the whole time-out.
    left: Option<Duration>,
    /// The time by which the relay overestimates its remaining time.
    overestimate: Duration,
    /// The time after which the poller abandons the invocation, which continues.
    abandoned_after: Option<Duration>,
    response_lost: bool,
}

impl Function {
    /// A relay behind a mapping with or without bisection.
    pub(crate) fn new(seed: u64, clock: Clock, services: Services, faults: ServiceFaults, splits: bool) -> Self {
        let mut dice = Dice::new(seed, "function");
        let rate = dice.one_of(&[0.0, 0.1, 0.3, 0.5]);
        // A batch that is not split needs time enough for all its records.
        let timeouts: &[u64] = if splits { &[1_500, 3_000, 10_000, 60_000] } else { &[60_000] };
        let timeout = Duration::from_millis(dice.one_of(timeouts));
        let state = Mutex::new(State { dice, idle: Vec::new(), invocations: 0 });
        let log = Arc::clone(services.log());
        Self(Arc::new(Inner { clock, services, log, faults, rate, timeout, state }))
    }

    pub(crate) fn invocations(&self) -> u64 {
        self.0.state.lock().unwrap().invocations
    }
}

impl StreamFunction for Function {
    async fn invoke(&self, records: Vec<Delivery>) -> InvocationOutcome {
        let (number, injected, records) = {
            let mut state = self.0.state.lock().unwrap();
            state.invocations += 1;
            let faulty = !self.0.faults.have_ended();
            if faulty && state.dice.chance(self.0.rate / 4.0) {
                self.0.log.count("function throttled");
                return InvocationOutcome::NotInvoked;
            }
            let injected = if faulty { self.0.draw_faults(&mut state.dice) } else { InvocationFaults::default() };
            let records = if faulty { self.0.vary(records, &mut state.dice) } else { records };
            (state.invocations, injected, records)
        };
        self.0.log.line(|| format!("invocation {number} with {} records: {injected:?}", records.len()));
        self.0.log.count("invocation");
        let (abandoned_after, response_lost) = (injected.abandoned_after, injected.response_lost);
        let running = tokio::spawn(run(Arc::clone(&self.0), number, injected, records));
        let outcome = match abandoned_after {
            Some(after) => match timeout(after, running).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    self.0.log.count("invocation abandoned");
                    self.0.log.line(|| format!("invocation {number} is abandoned"));
                    return InvocationOutcome::FunctionError;
                }
            },
            None => running.await,
        };
        let outcome = outcome.expect("an invocation does not panic");
        self.0.log.line(|| format!("invocation {number}: {outcome:?}"));
        if response_lost {
            self.0.log.count("response lost");
            return InvocationOutcome::FunctionError;
        }
        outcome
    }

    fn discarded(&self, entry: &ShardRecord) {
        let services = &self.0.services;
        match &entry.content {
            Content::SomethingElse => {}
            Content::Message(index) if services.messages()[*index].kind != MessageKind::Unreadable => {
                services.add_effect(Effect::Discarded(*index));
            }
            Content::Message(_) | Content::Poison(_) => {
                services.add_effect(Effect::DiscardedRaw(entry.record.json().clone()));
            }
        }
    }
}

async fn run(
    function: Arc<Inner>,
    number: u64,
    injected: InvocationFaults,
    records: Vec<Delivery>,
) -> InvocationOutcome {
    let idle = function.state.lock().unwrap().idle.pop();
    let mut instance = idle.unwrap_or_else(|| function.instance());
    instance.process.begin(injected.crash);
    let end = Instant::now() + injected.left.unwrap_or(function.timeout);
    let deadline = end + injected.overestimate;
    let cutoff = deadline - MARGIN.min(deadline - Instant::now());
    let evidence = std::mem::take(&mut instance.evidence);
    let ledger = Ledger::open(number, &function.services, &records, cutoff, evidence);
    *instance.ledger.lock().unwrap() = Some(ledger);

    let payload = json!({"Records": records.into_iter().map(|delivery| delivery.json).collect::<Vec<_>>()}).to_string();
    let batch: StreamBatch = serde_json::from_str(&payload).unwrap();
    let response = tokio::select! {
        biased;
        response = instance.process.run(instance.relay.handle(batch, deadline)) => response,
        () = sleep(end.saturating_duration_since(Instant::now())), if !injected.overestimate.is_zero() => None,
    };
    let ledger = instance.ledger.lock().unwrap().take().unwrap();
    let Some(response) = response else {
        function
            .log
            .count(&format!("relay crash {}", if injected.crash.is_some() { "between steps" } else { "out of time" }));
        function.log.line(|| format!("invocation {number} crashes: {:?}", injected.crash));
        return InvocationOutcome::FunctionError;
    };
    let response = match response {
        Ok(response) => InvocationOutcome::Returned(serde_json::to_string(&response).unwrap()),
        Err(_) => InvocationOutcome::FunctionError,
    };
    instance.evidence = ledger.check_response(&response);
    function.state.lock().unwrap().idle.push(instance);
    response
}

impl Inner {
    fn instance(&self) -> Instance {
        let (process, ledger) = (Arc::new(Process::default()), Arc::default());
        let config = self.services.config(Arc::clone(&process), Arc::clone(&ledger));
        let settings = RelaySettings {
            event_bus_name: "main".into(),
            event_source: "daybook".into(),
            dlq_url: "http://in.process/1/dlq".into(),
            retry: retry_policy(),
        };
        let relay = Relay::new(clients::eventbridge(&config), clients::sqs(&config), settings);
        let clock = self.clock;
        let relay =
            relay.with_clock(daybook_stream_relay::Clock::new(move || (UNIX_EPOCH + clock.now()).try_into().unwrap()));
        Instance { process, ledger, evidence: Evidence::default(), relay }
    }

    fn draw_faults(&self, dice: &mut Dice) -> InvocationFaults {
        if !dice.chance(self.rate) {
            return InvocationFaults::default();
        }
        match dice.number(0..=5) {
            0 => InvocationFaults { crash: Some(Crash::BeforeCall(dice.size(0..=4))), ..InvocationFaults::default() },
            1 => InvocationFaults { crash: Some(Crash::AfterCall(dice.size(0..=4))), ..InvocationFaults::default() },
            2 => InvocationFaults { crash: Some(Crash::AtPoll(dice.size(0..=12))), ..InvocationFaults::default() },
            3 => {
                self.log.count("deadline pressure");
                let overestimate = if dice.chance(0.3) { Duration::from_secs(30) } else { Duration::ZERO };
                InvocationFaults {
                    left: Some(dice.milliseconds(0..=1_200)),
                    overestimate,
                    ..InvocationFaults::default()
                }
            }
            4 => InvocationFaults { abandoned_after: Some(dice.milliseconds(0..=500)), ..InvocationFaults::default() },
            _ => InvocationFaults { response_lost: true, ..InvocationFaults::default() },
        }
    }

    /// Varies a batch: repeats records, changes their order, or removes a sequence number.
    fn vary(&self, mut records: Vec<Delivery>, dice: &mut Dice) -> Vec<Delivery> {
        if !dice.chance(self.rate / 2.0) {
            return records;
        }
        match dice.number(0..=4) {
            0 | 1 => {
                self.log.count("records repeated in a batch");
                for _ in 0..dice.size(1..=4) {
                    let record = dice.one_of(&records);
                    records.insert(dice.size(0..=records.len()), record);
                }
            }
            2 | 3 => {
                self.log.count("records shuffled in a batch");
                dice.shuffle(&mut records);
            }
            _ => {
                self.log.count("record without a number");
                let at = dice.size(0..=records.len() - 1);
                records[at].json["dynamodb"]["SequenceNumber"] = dice.one_of(&[Value::Null, json!(""), json!(7)]);
            }
        }
        records
    }
}
