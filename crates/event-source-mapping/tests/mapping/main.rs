//! The documented behaviour of a mapping, rule by rule.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests may")]

mod filter;
mod properties;
mod shard;
mod template;

use std::time::Duration;

use daybook_event_source_mapping::mapping::{FIRST_DELAY, LONGEST_DELAY};
use daybook_event_source_mapping::{
    Batch, DiscardContext, DiscardReason, Discarded, InvocationOutcome, Mapping, MappingSettings, RecordFilter,
    RestartPoint, SequenceNumber, Step,
};
use serde_json::json;

use shard::{START, STREAM, failures, number, place, record_of};

const SECOND: Duration = Duration::from_secs(1);

fn success() -> InvocationOutcome {
    InvocationOutcome::Returned("null".to_owned())
}

/// A mapping with `count` records, each of a different item.
fn mapping(settings: MappingSettings, count: usize) -> Mapping {
    let mut mapping = Mapping::new(settings);
    (0..count).for_each(|place| mapping.push(record_of(place, place, 0), START).unwrap());
    mapping
}

#[track_caller]
fn batch(mapping: &mut Mapping, now: Duration) -> Batch {
    match mapping.poll(now) {
        Step::Invoke(batch) => batch,
        other => panic!("expected a batch, got {other:?}"),
    }
}

#[track_caller]
fn discarded(mapping: &mut Mapping, now: Duration) -> Discarded {
    match mapping.poll(now) {
        Step::Discard(discarded) => discarded,
        other => panic!("expected records to discard, got {other:?}"),
    }
}

#[track_caller]
fn waits(mapping: &mut Mapping, now: Duration) -> Option<Duration> {
    match mapping.poll(now) {
        Step::Wait { until } => until,
        other => panic!("expected to wait, got {other:?}"),
    }
}

fn places(batch: &Batch) -> Vec<usize> {
    batch.records().iter().map(place).collect()
}

fn places_of(discarded: &Discarded) -> Vec<usize> {
    discarded.records.iter().map(place).collect()
}

/// Executes all steps until the mapping has nothing more to do. Returns the invocations in order, and the discarded
/// records.
fn run(mapping: &mut Mapping, function: impl Fn(&[usize]) -> InvocationOutcome) -> (Vec<Vec<usize>>, Vec<Discarded>) {
    let (mut now, mut invocations, mut discards) = (START, Vec::new(), Vec::new());
    loop {
        match mapping.poll(now) {
            Step::Invoke(batch) => {
                let given = places(&batch);
                mapping.settle(batch, function(&given), now);
                invocations.push(given);
            }
            Step::Discard(discarded) => discards.push(discarded),
            Step::Wait { until: Some(until) } => now = until,
            Step::Wait { until: None } => return (invocations, discards),
        }
    }
}

#[test]
fn a_batch_holds_at_most_batch_size_records() {
    let mut mapping = mapping(MappingSettings { batch_size: 2, ..MappingSettings::default() }, 5);
    assert_eq!(run(&mut mapping, |_| success()).0, [vec![0, 1], vec![2, 3], vec![4]]);
}

#[test]
fn records_are_outstanding_until_they_are_done() {
    let one_by_one = MappingSettings { batch_size: 1, ..MappingSettings::default() };
    let mut mapping = mapping(MappingSettings { parallelization_factor: 3, ..one_by_one.clone() }, 7);
    assert_eq!(mapping.outstanding(), (7, Some(START)));
    run(&mut mapping, |_| success());
    assert_eq!(mapping.outstanding(), (0, None));

    let mut mapping = self::mapping(one_by_one, 3);
    let first = batch(&mut mapping, START);
    assert_eq!(mapping.outstanding(), (3, Some(START)));
    mapping.settle(first, success(), START);
    assert_eq!(mapping.outstanding(), (2, Some(START + SECOND)));
}

