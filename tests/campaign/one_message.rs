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
use crate::outage::{declared, invoke, record};

/// The message that fails: the first of the stream.
const FAILING: &str = "0-1";

/// A bus that fails one message, and a queue that does not respond until a time.
#[derive(Clone, Debug)]
struct Services {
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
                if id == FAILING {
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

/// Delivers messages that arrive at once, with a queue that responds after this time. Returns how often the bus got the
/// failing message, and the time until it had accepted all others, each once.
fn deliver(count: usize, code: &'static str, queue_responds_after: Duration) -> (usize, Duration) {
    in_virtual_time(async {
        fastrand::seed(1);
        let (function, event) = declared();
        let (clock, began, received) = (Clock::start(), Instant::now(), Arc::default());
        let queue_responds_at = began + queue_responds_after;
        let services = Services { code, queue_responds_at, received: Arc::clone(&received) };
        let relay = relay(&network::config(services));
        let mut mapping = Mapping::new(event.settings);
        (0..count).for_each(|number| mapping.push(record(number, clock.now()), clock.now()).unwrap());
        loop {
            match mapping.poll(clock.now()) {
                Step::Invoke(batch) => {
                    let outcome = invoke(&relay, &batch.payload(), function.timeout).await;
                    mapping.settle(batch, outcome, clock.now());
                }
                Step::Discard(discarded) => panic!("{discarded:?} is discarded"),
                Step::Wait { until: Some(until) } => sleep_until(clock.instant(until)).await,
                Step::Wait { until: None } => break,
            }
        }
        let mut received = received.lock().unwrap();
        assert_eq!(received.dead_letters, 1);
        let attempts = received.entries.remove(FAILING).unwrap();
        let sent: usize = received.entries.values().sum();
        assert_eq!((sent, received.entries.len()), (count - 1, count - 1), "entries and messages");
        (attempts, received.last_accepted.unwrap() - began)
    })
}

#[test]
fn message_that_always_fails_holds_the_others_for_less_than_a_minute() {
    let (attempts, time) = deliver(200, "InternalFailure", Duration::ZERO);
    assert!(attempts >= 5 && time < Duration::from_secs(60), "{attempts} attempts, {time:?}");
}

#[test]
fn malformed_message_costs_one_entry_while_the_dead_letter_queue_does_not_respond() {
    let (attempts, time) = deliver(400, "MalformedDetail", Duration::from_secs(120));
    assert_eq!(attempts, 1);
    assert!(time < Duration::from_secs(150), "{time:?}");
}
