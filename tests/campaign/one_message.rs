//! One message that can be sent neither to the bus nor to the dead-letter queue, and holds its shard, behind the mapping
//! with the template's own settings.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_event_source_mapping::{Mapping, Step};
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::clock::{Clock, in_virtual_time};
use crate::counts::relay;
use crate::network::{self, AwsCall, ConnectionLost, Reply, Service};
use crate::outage::{declared, in_turn, invoke, record};

/// A bus that fails one message, and a queue that does not respond until a time.
#[derive(Clone, Debug)]
struct Services {
    failing: &'static str,
    code: &'static str,
    queue_responds_at: Instant,
    received: Arc<Mutex<Received>>,
}

#[derive(Debug, Default)]
struct Received {
    /// How often the bus got each message.
    entries: BTreeMap<String, usize>,
    /// The time of the last acceptance.
    last_accepted: Option<Instant>,
    dead_letters: usize,
}

impl Service for Services {
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>> {
        let this = self.clone();
        async move {
            sleep(Duration::from_millis(20)).await;
            let request: Value = serde_json::from_str(&call.body).unwrap();
            if call.operation == "SendMessage" {
                if Instant::now() < this.queue_responds_at {
                    return std::future::pending().await;
                }
                this.received.lock().unwrap().dead_letters += 1;
                return Ok(Reply { status: 200, body: json!({"MessageId": "m"}).to_string() });
            }
            let mut received = this.received.lock().unwrap();
            let mut result_of = |entry: &Value| {
                let detail: Value = serde_json::from_str(entry["Detail"].as_str().unwrap()).unwrap();
                let id = detail["metadata"]["messageId"].as_str().unwrap();
                *received.entries.entry(id.to_owned()).or_default() += 1;
                if id == this.failing {
                    return json!({"ErrorCode": this.code});
                }
                received.last_accepted = Some(Instant::now());
                json!({"EventId": "e"})
            };
            let results: Vec<_> = request["Entries"].as_array().unwrap().iter().map(&mut result_of).collect();
            let failed = results.iter().filter(|result| result["EventId"].is_null()).count();
            Ok(Reply { status: 200, body: json!({"FailedEntryCount": failed, "Entries": results}).to_string() })
        }
        .boxed()
    }
}

/// Delivers the messages of each shard, each of an aggregate and with a number, that arrive at once, with a queue that responds
/// after this time. One instance gets the batches of the shards in turns. Returns how often the bus got the failing message,
/// and the time until it had accepted all others, each once.
fn deliver(
    shards: &[Vec<(usize, usize)>],
    (failing, code): (&'static str, &'static str),
    queue_responds_after: Duration,
) -> (usize, Duration) {
    in_virtual_time(async {
        fastrand::seed(1);
        let (function, event) = declared();
        let (clock, began, received) = (Clock::start(), Instant::now(), Arc::default());
        let queue_responds_at = began + queue_responds_after;
        let services = Services { failing, code, queue_responds_at, received: Arc::clone(&received) };
        let relay = relay(&network::config(services));
        let mut mappings: Vec<_> = shards.iter().map(|_| Mapping::new(event.settings.clone())).collect();
        let mut numbers = 0..;
        for (messages, mapping) in shards.iter().zip(&mut mappings) {
            for (&message, number) in messages.iter().zip(&mut numbers) {
                mapping.push(record(number, message, clock.now()), clock.now()).unwrap();
            }
        }
        let mut next_at = Some(clock.now());
        while let Some(at) = next_at.take() {
            sleep_until(clock.instant(at)).await;
            for mapping in &mut mappings {
                let at = match mapping.poll(clock.now()) {
                    Step::Invoke(batch) => {
                        let outcome = invoke(&relay, &batch.payload(), function.timeout).await;
                        mapping.settle(batch, outcome, clock.now());
                        Some(clock.now())
                    }
                    Step::Discard(discarded) => panic!("{discarded:?} is discarded"),
                    Step::Wait { until } => until,
                };
                next_at = next_at.into_iter().chain(at).min();
            }
        }
        let mut received = received.lock().unwrap();
        assert_eq!(received.dead_letters, 1);
        let attempts = received.entries.remove(failing).unwrap();
        let (sent, others): (usize, _) = (received.entries.values().sum(), shards.concat().len() - 1);
        assert_eq!((sent, received.entries.len()), (others, others), "entries and messages");
        (attempts, received.last_accepted.unwrap() - began)
    })
}

#[test]
fn message_that_always_fails_holds_the_others_for_less_than_a_minute() {
    let in_turns: Vec<_> = (0..200).map(in_turn).collect();
    let (attempts, time) = deliver(&[in_turns], ("0-1", "InternalFailure"), Duration::ZERO);
    assert!(attempts >= 5 && time < Duration::from_secs(60), "{attempts} attempts, {time:?}");
}

/// Its first invocation has no evidence: it fails after all others of its batch were sent.
#[test]
fn message_that_fails_last_of_its_batch_is_given_up_within_a_minute_only_while_another_shard_sends() {
    let third_of_its_aggregate: Vec<_> = (1..=3).map(|seq| (0, seq)).chain((1..=300).map(|id| (id, 1))).collect();
    let of_another_shard: Vec<_> = (1_000..1_300).map(|id| (id, 1)).collect();
    let deliver = |shards: &[_]| deliver(shards, ("0-3", "InternalFailure"), Duration::ZERO).1;
    let time = deliver(&[third_of_its_aggregate.clone(), of_another_shard]);
    assert!(time < Duration::from_secs(60), "{time:?}");
    // An outage may have begun.
    let time = deliver(&[third_of_its_aggregate]);
    assert!((Duration::from_secs(900)..Duration::from_secs(960)).contains(&time), "{time:?}");
}

#[test]
fn malformed_message_costs_one_entry_while_the_dead_letter_queue_does_not_respond() {
    let in_turns: Vec<_> = (0..400).map(in_turn).collect();
    let (attempts, time) = deliver(&[in_turns], ("0-1", "MalformedDetail"), Duration::from_secs(120));
    assert_eq!(attempts, 1);
    assert!(time < Duration::from_secs(150), "{time:?}");
}