#[test]
fn a_batch_holds_at_most_6_mb() {
    let mut mapping = Mapping::new(MappingSettings::default());
    (0..20).for_each(|place| mapping.push(record_of(place, 0, 400_000), START).unwrap());
    let first = batch(&mut mapping, START);
    assert_eq!(first.records().len(), 15);
    assert!(first.payload().len() <= 6 * 1024 * 1024);
}

#[test]
fn full_payload_does_not_wait_for_its_window() {
    let mut mapping = Mapping::new(MappingSettings { batching_window: SECOND, ..MappingSettings::default() });
    (0..16).for_each(|place| mapping.push(record_of(place, 0, 400_000), START).unwrap());
    assert_eq!(batch(&mut mapping, START).records().len(), 15);
}

#[test]
fn record_above_the_payload_limit_is_delivered_alone() {
    let mut mapping = Mapping::new(MappingSettings::default());
    mapping.push(record_of(0, 0, 7_000_000), START).unwrap();
    mapping.push(record_of(1, 0, 0), START).unwrap();
    assert_eq!(run(&mut mapping, |_| success()).0, [vec![0], vec![1]]);
}

#[test]
fn without_a_window_records_are_delivered_at_once() {
    let mut mapping = mapping(MappingSettings::default(), 1);
    assert_eq!(places(&batch(&mut mapping, START)), [0]);
}

#[test]
fn window_gathers_records_until_it_is_over_or_the_batch_is_full() {
    let settings = MappingSettings { batch_size: 3, batching_window: 5 * SECOND, ..MappingSettings::default() };
    let mut gathering = mapping(settings.clone(), 1);
    assert_eq!(waits(&mut gathering, START), Some(START + 5 * SECOND));
    gathering.push(record_of(1, 1, 0), START + 4 * SECOND).unwrap();
    assert_eq!(waits(&mut gathering, START + 4 * SECOND), Some(START + 5 * SECOND));
    assert_eq!(places(&batch(&mut gathering, START + 5 * SECOND)), [0, 1]);

    let mut full = mapping(settings, 3);
    assert_eq!(places(&batch(&mut full, START)), [0, 1, 2]);
}

#[test]
fn the_next_window_begins_when_the_invocation_ends() {
    let mut mapping =
        mapping(MappingSettings { batch_size: 2, batching_window: 5 * SECOND, ..MappingSettings::default() }, 3);
    let first = batch(&mut mapping, START);
    mapping.settle(first, success(), START + 20 * SECOND);
    assert_eq!(waits(&mut mapping, START + 20 * SECOND), Some(START + 25 * SECOND));
}

#[test]
fn one_record_queue_has_one_batch_in_flight_at_a_time() {
    let mut mapping = mapping(MappingSettings { batch_size: 1, ..MappingSettings::default() }, 2);
    let first = batch(&mut mapping, START);
    assert_eq!(waits(&mut mapping, START), None);
    mapping.settle(first, success(), START);
    assert_eq!(places(&batch(&mut mapping, START)), [1]);
}

#[test]
fn several_record_queues_have_concurrent_batches_and_no_item_is_in_two() {
    let mut mapping = Mapping::new(MappingSettings { parallelization_factor: 10, ..MappingSettings::default() });
    (0..100).for_each(|place| mapping.push(record_of(place, place % 50, 0), START).unwrap());
    let batches: Vec<_> = (0..10).map(|_| batch(&mut mapping, START)).collect();
    assert_eq!(waits(&mut mapping, START), None);
    for item in 0..50 {
        let of_item = |batch: &&Batch| places(batch).iter().any(|place| place % 50 == item);
        assert_eq!(batches.iter().filter(of_item).count(), 1);
    }
}

