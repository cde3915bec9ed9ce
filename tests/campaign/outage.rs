//! An hour without a bus, behind the mapping with the template's own settings.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_event_source_mapping::template::{Function, StreamEvent, Template};
use daybook_event_source_mapping::{InvocationOutcome, Mapping, Record, Step};
use daybook_stream_relay::Relay;
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::clock::{Clock, in_virtual_time};
use crate::counts::{insert, relay};
use crate::network::{self, AwsCall, ConnectionLost, Reply, Service};
use crate::stream::STREAM;

const HOUR: Duration = Duration::from_secs(60 * 60);
const AGGREGATES: usize = 50;
/// The number of messages at the beginning of the outage.
const BURST: usize = 100;
/// The interval between later messages.
const EVERY: Duration = Duration::from_secs(2);

/// The kind of the outage.
#[derive(Clone, Copy, Debug)]
enum Down {
    /// Connections are refused.
    Unreachable,
    /// No response ever arrives.
    NoResponse,
    /// The bus returns 503.
    Failing,
    /// The bus returns 400 `ThrottlingException`.
    Throttling,
    /// The function's role lacks the permission.
    Denying,
}

/// A bus that is down until a time.
#[derive(Clone, Debug)]
struct Bus {
    down: Down,
    until: Instant,
    received: Arc<Mutex<Received>>,
}

#[derive(Debug, Default)]
struct Received {
    /// The number of messages that were sent to the queue.
    dead_letters: usize,
    calls_while_down: usize,
    /// The number of messages that were accepted by the end of each call.
    calls: Vec<usize>,
    /// The id of each message, and the time of its acceptance.
    accepted: Vec<(String, Instant)>,
}

impl Received {
    /// The number of calls for the delivery of this number of messages.
    fn calls_for(&self, messages: usize) -> usize {
        self.calls.partition_point(|&accepted| accepted < messages) + 1
    }
}

impl Service for Bus {
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>> {
        let this = self.clone();
        async move {
            sleep(Duration::from_millis(20)).await;
            if call.operation != "PutEvents" {
                this.received.lock().unwrap().dead_letters += 1;
                return Err(ConnectionLost);
            }
            let error = |status, code| Ok(Reply { status, body: json!({"__type": code}).to_string() });
            if Instant::now() < this.until {
                this.received.lock().unwrap().calls_while_down += 1;
                return match this.down {
                    Down::Unreachable => Err(ConnectionLost),
                    Down::NoResponse => std::future::pending().await,
                    Down::Failing => error(503, "ServiceUnavailable"),
                    Down::Throttling => error(400, "ThrottlingException"),
                    Down::Denying => error(400, "AccessDeniedException"),
                };
            }
            let request: Value = serde_json::from_str(&call.body).unwrap();
            let entries = request["Entries"].as_array().unwrap();
            let mut received = this.received.lock().unwrap();
            for entry in entries {
                let detail: Value = serde_json::from_str(entry["Detail"].as_str().unwrap()).unwrap();
                received.accepted.push((detail["metadata"]["messageId"].as_str().unwrap().to_owned(), Instant::now()));
            }
            let accepted = received.accepted.len();
            received.calls.push(accepted);
            let results: Vec<_> = entries.iter().map(|_| json!({"EventId": "e"})).collect();
            Ok(Reply { status: 200, body: json!({"FailedEntryCount": 0, "Entries": results}).to_string() })
        }
        .boxed()
    }
}

/// The relay as the template declares it: the function and its mapping.
pub(crate) fn declared() -> (Function, StreamEvent) {
    let text = std::fs::read_to_string(suite_tests::workspace().join("template.yaml")).unwrap();
    let function = Template::parse(&text).unwrap().functions.remove("StreamRelay").unwrap();
    let event = function.streams.values().next().unwrap().clone();
    (function, event)
}

#[derive(Debug)]
struct Outage {
    calls_while_down: usize,
    invocations_while_down: usize,
    /// The number of waiting messages at the end of the outage.
    backlog: usize,
    /// The invocations, calls and time that the delivery of the backlog takes.
    invocations_for_backlog: usize,
    calls_for_backlog: usize,
    drained: Duration,
}

