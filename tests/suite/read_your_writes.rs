//! Read your own write: on the local stack, each write is followed by a read with `seen` on another connection. The calls
//! to the queue fail meanwhile, and a second projector competes with the stack's own, whose calls fail and which is killed
//! at any point.
//!
//! `READ_YOUR_WRITES=10000 cargo test -p suite-tests --test suite every_read_with_seen -- --nocapture` makes that many writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aws_sdk_sqs::types::Message;
use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::aws_config_at;
use daybook_local_aws::messaging::Faults;
use daybook_projector::{Projector, QueueBatch, QueueRecord};
use daybook_test_support::fault_proxy::{FaultProxy, InjectedFault};
use daybook_view_store::ViewStore;
use fastrand::Rng;
use futures_util::future::join_all;
use reqwest::Client;
use serde_json::{Value, json};
use suite_tests::Suite;
use tokio::time::{sleep, timeout};

/// The number of writes without `READ_YOUR_WRITES`.
const WRITES: u64 = 96;

const CLIENTS: u64 = 24;

/// What the clients saw.
#[derive(Debug, Default)]
struct Seen {
    reads: AtomicU64,
    /// Reads that were answered 503, and were repeated.
    behind: AtomicU64,
    /// Reads that took so long that they waited for the projector.
    waited: AtomicU64,
    slowest_ms: AtomicU64,
}

/// A client, who is the only writer of one account.
struct Account<'a> {
    url: &'a str,
    id: String,
    writer: Client,
    reader: Client,
    seen: &'a Seen,
}

impl Account<'_> {
    async fn post(&self, path: &str, body: Value) -> u64 {
        let response = self.writer.post(format!("{}{path}", self.url)).json(&body).send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response.json::<Value>().await.unwrap()["version"].as_u64().unwrap()
    }

    /// The row of the key once it shows an event of the account.
    async fn row(&self, key: &str, version: u64) -> Value {
        let url = format!("{}/views/account-balances/{key}?seen=account/{}@{version}", self.url, self.id);
        let began = Instant::now();
        loop {
            let response = self.reader.get(&url).send().await.unwrap();
            let status = response.status().as_u16();
            let body: Value = response.json().await.unwrap();
            match status {
                200 => {
                    let took = u64::try_from(began.elapsed().as_millis()).unwrap();
                    self.seen.reads.fetch_add(1, Ordering::Relaxed);
                    // The first pause of a read that waits.
                    self.seen.waited.fetch_add(u64::from(took >= 20), Ordering::Relaxed);
                    self.seen.slowest_ms.fetch_max(took, Ordering::Relaxed);
                    return body["row"].clone();
                }
                503 => self.seen.behind.fetch_add(1, Ordering::Relaxed),
                _ => panic!("{url}: {status} {body}"),
            };
            assert!(began.elapsed() < Duration::from_secs(120), "{url} is behind: {body}");
        }
    }

    async fn write_and_read(&self, writes: u64) {
        let opened = self.post("/account", json!({"id": self.id})).await;
        self.row(&format!("account:{}", self.id), opened).await;
        for balance in 1..=writes {
            let command = json!({"command": "RecordTransaction", "data": {"desc": "", "amount": 1}});
            let version = self.post(&format!("/account/{}/commands", self.id), command).await;
            // Nobody else writes to the account, so the row shows exactly what was written.
            let own = self.row(&format!("account:{}", self.id), version).await;
            assert_eq!(own, json!({"accounts": 1, "balance": balance}), "a stale read of {} at {version}", self.id);
            if balance % 8 == 0 {
                let total = self.row("total", version).await;
                assert!(total["balance"].as_u64().unwrap() >= balance, "a stale read of the total: {total}");
            }
        }
    }
}

