//! Folding: stored events into a state, from the first one or from a snapshot.

use daybook_decider::{Json, RecordedEvent};
use serde_json::{Value, json};

use crate::counter::Counter;
use crate::support::{Subject, stored};

fn started() -> RecordedEvent {
    stored(1, "CounterStarted", 1, &json!({"at": 10}))
}

fn added(seq_num: u64, amount: i64) -> RecordedEvent {
    stored(seq_num, "CounterAdded", 4, &json!({ "amount": amount }))
}

/// The reason why `event` cannot follow [`started`].
fn read_error_after_start(event: &RecordedEvent) -> String {
    let counter = Subject::of::<Counter>();
    let error = counter.model().fold(counter.fold(&[started()]), std::slice::from_ref(event)).unwrap_err();
    assert_eq!(
        (error.seq_num, error.event_type.as_str(), error.event_version),
        (event.seq_num, event.event_type.as_str(), event.event_version)
    );
    error.to_string()
}

#[test]
fn events_fold_into_the_same_state_together_or_one_by_one() {
    let counter = Subject::of::<Counter>();
    let events = [started(), added(2, 5), added(3, -20)];
    let at_once = counter.fold(&events);
    let one_by_one = events
        .iter()
        .fold(counter.unborn(), |folded, event| counter.model().fold(folded, std::slice::from_ref(event)).unwrap());
    assert_eq!(counter.whole(&at_once), counter.whole(&one_by_one));
    assert_eq!((at_once.version(), at_once.message_seq()), (3, 3));
    assert_eq!(counter.state(&at_once)["total"], -5);
}

#[test]
fn aggregate_before_its_first_event_has_the_default_state_at_version_zero() {
    let counter = Subject::of::<Counter>();
    let unborn = counter.fold(&[]);
    assert_eq!((unborn.version(), unborn.message_seq(), unborn.history_bytes()), (0, 0, 0));
    assert_eq!(counter.state(&unborn), json!({"total": 0, "rejections": 0, "closed": false}));
}

#[test]
fn a_gap_a_repeated_event_or_an_earlier_one_is_unreadable() {
    for seq_num in [0, 1, 3, 4, u64::MAX] {
        let reason = read_error_after_start(&added(seq_num, 5));
        assert_eq!(
            reason,
            format!("event {seq_num} (CounterAdded version 4): the event before it is 1, so the stream has a gap")
        );
    }
    let counter = Subject::of::<Counter>();
    assert_eq!(counter.model().fold(counter.unborn(), &[added(2, 5)]).unwrap_err().seq_num, 2);
    let restored = counter.model().restore(9, 9, &json_of(&json!({"total": 1, "rejections": 0}))).unwrap();
    assert_eq!(counter.model().fold(restored, &[added(9, 5)]).unwrap_err().seq_num, 9);
}

#[test]
fn an_unknown_event_type_or_version_is_unreadable() {
    for (name, version) in [("CounterMultiplied", 1), ("counterAdded", 4), ("", 4), ("CounterAdded", 5)] {
        let reason = read_error_after_start(&stored(2, name, version, &json!({"amount": 5})));
        assert_eq!(
            reason,
            format!("event 2 ({name} version {version}): this code does not know that form; a newer release wrote it")
        );
    }
    for version in [0, 3] {
        let reason = read_error_after_start(&stored(2, "CounterAdded", version, &json!({"amount": 5})));
        assert_eq!(
            reason,
            format!(
                "event 2 (CounterAdded version {version}): this code has no upcast for CounterAdded version {version}"
            )
        );
    }
}

#[test]
fn event_whose_data_does_not_fit_its_type_is_unreadable() {
    for (data, expected) in [
        (json!({}), "missing field `amount`"),
        (json!({"amount": "5"}), "data.amount: invalid type"),
        (json!({"amount": 0.5}), "data.amount: invalid number"),
        (json!({"amount": null}), "data.amount: invalid type"),
        (json!([]), "data"),
        (json!("5"), "data"),
        (json!(null), "data"),
    ] {
        let reason = read_error_after_start(&stored(2, "CounterAdded", 4, &data));
        assert!(reason.starts_with("event 2 (CounterAdded version 4): "), "{reason}");
        assert!(reason.contains(expected), "{data}: {reason}");
        assert!(reason.ends_with(
            "; if the code has changed this form, raise its version, and convert the earlier one in upcast"
        ));
    }
}

#[test]
fn failed_fold_leaves_the_initial_state_unchanged() {
    let counter = Subject::of::<Counter>();
    let before = counter.fold(&[started()]);
    counter.model().fold(before.clone(), &[added(2, 5), added(4, 5)]).unwrap_err();
    assert_eq!(counter.state(&before)["total"], 10);
    assert_eq!(counter.state(&counter.model().fold(before, &[added(2, 5)]).unwrap())["total"], 15);
}

#[test]
fn snapshot_and_later_events_fold_into_the_state_of_all_events() {
    let counter = Subject::of::<Counter>();
    let events = [started(), added(2, 5), added(3, -20), stored(4, "CounterClosed", 1, &json!({}))];
    let all = counter.fold(&events);
    for taken_at in 0..=events.len() {
        let (head, tail) = events.split_at(taken_at);
        let snapshot = counter.fold(head);
        let state = counter.model().state(&snapshot).unwrap();
        let restored = counter.model().restore(snapshot.version(), snapshot.message_seq(), &state).unwrap();
        let restored = counter.model().fold(restored, tail).unwrap();
        assert_eq!(counter.whole(&restored), counter.whole(&all), "{taken_at}");
    }
}

#[test]
fn snapshot_of_another_type_is_not_restored() {
    let counter = Subject::of::<Counter>();
    for state in [json!({}), json!({"total": "1", "rejections": 0}), json!([1]), json!(null)] {
        assert!(counter.model().restore(1, 1, &json_of(&state)).is_err(), "{state}");
    }
}

#[test]
fn only_an_aggregate_that_exists_is_deleted() {
    let counter = Subject::of::<Counter>();
    let closed = counter.fold(&[started(), stored(2, "CounterClosed", 1, &json!({}))]);
    assert!(counter.model().is_deleted(&closed));
    let state = counter.model().state(&closed).unwrap();
    assert!(counter.model().is_deleted(&counter.model().restore(2, 1, &state).unwrap()));
    assert!(!counter.model().is_deleted(&counter.fold(&[started()])));
    assert!(!counter.model().is_deleted(&counter.unborn()));
}

fn json_of(value: &Value) -> Json {
    Json::of(value).unwrap()
}
