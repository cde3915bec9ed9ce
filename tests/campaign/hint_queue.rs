//! SQS as the queue of the projector or of the reactor: at least once, late, in any order. A message is invisible for a while
//! after it was received, and comes again if it was not deleted by then. After too many receptions it goes to the dead-letter
//! queue. The bus of the relay is here too, and accepts everything when no call fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_table::{ChangedAggregates, DueDeadline, DueDeadlines};
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::dice::Dice;
use crate::faults::{ServiceFault, error_reply, latency};
use crate::log::Log;
use crate::network::{AwsCall, ConnectionLost, Reply, Service};
use crate::process::Process;

/// The URL of the queue.
pub(crate) const URL: &str = "http://in.process/1/hints";

/// The number of messages from which on the tick of the reactor sends no more.
const MANY: usize = 1_000;

/// The time for which a received message is invisible after the end of the faults: longer than any invocation.
const LONG_VISIBILITY: Duration = Duration::from_secs(180);

/// The faults of the relay's calls.
const FAULTS: [ServiceFault; 9] = [
    ServiceFault::Throttled,
    ServiceFault::FailedBefore,
    ServiceFault::FailedAfter,
    ServiceFault::LostBefore,
    ServiceFault::LostAfter,
    ServiceFault::HangsBefore,
    ServiceFault::HangsAfter,
    ServiceFault::Late,
    ServiceFault::Slow,
];

/// Bodies that no function can read. Such a message is received a few times, and does not come from the dead-letter queue again.
const ODD: [&str; 9] =
    ["", "[]", "7", "true", r#""text""#, "null", "{}", r#"{"changed":[["order""#, r#"{"deadlines":[[1]]}"#];
const ODD_RECEIVES: u32 = 3;

/// What the messages name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hints {
    Changes,
    /// They may also be lost: the tick of the reactor repeats them.
    Deadlines,
    /// Both.
    Reactions,
}

impl Hints {
    fn noun(self) -> &'static str {
        match self {
            Self::Changes => "change",
            Self::Deadlines => "deadline",
            Self::Reactions => "reaction",
        }
    }
}

/// Each deadline of a message, if it names any.
fn deadlines_of(body: &str) -> Option<Vec<String>> {
    let due: DueDeadlines = serde_json::from_str(body).ok()?;
    Some(due.into_deadlines().map(|DueDeadline { due, key, name }| format!("{key} {name} {due}")).collect())
}

/// Each aggregate or deadline of a message.
fn hints_of(body: &str) -> Vec<String> {
    deadlines_of(body).unwrap_or_else(|| {
        let changed: ChangedAggregates = serde_json::from_str(body).unwrap();
        changed.keys().map(|key| key.to_string()).collect()
    })
}

/// The queue, its dead-letter queue, and the bus.
#[derive(Clone, Debug)]
pub(crate) struct HintQueue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    hints: Hints,
    log: Arc<Log>,
    state: Mutex<State>,
    sent: Notify,
}

#[derive(Debug)]
struct State {
    dice: Dice,
    /// The time until which calls fail, and the share of those that do.
    until: Instant,
    rates: (f64, f64),
    /// Milliseconds for which a message may be late.
    lateness: u64,
    visibility: Duration,
    max_receives: u32,
    /// Maximum messages of a batch.
    batch_size: usize,
    next_id: u64,
    messages: BTreeMap<u64, Message>,
    dead: Vec<Message>,
    /// The last time at which the queue accepted each aggregate or deadline from the relay.
    accepted: BTreeMap<String, Instant>,
}

#[derive(Clone, Debug)]
struct Message {
    body: String,
    visible_at: Instant,
    receives: u32,
}

/// A message that was received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) id: u64,
    pub(crate) body: String,
}

impl HintQueue {
    /// A queue whose faults end at a time.
    pub(crate) fn new(hints: Hints, seed: u64, log: Arc<Log>, until: Instant) -> Self {
        let mut dice = Dice::new(seed, "changes queue");
        let mut rate = || dice.one_of(&[0.0, 0.1, 0.5, 0.9]);
        let rates = (rate(), rate());
        let lateness = dice.one_of(&[0, 10, 500, 5_000]);
        // Shorter than an invocation, or as AWS advises.
        let visibility = Duration::from_millis(dice.one_of(&[20, 200, 3_000, 60_000]));
        let max_receives = dice.one_of(match hints {
            Hints::Changes => &[1, 3, 10, 100][..],
            Hints::Deadlines | Hints::Reactions => &[10, 100],
        });
        let batch_size = dice.one_of(&[1, 3, 10]);
        let state = State {
            dice,
            until,
            rates,
            lateness,
            visibility,
            max_receives,
            batch_size,
            next_id: 0,
            messages: BTreeMap::new(),
            dead: Vec::new(),
            accepted: BTreeMap::new(),
        };
        Self(Arc::new(Inner { hints, log, state: Mutex::new(state), sent: Notify::new() }))
    }

