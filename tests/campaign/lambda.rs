//! The relay as Lambda runs it: instances are reused, crash, or are abandoned during an invocation, and responses are lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_event_source_mapping::InvocationOutcome;
use daybook_stream_relay::{Relay, RelaySettings, RetryPolicy, StreamBatch, clients};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::dice::Dice;
use crate::faults::Illness;
use crate::ledger::{Delivery, Ledger, MARGIN};
use crate::log::Log;
use crate::process::{Crash, Life, until_poll};
use crate::services::Services;
use crate::stream::CampaignMessage;

/// The time for which the relay counts rejections of earlier invocations.
const MAX_MESSAGE_AGE: Duration = Duration::from_secs(60);

/// The function.
#[derive(Clone)]
pub(crate) struct Function(Arc<Inner>);

struct Inner {
    services: Services,
    log: Arc<Log>,
    messages: Arc<Vec<CampaignMessage>>,
    illness: Illness,
    /// The percentage of invocations with their own fault.
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
    life: Arc<Life>,
    ledger: Arc<Mutex<Option<Ledger>>>,
    relay: Relay,
}

/// The faults of an invocation.
#[derive(Debug, Default)]
struct Fate {
    crash: Option<Crash>,
    /// The remaining time when the relay begins, if it is not the whole time-out.
    left: Option<Duration>,
    /// The time by which the relay overestimates its remaining time.
    illusion: Duration,
    /// The time at which the poller abandons the invocation, which continues.
    forgotten: Option<Duration>,
    answer_lost: bool,
}

impl Function {
    /// A relay behind a mapping with or without bisection.
    pub(crate) fn new(
        seed: u64,
        services: Services,
        log: Arc<Log>,
        messages: Arc<Vec<CampaignMessage>>,
        illness: Illness,
        splits: bool,
    ) -> Self {
        let mut dice = Dice::new(seed, "function");
        let rate = dice.one_of(&[0.0, 0.1, 0.3, 0.5]);
        // A batch that is not split needs time enough for all its records.
        let timeouts: &[u64] = if splits { &[1_500, 3_000, 10_000, 60_000] } else { &[60_000] };
        let timeout = Duration::from_millis(dice.one_of(timeouts));
        let state = Mutex::new(State { dice, idle: Vec::new(), invocations: 0 });
        Self(Arc::new(Inner { services, log, messages, illness, rate, timeout, state }))
    }

    pub(crate) fn invocations(&self) -> u64 {
        self.0.state.lock().unwrap().invocations
    }

    /// Executes one invocation for the poller.
    pub(crate) async fn invoke(&self, records: Vec<Delivery>) -> InvocationOutcome {
        let (number, fate, records) = {
            let mut state = self.0.state.lock().unwrap();
            state.invocations += 1;
            let ill = !self.0.illness.passed();
            if ill && state.dice.chance(self.0.rate / 4.0) {
                self.0.log.met("function throttled");
                return InvocationOutcome::NotInvoked;
            }
            let fate = if ill { self.0.fate(&mut state.dice) } else { Fate::default() };
            let records = if ill { self.0.tamper(records, &mut state.dice) } else { records };
            (state.invocations, fate, records)
        };
        self.0.log.tell(|| format!("invocation {number} with {} records: {fate:?}", records.len()));
        self.0.log.met("invocation");
        let (forgotten, answer_lost) = (fate.forgotten, fate.answer_lost);
        let running = tokio::spawn(run(Arc::clone(&self.0), number, fate, records));
        let outcome = match forgotten {
            Some(after) => match timeout(after, running).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    self.0.log.met("invocation forgotten");
                    self.0.log.tell(|| format!("invocation {number} is forgotten"));
                    return InvocationOutcome::FunctionError;
                }
            },
            None => running.await,
        };
        let outcome = outcome.expect("an invocation does not panic");
        self.0.log.tell(|| format!("invocation {number}: {outcome:?}"));
        if answer_lost {
            self.0.log.met("answer lost");
            return InvocationOutcome::FunctionError;
        }
        outcome
    }
}