/// A burst at the beginning of the outage, and then a message every few seconds, until some time after its end.
fn outage(down: Down) -> Outage {
    in_virtual_time(async {
        fastrand::seed(1);
        let (function, event) = declared();
        let clock = Clock::start();
        let end = Instant::now() + HOUR;
        let received = Arc::new(Mutex::new(Received::default()));
        let bus = Bus { down, until: end, received: Arc::clone(&received) };
        let relay = relay(&network::config(bus));

        let mut mapping = Mapping::new(event.settings.clone());
        let arrives = |number: usize| EVERY * u32::try_from(number.saturating_sub(BURST)).unwrap();
        let backlog = (0..).take_while(|&number| arrives(number) < HOUR).count();
        let count = backlog + 100;
        let (mut pushed, mut invocations_while_down, mut invocations_for_backlog) = (0, 0, 0);
        loop {
            let now = clock.now();
            while pushed < count && clock.passed() >= arrives(pushed) {
                mapping.push(record(pushed, in_turn(pushed), now), now).unwrap();
                pushed += 1;
            }
            match mapping.poll(now) {
                Step::Invoke(batch) => {
                    let drained = received.lock().unwrap().accepted.len() >= backlog;
                    invocations_while_down += usize::from(Instant::now() < end);
                    invocations_for_backlog += usize::from(Instant::now() >= end && !drained);
                    let outcome = invoke(&relay, &batch.payload(), function.timeout).await;
                    mapping.settle(batch, outcome, clock.now());
                }
                Step::Discard(discarded) => panic!("{discarded:?} is discarded"),
                Step::Wait { until } => {
                    let arrival = (pushed < count).then(|| clock.now() - clock.passed() + arrives(pushed));
                    match until.into_iter().chain(arrival).min() {
                        Some(until) => sleep_until(clock.instant(until)).await,
                        None => break,
                    }
                }
            }
        }
        let received = received.lock().unwrap();
        assert_in_order(&received.accepted, count);
        assert_eq!(received.dead_letters, 0, "an outage causes no dead-letter message");
        Outage {
            calls_while_down: received.calls_while_down,
            invocations_while_down,
            backlog,
            invocations_for_backlog,
            calls_for_backlog: received.calls_for(backlog),
            drained: received.accepted[backlog - 1].1 - end,
        }
    })
}

pub(crate) async fn invoke(relay: &Relay, payload: &str, time: Duration) -> InvocationOutcome {
    let batch = serde_json::from_str(payload).unwrap();
    let response = tokio::time::timeout(time, relay.handle(batch, Instant::now() + time)).await;
    let response = response.expect("the relay responds in time").expect("every record has a number");
    InvocationOutcome::Returned(serde_json::to_string(&response).unwrap())
}

/// The id and the message number of a record of the stream, in which the aggregates have messages in turns.
pub(crate) fn in_turn(number: usize) -> (usize, usize) {
    (number % AGGREGATES, number / AGGREGATES + 1)
}

pub(crate) fn record(number: usize, (id, seq): (usize, usize), now: Duration) -> Record {
    let mut record = insert(number + 1, id, seq);
    record["dynamodb"]["ApproximateCreationDateTime"] = now.as_secs().into();
    Record::from_stream(record, STREAM).unwrap()
}

/// Asserts that the bus accepted every message once, and those of an aggregate in order.
fn assert_in_order(accepted: &[(String, Instant)], count: usize) {
    let mut last = BTreeMap::new();
    for (message, _) in accepted {
        let (id, seq) = message.split_once('-').unwrap();
        let before = last.insert(id, seq.parse::<usize>().unwrap()).unwrap_or_default();
        assert_eq!(seq.parse(), Ok(before + 1), "{message}");
    }
    assert_eq!(accepted.len(), count, "messages are lost");
}

#[test]
fn outage_of_an_hour_loses_no_message_and_the_backlog_is_sent_afterwards() {
    let (function, event) = declared();
    // An invocation uses its whole time, with a delay after each failure; an invocation without permission ends at
    // once.
    let longest_delay = daybook_event_source_mapping::mapping::LONGEST_DELAY;
    let max_invocations = |seconds: Duration| usize::try_from(HOUR.as_secs() / seconds.as_secs()).unwrap() + 20;
    for down in [Down::Unreachable, Down::NoResponse, Down::Failing, Down::Throttling, Down::Denying] {
        let outage = outage(down);
        eprintln!("{down:?}: {outage:?}");
        let invocations = match down {
            Down::Denying => max_invocations(longest_delay),
            _ => max_invocations(function.timeout),
        };
        assert!(outage.invocations_while_down <= invocations, "{down:?}: {outage:?}");
        // Delays grow up to five seconds, with an average of two and a half.
        assert!(outage.calls_while_down <= 20 * outage.invocations_while_down, "{down:?}: {outage:?}");
        // Batches are full again, except for the parts of the first one, which was split repeatedly.
        let batches = outage.backlog / event.settings.batch_size + 10;
        assert!(outage.invocations_for_backlog <= batches, "{down:?}: {outage:?}");
        assert!(outage.calls_for_backlog <= outage.backlog / 10 + 20, "{down:?}: {outage:?}");
        assert!(outage.drained < Duration::from_secs(60), "{down:?}: {outage:?}");
    }
}
