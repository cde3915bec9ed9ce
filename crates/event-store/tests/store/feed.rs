//! Pages of the events of one aggregate and of one type: each event is returned once.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::{DecisionInput, Meta};
use daybook_event_store::{EventStore, FeedEvent, Page, StoreSettings};
use daybook_table::{AggregateKey, keys};
use daybook_test_support::clock::next_input;
use daybook_test_support::notebook::Notebook;
use daybook_test_support::row::text;
use daybook_test_support::table::{TestTable, settings};
use jiff::Timestamp;
use serde_json::json;
use ulid::Ulid;

use crate::support::{Subject, large_ledger, ledger};

/// A time after all events of the tests.
const SETTLED: Timestamp = Timestamp::constant(4_102_444_800, 0);

/// A page of a feed that is settled up to a time after all events.
async fn feed(store: &EventStore, event_type: &str, after: Option<Ulid>, limit: usize) -> Page<FeedEvent, Ulid> {
    store.feed(&[event_type], after, limit, SETTLED).await.unwrap()
}

/// All pages of a type's feed.
async fn pages(store: &EventStore, event_type: &str, limit: usize) -> Vec<Vec<FeedEvent>> {
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let page = feed(store, event_type, after, limit).await;
        assert!(page.items.len() <= limit);
        assert!(!page.more || !page.items.is_empty(), "a page with a successor has items");
        after = page.items.last().map(|found| found.event.event_id).or(after);
        assert_eq!(page.cursor, after.unwrap_or(Ulid::nil()));
        pages.push(page.items);
        if !page.more {
            return pages;
        }
    }
}

/// The aggregate's id and the event's number.
fn name(found: &FeedEvent) -> (String, u64) {
    (found.aggregate.id.clone(), found.event.seq_num)
}

/// The ids of aggregates whose events go to different ones of four shards.
fn one_id_a_shard() -> [String; 4] {
    [0, 1, 2, 3].map(|shard| {
        let is_there = |id: &String| keys::gsi1pk("", id, 4) == keys::gsi1pks("", 4)[1 + shard];
        (0..).map(|id| id.to_string()).find(is_there).unwrap()
    })
}

/// Appends one line to each notebook in turn, for this number of rounds; returns the events in that order.
async fn rounds(store: &EventStore, notebooks: usize, rounds: u64, line: &str) -> Vec<(String, u64)> {
    let mut written = Vec::new();
    for _ in 0..rounds {
        for id in 0..notebooks {
            let notebook = Subject::of::<Notebook>(&format!("n{id}"));
            let command = if store.cached(&notebook.key).is_some() { "Write" } else { "Start" };
            let after = notebook.command(store, command, json!({ "lines": [line] })).await;
            written.push((notebook.key.id.clone(), after.version()));
        }
    }
    written
}

#[tokio::test]
async fn feed_returns_the_events_of_a_type_by_time_across_aggregates() {
    let table = TestTable::new().await;
    let store = table.store();
    let written = rounds(&store, 3, 4, "A").await;
    ledger(&store, "1", 5).await;
    let page = feed(&store, "LineWritten", None, 100).await;
    assert_eq!(page.items.iter().map(name).collect::<Vec<_>>(), written);
    assert!(!page.more);
    assert!(page.items.iter().all(|found| found.event.event_type == "LineWritten"));
    assert_eq!(page.items[0].aggregate, AggregateKey::new("notebook", "n0"));
    let stored = store.events(&page.items[0].aggregate, 0, 1).await.unwrap();
    assert_eq!(page.items[0].event, stored.items[0]);

    let opened = feed(&store, "AccountOpened", None, 100).await;
    assert_eq!(opened.items.iter().map(name).collect::<Vec<_>>(), [("1".to_owned(), 1)]);
    assert_eq!(feed(&store, "NeverHappened", None, 100).await.items, []);
}

#[tokio::test]
async fn paging_through_a_feed_returns_every_event_once() {
    let table = TestTable::new().await;
    let store = table.store();
    let written = rounds(&store, 4, 6, "A").await;
    for limit in [1, 2, 5, 7, 23, 24, 25, 1_000] {
        let pages = pages(&store, "LineWritten", limit).await;
        assert_eq!(pages.len(), written.len().div_ceil(limit), "no page is empty or short but the last");
        assert_eq!(pages.concat().iter().map(name).collect::<Vec<_>>(), written, "limit {limit}");
    }
}