async fn run(function: Arc<Inner>, number: u64, fate: Fate, records: Vec<Delivery>) -> InvocationOutcome {
    let idle = function.state.lock().unwrap().idle.pop();
    let instance = idle.unwrap_or_else(|| function.instance());
    instance.life.begin(fate.crash);
    let end = Instant::now() + fate.left.unwrap_or(function.timeout);
    let deadline = end + fate.illusion;
    let cutoff = deadline - MARGIN.min(deadline - Instant::now());
    let messages = Arc::clone(&function.messages);
    let ledger = Ledger::open(number, Arc::clone(&function.log), messages, &records, cutoff);
    *instance.ledger.lock().unwrap() = Some(ledger);

    let payload = json!({"Records": records.into_iter().map(|delivery| delivery.json).collect::<Vec<_>>()}).to_string();
    let batch: StreamBatch = serde_json::from_str(&payload).unwrap();
    let polls = if let Some(Crash::AtPoll(polls)) = fate.crash { polls } else { usize::MAX };
    let answer = tokio::select! {
        biased;
        answer = until_poll(instance.relay.handle(batch, deadline), polls) => answer,
        () = instance.life.dead() => None,
        () = sleep(end.saturating_duration_since(Instant::now())), if !fate.illusion.is_zero() => None,
    };
    let ledger = instance.ledger.lock().unwrap().take().unwrap();
    let Some(answer) = answer else {
        function
            .log
            .met(&format!("relay crash {}", if fate.crash.is_some() { "between steps" } else { "out of time" }));
        function.log.tell(|| format!("invocation {number} dies: {:?}", fate.crash));
        return InvocationOutcome::FunctionError;
    };
    let answer = match answer {
        Ok(response) => InvocationOutcome::Returned(serde_json::to_string(&response).unwrap()),
        Err(_) => InvocationOutcome::FunctionError,
    };
    ledger.close(&answer);
    function.state.lock().unwrap().idle.push(instance);
    answer
}

impl Inner {
    fn instance(&self) -> Instance {
        let (life, ledger) = (Arc::new(Life::default()), Arc::default());
        let config = self.services.config(Arc::clone(&life), Arc::clone(&ledger));
        let settings = RelaySettings {
            event_bus_name: "main".into(),
            event_source: "daybook".into(),
            dlq_url: "http://in.process/1/dlq".into(),
            max_message_age: MAX_MESSAGE_AGE,
            retry: RetryPolicy { margin: MARGIN, ..RetryPolicy::default() },
        };
        let relay = Relay::new(clients::eventbridge(&config), clients::sqs(&config), settings);
        Instance { life, ledger, relay }
    }

    fn fate(&self, dice: &mut Dice) -> Fate {
        if !dice.chance(self.rate) {
            return Fate::default();
        }
        match dice.number(0..=5) {
            0 => Fate { crash: Some(Crash::BeforeCall(dice.size(0..=4))), ..Fate::default() },
            1 => Fate { crash: Some(Crash::AfterCall(dice.size(0..=4))), ..Fate::default() },
            2 => Fate { crash: Some(Crash::AtPoll(dice.size(0..=12))), ..Fate::default() },
            3 => {
                self.log.met("deadline pressure");
                let illusion = if dice.chance(0.3) { Duration::from_secs(30) } else { Duration::ZERO };
                Fate { left: Some(dice.milliseconds(0..=1_200)), illusion, ..Fate::default() }
            }
            4 => Fate { forgotten: Some(dice.milliseconds(0..=500)), ..Fate::default() },
            _ => Fate { answer_lost: true, ..Fate::default() },
        }
    }

    /// A variation of the batch: records repeated, in another order, or without a sequence number.
    fn tamper(&self, mut records: Vec<Delivery>, dice: &mut Dice) -> Vec<Delivery> {
        if !dice.chance(self.rate / 2.0) {
            return records;
        }
        match dice.number(0..=4) {
            0 | 1 => {
                self.log.met("records repeated in a batch");
                for _ in 0..dice.size(1..=4) {
                    let record = dice.one_of(&records);
                    records.insert(dice.size(0..=records.len()), record);
                }
            }
            2 | 3 => {
                self.log.met("records shuffled in a batch");
                dice.shuffle(&mut records);
            }
            _ => {
                self.log.met("record without a number");
                let at = dice.size(0..=records.len() - 1);
                records[at].json["dynamodb"]["SequenceNumber"] = dice.one_of(&[Value::Null, json!(""), json!(7)]);
            }
        }
        records
    }
}
