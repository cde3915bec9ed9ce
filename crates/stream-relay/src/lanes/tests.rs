use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn place(lane: &str, order: u64, bytes: usize) -> Place<'_> {
    Place { lane: Some(lane), order, bytes: Some(bytes) }
}

fn steps(lanes: &mut Lanes, now: Instant) -> Vec<Step> {
    std::iter::from_fn(|| lanes.next(now)).collect()
}

fn answer(lanes: &mut Lanes, request: &[usize], verdict: Verdict) {
    lanes.answer(request.iter().map(|&index| (index, verdict)));
}

#[test]
fn a_lane_goes_on_when_its_head_is_settled() {
    let now = Instant::now();
    let mut lanes = Lanes::new([place("b", 2, 1), place("a", 7, 1), place("b", 1, 1)]);
    assert_eq!(steps(&mut lanes, now), [Step::Send(vec![2, 1])]);
    lanes.answer([(2, Verdict::Sent), (1, Verdict::Refused)]);
    assert_eq!(steps(&mut lanes, now), [Step::Park(1), Step::Send(vec![0])]);
    answer(&mut lanes, &[0], Verdict::Sent);
    assert_eq!(lanes.unsettled().collect::<Vec<_>>(), [1]);
    lanes.parked(1, true);
    assert_eq!(lanes.unsettled().count(), 0);
}

#[test]
fn a_request_waits_for_what_could_fill_it_and_for_nothing_else() {
    let now = Instant::now();
    let names: Vec<_> = (0..15).map(|name| format!("{name}")).collect();
    let heads: Vec<_> = names.iter().map(|name| place(name, 1, 1)).collect();

    let mut distinct = Lanes::new(heads.clone());
    assert_eq!(steps(&mut distinct, now), [Step::Send((0..10).collect()), Step::Send((10..15).collect())]);

    let mut longer = Lanes::new(heads.into_iter().chain([place("0", 2, 1)]));
    assert_eq!(steps(&mut longer, now), [Step::Send((0..10).collect())]);
    answer(&mut longer, &(0..10).collect::<Vec<_>>(), Verdict::Sent);
    assert_eq!(steps(&mut longer, now), [Step::Send(vec![10, 11, 12, 13, 14, 15])]);
}

#[test]
fn a_request_is_smaller_than_the_limit() {
    let now = Instant::now();
    let names = ["a", "b", "c", "d"];
    let mut lanes = Lanes::new(names.map(|name| place(name, 1, REQUEST_BYTES / 2)));
    assert_eq!(steps(&mut lanes, now), [0, 1, 2, 3].map(|index| Step::Send(vec![index])));
    let mut lanes = Lanes::new(names.map(|name| place(name, 1, REQUEST_BYTES / 2 - 1)));
    assert_eq!(steps(&mut lanes, now), [Step::Send(vec![0, 1]), Step::Send(vec![2, 3])]);
}

#[test]
fn what_is_tried_again_waits_for_its_time() {
    let now = Instant::now();
    let later = now + Duration::from_secs(1);
    let mut lanes = Lanes::new([place("a", 1, 1), place("b", 1, 1)]);
    assert_eq!(steps(&mut lanes, now), [Step::Send(vec![0, 1])]);
    lanes.answer([(0, Verdict::Again(later)), (1, Verdict::Sent)]);
    assert_eq!((steps(&mut lanes, now), lanes.wake()), (vec![], Some(later)));
    assert_eq!((steps(&mut lanes, later), lanes.wake()), (vec![Step::Send(vec![0])], None));
    assert_eq!(lanes.attempts(0), 2);
}

#[test]
fn suspects_go_alone() {
    let now = Instant::now();
    let mut lanes = Lanes::new([place("a", 1, 1), place("b", 1, 1)]);
    assert_eq!(steps(&mut lanes, now), [Step::Send(vec![0, 1])]);
    answer(&mut lanes, &[0, 1], Verdict::Alone);
    assert_eq!(steps(&mut lanes, now), [Step::Send(vec![0]), Step::Send(vec![1])]);
}