    pub(crate) fn hints(&self) -> Hints {
        self.0.hints
    }

    fn count(&self, what: &str) {
        self.0.log.count(&format!("{} {what}", self.0.hints.noun()));
    }

    /// The connection of a function instance.
    pub(crate) fn connection(&self, process: Arc<Process>) -> impl Service {
        Connection { queue: self.clone(), process }
    }

    /// Accepts a message.
    pub(crate) fn send(&self, body: String, delay: Duration) {
        let mut state = self.0.state.lock().unwrap();
        let State { dice, lateness, until, .. } = &mut *state;
        let fails = dice.chance(0.1) && Instant::now() < *until;
        let copies = match deadlines_of(&body) {
            _ if !fails => 1,
            Some(_) if dice.chance(0.5) => 0,
            _ => 2,
        };
        match copies {
            0 => self.count("lost"),
            1 => {}
            _ => self.count("queued twice"),
        }
        let mut visible_at = || Instant::now() + delay + dice.milliseconds(0..=*lateness);
        let mut sent: Vec<_> = (0..copies).map(|_| (body.clone(), visible_at())).collect();
        if dice.chance(0.03) && Instant::now() < *until {
            self.count("of an odd form");
            sent.push((dice.one_of(&ODD).to_owned(), Instant::now()));
        }
        for (body, visible_at) in sent {
            state.next_id += 1;
            let id = state.next_id;
            state.messages.insert(id, Message { body, visible_at, receives: 0 });
        }
        drop(state);
        self.0.sent.notify_one();
    }

    /// When the queue last accepted an aggregate or a deadline from the relay.
    pub(crate) fn accepted(&self, hint: &str) -> Option<Instant> {
        self.0.state.lock().unwrap().accepted.get(hint).copied()
    }

    /// Some of the visible messages, in any order.
    pub(crate) fn receive(&self) -> Vec<Received> {
        let mut state = self.0.state.lock().unwrap();
        let now = Instant::now();
        let mut ids: Vec<_> =
            state.messages.iter().filter(|(_, message)| message.visible_at <= now).map(|(id, _)| *id).collect();
        let State { dice, until, messages, dead, visibility, max_receives, batch_size, .. } = &mut *state;
        let visibility = if now < *until { *visibility } else { LONG_VISIBILITY };
        dice.shuffle(&mut ids);
        ids.truncate(dice.size(1..=*batch_size));
        let mut received = Vec::new();
        for id in ids {
            let message = messages.get_mut(&id).unwrap();
            let is_odd = ODD.contains(&&*message.body);
            if message.receives >= if is_odd { ODD_RECEIVES.min(*max_receives) } else { *max_receives } {
                self.count(if is_odd { "of an odd form given up" } else { "sent to the dead-letter queue" });
                dead.extend(messages.remove(&id).filter(|_| !is_odd));
                continue;
            }
            if message.receives > 0 {
                self.count("received again");
            }
            message.receives += 1;
            message.visible_at = now + visibility;
            received.push(Received { id, body: message.body.clone() });
        }
        received
    }

    /// Deletes a message, except that a call may be lost.
    pub(crate) fn delete(&self, id: u64) {
        let mut state = self.0.state.lock().unwrap();
        let is_odd = state.messages.get(&id).is_some_and(|message| ODD.contains(&&*message.body));
        self.0.log.expect(!is_odd, || format!("message {id}, which cannot be read, is settled"));
        if Instant::now() < state.until && state.dice.chance(0.1) {
            self.count("not deleted");
            return;
        }
        state.messages.remove(&id);
    }

    /// Makes a message visible that the function has reported.
    pub(crate) fn give_back(&self, id: u64) {
        self.count("returned to the queue");
        let mut state = self.0.state.lock().unwrap();
        let at_once = state.dice.chance(0.5);
        if let Some(message) = state.messages.get_mut(&id)
            && at_once
        {
            message.visible_at = Instant::now();
        }
    }

    /// Moves all messages of the dead-letter queue back.
    pub(crate) fn redrive(&self) {
        let mut state = self.0.state.lock().unwrap();
        let dead = std::mem::take(&mut state.dead);
        dead.iter().for_each(|_| self.count("redriven"));
        for message in dead {
            state.next_id += 1;
            let id = state.next_id;
            state.messages.insert(id, Message { visible_at: Instant::now(), receives: 0, ..message });
        }
        drop(state);
        self.0.sent.notify_one();
    }