#[tokio::test]
async fn event_appended_while_a_feed_is_paged_is_on_a_later_page() {
    let table = TestTable::new().await;
    let store = table.store();
    let mut written = rounds(&store, 2, 2, "A").await;
    let first = feed(&store, "LineWritten", None, 3).await;
    written.extend(rounds(&store, 2, 1, "A").await);
    let rest = feed(&store, "LineWritten", Some(first.cursor), 100).await;
    let all = [first.items, rest.items].concat();
    assert_eq!(all.iter().map(name).collect::<Vec<_>>(), written);
    // The cursor of the last page leads to later events.
    let last = all.last().unwrap().event.event_id;
    assert_eq!(feed(&store, "LineWritten", Some(last), 100).await.items, []);
    let more = rounds(&store, 1, 1, "A").await;
    let later = feed(&store, "LineWritten", Some(last), 100).await;
    assert_eq!(later.items.iter().map(name).collect::<Vec<_>>(), more);
}

#[tokio::test]
async fn a_sharded_feed_is_merged_in_order() {
    let table = TestTable::new().await;
    let store = table.store_with(StoreSettings { event_type_shards: 4, ..settings() });
    let written = rounds(&store, 9, 3, "A").await;
    let mut shards = BTreeSet::new();
    for id in 0..9 {
        let rows = table.rows(&AggregateKey::new("notebook", format!("n{id}")), keys::EVENT_PREFIX).await;
        shards.extend(rows.iter().map(|row| text(row, "gsi1pk").to_owned()));
    }
    assert_eq!(shards, (0..4).map(|shard| format!("EVENT_TYPE#LineWritten#{shard}")).collect());
    for limit in [1, 2, 4, 5, 26, 27, 28, 1_000] {
        let pages = pages(&store, "LineWritten", limit).await;
        assert_eq!(pages.concat().iter().map(name).collect::<Vec<_>>(), written, "limit {limit}");
        assert_eq!(pages.len(), written.len().div_ceil(limit), "limit {limit}");
    }
}

#[tokio::test]
async fn raising_the_number_of_shards_hides_no_event() {
    let table = TestTable::new().await;
    let with = |event_type_shards| table.store_with(StoreSettings { event_type_shards, ..settings() });
    let mut written = Vec::new();
    let mut stores = Vec::new();
    for shards in [1, 2, 4] {
        let store = with(shards);
        for id in 0..5 {
            Subject::of::<Notebook>(&format!("n{id}")).load(&store).await;
        }
        written.extend(rounds(&store, 5, 2, "A").await);
        stores.push(store);
    }
    for limit in [1, 3, 29, 30, 31] {
        let pages = pages(&stores[2], "LineWritten", limit).await;
        assert_eq!(pages.concat().iter().map(name).collect::<Vec<_>>(), written, "limit {limit}");
    }
}

#[tokio::test]
async fn events_of_an_aggregate_are_returned_page_by_page() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 23).await;
    for limit in [1, 2, 10, 22, 23, 24] {
        let mut seen = Vec::new();
        let mut after = 0;
        loop {
            let page = store.events(&account.key, after, limit).await.unwrap();
            seen.extend(page.items.iter().map(|event| event.seq_num));
            assert_eq!(Some(&page.cursor), seen.last());
            if !page.more {
                break;
            }
            assert_eq!(page.items.len(), limit);
            after = page.cursor;
        }
        assert_eq!(seen, (1..=23).collect::<Vec<_>>(), "limit {limit}");
    }
    let numbers = async |after, limit| {
        let page = store.events(&account.key, after, limit).await.unwrap();
        (page.items.iter().map(|event| event.seq_num).collect::<Vec<_>>(), page.cursor, page.more)
    };
    assert_eq!(numbers(20, 2).await, (vec![21, 22], 22, true));
    assert_eq!(numbers(21, 2).await, (vec![22, 23], 23, false));
    for after in [23, 24, keys::MAX_SEQ_NUM - 1, keys::MAX_SEQ_NUM, u64::MAX] {
        assert_eq!(numbers(after, 10).await, (vec![], after, false));
    }
    assert_eq!(store.events(&AggregateKey::new("account", "2"), 0, 10).await.unwrap().items, []);
}