#[test]
fn a_lane_stands_still_behind_what_could_not_be_parked() {
    let now = Instant::now();
    let poison = Place { lane: Some("a"), order: 0, bytes: None };
    let mut lanes = Lanes::new([place("a", 1, 1), poison, place("b", 1, 1)]);
    assert_eq!(steps(&mut lanes, now), [Step::Park(1), Step::Send(vec![2])]);
    lanes.parked(1, false);
    answer(&mut lanes, &[2], Verdict::Sent);
    assert_eq!(steps(&mut lanes, now), []);
    assert_eq!(lanes.unsettled().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn so_many_calls_are_side_by_side_and_no_more() {
    let names: Vec<_> = (0..200).map(|name| format!("{name}")).collect();
    let mut sends = Lanes::new(names.iter().map(|name| place(name, 1, 1)));
    assert_eq!(steps(&mut sends, Instant::now()).len(), MAX_REQUESTS);
    let mut parkings = Lanes::new(names.iter().map(|name| Place { lane: Some(name), order: 1, bytes: None }));
    assert_eq!(steps(&mut parkings, Instant::now()).len(), MAX_PARKINGS);
}

/// What becomes of a step: which of those in flight comes back, and how.
type Fate = (usize, Vec<u8>);

proptest! {
    #[test]
    fn every_message_is_settled_once_in_order_and_alone_in_its_lane(
        messages in prop::collection::vec((0..8_usize, 1..6_u64, prop::option::weighted(0.9, 1..600_000_usize)), 0..80),
        fates in prop::collection::vec((any::<usize>(), prop::collection::vec(0..5_u8, 1..10)), 0..60),
    ) {
        let names: Vec<_> = (0..8).map(|lane| format!("lane {lane}")).collect();
        let places: Vec<_> = messages
            .iter()
            .map(|&(lane, order, bytes)| Place { lane: Some(&names[lane]), order, bytes })
            .collect();
        run(&places, &fates)?;
    }

    #[test]
    fn distinct_aggregates_take_a_tenth_as_many_requests(count in 0..400_usize) {
        let names: Vec<_> = (0..count).map(|lane| lane.to_string()).collect();
        let places: Vec<_> = names.iter().map(|name| place(name, 1, 1_000)).collect();
        prop_assert_eq!(run(&places, &[])?, count.div_ceil(MAX_ENTRIES));
    }
}

/// Drives the lanes to the end and checks every step. Answers the number of requests.
fn run(places: &[Place<'_>], fates: &[Fate]) -> Result<usize, TestCaseError> {
    let mut now = Instant::now();
    let mut lanes = Lanes::new(places.iter().copied());
    let mut fates = fates.iter();
    let mut flying: Vec<Step> = Vec::new();
    let mut settled: Vec<usize> = Vec::new();
    let mut requests = 0;
    loop {
        while let Some(step) = lanes.next(now) {
            if let Step::Send(request) = &step {
                requests += 1;
                let bytes: usize = request.iter().map(|&index| places[index].bytes.unwrap()).sum();
                prop_assert!((1..=MAX_ENTRIES).contains(&request.len()) && bytes < REQUEST_BYTES);
            }
            flying.push(step);
            let mut in_flight: Vec<_> = flying
                .iter()
                .flat_map(|step| match step {
                    Step::Send(request) => request.clone(),
                    Step::Park(index) => vec![*index],
                })
                .map(|index| places[index].lane)
                .collect();
            in_flight.sort_unstable();
            prop_assert!(in_flight.windows(2).all(|pair| pair[0] != pair[1]), "two of a lane in flight: {in_flight:?}");
        }
        let (pick, outcomes) = fates.next().cloned().unwrap_or_default();
        if flying.is_empty() {
            let Some(wake) = lanes.wake() else { break };
            now = wake;
            continue;
        }
        match flying.swap_remove(pick % flying.len()) {
            Step::Park(index) => {
                settled.push(index);
                lanes.parked(index, true);
            }
            Step::Send(request) => {
                let outcome = |nth: usize| outcomes.get(nth % outcomes.len().max(1)).copied().unwrap_or_default();
                let verdicts = request.iter().enumerate().map(|(nth, &index)| match outcome(nth) {
                    0 | 1 => (index, Verdict::Sent),
                    2 => (index, Verdict::Again(now + Duration::from_millis(5))),
                    3 => (index, Verdict::Alone),
                    _ => (index, Verdict::Refused),
                });
                let verdicts: Vec<_> = verdicts.collect();
                settled
                    .extend(verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Sent).map(|(index, _)| index));
                lanes.answer(verdicts);
            }
        }
    }
    prop_assert_eq!(lanes.unsettled().count(), 0);
    let mut once = settled.clone();
    once.sort_unstable();
    prop_assert_eq!(once, (0..places.len()).collect::<Vec<_>>());
    for lane in 0..8 {
        let name = format!("lane {lane}");
        let of_lane = settled.iter().filter(|&&index| places[index].lane == Some(&name));
        let orders: Vec<_> = of_lane.map(|&index| (places[index].order, index)).collect();
        prop_assert!(orders.is_sorted(), "{orders:?}");
    }
    Ok(requests)
}