#[test]
fn a_record_that_no_filter_matches_is_dropped_and_counts_as_processed() {
    let mut filter = RecordFilter::default();
    filter.add(r#"{"eventName":["REMOVE"]}"#).unwrap();
    let mut mapping = mapping(MappingSettings { filter, ..MappingSettings::default() }, 3);
    assert_eq!(waits(&mut mapping, START), None);
    assert_eq!(mapping.restart_point(), RestartPoint::After(SequenceNumber::parse(&number(2)).unwrap()));
}

#[test]
fn failed_batch_is_retried_whole_before_later_records() {
    let mut mapping = mapping(MappingSettings { batch_size: 2, ..MappingSettings::default() }, 4);
    for attempt in 1..=3 {
        let again = batch(&mut mapping, START + attempt * 10 * SECOND);
        assert_eq!(places(&again), [0, 1]);
        mapping.settle(again, InvocationOutcome::FunctionError, START + attempt * 10 * SECOND);
    }
}

#[test]
fn records_before_the_checkpoint_are_not_delivered_again() {
    let mut mapping = mapping(MappingSettings { report_batch_item_failures: true, ..MappingSettings::default() }, 5);
    let first = batch(&mut mapping, START);
    mapping.settle(first, InvocationOutcome::Returned(failures([4, 2])), START);
    let again = batch(&mut mapping, START + SECOND);
    assert_eq!(places(&again), [2, 3, 4]);
}

#[test]
fn without_report_batch_item_failures_a_response_means_success() {
    let mut mapping = mapping(MappingSettings::default(), 2);
    assert_eq!(run(&mut mapping, |_| InvocationOutcome::Returned(failures([0]))).0, [[0, 1]]);
}

#[test]
fn retry_delay_doubles_up_to_its_limit() {
    let mut mapping = mapping(MappingSettings::default(), 1);
    let (mut now, mut delays) = (START, Vec::new());
    for _ in 0..10 {
        let again = batch(&mut mapping, now);
        mapping.settle(again, InvocationOutcome::FunctionError, now);
        let until = waits(&mut mapping, now).unwrap();
        delays.push(until - now);
        now = until;
    }
    let expected: Vec<_> = (0..10).map(|failure| (FIRST_DELAY * 2_u32.pow(failure)).min(LONGEST_DELAY)).collect();
    assert_eq!(delays, expected);
}

#[test]
fn retry_delay_starts_over_after_a_success() {
    let mut mapping = mapping(MappingSettings { batch_size: 1, ..MappingSettings::default() }, 2);
    let mut now = START;
    for outcome in [
        InvocationOutcome::FunctionError,
        InvocationOutcome::FunctionError,
        success(),
        InvocationOutcome::FunctionError,
    ] {
        now += SECOND;
        let next = batch(&mut mapping, now);
        mapping.settle(next, outcome, now);
    }
    assert_eq!(waits(&mut mapping, now), Some(now + FIRST_DELAY));
}

#[test]
fn infinite_retries_never_discard() {
    let mut mapping = mapping(MappingSettings::default(), 1);
    for attempt in 1..=500 {
        let again = batch(&mut mapping, START + attempt * LONGEST_DELAY);
        mapping.settle(again, InvocationOutcome::FunctionError, START + attempt * LONGEST_DELAY);
    }
    assert_eq!(places(&batch(&mut mapping, START + 501 * LONGEST_DELAY)), [0]);
}

#[test]
fn a_batch_is_discarded_when_its_retries_are_used_up() {
    for (quota, invocations) in [(0, 1), (2, 3)] {
        let settings =
            MappingSettings { batch_size: 2, maximum_retry_attempts: Some(quota), ..MappingSettings::default() };
        let mut mapping = mapping(settings, 4);
        let function = |given: &[usize]| if given[0] == 0 { InvocationOutcome::FunctionError } else { success() };
        let (given, discards) = run(&mut mapping, function);
        assert_eq!(given[..invocations], vec![vec![0, 1]; invocations]);
        assert_eq!(given[invocations..], [vec![2, 3]]);
        assert_eq!(discards.len(), 1);
        assert_eq!(places_of(&discards[0]), [0, 1]);
        assert_eq!(discards[0].reason, DiscardReason::RetryAttemptsExhausted);
        assert_eq!(discards[0].invocations, u32::try_from(invocations).unwrap());
    }
}

#[test]
fn partial_failure_uses_up_a_retry_and_only_unfinished_records_are_discarded() {
    let settings = MappingSettings {
        report_batch_item_failures: true,
        maximum_retry_attempts: Some(2),
        ..MappingSettings::default()
    };
    let (given, discards) = run(&mut mapping(settings, 3), |_| InvocationOutcome::Returned(failures([1])));
    assert_eq!(given, [vec![0, 1, 2], vec![1, 2], vec![1, 2]]);
    assert_eq!(places_of(&discards[0]), [1, 2]);
}

#[test]
fn bisection_delivers_every_good_record_and_isolates_the_bad_one() {
    let settings = MappingSettings {
        bisect_batch_on_function_error: true,
        maximum_retry_attempts: Some(1),
        ..MappingSettings::default()
    };
    let function = |given: &[usize]| if given.contains(&5) { InvocationOutcome::FunctionError } else { success() };
    let (given, discards) = run(&mut mapping(settings, 8), function);
    assert_eq!(
        given,
        [
            vec![0, 1, 2, 3, 4, 5, 6, 7],
            vec![0, 1, 2, 3],
            vec![4, 5, 6, 7],
            vec![4, 5],
            vec![4],
            vec![5], // splits use up no retry: this is the first attempt, and the next one is the only retry
            vec![5],
            vec![6, 7],
        ]
    );
    assert_eq!(discards.len(), 1);
    assert_eq!(places_of(&discards[0]), [5]);
    assert_eq!(discards[0].invocations, 5);
}

#[test]
fn with_bisection_a_partial_failure_is_split_at_the_checkpoint() {
    let settings = MappingSettings {
        bisect_batch_on_function_error: true,
        report_batch_item_failures: true,
        maximum_retry_attempts: Some(0),
        ..MappingSettings::default()
    };
    let function = |given: &[usize]| {
        InvocationOutcome::Returned(if given.contains(&2) { failures([2]) } else { "null".to_owned() })
    };
    let (given, discards) = run(&mut mapping(settings, 6), function);
    assert_eq!(given, [vec![0, 1, 2, 3, 4, 5], vec![2, 3, 4, 5], vec![2, 3], vec![2], vec![3], vec![4, 5]]);
    assert_eq!(places_of(&discards[0]), [2]);
}

#[test]
fn a_function_that_could_not_be_invoked_uses_up_no_retry_and_splits_nothing() {
    let settings = MappingSettings {
        bisect_batch_on_function_error: true,
        maximum_retry_attempts: Some(0),
        ..MappingSettings::default()
    };
    let mut mapping = mapping(settings, 2);
    for attempt in 0..5 {
        let again = batch(&mut mapping, START + attempt * LONGEST_DELAY);
        assert_eq!(places(&again), [0, 1]);
        mapping.settle(again, InvocationOutcome::NotInvoked, START + attempt * LONGEST_DELAY);
    }
    // Only invocations of the function count: one with the whole batch, and one with its first half.
    let (_, discards) = run(&mut mapping, |_| InvocationOutcome::FunctionError);
    assert_eq!((places_of(&discards[0]), discards[0].invocations), (vec![0], 2));
}

#[test]
fn a_record_older_than_the_maximum_age_is_not_delivered() {
    let mut mapping =
        mapping(MappingSettings { maximum_record_age: Some(60 * SECOND), ..MappingSettings::default() }, 2);
    let first = batch(&mut mapping, START + 60 * SECOND);
    mapping.settle(first, InvocationOutcome::FunctionError, START + 60 * SECOND);
    let discards = discarded(&mut mapping, START + 62 * SECOND);
    assert_eq!(
        (discards.records.len(), discards.reason, discards.invocations),
        (2, DiscardReason::RecordAgeExceeded, 1)
    );
    assert_eq!(waits(&mut mapping, START + 62 * SECOND), None);
}

#[test]
fn maximum_age_discards_only_the_records_that_are_too_old() {
    let mut mapping =
        mapping(MappingSettings { maximum_record_age: Some(60 * SECOND), ..MappingSettings::default() }, 2);
    let discards = discarded(&mut mapping, START + 61 * SECOND);
    assert_eq!(places_of(&discards), [0]);
    assert_eq!(places(&batch(&mut mapping, START + 61 * SECOND)), [1]);
}

#[test]
fn document_has_the_position_of_the_records_and_the_records() {
    let context = DiscardContext {
        function_arn: "arn:aws:lambda:eu-west-1:000000000000:function:relay",
        stream_arn: STREAM,
        shard_id: "shardId-00000001573689847184-864758bb",
        request_id: "316aa6d0-8154-4c63-9af7-85d5f4a6bc81",
    };
    let mut mapping = mapping(MappingSettings { maximum_retry_attempts: Some(0), ..MappingSettings::default() }, 2);
    let first = batch(&mut mapping, START);
    let event = first.payload();
    mapping.settle(first, InvocationOutcome::FunctionError, START + Duration::from_millis(1500));
    let discards = discarded(&mut mapping, START + SECOND);

    let expected = json!({
        "requestContext": {
            "requestId": context.request_id, "functionArn": context.function_arn,
            "condition": "RetryAttemptsExhausted", "approximateInvokeCount": 1
        },
        "responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"},
        "version": "1.0",
        "timestamp": "2023-11-14T22:13:21.500Z",
        "DDBStreamBatchInfo": {
            "shardId": context.shard_id,
            "startSequenceNumber": "95",
            "endSequenceNumber": "96",
            "approximateArrivalOfFirstRecord": "2023-11-14T22:13:20Z",
            "approximateArrivalOfLastRecord": "2023-11-14T22:13:21Z",
            "batchSize": 2,
            "streamArn": STREAM
        },
        "payload": event
    });
    assert_eq!(discards.document(&context), expected);
}

