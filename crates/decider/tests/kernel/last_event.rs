//! The time and ids of a decision, which must not precede those of the last event.

use daybook_decider::{Decided, Folded};
use serde_json::json;
use ulid::Ulid;

use crate::counter::Counter;
use crate::support::{NOW, Subject, at, stored};

/// A counter whose last event has the number 1, this time and this random part of its id.
fn counter_after(milliseconds: u64, random: u128) -> (Subject, Folded) {
    let counter = Subject::of::<Counter>();
    let mut event = stored(1, "CounterStarted", 1, &json!({"at": 1}));
    event.event_id = Ulid::from_parts(milliseconds, random);
    event.occurred_at = at(milliseconds, 0).now;
    let folded = counter.fold(&[event]);
    (counter, folded)
}

fn decide_at(milliseconds: u64, (counter, before): &(Subject, Folded)) -> Decided {
    counter.decide_under(&at(milliseconds, 42), before, &[("Add", json!({"amounts": [1, 2]}))]).unwrap()
}

#[test]
fn decision_after_an_earlier_event_has_the_time_and_the_seed_of_its_input() {
    let decided = decide_at(NOW, &counter_after(NOW - 1, 7));
    assert_eq!(decided.events[0].event_id, Ulid::from_parts(NOW, 42));
    assert!(decided.events.iter().all(|event| event.occurred_at == at(NOW, 0).now));
    let last = decided.events.last().unwrap();
    assert_eq!(decided.after.last_event(), Some(last.into()));
}

#[test]
fn decision_at_or_before_the_time_of_the_last_event_continues_from_it() {
    for now in [NOW, NOW - 1, NOW - 3_600_000] {
        let after = counter_after(NOW, 1 << 79);
        let decided = decide_at(now, &after);
        let last = Ulid::from_parts(NOW, 1 << 79);
        let ids: Vec<_> = decided.events.iter().map(|event| event.event_id).collect();
        // Further away than the ids of the last event's messages.
        assert!(ids[0].random() - last.random() >= 1 << 40, "{ids:?}");
        assert!(ids.iter().all(|id| id.timestamp_ms() == NOW) && ids.is_sorted(), "{ids:?}");
        assert!(decided.events.iter().all(|event| event.occurred_at == at(NOW, 0).now));
        assert_eq!(decide_at(now, &after).events, decided.events, "the same input gives the same bytes");
    }
}

#[test]
fn decision_after_the_last_id_of_a_millisecond_takes_the_next_millisecond() {
    let decided = decide_at(NOW, &counter_after(NOW, (1 << 80) - 1));
    assert_eq!(decided.events[0].event_id, Ulid::from_parts(NOW + 1, 42));
    assert_eq!(decided.events[0].occurred_at, at(NOW + 1, 0).now);
}

#[test]
fn decision_on_a_snapshot_whose_last_event_is_not_known_has_the_time_of_its_input() {
    let (counter, folded) = counter_after(NOW + 1, 7);
    let model = counter.model();
    let restored = model.restore(1, folded.message_seq(), &model.state(&folded).unwrap()).unwrap();
    assert_eq!(restored.last_event(), None);
    let mut event = stored(1, "CounterStarted", 1, &json!({"at": 1}));
    event.event_id = Ulid::from_parts(NOW + 1, 7);
    let restored = restored.with_last_event(&event);
    assert_eq!(restored.last_event(), Some((&event).into()));
    // An event that is not the last one of the state changes nothing.
    event.seq_num = 2;
    event.event_id = Ulid::nil();
    assert_eq!(restored.clone().with_last_event(&event).last_event(), restored.last_event());
}
