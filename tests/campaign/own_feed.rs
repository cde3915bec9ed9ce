//! A feed without a delay beside writers of its own process, whose calls take long, lose their responses, arrive late or are
//! cancelled: it skips no event.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use daybook_admin::AdminCalls;
use daybook_event_store::{ARRIVAL_TIME, EventStore, SETTLE_WRITES, StoreSettings};
use daybook_test_support::engine::Engine;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use tokio::time::{sleep, timeout};
use ulid::Ulid;

use crate::account::Account;
use crate::clock::{Clock, in_virtual_time};
use crate::database::TABLE;
use crate::network::{self, AwsCall, ConnectionLost, Reply, Service};

const WRITERS: usize = 8;
const EVENT_TYPE: &str = "TransactionAccepted";

/// A table whose appends take effect late and lose their responses, if it is not calm.
#[derive(Clone, Debug)]
struct LossyTable {
    engine: Arc<Engine>,
    is_calm: bool,
}

fn random(maximum: Duration) -> Duration {
    maximum.mul_f64(fastrand::f64())
}

impl Service for LossyTable {
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>> {
        let is_faulty = !self.is_calm && call.operation == "TransactWriteItems" && fastrand::u8(..4) == 0;
        let effect_after = random(if is_faulty { ARRIVAL_TIME } else { Duration::from_millis(20) });
        let lost_after = is_faulty.then(|| random(2 * ARRIVAL_TIME));
        let engine = Arc::clone(&self.engine);
        // The table goes on with a call whose sender does not wait any more.
        let served = tokio::spawn(async move {
            sleep(effect_after).await;
            let response = engine.call(&call.operation, &call.body);
            Reply { status: response.status, body: response.body }
        });
        async move {
            if let Some(lost_after) = lost_after {
                sleep(lost_after).await;
                return Err(ConnectionLost);
            }
            let reply = served.await.expect("the engine does not panic");
            sleep(random(Duration::from_millis(20))).await;
            Ok(reply)
        }
        .boxed()
    }
}

impl LossyTable {
    fn store(self, clock: Clock) -> EventStore {
        let settings = StoreSettings { feed_delay: Duration::ZERO, ..StoreSettings::new(TABLE) };
        EventStore::new(&network::config(self), settings).with_clock(move || clock.timestamp())
    }
}

/// The events of a page after a cursor, and the next cursor.
async fn read(store: &EventStore, after: Ulid) -> (Vec<Ulid>, Ulid) {
    let page = store.feed(&[EVENT_TYPE], Some(after), 1_000, store.settled_up_to(store.now())).await.unwrap();
    (page.items.into_iter().map(|found| found.event.event_id).collect(), page.cursor)
}

#[test]
fn feed_without_a_delay_skips_no_event_of_its_process() {
    for seed in 0..8 {
        in_virtual_time(async {
            fastrand::seed(seed);
            let clock = Clock::start();
            let engine = Arc::new(Engine::in_memory(move || clock.now()).unwrap());
            let calm = LossyTable { engine: Arc::clone(&engine), is_calm: true }.store(clock);
            calm.admin().create_table().await.unwrap();
            let accounts = [Account::open(&calm, clock, "a").await, Account::open(&calm, clock, "b").await];
            let store = LossyTable { engine, is_calm: false }.store(clock);
            let write = async |writer: usize| {
                for _ in 0..4 {
                    let paying = accounts[writer % 2].pay(&store, Duration::from_secs(3));
                    // The request may be cancelled, and may fail.
                    let limit = if fastrand::bool() { Duration::from_secs(9) } else { random(Duration::from_secs(1)) };
                    drop(timeout(limit, paying).await);
                }
            };
            let are_done = Cell::new(false);
            let write_all = async {
                join_all((0..WRITERS).map(write)).await;
                are_done.set(true);
            };
            let follow = async {
                let (mut seen, mut after) = (Vec::new(), Ulid::nil());
                loop {
                    let is_last = are_done.get();
                    // Then no call takes effect any more.
                    sleep(if is_last { 2 * SETTLE_WRITES } else { random(Duration::from_millis(60)) }).await;
                    let (page, cursor) = read(&store, after).await;
                    seen.extend(page);
                    after = cursor;
                    if is_last {
                        return seen;
                    }
                }
            };
            let ((), seen) = tokio::join!(write_all, follow);
            let (stored, _) = read(&calm, Ulid::nil()).await;
            assert!(stored.len() >= WRITERS, "{seed}: {}", stored.len());
            assert_eq!(seen, stored, "{seed}");
        });
    }
}
