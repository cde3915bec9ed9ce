//! Batches of commands: decided one after the other, all or nothing, also when one of them is rejected.

use daybook_decider::record::{MAX_BYTES, MAX_RECORDS};
use daybook_decider::{CommandError, Decided};
use serde_json::{Value, json};

use crate::counter::Counter;
use crate::support::{Subject, names};

fn start(at: i64) -> (&'static str, Value) {
    ("Start", json!({ "at": at }))
}

fn add(amounts: &[i64]) -> (&'static str, Value) {
    ("Add", json!({ "amounts": amounts }))
}

fn reject(reasons: &[&str]) -> (&'static str, Value) {
    ("Reject", json!({ "reasons": reasons }))
}

fn rejection(decided: &Decided) -> (&str, &str) {
    let rejection = decided.rejection.as_ref().unwrap();
    (rejection.name, &rejection.detail)
}

#[test]
fn command_of_a_batch_is_decided_on_the_state_after_earlier_commands() {
    let counter = Subject::of::<Counter>();
    let batch = [start(1), ("Double", json!({})), add(&[3]), ("Double", json!({}))];
    let decided = counter.decide(&counter.unborn(), &batch).unwrap();
    assert_eq!(counter.state(&decided.after)["total"], 10);
    assert_eq!(decided.rejection, None);
}

#[test]
fn a_batch_is_numbered_like_the_same_commands_one_by_one() {
    let counter = Subject::of::<Counter>();
    let commands = [start(1), add(&[1, 2, 0]), add(&[]), add(&[5])];
    let at_once = counter.decide(&counter.unborn(), &commands).unwrap();
    let mut one_by_one = (counter.unborn(), Vec::new(), Vec::new());
    for command in commands {
        let decided = counter.decide(&one_by_one.0, &[command]).unwrap();
        one_by_one.0 = decided.after;
        one_by_one.1.extend(decided.events.into_iter().map(|event| (event.seq_num, event.message_seq, event.data)));
        one_by_one
            .2
            .extend(decided.messages.into_iter().map(|message| (message.seq_num, message.message_seq, message.index)));
    }
    assert_eq!(counter.whole(&at_once.after), counter.whole(&one_by_one.0));
    let events: Vec<_> =
        at_once.events.iter().map(|event| (event.seq_num, event.message_seq, event.data.clone())).collect();
    assert_eq!(events, one_by_one.1);
    let messages: Vec<_> =
        at_once.messages.iter().map(|message| (message.seq_num, message.message_seq, message.index)).collect();
    assert_eq!(messages, one_by_one.2);
}

#[test]
fn batch_without_commands_or_without_events_succeeds() {
    let counter = Subject::of::<Counter>();
    let before = counter.after(&[start(1)]);
    for batch in [vec![], vec![add(&[])], vec![add(&[]), add(&[])]] {
        let decided = counter.decide(&before, &batch).unwrap();
        assert_eq!((decided.events.len(), decided.messages.len(), decided.rejection.as_ref()), (0, 0, None));
        assert_eq!(counter.whole(&decided.after), counter.whole(&before));
    }
}

