//! Properties that hold whatever two writers do, with small caches and with snapshots at any time.

use std::pin::pin;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::{Folded, RecordedEvent};
use daybook_event_store::cache::Cache;
use daybook_event_store::{EventStore, LoadOptions, Loaded, StoreSettings};
use daybook_table::keys;
use daybook_test_support::clock::now;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::notebook::Notebook;
use daybook_test_support::row::{Item, number, text};
use daybook_test_support::table::{TestTable, settings};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use crate::support::{Subject, state};

#[derive(Clone, Debug)]
enum Step {
    /// One store appends to a notebook: a line for each number, with that many messages.
    Append { store: usize, notebook: usize, lines: Vec<usize> },
    /// Both stores append to a notebook at once.
    Race { notebook: usize, lines: [Vec<usize>; 2] },
    /// One store takes a snapshot of a notebook.
    Snapshot { store: usize, notebook: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let lines = || vec(0..3_usize, 1..4);
    prop_oneof![
        5 => (0..2_usize, 0..2_usize, lines())
            .prop_map(|(store, notebook, lines)| Step::Append { store, notebook, lines }),
        2 => (0..2_usize, lines(), lines())
            .prop_map(|(notebook, one, other)| Step::Race { notebook, lines: [one, other] }),
        2 => (0..2_usize, 0..2_usize).prop_map(|(store, notebook)| Step::Snapshot { store, notebook }),
    ]
}

/// Decides on the cached state, if there is one, and again on a loaded state for as long as another writer is faster.
async fn append(store: &EventStore, notebook: &Subject, lines: &[usize]) -> Vec<RecordedEvent> {
    let text = |marks: &usize| format!("{}{}", "!".repeat(*marks), now());
    let lines = json!({ "lines": lines.iter().map(text).collect::<Vec<_>>() });
    let decide = |before: &Folded| {
        let command = if before.version() == 0 { "Start" } else { "Write" };
        notebook.decide(before, &[(command, lines.clone())])
    };
    notebook.append(store, decide).await.unwrap().events
}

async fn run(steps: Vec<Step>) {
    let table = TestTable::new().await;
    let settings = StoreSettings { snapshot_every: 3, ..settings() };
    // A cache for one notebook, as long as that is short.
    let store = || table.store_with(settings.clone()).with_cache(Cache::bounded(1, 2_000));
    let stores = [store(), store()];
    let notebooks = ["a", "b"].map(Subject::of::<Notebook>);
    let mut happened = [Vec::new(), Vec::new()];
    for step in steps {
        match step {
            Step::Append { store, notebook, lines } => {
                happened[notebook].extend(append(&stores[store], &notebooks[notebook], &lines).await);
            }
            Step::Race { notebook, lines } => {
                let of = |at: usize| append(&stores[at], &notebooks[notebook], &lines[at]);
                let (one, other) = tokio::join!(of(0), of(1));
                let mut both = [one, other];
                both.sort_by_key(|events| events[0].seq_num);
                happened[notebook].extend(both.into_iter().flatten());
            }
            Step::Snapshot { store, notebook } => {
                let subject = &notebooks[notebook];
                stores[store].take_snapshot(subject.model(), &subject.key, now()).await.unwrap();
            }
        }
    }
    for (notebook, events) in notebooks.iter().zip(&happened) {
        check(&table, [&stores[0], &stores[1], &store()], notebook, events).await;
    }
}

/// Version, count of messages and state.
fn seen(loaded: &Loaded) -> (u64, u64, Value) {
    (loaded.version(), loaded.folded.message_seq(), state(loaded))
}

async fn check(table: &TestTable, stores: [&EventStore; 3], notebook: &Subject, happened: &[RecordedEvent]) {
    let numbers: Vec<_> = happened.iter().map(|event| event.seq_num).collect();
    assert_eq!(numbers, (1..).take(happened.len()).collect::<Vec<_>>());

    let model = notebook.model();
    let fold = |version: usize| {
        let folded = model.fold(notebook.unborn(), &happened[..version]).unwrap();
        (folded.version(), folded.message_seq(), model.state(&folded).unwrap().read().unwrap())
    };
    let end = fold(happened.len());
    for store in stores {
        assert_eq!(seen(&notebook.load(store).await), end);
        assert_eq!(seen(&notebook.rebuild(store).await), end);
        assert_eq!(seen(&notebook.load(store).await), end);
    }
    for version in 0..=happened.len() {
        assert_eq!(seen(&notebook.load_at(stores[2], version as u64).await), fold(version));
    }

    let outbox = table.rows(&notebook.key, keys::OUTBOX_PREFIX).await;
    let numbers: Vec<_> = outbox.iter().map(|row| number(row, "messageSeq")).collect();
    assert_eq!(numbers, (1..=end.1).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn loads_rebuilds_and_folds_agree_whatever_two_writers_do(steps in vec(step(), 1..14)) {
        block_on(run(steps));
    }

    #[test]
    fn load_returns_the_fold_of_the_events_of_one_instant(case in case()) {
        block_on(load_during_an_append(case));
    }
}

fn block_on(run: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run);
}

/// A load during which the rows of another writer become visible in two steps.
#[derive(Clone, Debug)]
struct Case {
    /// The appends before the load, each with its number of events.
    appends: Vec<usize>,
    /// The other writer's append: whether a snapshot follows it, and its number of events.
    appended: (bool, usize),
    /// The append after which a snapshot is taken.
    snapshot: Option<Index>,
    /// An attribute of the latest snapshot that is changed.
    tampered: Option<(&'static str, &'static str)>,
    /// The append after which the loading process has the state in its cache.
    cached: Option<Index>,
    what: What,
    /// The items of the next pages, and the numbers of calls after which each step follows.
    pages: Vec<u32>,
    steps: [usize; 2],
    /// Which of the other writer's rows the first step makes visible.
    first: Vec<bool>,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Current,
    Rebuilt,
    At(u64),
}

fn case() -> impl Strategy<Value = Case> {
    let events = || prop_oneof![4 => 1..4_usize, 1 => 4..12_usize];
    let sometimes = |share| proptest::option::weighted(share, any::<Index>());
    let tampered = prop_oneof![
        3 => Just(None),
        1 => Just(Some(("stateVersion", "7"))),
        1 => Just(Some(("lastSeqNum", "999"))),
        1 => Just(Some(("messageSeq", "-1"))),
    ];
    let what = prop_oneof![3 => Just(What::Current), 1 => Just(What::Rebuilt), 2 => (0..30_u64).prop_map(What::At)];
    let load = (what, vec(1..7_u32, 0..4), [0..5_usize, 0..3_usize], vec(any::<bool>(), 12));
    (vec(events(), 0..8), (any::<bool>(), events()), sometimes(0.7), tampered, sometimes(0.4), load).prop_map(
        |(appends, appended, snapshot, tampered, cached, (what, pages, steps, first))| Case {
            appends,
            appended,
            snapshot,
            tampered,
            cached,
            what,
            pages,
            steps,
            first,
        },
    )
}

async fn load_during_an_append(case: Case) {
    let table = TestTable::new().await;
    let with = StoreSettings { snapshot_every: 3, ..settings() };
    let (writer, reader) = (table.store_with(with.clone()), table.store_with(with));
    let notebook = Subject::of::<Notebook>("1");
    let take = async || writer.take_snapshot(notebook.model(), &notebook.key, now()).await.unwrap();
    let is_at = |chosen: &Option<Index>, at| chosen.is_some_and(|chosen| chosen.index(case.appends.len()) == at);
    let mut events = Vec::new();
    for (at, lines) in case.appends.iter().enumerate() {
        events.extend(append(&writer, &notebook, &vec![1; *lines]).await);
        if is_at(&case.snapshot, at) {
            take().await;
        }
        if is_at(&case.cached, at) {
            notebook.load(&reader).await;
        }
    }
    if let (Some((name, value)), Some(_)) = (case.tampered, table.row(&notebook.key, keys::SNAPSHOT).await) {
        table.tamper(&notebook.key, keys::SNAPSHOT, [(name, AttributeValue::N(value.to_owned()))]).await;
    }
    let before = table.rows(&notebook.key, "").await;
    let version_before = events.len() as u64;

    // The other writer's rows are stored, and hidden again until the steps.
    events.extend(append(&writer, &notebook, &vec![0; case.appended.1]).await);
    if case.appended.0 {
        take().await;
    }
    let after = table.rows(&notebook.key, "").await;
    for row in &after {
        table.delete(&notebook.key, text(row, "sk")).await;
    }
    for row in before {
        table.put(row).await;
    }

    table.proxy.take_calls();
    table.proxy.take_faults();
    for items in case.pages {
        table.proxy.fail_next("Query", InjectedFault::ShortPage { items });
    }
    let options = match case.what {
        What::Current => LoadOptions::default(),
        What::Rebuilt => LoadOptions::REBUILD,
        What::At(version) => LoadOptions { at: Some(version), ..LoadOptions::default() },
    };
    let mut load = pin!(reader.load_with(notebook.model(), &notebook.key, options));
    let new = |row: &&Item| text(row, "sk") > keys::event_sk(version_before).as_str() && row.contains_key("eventId");
    let first = after.iter().filter(new).zip(&case.first).filter(|(_, is_first)| **is_first);
    let first: Vec<_> = first.map(|(row, _)| row.clone()).collect();
    let mut loaded = None;
    for (calls, rows) in case.steps.into_iter().zip([first, after.clone()]) {
        if loaded.is_none() {
            loaded = table.proxy.advance(&mut load, |made| made.len() >= calls).await;
        }
        for row in rows {
            table.put(row).await;
        }
    }
    let loaded = match loaded {
        Some(loaded) => loaded,
        None => load.await,
    };
    let loaded = loaded.unwrap();

    let most = if let What::At(version) = case.what { version } else { u64::MAX };
    let instants = [version_before.min(most), (events.len() as u64).min(most)];
    assert!(instants.contains(&loaded.version()), "version {} is none of {instants:?}", loaded.version());
    let expected = notebook.model().fold(notebook.unborn(), &events[..usize::try_from(loaded.version()).unwrap()]);
    let expected = expected.unwrap();
    let expected_state = notebook.model().state(&expected).unwrap().read().unwrap();
    assert_eq!(seen(&loaded), (expected.version(), expected.message_seq(), expected_state));
    // A decision on the current state must not precede its last event.
    if !matches!(case.what, What::At(_)) {
        assert_eq!(loaded.folded.last_event(), expected.last_event());
    }
}
