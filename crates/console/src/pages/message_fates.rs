//! What became of the messages of some events: on the bus, in a dead-letter queue, or still in the outbox.

use std::collections::BTreeMap;

use daybook_admin::{AdminCalls, EventMessages, PublishedEvent};
use daybook_decider::RecordedEvent;
use daybook_table::{AggregateKey, OutboxItem};
use jiff::Timestamp;

use crate::console::Console;
use crate::failure::Failure;
use crate::stack::{DeadLetterError, MessageMetadata, MessageQuery, MessageTarget};

/// What became of a message.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// The bus accepted it.
    OnBus {
        /// Its first position on the bus.
        position: usize,
        /// The time from the event to the bus, in milliseconds, if the stack recorded it.
        after_ms: Option<i64>,
        /// How often the bus accepted it.
        times: usize,
        /// What became of it in the queues of rules.
        targets: Vec<MessageTarget>,
    },
    /// It is in the dead-letter queue.
    DeadLettered {
        /// The queue's id of it.
        id: String,
        /// Why the bus rejected it.
        error: DeadLetterError,
    },
    /// It is in the outbox alone.
    Waiting,
    /// It is in the outbox of a stack on AWS, where nothing shows whether the bus has accepted it.
    InOutbox,
}

/// The messages of an event, and what became of them.
#[derive(Default)]
pub(crate) struct EventFates {
    pub(crate) messages: Vec<(OutboxItem, Fate)>,
    /// The number of messages whose outbox rows have been deleted by their TTL.
    pub(crate) gone: usize,
    /// Why rows cannot be read.
    pub(crate) unreadable: Vec<String>,
}

impl EventFates {
    /// Whether a message has not reached the bus.
    pub(crate) fn are_waiting(&self) -> bool {
        self.messages.iter().any(|(_, fate)| matches!(fate, Fate::Waiting))
    }
}

/// The events, as the outbox is asked for their messages. `before` is the event before the first one, if it was read.
pub(crate) fn published(
    key: &AggregateKey,
    before: Option<&RecordedEvent>,
    events: &[RecordedEvent],
) -> Vec<PublishedEvent> {
    let previous = std::iter::once(before).chain(events.iter().map(Some));
    let published = events.iter().zip(previous).map(|(event, previous)| PublishedEvent {
        aggregate: key.clone(),
        seq_num: event.seq_num,
        message_seq: Some(event.message_seq),
        messages_before: previous
            .filter(|previous| previous.seq_num + 1 == event.seq_num)
            .map(|previous| previous.message_seq),
    });
    published.collect()
}

/// The messages of the events, by the number of the event. `before` is the event before the first one, if it was read.
pub(crate) async fn of_events(
    console: &Console,
    key: &AggregateKey,
    before: Option<&RecordedEvent>,
    events: &[RecordedEvent],
) -> Result<BTreeMap<u64, EventFates>, Failure> {
    let published = published(key, before, events);
    if published.is_empty() {
        return Ok(BTreeMap::new());
    }
    let messages = console.store.admin().messages_of(&published).await?;
    let ids: Vec<_> = messages.iter().flat_map(|messages| &messages.rows).map(|row| row.message_id.clone()).collect();
    let is_local = console.is_local();
    let fates = if ids.is_empty() || !is_local { BTreeMap::new() } else { fates(console, key, ids).await? };
    let other = if is_local { Fate::Waiting } else { Fate::InOutbox };
    let of_event = |messages: EventMessages| EventFates {
        gone: messages.gone(),
        unreadable: messages.unreadable.iter().map(|row| format!("{row}: {}", row.reason)).collect(),
        messages: messages
            .rows
            .into_iter()
            .map(|row| {
                let fate = fates.get(&row.message_id).unwrap_or(&other).clone();
                (row, fate)
            })
            .collect(),
    };
    Ok(events.iter().map(|event| event.seq_num).zip(messages.into_iter().map(of_event)).collect())
}

async fn fates(console: &Console, key: &AggregateKey, ids: Vec<String>) -> Result<BTreeMap<String, Fate>, Failure> {
    let query = MessageQuery {
        aggregate: Some(key.to_string()),
        ids: Some(ids),
        with_dead_letters: true,
        ..MessageQuery::default()
    };
    let on_bus = console.stack.messages(query).await?;
    let mut fates = BTreeMap::new();
    for dead_letter in on_bus.dead_letters {
        let content = dead_letter.content();
        if let Some(message) = content.message {
            let error = content.error.unwrap_or_default();
            fates.insert(message.message_id, Fate::DeadLettered { id: dead_letter.id, error });
        }
    }
    for message in on_bus.messages {
        let metadata = MessageMetadata::of_detail(&message.detail);
        let occurred_at = metadata.occurred_at.parse::<Timestamp>().ok();
        let after_ms =
            message.accepted_at.zip(occurred_at).map(|(accepted, occurred)| accepted - occurred.as_millisecond());
        let first = Fate::OnBus { position: message.position, after_ms, times: 0, targets: Vec::new() };
        // A message that the bus accepted in the end is no dead letter, also if a copy of it still is.
        let fate = fates.entry(metadata.message_id).or_insert_with(|| first.clone());
        if !matches!(fate, Fate::OnBus { .. }) {
            *fate = first;
        }
        if let Fate::OnBus { times, targets, .. } = fate {
            *times += 1;
            targets.extend(message.targets);
        }
    }
    Ok(fates)
}