#[test]
fn record_out_of_sequence_is_rejected() {
    let mut mapping = mapping(MappingSettings::default(), 6);
    let error = mapping.push(record_of(4, 0, 0), START).unwrap_err();
    assert_eq!(error.to_string(), "record 99 does not come after 100");
    assert!(mapping.push(record_of(5, 0, 0), START).is_err());
    assert!(mapping.push(record_of(6, 0, 0), START).is_ok());
}

#[test]
fn restart_point_is_the_first_record_that_is_not_done() {
    let at = |place: usize| SequenceNumber::parse(&number(place)).unwrap();
    assert_eq!(Mapping::new(MappingSettings::default()).restart_point(), RestartPoint::Start);

    let settings = MappingSettings { batch_size: 2, report_batch_item_failures: true, ..MappingSettings::default() };
    let mut mapping = mapping(settings, 4);
    assert_eq!(mapping.restart_point(), RestartPoint::At(at(0)));
    let first = batch(&mut mapping, START);
    assert_eq!(mapping.restart_point(), RestartPoint::At(at(0)));
    mapping.settle(first, InvocationOutcome::Returned(failures([1])), START);
    assert_eq!(mapping.restart_point(), RestartPoint::At(at(1)));
    run(&mut mapping, |_| success());
    assert_eq!(mapping.restart_point(), RestartPoint::After(at(3)));
}

/// A reader that stops before it has stored them would lose them.
#[test]
fn records_are_not_done_before_poll_discards_them() {
    let settings = MappingSettings { maximum_retry_attempts: Some(0), ..MappingSettings::default() };
    let mut mapping = mapping(settings, 2);
    let all = batch(&mut mapping, START);
    mapping.settle(all, InvocationOutcome::FunctionError, START);
    let at = |place: usize| SequenceNumber::parse(&number(place)).unwrap();
    assert_eq!((mapping.restart_point(), mapping.outstanding().0), (RestartPoint::At(at(0)), 2));
    assert!(matches!(mapping.poll(START), Step::Discard(_)));
    assert_eq!((mapping.restart_point(), mapping.outstanding().0), (RestartPoint::After(at(1)), 0));
}
