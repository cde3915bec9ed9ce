//! Properties that hold for all outcomes of invocations, in any order. [`play`] also asserts in every run that
//! concurrent batches never share an item and that no record overtakes another record of its item.

use std::collections::BTreeMap;
use std::time::Duration;

use daybook_event_source_mapping::{
    Batch, InvocationOutcome, Mapping, MappingSettings, Record, RecordFilter, RestartPoint, SequenceNumber, Step,
};
use proptest::prelude::*;

use crate::shard::{START, failures, number, place, record_of};

/// The outcome of one invocation. Indexes are counted within its batch and wrap around.
#[derive(Clone, Debug)]
enum Ending {
    Success,
    Error,
    Throttled,
    Unreadable,
    FailedAt(Vec<usize>),
}

/// The input of a run of the caller's loop.
#[derive(Clone, Debug)]
struct Run {
    settings: MappingSettings,
    /// The item of each record.
    items: Vec<usize>,
    /// The outcomes in order, each with the index of the open invocation that it ends and the milliseconds before it.
    /// When they are used up, every invocation succeeds.
    endings: Vec<(Ending, usize, u64)>,
}

/// The result for each record, by its index.
#[derive(Debug, Default)]
struct Fate {
    delivered: Vec<usize>,
    done: Vec<usize>,
    discarded: Vec<usize>,
}

fn endings() -> impl Strategy<Value = Vec<(Ending, usize, u64)>> {
    let ending = prop_oneof![
        3 => Just(Ending::Success),
        2 => Just(Ending::Error),
        1 => Just(Ending::Throttled),
        1 => Just(Ending::Unreadable),
        4 => prop::collection::vec(0..8_usize, 1..4).prop_map(Ending::FailedAt),
    ];
    prop::collection::vec((ending, 0..8_usize, 0..30_000_u64), 0..60)
}

