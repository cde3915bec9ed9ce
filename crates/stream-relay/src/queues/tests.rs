use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn item(aggregate: &str, order: u64, bytes: usize) -> QueueItem<'_> {
    QueueItem { aggregate: Some(aggregate), order, bytes: Some(bytes) }
}

fn steps(queues: &mut AggregateQueues, now: Instant) -> Vec<NextCall> {
    std::iter::from_fn(|| queues.next(now)).collect()
}

fn finish(queues: &mut AggregateQueues, request: &[usize], disposition: Disposition) {
    queues.request_finished(request.iter().map(|&index| (index, disposition)));
}

#[test]
fn a_queue_advances_when_its_first_message_is_settled() {
    let now = Instant::now();
    let mut queues = AggregateQueues::new([item("b", 2, 1), item("a", 7, 1), item("b", 1, 1)]);
    assert_eq!(steps(&mut queues, now), [NextCall::Send(vec![2, 1])]);
    queues.request_finished([(2, Disposition::Sent), (1, Disposition::Held)]);
    assert_eq!(steps(&mut queues, now), [NextCall::Send(vec![0])]);
    assert!(queues.has_held());
    queues.release_held();
    assert_eq!(steps(&mut queues, now), [NextCall::DeadLetter(1)]);
    finish(&mut queues, &[0], Disposition::Sent);
    assert_eq!(queues.unsettled().collect::<Vec<_>>(), [1]);
    queues.dead_letter_finished(1, true);
    assert_eq!(queues.unsettled().count(), 0);
}

#[test]
fn a_request_waits_only_for_messages_that_could_fill_it() {
    let now = Instant::now();
    let names: Vec<_> = (0..15).map(|name| format!("{name}")).collect();
    let firsts: Vec<_> = names.iter().map(|name| item(name, 1, 1)).collect();

    let mut distinct = AggregateQueues::new(firsts.clone());
    assert_eq!(steps(&mut distinct, now), [NextCall::Send((0..10).collect()), NextCall::Send((10..15).collect())]);

    let mut longer = AggregateQueues::new(firsts.into_iter().chain([item("0", 2, 1)]));
    assert_eq!(steps(&mut longer, now), [NextCall::Send((0..10).collect())]);
    finish(&mut longer, &(0..10).collect::<Vec<_>>(), Disposition::Sent);
    assert_eq!(steps(&mut longer, now), [NextCall::Send(vec![10, 11, 12, 13, 14, 15])]);
}

#[test]
fn a_partly_filled_request_does_not_wait_for_a_slow_request() {
    let now = Instant::now();
    let names: Vec<_> = (0..15).map(|name| format!("{name}")).collect();
    let items = names.iter().map(|name| item(name, 1, 1)).chain([item("0", 2, 1)]);
    let mut queues = AggregateQueues::new(items);
    assert_eq!(steps(&mut queues, now), [NextCall::Send((0..10).collect())]);
    assert_eq!(queues.next_attempt_at(now), Some(now + FILL_TIME));
    assert_eq!(steps(&mut queues, now + FILL_TIME), [NextCall::Send((10..15).collect())]);
    assert_eq!(queues.next_attempt_at(now + FILL_TIME), None);
}

#[test]
fn a_request_is_smaller_than_the_limit() {
    let now = Instant::now();
    let names = ["a", "b", "c", "d"];
    let mut queues = AggregateQueues::new(names.map(|name| item(name, 1, REQUEST_BYTES / 2)));
    assert_eq!(steps(&mut queues, now), [0, 1, 2, 3].map(|index| NextCall::Send(vec![index])));
    let mut queues = AggregateQueues::new(names.map(|name| item(name, 1, REQUEST_BYTES / 2 - 1)));
    assert_eq!(steps(&mut queues, now), [NextCall::Send(vec![0, 1]), NextCall::Send(vec![2, 3])]);
}

#[test]
fn a_retried_message_waits_for_its_time() {
    let now = Instant::now();
    let later = now + Duration::from_secs(1);
    let mut queues = AggregateQueues::new([item("a", 1, 1), item("b", 1, 1)]);
    assert_eq!(steps(&mut queues, now), [NextCall::Send(vec![0, 1])]);
    queues.request_finished([(0, Disposition::RetryAt(later)), (1, Disposition::Sent)]);
    assert_eq!((steps(&mut queues, now), queues.next_attempt_at(now)), (vec![], Some(later)));
    assert_eq!((steps(&mut queues, later), queues.next_attempt_at(later)), (vec![NextCall::Send(vec![0])], None));
    assert_eq!(queues.attempts(0), 2);
}

#[test]
fn suspect_entries_are_sent_alone() {
    let now = Instant::now();
    let mut queues = AggregateQueues::new([item("a", 1, 1), item("b", 1, 1)]);
    assert_eq!(steps(&mut queues, now), [NextCall::Send(vec![0, 1])]);
    finish(&mut queues, &[0, 1], Disposition::RetryAlone);
    assert_eq!(steps(&mut queues, now), [NextCall::Send(vec![0]), NextCall::Send(vec![1])]);
}

