//! `daybook projection rebuild`, `switch` and the projector together: while commands go on, instances of the projector fail
//! and are killed, and an instance of the previous release takes messages, no reader ever sees a gap or a step back, and
//! the new version equals the fold of the events.
//!
//! This does the same with 100,000 aggregates, and prints calls and units. The default is a number that takes seconds.
//!
//! ```sh
//! REBUILD_AGGREGATES=100000 cargo test --profile campaign -p operator --test operator rebuild_while -- --nocapture
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use daybook_cli::operator::Exit;
use daybook_local_aws::messaging::QueueMessage;
use daybook_test_support::commands::execute;
use daybook_test_support::fault_proxy::{FaultProxy, InjectedFault, RecordedCall};
use daybook_test_support::row::Item;
use daybook_test_support::table::TABLE;
use daybook_view_store::View;
use fastrand::Rng;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use ulid::Ulid;

use crate::support::{Setup, key};
use crate::views::{ApiReader, Total, Worker, version_1, versions_1_and_2};

const WRITERS: usize = 16;

/// The accounts of a writer.
const ACCOUNTS: usize = 4;

/// The number of times that the rebuild is killed.
const KILLS: usize = 5;

/// The number of times that the projectors may ask for messages while the test waits for one thing, besides once for each
/// aggregate. Each of them asks at least once a second, and after each invocation.
const MAX_RECEIVES: u64 = 10_000;

/// The pause of a writer between two commands, and of an instance of the previous release between two invocations.
const PAUSE: Duration = Duration::from_secs(1);

fn aggregates() -> usize {
    std::env::var("REBUILD_AGGREGATES").map_or(500, |number| number.parse().unwrap())
}

/// The id of the account with that number.
fn id(number: usize) -> String {
    format!("a{number:06}")
}

/// Opens accounts, by copies of the rows that a command has written.
pub(crate) async fn open_accounts(setup: &Setup, count: usize) {
    setup.quiet_account("template", &[]).await;
    let rows =
        [setup.rows("account/template", "#METADATA").await, setup.rows("account/template", "EVENT#").await].concat();
    assert_eq!(rows.len(), 2);
    let began_at = rows[1]["eventId"].as_s().unwrap().parse::<Ulid>().unwrap().timestamp_ms() - 1_000_000;
    let copy = |row: &Item, number: usize, event_id: &str| -> WriteRequest {
        let old_id = rows[1]["eventId"].as_s().unwrap();
        let copied = row.iter().map(|(name, value)| {
            let value = value.as_s().map_or_else(
                |_| value.clone(),
                |text| AttributeValue::S(text.replace("template", &id(number)).replace(old_id.as_str(), event_id)),
            );
            (name.clone(), value)
        });
        let put = PutRequest::builder().set_item(Some(copied.collect())).build().unwrap();
        WriteRequest::builder().put_request(put).build()
    };
    for numbers in (0..count).collect::<Vec<_>>().chunks(12) {
        let mut requests = Vec::new();
        for &number in numbers {
            let event_id = Ulid::from_parts(began_at + number as u64, number as u128).to_string();
            requests.extend(rows.iter().map(|row| copy(row, number, &event_id)));
        }
        setup.table.raw.batch_write_item().request_items(TABLE, requests).send().await.unwrap();
    }
}

/// What the views must show of the accounts that have writers: their events, and their balances.
type Expected = BTreeMap<String, (i64, i64)>;

/// Appends to some accounts until it is told to stop. Returns what it appended.
async fn write(setup: Arc<Setup>, accounts: Vec<String>, stop: Arc<AtomicBool>) -> Expected {
    let (registry, store) = (aggregates::registry().unwrap(), setup.table.direct_store());
    let mut written: Expected = accounts.iter().map(|id| (id.clone(), (1, 0))).collect();
    let mut rng = Rng::new();
    while !stop.load(Relaxed) {
        let id = &accounts[rng.usize(..accounts.len())];
        let amount = rng.i64(1..100);
        let command = ("RecordTransaction", json!({"desc": "A", "amount": amount}));
        let key = key(&format!("account/{id}"));
        execute(&store, registry.get("account").unwrap(), &key, &[command]).await.unwrap();
        let (events, balance) = written.get_mut(id).unwrap();
        (*events, *balance) = (*events + 1, *balance + amount);
        setup.notify_projector(id).await;
        sleep(PAUSE).await;
    }
    written
}