fn all_but_item_0() -> RecordFilter {
    let mut filter = RecordFilter::default();
    filter.add(r#"{"dynamodb":{"Keys":{"pk":{"S":[{"anything-but":["item-0"]}]}}}}"#).unwrap();
    filter
}

fn settings() -> impl Strategy<Value = MappingSettings> {
    (1..8_usize, 1..5_usize, 0..3_u64, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(batch_size, parallelization_factor, window, bisect, report, filtered)| MappingSettings {
            batch_size,
            parallelization_factor,
            batching_window: Duration::from_secs(window),
            bisect_batch_on_function_error: bisect,
            report_batch_item_failures: report,
            filter: if filtered { all_but_item_0() } else { RecordFilter::default() },
            ..MappingSettings::default()
        },
    )
}

prop_compose! {
    fn runs()(settings in settings(), items in prop::collection::vec(0..6_usize, 0..40), endings in endings()) -> Run {
        Run { settings, items, endings }
    }
}

prop_compose! {
    fn runs_with_limits()(run in runs(), retries in 0..4_u32, age in prop::option::of(60..120_u64)) -> Run {
        let maximum_record_age = age.map(Duration::from_secs);
        Run { settings: MappingSettings { maximum_retry_attempts: Some(retries), maximum_record_age, ..run.settings }, ..run }
    }
}

/// The outcome of the function, and the number of records of the batch that are then done.
fn end(ending: &Ending, batch: &Batch, report: bool) -> (InvocationOutcome, usize) {
    let all = batch.records().len();
    let unless_reported = |done: usize| if report { done } else { all };
    match ending {
        Ending::Success => (InvocationOutcome::Returned("{}".to_owned()), all),
        Ending::Error => (InvocationOutcome::FunctionError, 0),
        Ending::Throttled => (InvocationOutcome::NotInvoked, 0),
        Ending::Unreadable => (InvocationOutcome::Returned("oops".to_owned()), unless_reported(0)),
        Ending::FailedAt(at) => {
            let at: Vec<_> = at.iter().map(|index| index % all).collect();
            let response = failures(at.iter().map(|index| place(&batch.records()[*index])));
            (InvocationOutcome::Returned(response), unless_reported(at.into_iter().min().unwrap()))
        }
    }
}

/// Pushes half of the records at the start and the others during the run, polls until the mapping waits, then ends one
/// invocation.
fn play(run: &Run) -> (Mapping, Fate) {
    let mut mapping = Mapping::new(run.settings.clone());
    let mut waiting = run.items.iter().enumerate().map(|(place, item)| record_of(place, *item, 0));
    let mut endings = run.endings.iter().cloned();
    let (mut now, mut open, mut fate) = (START, Vec::<Batch>::new(), Fate::default());
    for record in waiting.by_ref().take(run.items.len() / 2) {
        mapping.push(record, now).unwrap();
    }
    loop {
        let until = match mapping.poll(now) {
            Step::Invoke(batch) => {
                assert!(!batch.records().is_empty() && batch.records().len() <= run.settings.batch_size);
                for other in &open {
                    let keys = |record: &Record| record.json()["dynamodb"]["Keys"].clone();
                    let shared = |record: &Record| batch.records().iter().any(|mine| keys(mine) == keys(record));
                    assert!(!other.records().iter().any(shared), "{batch:?} shares an item with {other:?}");
                }
                assert_in_order(run, &batch, &fate);
                fate.delivered.extend(batch.records().iter().map(place));
                open.push(batch);
                continue;
            }
            Step::Discard(discarded) => {
                fate.discarded.extend(discarded.records.iter().map(place));
                continue;
            }
            Step::Wait { until } => until,
        };
        match waiting.next() {
            Some(record) => mapping.push(record, now).unwrap(),
            None if open.is_empty() => match until {
                Some(until) => now = until,
                None => return (mapping, fate),
            },
            None => {}
        }
        if !open.is_empty() {
            let (ending, which, delay) = endings.next().unwrap_or((Ending::Success, 0, 0));
            let batch = open.swap_remove(which % open.len());
            now += Duration::from_millis(delay);
            let (outcome, done) = end(&ending, &batch, run.settings.report_batch_item_failures);
            fate.done.extend(batch.records()[..done].iter().map(place));
            mapping.settle(batch, outcome, now);
        }
    }
}

/// Asserts that all earlier records of the same item are settled or precede the record in the same batch.
fn assert_in_order(run: &Run, batch: &Batch, fate: &Fate) {
    let places: Vec<_> = batch.records().iter().map(place).collect();
    for (index, place) in places.iter().enumerate() {
        let earlier = (0..*place).filter(|earlier| run.items[*earlier] == run.items[*place]);
        let settled = |earlier: &usize| {
            fate.done.contains(earlier) || fate.discarded.contains(earlier) || places[..index].contains(earlier)
        };
        assert!(earlier.clone().all(|earlier| settled(&earlier)), "{place} overtook one of {earlier:?}");
    }
}

/// The indexes of the records that the filter passes, and of the others.
fn filtered(run: &Run) -> (Vec<usize>, Vec<usize>) {
    (0..run.items.len()).partition(|place| run.settings.filter == RecordFilter::default() || run.items[*place] != 0)
}

fn by_item(run: &Run, places: impl IntoIterator<Item = usize>) -> BTreeMap<usize, Vec<usize>> {
    let mut by_item = BTreeMap::<_, Vec<_>>::new();
    for place in places {
        by_item.entry(run.items[place]).or_default().push(place);
    }
    by_item
}

fn end_of(run: &Run) -> RestartPoint {
    let last = run.items.len().checked_sub(1);
    last.map_or(RestartPoint::Start, |last| RestartPoint::After(SequenceNumber::parse(&number(last)).unwrap()))
}

proptest! {
    #[test]
    fn mapping_without_limits_finishes_each_record_once_in_the_order_of_its_item(run in runs()) {
        let (mapping, fate) = play(&run);
        prop_assert_eq!(by_item(&run, fate.done), by_item(&run, filtered(&run).0));
        prop_assert_eq!(fate.discarded, Vec::<usize>::new());
        prop_assert_eq!(mapping.restart_point(), end_of(&run));
    }

    #[test]
    fn each_record_is_done_filtered_or_discarded(run in runs_with_limits()) {
        let (mapping, fate) = play(&run);
        let (_, dropped) = filtered(&run);
        let mut all = [fate.done, fate.discarded, dropped].concat();
        all.sort_unstable();
        prop_assert_eq!(all, (0..run.items.len()).collect::<Vec<_>>());
        prop_assert_eq!(mapping.restart_point(), end_of(&run));
    }

    #[test]
    fn repeated_run_takes_the_same_steps(run in runs_with_limits()) {
        let ((first, first_fate), (second, second_fate)) = (play(&run), play(&run));
        prop_assert_eq!(first_fate.delivered, second_fate.delivered);
        prop_assert_eq!(first_fate.discarded, second_fate.discarded);
        prop_assert_eq!(format!("{first:?}"), format!("{second:?}"));
    }
}
