//! Properties that hold whatever two writers do, with small caches and with snapshots at any time.

use daybook_decider::RecordedEvent;
use daybook_event_store::cache::Cache;
use daybook_event_store::{AppendError, EventStore, Loaded, StoreSettings};
use daybook_table::keys;
use daybook_test_support::clock::now;
use daybook_test_support::notebook::Notebook;
use daybook_test_support::row::number;
use daybook_test_support::table::{TestTable, settings};
use proptest::collection::vec;
use proptest::prelude::*;
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
    let mut known = store.cached(&notebook.key);
    loop {
        let before = match known.take() {
            Some(known) => known,
            None => notebook.load(store).await,
        };
        let command = if before.version() == 0 { "Start" } else { "Write" };
        let decided = notebook.decide(&before.folded, &[(command, lines.clone())]);
        match notebook.append(store, &before.folded, &decided).await {
            Ok(_) => return decided.events,
            Err(AppendError::Conflict { actual }) => assert!(actual > before.version()),
            Err(other) => panic!("{other:?}"),
        }
    }
}

async fn run(steps: Vec<Step>) {
    let table = TestTable::new().await;
    let settings = StoreSettings { snapshot_every: 3, snapshot_keep: 2, ..settings() };
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(steps));
    }
}
