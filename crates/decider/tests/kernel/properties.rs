//! Properties of every sequence of commands.

use daybook_decider::{Decided, Folded, Json, OutboxMessage, RecordedEvent};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::counter::Counter;
use crate::support::{NOW, Subject, at};

type Batch = Vec<(&'static str, Value)>;

fn command() -> impl Strategy<Value = (&'static str, Value)> {
    prop_oneof![
        2 => any::<i8>().prop_map(|at| ("Start", json!({ "at": at }))),
        8 => vec(any::<i64>(), 0..4).prop_map(|amounts| ("Add", json!({ "amounts": amounts }))),
        2 => Just(("Double", json!({}))),
        2 => vec(any::<String>(), 0..3).prop_map(|reasons| ("Reject", json!({ "reasons": reasons }))),
        1 => Just(("Close", json!({}))),
    ]
}

/// Batches of commands. In at least half of the cases, the first one creates the counter.
fn batches() -> impl Strategy<Value = Vec<Batch>> {
    (any::<bool>(), vec(vec(command(), 0..4), 0..12)).prop_map(|(exists, mut batches)| {
        if exists {
            batches.insert(0, vec![("Start", json!({"at": 1}))]);
        }
        batches
    })
}

/// All events and messages that were appended, and the aggregate after them.
struct Written {
    events: Vec<RecordedEvent>,
    messages: Vec<OutboxMessage>,
    after: Folded,
}

fn write(counter: &Subject, batches: &[Batch]) -> Written {
    let mut written = Written { events: Vec::new(), messages: Vec::new(), after: counter.unborn() };
    for (batch, milliseconds) in batches.iter().zip(NOW..) {
        // A batch that cannot be decided appends nothing.
        if let Ok(Decided { events, messages, after, .. }) =
            counter.decide_under(&at(milliseconds, 42), &written.after, batch)
        {
            written.events.extend(events.into_iter().map(read_back));
            written.messages.extend(messages);
            written.after = after;
        }
    }
    written
}

/// The event as it is read from the table, which stores its data as text.
fn read_back(event: RecordedEvent) -> RecordedEvent {
    RecordedEvent { data: Json::parse(event.data.text().to_owned()).unwrap(), ..event }
}

proptest! {
    #[test]
    fn stored_events_fold_into_the_decided_state(batches in batches()) {
        let counter = Subject::of::<Counter>();
        let written = write(&counter, &batches);
        prop_assert_eq!(counter.whole(&counter.fold(&written.events)), counter.whole(&written.after));
    }

    #[test]
    fn numbers_have_no_gap_and_no_duplicate(batches in batches()) {
        let counter = Subject::of::<Counter>();
        let Written { events, messages, after } = write(&counter, &batches);
        let numbers: Vec<_> = events.iter().map(|event| event.seq_num).collect();
        prop_assert_eq!(numbers, (1..=after.version()).collect::<Vec<_>>());
        let numbers: Vec<_> = messages.iter().map(|message| message.message_seq).collect();
        prop_assert_eq!(numbers, (1..=after.message_seq()).collect::<Vec<_>>());
        for event in &events {
            let announced = messages.iter().filter(|message| message.seq_num <= event.seq_num);
            prop_assert_eq!(announced.count() as u64, event.message_seq);
            let indices = messages.iter().filter(|message| message.seq_num == event.seq_num).map(|message| message.index);
            prop_assert!(indices.eq(0..messages.iter().filter(|message| message.seq_num == event.seq_num).count()));
        }
    }

    #[test]
    fn ids_increase_with_the_numbers(batches in batches()) {
        let written = write(&Subject::of::<Counter>(), &batches);
        prop_assert!(written.events.is_sorted_by(|earlier, later| earlier.event_id < later.event_id));
        prop_assert!(written.messages.is_sorted_by(|earlier, later| earlier.message_id < later.message_id));
        for message in &written.messages {
            prop_assert!(written.events.iter().all(|event| event.event_id != message.message_id));
        }
    }

    #[test]
    fn snapshot_at_any_version_and_later_events_fold_into_the_state_of_all_events(batches in batches()) {
        let counter = Subject::of::<Counter>();
        let Written { events, after, .. } = write(&counter, &batches);
        for taken_at in 0..=events.len() {
            let (head, tail) = events.split_at(taken_at);
            let snapshot = counter.fold(head);
            let state = counter.model().state(&snapshot).unwrap();
            let restored = counter.model().restore(snapshot.version(), snapshot.message_seq(), &state).unwrap();
            prop_assert_eq!(counter.whole(&counter.model().fold(restored, tail).unwrap()), counter.whole(&after));
        }
    }
}
