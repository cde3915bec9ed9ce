//! A reader who follows the cursors of a feed sees every event exactly once, although events are ordered by the time of
//! their decision and become visible later.
//!
//! Rows are put with chosen times, in the order in which they become visible.

use std::time::Duration;

use daybook_event_store::{EventStore, StoreSettings};
use daybook_table::{AggregateKey, EventItem, keys};
use daybook_test_support::table::{TestTable, settings};
use jiff::{SignedDuration, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;
use ulid::Ulid;

use crate::support::ledger;

/// The type of all events.
const TYPE: &str = "TransactionAccepted";

/// The time at which a case begins.
const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The time that clocks may be ahead of or behind the true time, in milliseconds: half of the maximum difference
/// between two clocks.
const CLOCK_ERROR: i64 = 1_000;

/// Maximum time from a decision until its event is visible, in milliseconds: the default `feed_delay` without the
/// difference between clocks.
const VISIBLE_WITHIN: i64 = 8_000;

/// A write or a poll, at a true time in milliseconds after the start.
#[derive(Clone, Debug)]
enum Step {
    Decide { at: i64, clock: i64, visible_after: i64, shard: u32 },
    Poll { at: i64, clock: i64, limit: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let at = || 0..20_000_i64;
    let clock = || prop_oneof![Just(-CLOCK_ERROR), Just(CLOCK_ERROR), -CLOCK_ERROR..=CLOCK_ERROR];
    let visible_after = prop_oneof![3 => 0..200_i64, 2 => 0..=VISIBLE_WITHIN, 1 => Just(VISIBLE_WITHIN)];
    prop_oneof![
        1 => (at(), clock(), visible_after, 0..3_u32)
            .prop_map(|(at, clock, visible_after, shard)| Step::Decide { at, clock, visible_after, shard }),
        2 => (at(), clock(), 1..6_usize).prop_map(|(at, clock, limit)| Step::Poll { at, clock, limit }),
    ]
}

fn after_start(milliseconds: i64) -> Timestamp {
    START + SignedDuration::from_millis(milliseconds)
}

/// A table with one event, which is the pattern of all others.
struct Feed {
    table: TestTable,
    pattern: EventItem,
}

impl Feed {
    async fn new() -> Self {
        let table = TestTable::new().await;
        let account = ledger(&table.store(), "pattern", 2).await;
        let row = table.row(&account.key, &keys::event_sk(2)).await.unwrap();
        table.delete(&account.key, &keys::event_sk(2)).await;
        Self { table, pattern: serde_dynamo::from_item(row).unwrap() }
    }

    /// Makes an event visible in a partition of the index, under an id of the time of its decision.
    async fn show(&self, event_id: Ulid, shard: u32) {
        let key = AggregateKey::new("account", event_id.to_string());
        let partition = keys::gsi1pks(TYPE, 2).swap_remove(shard as usize);
        let at = Timestamp::from_millisecond(i64::try_from(event_id.timestamp_ms()).unwrap()).unwrap();
        let row = EventItem {
            pk: keys::pk(&key),
            sk: keys::event_sk(1),
            seq_num: 1,
            event_id: event_id.to_string(),
            occurred_at: at.to_string(),
            gsi1pk: partition,
            gsi1sk: keys::gsi1sk(event_id),
            ..self.pattern.clone()
        };
        self.table.put(serde_dynamo::to_item(row).unwrap()).await;
    }

    fn store(&self) -> EventStore {
        self.table.store_with(StoreSettings { event_type_shards: 2, ..settings() })
    }
}

/// A reader that knows only the last cursor.
#[derive(Default)]
struct Reader {
    cursor: Option<Ulid>,
    seen: Vec<Ulid>,
}

impl Reader {
    /// Reads one page; returns whether more follow.
    async fn poll(&mut self, store: &EventStore, now: Timestamp, limit: usize) -> bool {
        let page = store.feed(&[TYPE], self.cursor, limit, store.settled_up_to(now)).await.unwrap();
        self.seen.extend(page.items.iter().map(|found| found.event.event_id));
        self.cursor = Some(page.cursor);
        page.more
    }
}

async fn run(steps: Vec<Step>) {
    let feed = Feed::new().await;
    let store = feed.store();
    let mut written = Vec::new();
    // The steps in the order of the true time. The step of an event is the moment when it becomes visible.
    let mut schedule = Vec::new();
    for step in steps {
        match step {
            Step::Decide { at, clock, visible_after, shard } => {
                let decided = after_start(at + clock).as_millisecond();
                let event_id = Ulid::from_parts(u64::try_from(decided).unwrap(), fastrand::u128(..));
                written.push(event_id);
                schedule.push((at + visible_after, Ok((event_id, shard))));
            }
            Step::Poll { at, clock, limit } => schedule.push((at, Err((clock, limit)))),
        }
    }
    // If both are at the same time, the poll is first, so it just misses the event.
    schedule.sort_by_key(|(at, what)| (*at, what.is_ok()));
    let mut reader = Reader::default();
    for (at, what) in schedule {
        match what {
            Ok((event_id, shard)) => feed.show(event_id, shard).await,
            Err((clock, limit)) => {
                reader.poll(&store, after_start(at + clock), limit).await;
            }
        }
    }
    while reader.poll(&store, after_start(60_000), 7).await {}
    written.sort_unstable();
    assert_eq!(reader.seen, written, "every event once, in order");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn reader_that_follows_cursors_sees_every_event_exactly_once(steps in vec(step(), 1..60)) {
        tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(run(steps));
    }
}

#[test]
fn default_hold_back_is_the_sum_of_its_parts() {
    let delay = StoreSettings::DEFAULT_FEED_DELAY;
    assert_eq!(delay, Duration::from_millis(u64::try_from(VISIBLE_WITHIN + 2 * CLOCK_ERROR).unwrap()));
    let variables = [("TABLE_NAME", "t".to_owned()), ("FEED_DELAY_MS", delay.as_millis().to_string())];
    assert_eq!(StoreSettings::read(&variables.into_iter().collect()), Ok(StoreSettings::new("t")));
}

#[tokio::test]
async fn feed_ends_before_the_millisecond_that_is_not_settled() {
    let feed = Feed::new().await;
    let store = feed.store();
    let settled = after_start(0);
    let at = |milliseconds: i64, random: u128| {
        Ulid::from_parts(u64::try_from(after_start(milliseconds).as_millisecond()).unwrap(), random)
    };
    // Events of one millisecond are ordered by their ids, in whichever partition they are.
    let ids = [at(-2, 9), at(-1, 0), at(-1, 1), at(-1, u128::MAX), at(0, 0), at(0, 1), at(1, 0)];
    for (index, id) in ids.into_iter().enumerate() {
        feed.show(id, u32::try_from(index % 3).unwrap()).await;
    }
    let read = async |after, limit, settled_up_to| {
        let page = store.feed(&[TYPE], after, limit, settled_up_to).await.unwrap();
        (page.items.iter().map(|found| found.event.event_id).collect::<Vec<_>>(), page.cursor, page.more)
    };
    assert_eq!(read(None, 10, settled).await, (ids[..4].to_vec(), ids[3], false));
    assert_eq!(read(None, 2, settled).await, (ids[..2].to_vec(), ids[1], true));
    assert_eq!(read(Some(ids[1]), 2, settled).await, (ids[2..4].to_vec(), ids[3], false));
    assert_eq!(read(Some(ids[3]), 2, settled).await, (vec![], ids[3], false));
    assert_eq!(read(Some(ids[3]), 2, after_start(1)).await, (ids[4..6].to_vec(), ids[5], false));
    // A cursor of a reader whose clock is ahead stays where it is.
    for cursor in [ids[4], ids[6], Ulid::max()] {
        assert_eq!(read(Some(cursor), 2, settled).await, (vec![], cursor, false));
    }
    // Nothing is settled yet.
    assert_eq!(read(None, 2, Timestamp::UNIX_EPOCH).await, (vec![], Ulid::nil(), false));
    assert_eq!(read(Some(Ulid::nil()), 10, after_start(2)).await.0, ids);
}

#[test]
fn settled_time_is_the_hold_back_before_now_in_whole_milliseconds() {
    let aws = daybook_function_runtime::aws_config_at("http://127.0.0.1:1");
    let store = EventStore::new(&aws, StoreSettings { feed_delay: Duration::from_millis(1_500), ..settings() });
    let now = START + SignedDuration::from_nanos(999_999);
    assert_eq!(store.settled_up_to(now), START - SignedDuration::from_millis(1_500));
    assert_eq!(store.settled_up_to(Timestamp::MIN), Timestamp::UNIX_EPOCH);
}

#[tokio::test]
async fn held_back_events_cost_no_read() {
    let feed = Feed::new().await;
    feed.show(Ulid::from_parts(u64::try_from(START.as_millisecond()).unwrap(), 1), 0).await;
    let store = feed.store();
    feed.table.operations();
    let page = store.feed(&[TYPE], Some(Ulid::max()), 10, START).await.unwrap();
    assert_eq!((page.items.len(), feed.table.operations()), (0, Vec::new()));
}