#[tokio::test]
async fn large_events_of_an_aggregate_are_returned_once_in_smaller_pages() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = large_ledger(&store, "1", 9).await;
    let (mut of_aggregate, mut after) = (Vec::new(), Some(0));
    while let Some(number) = after {
        let page = store.events(&account.key, number, 100).await.unwrap();
        assert!((1..=4).contains(&page.items.len()), "a page is at most 1 MB");
        of_aggregate.extend(page.items.iter().map(|event| event.seq_num));
        after = page.more.then_some(page.cursor);
    }
    assert_eq!(of_aggregate, (1..=9).collect::<Vec<_>>());

    let of_type = pages(&store, "TransactionAccepted", 100).await;
    assert!(of_type.iter().all(|page| (1..=3).contains(&page.len())));
    assert_eq!(of_type.concat().iter().map(|found| found.event.seq_num).collect::<Vec<_>>(), of_aggregate[1..]);
}

#[tokio::test]
async fn pages_of_large_events_of_many_shards_have_a_maximum_of_two_megabytes() {
    let table = TestTable::new().await;
    let store = table.store_with(StoreSettings { event_type_shards: 4, ..settings() });
    let ids = one_id_a_shard();
    let mut written = Vec::new();
    for version in 1..=4 {
        for id in &ids {
            large_ledger(&store, id, version).await;
            if version > 1 {
                written.push((id.clone(), version));
            }
        }
    }
    let pages = pages(&store, "TransactionAccepted", 100).await;
    assert_eq!(pages.concat().iter().map(name).collect::<Vec<_>>(), written);
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [6, 6]);
}

#[tokio::test]
async fn small_events_of_one_shard_are_not_returned_before_earlier_large_ones_of_another() {
    let table = TestTable::new().await;
    let store = table.store_with(StoreSettings { event_type_shards: 4, ..settings() });
    let [large, small, ..] = one_id_a_shard();
    let mut written = Vec::new();
    for version in 1..=8 {
        large_ledger(&store, &large, version).await;
        ledger(&store, &small, version).await;
        if version > 1 {
            written.extend([(large.clone(), version), (small.clone(), version)]);
        }
    }
    // The first page of large events ends with the third, so later events of the other shard are on later pages.
    let pages = pages(&store, "TransactionAccepted", 100).await;
    assert_eq!(pages.concat().iter().map(name).collect::<Vec<_>>(), written);
    assert_eq!(pages[0].len(), 5);
}

#[tokio::test]
async fn page_whose_metadata_is_escaped_fits_a_response() {
    let table = TestTable::new().await;
    let store = table.store();
    let (notebook, line) = (Subject::of::<Notebook>("1"), vec![""; 99]);
    // A control character takes six bytes as JSON, and seven as JSON in JSON.
    let meta = Meta { actor: Some("\u{1}".repeat(4_000)), ..Meta::default() };
    for command in ["Start", "Write", "Write"] {
        let input = DecisionInput { meta: meta.clone(), ..next_input() };
        notebook.command_under(&input, &store, command, json!({ "lines": line })).await;
    }
    let page = store.events(&notebook.key, 0, 1_000).await.unwrap();
    let json: Vec<_> = page.items.iter().map(|event| json!({"meta": event.meta, "data": event.data})).collect();
    let sent = serde_json::to_string(&serde_json::to_string(&json).unwrap()).unwrap();
    assert!(page.more && sent.len() < 6 * 1024 * 1024, "{} events in {} bytes", json.len(), sent.len());
}