#[test]
fn one_command_that_cannot_be_decided_fails_the_batch() {
    let counter = Subject::of::<Counter>();
    let before = counter.after(&[start(1)]);
    let fails = |last: (&'static str, Value)| counter.decide(&before, &[add(&[1]), last]).unwrap_err();
    assert!(matches!(fails(("Divide", json!({}))), CommandError::Unknown { .. }));
    assert!(matches!(fails(an_invalid_add()), CommandError::Invalid { .. }));
    assert_eq!(fails(start(1)), CommandError::Exists { index: 1 });
    assert_eq!(counter.state(&before)["total"], 1);
}

fn an_invalid_add() -> (&'static str, Value) {
    ("Add", json!({}))
}

#[test]
fn invalid_command_is_found_before_the_rules_reject_an_earlier_one() {
    let counter = Subject::of::<Counter>();
    let error = counter.decide(&counter.after(&[start(1)]), &[reject(&["a"]), an_invalid_add()]).unwrap_err();
    assert!(matches!(error, CommandError::Invalid { .. }), "{error:?}");
}

#[test]
fn rejection_that_records_no_event_changes_nothing() {
    let counter = Subject::of::<Counter>();
    let before = counter.after(&[start(1)]);
    let decided = counter.decide(&before, &[reject(&[])]).unwrap();
    assert_eq!(rejection(&decided), ("Rejected", "at 1"));
    assert_eq!((decided.events.len(), decided.messages.len()), (0, 0));
    assert_eq!(counter.whole(&decided.after), counter.whole(&before));
}

#[test]
fn rejection_drops_the_other_events_of_the_batch_and_is_recorded_on_the_state_before_it() {
    let counter = Subject::of::<Counter>();
    let before = counter.after(&[start(1), add(&[2])]);
    assert_eq!((before.version(), before.message_seq()), (2, 3));
    let batch = [add(&[100, 1]), reject(&["first", "second"]), add(&[1_000])];
    let decided = counter.decide(&before, &batch).unwrap();

    // The rejection was decided on the state after the earlier commands of the batch.
    assert_eq!(rejection(&decided), ("Rejected", "at 104"));
    assert_eq!(names(&decided), ["CounterRejected", "CounterRejected"]);
    let numbers: Vec<_> = decided.events.iter().map(|event| (event.seq_num, event.message_seq)).collect();
    assert_eq!(numbers, [(3, 4), (4, 5)]);
    let published: Vec<_> = decided.messages.iter().map(|message| (message.message_seq, message.data.text())).collect();
    assert_eq!(published, [(4, r#"{"reason":"first","total":3}"#), (5, r#"{"reason":"second","total":3}"#)]);
    assert_eq!((decided.after.version(), decided.after.message_seq()), (4, 5));
    assert_eq!(counter.state(&decided.after), json!({"total": 3, "rejections": 2, "closed": false}));
}

#[test]
fn rejection_by_an_aggregate_that_does_not_exist_is_not_recorded() {
    let counter = Subject::of::<Counter>();
    for (batch, name) in [
        (vec![start(-1)], "BelowZero"),
        (vec![start(1), reject(&["a"])], "Rejected"),
        (vec![start(1), add(&[2]), reject(&["a"]), ("Close", json!({}))], "Rejected"),
    ] {
        let decided = counter.decide(&counter.unborn(), &batch).unwrap();
        assert_eq!(rejection(&decided).0, name);
        assert_eq!((decided.events.len(), decided.messages.len()), (0, 0));
        assert_eq!(counter.whole(&decided.after), counter.whole(&counter.unborn()));
    }
}

#[test]
fn an_aggregate_can_be_created_used_and_deleted_in_one_batch() {
    let counter = Subject::of::<Counter>();
    let decided = counter.decide(&counter.unborn(), &[start(1), add(&[2, 3]), ("Close", json!({}))]).unwrap();
    assert_eq!(names(&decided), ["CounterStarted", "CounterAdded", "CounterAdded", "CounterClosed"]);
    assert!(counter.model().is_deleted(&decided.after));
}

#[test]
fn batch_is_decided_up_to_the_limits_of_a_transaction() {
    let counter = Subject::of::<Counter>();
    let before = counter.after(&[start(1)]);
    // An amount of 0 has no message, and one of 1 has one.
    let batch = |silent: usize| [add(&vec![0; silent]), add(&[1])];
    assert_eq!(counter.decide(&before, &batch(MAX_RECORDS - 2)).unwrap().events.len(), MAX_RECORDS - 1);
    assert_eq!(counter.decide(&before, &batch(MAX_RECORDS - 1)).unwrap_err(), CommandError::TooMany);
    // A reason is in the event and in its message.
    let decide = |bytes: usize| counter.decide(&before, &[reject(&[&"x".repeat(bytes)])]);
    assert_eq!(decide(MAX_BYTES / 2 - 1_000).unwrap().events.len(), 1);
    assert_eq!(decide(MAX_BYTES / 2).unwrap_err(), CommandError::TooLarge);
}