/// Fails calls to the queue again and again. Calls of the projector that deletes messages fail too, so messages come again.
async fn fail_queue(suite: &Suite, ended: &AtomicBool) {
    let mut rng = Rng::with_seed(1);
    while !ended.load(Ordering::Relaxed) {
        let fault = |rng: &mut Rng| match rng.u32(..6) {
            0 => json!({"http": 503}),
            1 => json!({"acceptThenDrop": true}),
            2 => json!({"delayMs": rng.u32(1..150)}),
            _ => json!({}),
        };
        let mut some = || (0..3).map(|_| fault(&mut rng)).collect::<Vec<_>>();
        let faults = json!({"sendMessage": some(), "deleteMessage": some()});
        suite.stack.bus().set_faults(serde_json::from_value::<Faults>(faults).unwrap());
        sleep(Duration::from_millis(100)).await;
    }
    suite.stack.bus().set_faults(Faults::default());
}

/// A second projector, whose calls fail and which is killed at any point. What it received comes again after a second.
async fn compete(suite: &Suite, ended: &AtomicBool) {
    let mut rng = Rng::with_seed(2);
    let proxy = FaultProxy::to(suite.stack.dynamodb_url()).await.unwrap();
    let sqs = aws_sdk_sqs::Client::new(&aws_config_at(suite.stack.bus_url()));
    let url = format!("{}/000000000000/daybook-changes", suite.stack.bus_url());
    let config = aws_config_at(proxy.url());
    let projector = || {
        let events = EventStore::new(&config, StoreSettings::new(suite.stack.table_name()));
        let views = ViewStore::new(&config, format!("{}-views", suite.stack.table_name()));
        Projector::new(projections::projections().unwrap(), events, views)
    };
    let mut instance = projector();
    while !ended.load(Ordering::Relaxed) {
        let received =
            sqs.receive_message().queue_url(&url).max_number_of_messages(10).visibility_timeout(1).wait_time_seconds(1);
        let Ok(received) = received.send().await else { continue };
        let messages = received.messages.unwrap_or_default();
        let fault = match rng.u32(..5) {
            0 => Some(("TransactWriteItems", InjectedFault::Cancel { codes: vec!["TransactionConflict"] })),
            1 => Some(("TransactWriteItems", InjectedFault::BreakAfter)),
            2 => Some(("BatchGetItem", InjectedFault::Refuse { status: 400, code: "ThrottlingException" })),
            _ => None,
        };
        if let Some((operation, fault)) = fault {
            proxy.fail_next(operation, fault);
        }
        let text = |text: &Option<String>| text.clone().unwrap();
        let record = |message: &Message| QueueRecord::new(text(&message.message_id), text(&message.body));
        let batch = QueueBatch { records: messages.iter().map(record).collect() };
        let handled = instance.handle(batch, tokio::time::Instant::now() + Duration::from_secs(30));
        let killed_after = Duration::from_millis(if rng.u32(..3) == 0 { rng.u64(..30) } else { 30_000 });
        let Ok(response) = timeout(killed_after, handled).await else {
            instance = projector();
            continue;
        };
        for message in &messages {
            let id = message.message_id.as_deref().unwrap();
            if !response.batch_item_failures.iter().any(|failure| failure.item_identifier == id) {
                let delete = sqs.delete_message().queue_url(&url).receipt_handle(text(&message.receipt_handle));
                // A message that is not deleted comes again.
                let _result = delete.send().await;
            }
        }
        proxy.take_calls();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_read_with_seen_shows_the_write_before_it() {
    let writes = std::env::var("READ_YOUR_WRITES").ok().map_or(WRITES, |text| text.parse().unwrap());
    let suite = Arc::new(Suite::start().await);
    let (ended, seen) = (AtomicBool::new(false), Seen::default());
    let began = Instant::now();
    let clients = (0..CLIENTS).map(async |number| {
        let (writer, reader) = (Client::new(), Client::new());
        let account = Account { url: suite.stack.api_url(), id: number.to_string(), writer, reader, seen: &seen };
        account.write_and_read(writes.div_ceil(CLIENTS)).await;
    });
    let work = async {
        join_all(clients).await;
        ended.store(true, Ordering::Relaxed);
    };
    tokio::join!(work, fail_queue(&suite, &ended), compete(&suite, &ended));
    eprintln!("{} writes by {CLIENTS} clients in {:?}: {seen:?}", writes.div_ceil(CLIENTS) * CLIENTS, began.elapsed());
    assert!(seen.waited.load(Ordering::Relaxed) > 0, "no read had to wait");
}