/// Reads the rows of some accounts, and the total, until it is told to stop. None of them may ever show fewer events than
/// before, or disappear. Returns the number of reads of each version.
async fn read(api: ApiReader, accounts: Vec<String>, stop: Arc<AtomicBool>) -> BTreeMap<u32, u64> {
    let keys: Vec<_> = accounts.iter().map(|id| format!("account:{id}")).chain(["total".to_owned()]).collect();
    let (mut seen, mut reads) = (BTreeMap::<&str, Total>::new(), BTreeMap::new());
    while !stop.load(Relaxed) {
        for key in &keys {
            let row = api.row(key).await;
            match (seen.get(key.as_str()), &row) {
                (Some(before), Some(row)) => assert!(row.events >= before.events, "{key}: {row:?} after {before:?}"),
                (Some(before), None) => panic!("{key} has disappeared after {before:?}"),
                (None, _) => {}
            }
            if let Some(row) = row {
                *reads.entry(row.version).or_default() += 1;
                seen.insert(key, row);
            }
            // The readers must not take all the time of a small machine.
            sleep(Duration::from_millis(30)).await;
        }
    }
    reads
}

/// The calls of projectors: for each operation their number, their capacity units, and how many of them failed.
#[derive(Debug, Default)]
struct ProjectorUsage(BTreeMap<String, (u64, f64, u64)>);

impl ProjectorUsage {
    fn add(&mut self, calls: Vec<RecordedCall>) {
        for call in calls {
            let (count, units, failed) = self.0.entry(call.operation).or_default();
            *count += 1;
            *units += call.table_units + call.index_units;
            *failed += u64::from(call.status != 200);
        }
    }
}

/// Instances of the projector whose calls fail now and then, and that are killed now and then. Returns their calls.
async fn unreliable_projectors(setup: Arc<Setup>, stop: Arc<AtomicBool>, kills: Arc<AtomicU64>) -> ProjectorUsage {
    let proxy = FaultProxy::to(setup.table.engine.url()).await.unwrap();
    let start = || setup.worker(versions_1_and_2(), proxy.url());
    let mut workers: Vec<Worker> = (0..3).map(|_| start()).collect();
    let (mut rng, mut usage) = (Rng::new(), ProjectorUsage::default());
    while !stop.load(Relaxed) {
        sleep(Duration::from_millis(rng.u64(500..1_500))).await;
        usage.add(proxy.take_calls());
        let operation = ["TransactWriteItems", "BatchGetItem", "Query"][rng.usize(..3)];
        let fault = match rng.u32(..4) {
            0 => InjectedFault::BreakBefore,
            1 => InjectedFault::BreakAfter,
            2 => InjectedFault::Refuse { status: 400, code: "ThrottlingException" },
            _ => InjectedFault::Refuse { status: 400, code: "AccessDeniedException" },
        };
        // Faults that met no call would add up, and fail every call once there is little to do.
        proxy.take_faults();
        proxy.fail_next(operation, fault);
        if rng.u32(..3) == 0 {
            let victim = rng.usize(..workers.len());
            // It ends in the middle of an invocation.
            std::mem::replace(&mut workers[victim], start()).running.abort();
            kills.fetch_add(1, Relaxed);
        }
    }
    for worker in workers {
        worker.stop().await;
    }
    usage.add(proxy.take_calls());
    usage
}

struct Load {
    stop: Arc<AtomicBool>,
    writers: Vec<JoinHandle<Expected>>,
    readers: Vec<JoinHandle<BTreeMap<u32, u64>>>,
}