#[tokio::test]
async fn feed_accepts_the_smallest_and_largest_cursors_and_limits() {
    let table = TestTable::new().await;
    let store = table.store();
    let written = rounds(&store, 1, 3, "A").await;
    let whole = feed(&store, "LineWritten", Some(Ulid::nil()), usize::MAX).await;
    assert_eq!((whole.items.len(), whole.more), (written.len(), false));
    let key = AggregateKey::new("notebook", "n0");
    assert_eq!(store.events(&key, 0, usize::MAX).await.unwrap().items.len(), 3);
    assert_eq!(feed(&store, "LineWritten", Some(Ulid::max()), 10).await.items, []);
    // A limit of 0 returns no events.
    assert_eq!(feed(&store, "LineWritten", None, 0).await.items, []);
    assert_eq!(store.events(&key, 0, 0).await.unwrap().items, []);
}

#[tokio::test]
async fn feed_skips_an_unreadable_row_and_names_it() {
    for shards in [1, 4] {
        let table = TestTable::new().await;
        let store = table.store_with(StoreSettings { event_type_shards: shards, ..settings() });
        let written = rounds(&store, 3, 3, "A").await;
        let row = |id: &str, seq_num: u64| (AggregateKey::new("notebook", id), keys::event_sk(seq_num));
        let broken = [row("n1", 1), row("n2", 3)];
        for (key, sk) in &broken {
            table.tamper(key, sk, [("data", AttributeValue::S("{".to_owned()))]).await;
        }
        // A row that is no event in the middle of the feed, and one whose sort key in the index is no event's.
        let broken_row = table.row(&broken[0].0, &broken[0].1).await.unwrap();
        let position = Ulid::from_string(text(&broken_row, "eventId")).unwrap();
        let after_it = keys::gsi1sk(keys::id_after(position).unwrap());
        for (pk, gsi1sk) in [("STRAY", after_it.as_str()), ("UNPLACED", "EVENT#00x")] {
            let row = [("pk", pk), ("sk", "ROW"), ("gsi1pk", text(&broken_row, "gsi1pk")), ("gsi1sk", gsi1sk)];
            table.put(row.map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_owned()))).into()).await;
        }

        for limit in [2, 3, 100] {
            let (mut found, mut unreadable, mut after) = (Vec::new(), BTreeSet::new(), None);
            loop {
                let page = feed(&store, "LineWritten", after, limit).await;
                assert!(page.items.len() + page.unreadable.len() <= limit + 1, "limit {limit}");
                found.extend(page.items.iter().map(name));
                unreadable.extend(page.unreadable.iter().map(|row| (row.to_string(), row.aggregate(), row.seq_num())));
                assert!(!page.more || Some(page.cursor) > after, "the cursor of a page with a successor advances");
                after = Some(page.cursor);
                if !page.more {
                    break;
                }
            }
            let readable: Vec<_> =
                written.iter().filter(|(id, seq_num)| !broken.contains(&row(id, *seq_num))).collect();
            assert_eq!(found.iter().collect::<Vec<_>>(), readable, "limit {limit}");
            let named = |(key, sk): &(AggregateKey, String)| {
                (format!("{} {sk}", keys::pk(key)), Some(key.clone()), keys::event_seq_num(sk))
            };
            let stray = ["STRAY ROW", "UNPLACED ROW"].map(|name| (name.to_owned(), None, None));
            assert_eq!(unreadable, broken.iter().map(named).chain(stray).collect(), "limit {limit}");
        }
    }
}

#[tokio::test]
async fn events_of_an_aggregate_skip_an_unreadable_row_and_name_it() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 5).await;
    table.tamper(&account.key, &keys::event_sk(3), [("eventId", AttributeValue::S("three".to_owned()))]).await;
    let numbers = async |after, limit| {
        let page = store.events(&account.key, after, limit).await.unwrap();
        let events: Vec<_> = page.items.iter().map(|event| event.seq_num).collect();
        let unreadable: Vec<_> = page.unreadable.iter().map(|row| row.seq_num().unwrap()).collect();
        (events, unreadable, page.cursor, page.more)
    };
    assert_eq!(numbers(0, 10).await, (vec![1, 2, 4, 5], vec![3], 5, false));
    assert_eq!(numbers(2, 1).await, (vec![], vec![3], 3, true));
    assert_eq!(numbers(3, 1).await, (vec![4], vec![], 4, true));
    // A load fails: the state is never the fold of the readable events alone.
    assert!(table.store().load(account.model(), &account.key).await.is_err());
}
