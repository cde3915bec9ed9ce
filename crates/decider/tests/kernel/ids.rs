//! Numbers and ids of events and messages.

use std::collections::BTreeSet;

use daybook_decider::{Decided, Json};
use serde_json::json;
use ulid::Ulid;

use crate::counter::Counter;
use crate::support::{ID, NOW, Subject, at, decision_input};

/// The ids of events and messages, in the order in which they were decided.
fn ids(decided: &Decided) -> Vec<Ulid> {
    let messages = |seq_num| decided.messages.iter().filter(move |message| message.seq_num == seq_num);
    let of = |event: &daybook_decider::RecordedEvent| {
        std::iter::once(event.event_id).chain(messages(event.seq_num).map(|message| message.message_id))
    };
    decided.events.iter().flat_map(of).collect()
}

#[test]
fn event_numbers_continue_over_decisions_without_a_gap() {
    let counter = Subject::of::<Counter>();
    let first = counter.decide(&counter.unborn(), &[("Start", json!({"at": 1}))]).unwrap();
    let second = counter.decide(&first.after, &[("Add", json!({"amounts": [0, 1, 2]}))]).unwrap();
    let third = counter.decide(&second.after, &[("Close", json!({}))]).unwrap();
    let numbers: Vec<_> =
        [&first, &second, &third].iter().flat_map(|decided| &decided.events).map(|event| event.seq_num).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert_eq!(third.after.version(), 5);
}

#[test]
fn message_numbers_continue_over_decisions_and_indexes_restart_for_each_event() {
    let counter = Subject::of::<Counter>();
    let first = counter.decide(&counter.unborn(), &[("Start", json!({"at": 1}))]).unwrap();
    let second = counter.decide(&first.after, &[("Add", json!({"amounts": [0, 2, 1]}))]).unwrap();
    let third = counter.decide(&second.after, &[("Add", json!({"amounts": [2]}))]).unwrap();
    let numbers: Vec<_> = [&first, &second, &third]
        .iter()
        .flat_map(|decided| &decided.messages)
        .map(|message| (message.message_seq, message.seq_num, message.index))
        .collect();
    assert_eq!(numbers, [(1, 1, 0), (2, 3, 0), (3, 3, 1), (4, 4, 0), (5, 5, 0), (6, 5, 1)]);
    assert_eq!(third.after.message_seq(), 6);
}

#[test]
fn event_contains_the_count_of_messages_up_to_it() {
    let counter = Subject::of::<Counter>();
    let batch = [("Start", json!({"at": 1})), ("Add", json!({"amounts": [0, 2, 0, 1]}))];
    let decided = counter.decide(&counter.unborn(), &batch).unwrap();
    let counts: Vec<_> = decided.events.iter().map(|event| event.message_seq).collect();
    assert_eq!(counts, [1, 1, 3, 3, 4]);
}

#[test]
fn numbers_continue_from_a_snapshot() {
    let counter = Subject::of::<Counter>();
    let state = Json::parse(r#"{"total":5,"rejections":0}"#.to_owned()).unwrap();
    let restored = counter.model().restore(100, 250, &state).unwrap();
    let decided = counter.decide(&restored, &[("Add", json!({"amounts": [1]}))]).unwrap();
    assert_eq!((decided.events[0].seq_num, decided.messages[0].message_seq), (101, 251));
}

#[test]
fn ids_are_unique_and_increase_within_a_decision() {
    let counter = Subject::of::<Counter>();
    let batch = [("Start", json!({"at": 1})), ("Add", json!({"amounts": vec![2; 30]}))];
    let ids = ids(&counter.decide(&counter.unborn(), &batch).unwrap());
    assert_eq!(ids.len(), 2 + 30 * 3);
    assert!(ids.is_sorted_by(|earlier, later| earlier < later));
    assert!(ids.iter().all(|id| id.timestamp_ms() == NOW));
}

#[test]
fn ids_of_a_recorded_rejection_are_unique() {
    let counter = Subject::of::<Counter>();
    let before = counter.after(&[("Start", json!({"at": 1}))]);
    let batch = [("Add", json!({"amounts": [2, 2]})), ("Reject", json!({"reasons": ["a", "b"]}))];
    let ids = ids(&counter.decide(&before, &batch).unwrap());
    assert_eq!(ids.len(), 4);
    assert!(ids.is_sorted_by(|earlier, later| earlier < later));
}

#[test]
fn ids_sort_by_time_whatever_their_random_part() {
    let counter = Subject::of::<Counter>();
    let most = (1 << 80) - 1_000;
    let earlier = counter.decide_under(&at(NOW, most), &counter.unborn(), &[("Start", json!({"at": 1}))]).unwrap();
    let later = counter.decide_under(&at(NOW + 1, 0), &earlier.after, &[("Add", json!({"amounts": [2]}))]).unwrap();
    assert!(ids(&earlier).last() < ids(&later).first());
    // Their texts, which the table sorts by, have the same order.
    assert!(ids(&earlier)[1].to_string() < ids(&later)[0].to_string());
}

#[test]
fn ids_stay_unique_when_the_random_part_overflows() {
    let counter = Subject::of::<Counter>();
    let batch = [("Start", json!({"at": 1})), ("Add", json!({"amounts": [2, 2]}))];
    let decided = counter.decide_under(&at(NOW, (1 << 80) - 2), &counter.unborn(), &batch).unwrap();
    let ids = ids(&decided);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    assert!(ids.iter().all(|id| id.timestamp_ms() == NOW));
}

#[test]
fn the_same_input_has_the_same_outcome_to_the_byte() {
    let counter = Subject::of::<Counter>();
    let before = counter.after(&[("Start", json!({"at": 1}))]);
    for batch in [
        vec![("Add", json!({"amounts": [2, 1]})), ("Close", json!({}))],
        vec![("Add", json!({"amounts": [2, 1]})), ("Reject", json!({"reasons": ["a"]}))],
    ] {
        let [first, second] = [0, 1].map(|_| counter.decide_under(&decision_input(), &before, &batch).unwrap());
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
        assert_eq!(
            (&first.events, &first.messages, &first.rejection),
            (&second.events, &second.messages, &second.rejection)
        );
        assert_eq!(counter.whole(&first.after), counter.whole(&second.after));
    }
}

#[test]
fn decision_does_not_change_the_state_before_it() {
    let counter = Subject::of::<Counter>();
    let before = counter.after(&[("Start", json!({"at": 1}))]);
    let then = counter.whole(&before);
    counter.decide(&before, &[("Add", json!({"amounts": [2, 1]}))]).unwrap();
    assert_eq!(counter.whole(&before), then);
}

#[test]
fn messages_of_stored_events_are_those_of_their_decision() {
    let counter = Subject::of::<Counter>();
    let batch = [("Start", json!({"at": 1})), ("Add", json!({"amounts": [0, 2, 0, 1]})), ("Close", json!({}))];
    let decided = counter.decide(&counter.unborn(), &batch).unwrap();
    let mut before = counter.unborn();
    let mut announced = Vec::new();
    for event in &decided.events {
        announced.extend(counter.model().announced(&before, ID, event, 1).unwrap());
        before = counter.model().fold(before, std::slice::from_ref(event)).unwrap();
    }
    assert!(decided.messages.len() > 3, "{}", decided.messages.len());
    assert_eq!(announced, decided.messages);
}