impl Load {
    fn start(setup: &Arc<Setup>, api: &ApiReader, aggregates: usize) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let distance = aggregates / (WRITERS * ACCOUNTS);
        let accounts: Vec<_> = (0..WRITERS * ACCOUNTS).map(|number| id(number * distance)).collect();
        let write = |accounts: &[String]| tokio::spawn(write(setup.clone(), accounts.to_vec(), stop.clone()));
        let read = |accounts: &[String]| tokio::spawn(read(api.clone(), accounts.to_vec(), stop.clone()));
        let writers = accounts.chunks(ACCOUNTS).map(write).collect();
        let readers = accounts.chunks(accounts.len() / 2).map(read).collect();
        Self { stop, writers, readers }
    }

    async fn end(self) -> (Expected, BTreeMap<u32, u64>) {
        self.stop.store(true, Relaxed);
        let written = join_all(self.writers).await.into_iter().flat_map(|written| written.unwrap()).collect();
        let mut reads = BTreeMap::new();
        for read in join_all(self.readers).await {
            read.unwrap().into_iter().for_each(|(version, count)| *reads.entry(version).or_default() += count);
        }
        (written, reads)
    }
}

/// The number of aggregates that the progress of the rebuild contains.
async fn filled(setup: &Setup) -> usize {
    let mark = setup.table.direct_views().mark(&View::new("totals", 2)).await.unwrap();
    let progress: Option<Value> = mark.and_then(|mark| serde_json::from_str(&mark.progress?).ok());
    progress.map_or(0, |progress| usize::try_from(progress["counts"]["filled"].as_u64().unwrap()).unwrap())
}