    /// The number of messages, and of those in the dead-letter queue.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.0.state.lock().unwrap();
        (state.messages.len(), state.dead.len())
    }

    /// Waits until a message may be visible.
    pub(crate) async fn wait(&self) {
        let next = self.0.state.lock().unwrap().messages.values().map(|message| message.visible_at).min();
        let later = Instant::now() + Duration::from_secs(3_600);
        tokio::select! {
            biased;
            () = self.0.sent.notified() => {}
            () = tokio::time::sleep_until(next.unwrap_or(later)) => {}
        }
    }
}

/// The connection of a function instance.
#[derive(Debug)]
struct Connection {
    queue: HintQueue,
    process: Arc<Process>,
}

impl Service for Connection {
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>> {
        let (queue, process) = (self.queue.clone(), Arc::clone(&self.process));
        async move {
            let (crashes_before, crashes_after) = process.call();
            if crashes_before {
                process.crash().await;
            }
            let (fault, error, (request_time, response_time)) = queue.0.draw(&call.operation);
            queue.0.log.line(|| format!("{} {fault:?}", call.operation));
            if let Some(error) = error {
                sleep(request_time).await;
                return Ok(error);
            }
            match fault {
                Some(ServiceFault::LostBefore) => return Err(ConnectionLost),
                Some(ServiceFault::HangsBefore) => return std::future::pending().await,
                _ => {}
            }
            let service = queue.clone();
            // A call that was sent arrives even if its sender crashes.
            let effect = tokio::spawn(async move {
                sleep(request_time).await;
                service.respond(&call)
            });
            if fault == Some(ServiceFault::Late) {
                return std::future::pending().await;
            }
            let reply = effect.await.map_err(|_| ConnectionLost)?;
            if crashes_after {
                process.crash().await;
            }
            sleep(response_time).await;
            match fault {
                Some(ServiceFault::FailedAfter) => Ok(error_reply(500, "InternalFailure")),
                Some(ServiceFault::LostAfter) => Err(ConnectionLost),
                Some(ServiceFault::HangsAfter) => std::future::pending().await,
                _ => Ok(reply),
            }
        }
        .boxed()
    }
}

impl HintQueue {
    fn respond(&self, call: &AwsCall) -> Reply {
        let request: Value = serde_json::from_str(&call.body).unwrap();
        let body = match call.operation.as_str() {
            "PutEvents" => {
                let results = request["Entries"].as_array().unwrap().iter().map(|_| json!({"EventId": "e"}));
                json!({"FailedEntryCount": 0, "Entries": results.collect::<Vec<_>>()})
            }
            "SendMessage" if request["QueueUrl"] == URL => {
                let body = request["MessageBody"].as_str().unwrap();
                let accepted = hints_of(body).into_iter().map(|hint| (hint, Instant::now()));
                self.0.state.lock().unwrap().accepted.extend(accepted);
                self.send(body.to_owned(), Duration::from_secs(request["DelaySeconds"].as_u64().unwrap_or_default()));
                json!({"MessageId": "m"})
            }
            "GetQueueAttributes" => {
                let mut state = self.0.state.lock().unwrap();
                let seems_full = Instant::now() < state.until && state.dice.chance(0.1);
                let waiting = if seems_full { MANY } else { state.messages.len() };
                let (visible, in_flight) = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible");
                json!({"Attributes": {visible: waiting.to_string(), in_flight: "0"}})
            }
            other => panic!("a function calls {other}"),
        };
        Reply { status: 200, body: body.to_string() }
    }
}

impl Inner {
    /// The fault of a call, its error if it is not executed, and the times of request and response.
    fn draw(&self, operation: &str) -> (Option<ServiceFault>, Option<Reply>, (Duration, Duration)) {
        let mut state = self.state.lock().unwrap();
        let State { dice, until, rates, .. } = &mut *state;
        let is_bus = operation == "PutEvents";
        let rate = if is_bus { rates.1 } else { rates.0 };
        let fault = (Instant::now() < *until && dice.chance(rate)).then(|| dice.one_of(&FAULTS));
        match (fault, self.hints) {
            (None, _) => {}
            (Some(_), _) if is_bus => self.log.count("bus that fails beside the ring"),
            (Some(_), Hints::Changes) => self.log.count("ring that fails"),
            (Some(_), _) => self.log.count("deadline that cannot be sent"),
        }
        let error = fault.and_then(|fault| fault.error(dice));
        (fault, error, latency(fault, dice))
    }
}