#[test]
fn message_that_the_dead_letter_queue_rejects_blocks_only_its_own_queue() {
    let now = Instant::now();
    let poison = QueueItem { aggregate: Some("a"), order: 0, bytes: None };
    let mut queues = AggregateQueues::new([item("a", 1, 1), poison, item("b", 1, 1)]);
    assert_eq!(steps(&mut queues, now), [NextCall::DeadLetter(1), NextCall::Send(vec![2])]);
    queues.dead_letter_finished(1, false);
    finish(&mut queues, &[2], Disposition::Sent);
    assert_eq!(steps(&mut queues, now), []);
    assert_eq!(queues.unsettled().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn concurrent_calls_are_limited() {
    let names: Vec<_> = (0..400).map(|name| format!("{name}")).collect();
    let mut sends = AggregateQueues::new(names.iter().map(|name| item(name, 1, 1)));
    let now = Instant::now();
    assert_eq!(steps(&mut sends, now).len(), MAX_REQUESTS);
    assert_eq!(sends.next_attempt_at(now), Some(now + SLOW));
    assert_eq!(steps(&mut sends, now + SLOW).len(), MAX_REQUESTS);
    let much_later = now + 10 * SLOW;
    assert_eq!(steps(&mut sends, much_later).len(), MAX_REQUESTS);
    assert_eq!(steps(&mut sends, much_later + SLOW).len(), MAX_SLOW_REQUESTS - 3 * MAX_REQUESTS);
    assert_eq!(steps(&mut sends, much_later + 10 * SLOW), []);
    assert_eq!(sends.next_attempt_at(much_later + 10 * SLOW), None);
    let mut unsendable =
        AggregateQueues::new(names.iter().map(|name| QueueItem { aggregate: Some(name), order: 1, bytes: None }));
    assert_eq!(steps(&mut unsendable, Instant::now()).len(), MAX_DEAD_LETTERS);
}

/// The end of a step: a number that selects it among the steps in flight, and the results of its entries.
type StepEnd = (usize, Vec<u8>);

proptest! {
    #[test]
    fn every_message_is_settled_once_and_in_the_order_of_its_aggregate(
        messages in prop::collection::vec((0..8_usize, 1..6_u64, prop::option::weighted(0.9, 1..600_000_usize)), 0..80),
        ends in prop::collection::vec((any::<usize>(), prop::collection::vec(0..5_u8, 1..10)), 0..60),
    ) {
        let names: Vec<_> = (0..8).map(|aggregate| format!("{aggregate}")).collect();
        let items: Vec<_> = messages
            .iter()
            .map(|&(aggregate, order, bytes)| QueueItem { aggregate: Some(&names[aggregate]), order, bytes })
            .collect();
        run(&items, &ends)?;
    }

    #[test]
    fn n_distinct_aggregates_take_n_tenths_requests(count in 0..400_usize) {
        let names: Vec<_> = (0..count).map(|aggregate| aggregate.to_string()).collect();
        let items: Vec<_> = names.iter().map(|name| item(name, 1, 1_000)).collect();
        prop_assert_eq!(run(&items, &[])?, count.div_ceil(MAX_ENTRIES));
    }
}

/// Drives the queues to the end and checks every step. Returns the number of requests.
fn run(items: &[QueueItem<'_>], ends: &[StepEnd]) -> Result<usize, TestCaseError> {
    let mut now = Instant::now();
    let mut queues = AggregateQueues::new(items.iter().copied());
    let mut ends = ends.iter();
    let mut steps_in_flight: Vec<NextCall> = Vec::new();
    let mut settled: Vec<usize> = Vec::new();
    let mut requests = 0;
    loop {
        while let Some(step) = queues.next(now) {
            if let NextCall::Send(request) = &step {
                requests += 1;
                let bytes: usize = request.iter().map(|&index| items[index].bytes.unwrap()).sum();
                prop_assert!((1..=MAX_ENTRIES).contains(&request.len()) && bytes < REQUEST_BYTES);
            }
            steps_in_flight.push(step);
            let mut in_flight: Vec<_> = steps_in_flight
                .iter()
                .flat_map(|step| match step {
                    NextCall::Send(request) => request.clone(),
                    NextCall::DeadLetter(index) => vec![*index],
                })
                .map(|index| items[index].aggregate)
                .collect();
            in_flight.sort_unstable();
            prop_assert!(
                in_flight.windows(2).all(|pair| pair[0] != pair[1]),
                "two of an aggregate in flight: {in_flight:?}"
            );
        }
        let (pick, outcomes) = ends.next().cloned().unwrap_or_default();
        if steps_in_flight.is_empty() {
            let Some(wake) = queues.next_attempt_at(now) else { break };
            now = wake;
            continue;
        }
        match steps_in_flight.swap_remove(pick % steps_in_flight.len()) {
            NextCall::DeadLetter(index) => {
                settled.push(index);
                queues.dead_letter_finished(index, true);
            }
            NextCall::Send(request) => {
                let outcome = |nth: usize| outcomes.get(nth % outcomes.len().max(1)).copied().unwrap_or_default();
                let dispositions = request.iter().enumerate().map(|(nth, &index)| match outcome(nth) {
                    0 | 1 => (index, Disposition::Sent),
                    2 => (index, Disposition::RetryAt(now + Duration::from_millis(5))),
                    3 => (index, Disposition::RetryAlone),
                    _ => (index, Disposition::Held),
                });
                let dispositions: Vec<_> = dispositions.collect();
                settled.extend(
                    dispositions
                        .iter()
                        .filter(|(_, disposition)| *disposition == Disposition::Sent)
                        .map(|(index, _)| index),
                );
                queues.request_finished(dispositions);
                queues.release_held();
            }
        }
    }
    prop_assert_eq!(queues.unsettled().count(), 0);
    let mut once = settled.clone();
    once.sort_unstable();
    prop_assert_eq!(once, (0..items.len()).collect::<Vec<_>>());
    for aggregate in 0..8 {
        let name = format!("{aggregate}");
        let of_aggregate = settled.iter().filter(|&&index| items[index].aggregate == Some(&name));
        let orders: Vec<_> = of_aggregate.map(|&index| (items[index].order, index)).collect();
        prop_assert!(orders.is_sorted(), "{orders:?}");
    }
    Ok(requests)
}