/// Waits for `run`, which is `what`. Fails if it is not done after a bounded number of receives of the projectors.
async fn wait_for<T>(setup: &Setup, what: &str, run: impl Future<Output = T>) -> T {
    let limit = MAX_RECEIVES + aggregates() as u64;
    let last = setup.receives.load(Relaxed) + limit;
    let exhausted = async {
        while setup.receives.load(Relaxed) < last {
            sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        biased;
        output = run => output,
        () = exhausted => {
            let queued: Vec<_> = setup.bus.queued().into_iter().map(|message| message.body).take(5).collect();
            let mark = setup.mark(2).await;
            panic!("no end after {limit} receives: {what}; version 2: {mark:?}; queue: {queued:?}");
        }
    }
}

/// Checks that a version of the view has the row of each account, and their total.
async fn assert_view_equals(setup: &Setup, version: u32, expected: &BTreeMap<String, (i64, i64)>) {
    let total = expected.values().fold((0, 0), |sum, (events, balance)| (sum.0 + events, sum.1 + balance));
    let rows =
        expected.iter().map(|(id, shown)| (format!("account:{id}"), *shown)).chain([("total".to_owned(), total)]);
    let rows: BTreeMap<_, _> = rows.map(|(key, (events, balance))| (key, Total { version, events, balance })).collect();
    let shown = setup.view(version).await;
    let wrong = rows.iter().find(|(key, row)| shown.get(*key) != Some(*row));
    assert_eq!(
        (wrong, shown.len()),
        (None, rows.len()),
        "version {version}: {:?}",
        wrong.and_then(|(key, _)| shown.get(key))
    );
}

/// Waits until the projectors have handled the messages that `selects` selects.
async fn wait_until_handled(setup: &Setup, selects: impl Fn(&QueueMessage) -> bool) {
    let handled = async {
        while setup.bus.queued().iter().any(&selects) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    wait_for(setup, "the projectors have handled messages", handled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuild_while_writers_readers_faults_and_kills_go_on_equals_the_fold() {
    let count = aggregates();
    let setup = Arc::new(Setup::with_views(versions_1_and_2).await);
    let began = Instant::now();
    open_accounts(&setup, count).await;
    eprintln!("{count} accounts opened in {:.1?}", began.elapsed());
    // The previous release, whose view has all accounts.
    let previous_release = setup.worker(version_1(), setup.table.engine.url());
    let command = "projection rebuild totals --send-again-after 5 --wait-for-projector 4 --json";
    let fast = format!("{command} --version 1 --rate 100000");
    let began = Instant::now();
    wait_for(&setup, "version 1 is filled", setup.daybook(&fast)).await.expect(Exit::Clean);
    let took = began.elapsed();
    eprintln!("version 1 filled in {took:.1?}");
    previous_release.stop().await;

    let api = setup.api(versions_1_and_2()).await;
    let load = Load::start(&setup, &api, count);
    let (stop_projectors, kills) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    // An instance of the previous release still runs. It takes some of the messages, and does not know version 2. Without
    // a pause it would take most of them, because it has nothing to fold.
    let previous = setup.slow_worker(version_1(), setup.table.engine.url(), PAUSE);
    let projectors = tokio::spawn(unreliable_projectors(setup.clone(), stop_projectors.clone(), kills.clone()));

    let began = Instant::now();
    // Slow enough to be killed five times.
    let rate = if count <= 2_000 { 100 } else { 100_000 };
    let command = format!("{command} --rate {rate}");
    for kill in 1..=KILLS {
        // After some aggregates more than the run before.
        let reached = async {
            while filled(&setup).await < kill * count / (KILLS + 2) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let what = format!("the rebuild has filled enough aggregates for kill {kill}");
        tokio::select! {
            biased;
            () = wait_for(&setup, &what, reached) => {}
            printed = setup.daybook(&command) => panic!("the rebuild ended before kill {kill}: {printed:?}"),
        }
        eprintln!("killed at {:.1?} with {} aggregates filled", began.elapsed(), filled(&setup).await);
    }
    // The previous release is replaced. Nobody else knows what it has taken.
    previous.stop().await;
    let lines = wait_for(&setup, "version 2 is filled", setup.daybook(&command)).await.expect(Exit::Clean);
    let summary: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    let summary = &summary["summary"];
    eprintln!("version 2 filled in {:.1?}: {summary}", began.elapsed());
    let messages = summary["counts"]["messages"].as_u64().unwrap();
    eprintln!("{:.4} messages per aggregate", messages as f64 / count as f64);
    assert_eq!(summary["counts"]["checked"], count + 1);

    // There, back, and there again.
    for version in [2, 1, 2] {
        eprintln!("switched to {version} at {:.1?}", began.elapsed());
        setup.daybook(&format!("projection switch totals {version}")).await.expect(Exit::Clean);
        // The messages from before, also those of an invocation that was killed, are delivered again and worked off.
        let before: BTreeSet<_> = setup.bus.queued().into_iter().map(|message| message.message_id).collect();
        wait_until_handled(&setup, |message| before.contains(&message.message_id)).await;
        setup.age_switch().await;
    }
    let (written, reads) = load.end().await;
    // Whatever is still hidden is delivered again.
    wait_until_handled(&setup, |message| message.queue_url.ends_with("/changes")).await;
    stop_projectors.store(true, Relaxed);
    let ProjectorUsage(usage) = projectors.await.unwrap();
    for (operation, (calls, units, failed)) in usage {
        let [of_calls, of_units] = [calls as f64, units].map(|number| number / count as f64);
        eprintln!("projectors, {operation}: {calls} calls ({of_calls:.3} per aggregate), {failed} of them failed");
        eprintln!("projectors, {operation}: {units} units ({of_units:.3} per aggregate)");
    }
    eprintln!(
        "{} events of writers, reads by version {reads:?}, {} projectors killed",
        { written.values().map(|(events, _)| events - 1).sum::<i64>() },
        kills.load(Relaxed)
    );
    assert!(reads[&1] > 0 && reads[&2] > 0, "{reads:?}");

    let mut expected: BTreeMap<String, (i64, i64)> =
        (0..count).map(id).chain(["template".to_owned()]).map(|id| (id, (1, 0))).collect();
    expected.extend(written);
    for version in [1, 2] {
        assert_view_equals(&setup, version, &expected).await;
    }
}
