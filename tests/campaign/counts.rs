//! The number of calls that the relay needs.

use std::sync::{Arc, Mutex};

use daybook_function_runtime::SdkConfig;
use daybook_stream_relay::{Relay, RelaySettings, RetryPolicy, StreamBatch, clients};
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::clock::in_virtual_time;
use crate::dice::Dice;
use crate::network::{self, AwsCall, ConnectionLost, Reply, Service};

const RECORDS: usize = 10_000;
const AGGREGATES: usize = 1_000;

/// The maximum number of calls at the end that are not full.
const MAX_PARTLY_FILLED: usize = 25;

/// A bus that fails some entries, and counts its calls.
#[derive(Clone, Debug)]
struct Counting(Arc<Mutex<Counts>>);

#[derive(Debug)]
struct Counts {
    dice: Dice,
    rate: f64,
    /// The number of entries of each call.
    calls: Vec<usize>,
    failed: usize,
}

impl Service for Counting {
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>> {
        let this = self.clone();
        async move {
            assert_eq!(call.operation, "PutEvents");
            let pause = this.0.lock().unwrap().dice.milliseconds(10..=30);
            sleep(pause).await;
            let request: Value = serde_json::from_str(&call.body).unwrap();
            let entries = request["Entries"].as_array().unwrap().len();
            let mut counts = this.0.lock().unwrap();
            let Counts { dice, rate, calls, failed } = &mut *counts;
            calls.push(entries);
            let results: Vec<_> = (0..entries)
                .map(|_| match dice.chance(*rate) {
                    true => json!({"ErrorCode": "InternalFailure", "ErrorMessage": "injected fault"}),
                    false => json!({"EventId": "e"}),
                })
                .collect();
            let failures = results.iter().filter(|result| result["EventId"].is_null()).count();
            *failed += failures;
            let body = json!({"FailedEntryCount": failures, "Entries": results}).to_string();
            Ok(Reply { status: 200, body })
        }
        .boxed()
    }
}

pub(crate) fn relay(config: &SdkConfig) -> Relay {
    let settings = RelaySettings {
        event_bus_name: "main".into(),
        event_source: "daybook".into(),
        dlq_url: "http://in.process/1/dlq".into(),
        retry: RetryPolicy::default(),
    };
    Relay::new(clients::eventbridge(config), clients::sqs(config), settings)
}

/// The stream record of the message `seq` of a to-do.
pub(crate) fn insert(sequence_number: usize, id: usize, seq: usize) -> Value {
    let keys = json!({"pk": {"S": format!("AGGREGATE#todo#{id}")}, "sk": {"S": format!("OUTBOX#{seq:012}#0")}});
    let mut image = json!({
        "messageId": {"S": format!("{id}-{seq}")}, "messageType": {"S": "TodoUpdated"},
        "messageSeq": {"N": seq.to_string()}, "occurredAt": {"S": "2030-01-01T00:00:00.000Z"},
        "detail": {"S": format!(r#"{{"metadata":{{"messageId":"{id}-{seq}"}},"data":{{}}}}"#)},
        "seqNum": {"N": seq.to_string()}, "ttl": {"N": "1900000000"},
    });
    image.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    json!({
        "eventID": format!("e{sequence_number}"), "eventName": "INSERT", "eventSource": "aws:dynamodb",
        "eventVersion": "1.1", "awsRegion": "eu-west-1", "eventSourceARN": crate::stream::STREAM,
        "dynamodb": {
            "ApproximateCreationDateTime": 1_893_456_000, "Keys": keys, "NewImage": image,
            "SequenceNumber": sequence_number.to_string(), "SizeBytes": 300, "StreamViewType": "NEW_IMAGE",
        },
    })
}

/// Relays 10,000 records of 1,000 aggregates in one invocation, while this share of the entries fails.
fn relay_all(seed: u64, rate: f64) -> (Vec<usize>, usize) {
    in_virtual_time(async {
        fastrand::seed(seed);
        let dice = Dice::new(seed, "counts");
        let counts = Arc::new(Mutex::new(Counts { dice, rate, calls: vec![], failed: 0 }));
        let relay = relay(&network::config(Counting(Arc::clone(&counts))));
        let records: Vec<_> = (0..RECORDS).map(|n| insert(n, n % AGGREGATES, n / AGGREGATES + 1)).collect();
        let batch: StreamBatch = serde_json::from_str(&json!({ "Records": records }).to_string()).unwrap();
        let response = relay.handle(batch, Instant::now() + Duration::from_secs(600)).await.unwrap();
        assert_eq!(response.checkpoint(), None);
        let counts = counts.lock().unwrap();
        (counts.calls.clone(), counts.failed)
    })
}

#[test]
fn ten_thousand_messages_of_healthy_services_take_a_thousand_calls() {
    let (calls, failed) = relay_all(0, 0.0);
    assert_eq!((calls, failed), (vec![10; RECORDS / 10], 0));
}

#[test]
fn retries_take_only_the_calls_that_failed_entries_need() {
    for seed in 0..2 {
        let (calls, failed) = relay_all(seed, 0.1);
        assert!((900..1_300).contains(&failed), "{failed} failed");
        // Exactly the failed entries are sent again.
        assert_eq!(calls.iter().sum::<usize>(), RECORDS + failed);
        // Ten entries per call, except at the end, when fewer than ten aggregates have unsettled messages and each
        // sends one at a time.
        let needed = (RECORDS + failed).div_ceil(10);
        assert!(calls.len() <= needed + MAX_PARTLY_FILLED, "{} calls, {needed} needed", calls.len());
        let (full, _) = calls.split_at(calls.len() - 2 * MAX_PARTLY_FILLED);
        assert!(full.iter().all(|&entries| entries == 10), "{full:?}");
    }
}
