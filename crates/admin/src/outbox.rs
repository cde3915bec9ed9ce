//! The messages of events, from their outbox rows that are not deleted yet: they can be sent again with the same ids and
//! the same bytes.

use std::collections::{BTreeSet, HashMap};

use daybook_event_store::internal::{Item, number, text};
use daybook_event_store::limits::MAX_TRANSACTION_ITEMS;
use daybook_event_store::{StoreError, UnreadableRow};
use daybook_table::trace::is_trace_header;
use daybook_table::{OutboxItem, attributes, keys};

use crate::handle::Admin;
use crate::index::IndexEntry;
use crate::rows::PrimaryKey;

const DOING: &str = "read outbox rows";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventMessages {
    /// The readable rows, in order of `messageSeq`.
    pub rows: Vec<OutboxItem>,
    pub unreadable: Vec<UnreadableRow>,
    /// The number of messages that the event published, if that can be read.
    pub published: Option<usize>,
}

impl EventMessages {
    /// The number of messages whose rows no longer exist.
    pub fn gone(&self) -> usize {
        self.published.unwrap_or_default().saturating_sub(self.rows.len() + self.unreadable.len())
    }
}

impl IndexEntry {
    fn count_after(&self, messages_before: u64) -> Option<usize> {
        let published = self.message_seq?.saturating_sub(messages_before);
        // A larger count than an append can hold is damage.
        Some(usize::try_from(published).unwrap_or(usize::MAX).min(MAX_TRANSACTION_ITEMS))
    }

    /// The number of its messages, if the counts show it.
    pub fn count(&self) -> Option<usize> {
        match (self.message_seq, self.seq_num) {
            (Some(0), _) => Some(0),
            (_, 1) => self.count_after(0),
            _ => self.count_after(self.messages_before?),
        }
    }

    fn row_key(&self, index: usize) -> PrimaryKey {
        (keys::pk(&self.aggregate), keys::outbox_sk(self.seq_num, index))
    }

    fn key_before(&self) -> PrimaryKey {
        (keys::pk(&self.aggregate), keys::event_sk(self.seq_num - 1))
    }
}

impl Admin<'_> {
    /// The messages of these events, which must be distinct, in their order. The rows are read by their keys: one call for a
    /// hundred rows. If the number of an event's messages is not known, up to two more calls find it out.
    pub async fn messages_of(&self, events: &[IndexEntry]) -> Result<Vec<EventMessages>, StoreError> {
        let mut counts: Vec<_> = events.iter().map(IndexEntry::count).collect();
        let known = events.iter().zip(&counts);
        let first = known.flat_map(|(event, count)| (0..count.unwrap_or(1)).map(|index| event.row_key(index)));
        let mut items = self.items(DOING, first.collect(), None).await?;

        // The number of a row shows how many messages are before its event. Without the row, the event before it does.
        let seq_of_first = |event: &IndexEntry, items: &HashMap<PrimaryKey, Item>| {
            number::<u64>(items.get(&event.row_key(0))?, attributes::MESSAGE_SEQ)
        };
        let unknown: Vec<_> = (0..events.len()).filter(|&at| counts[at].is_none()).collect();
        let without_row = unknown.iter().map(|&at| &events[at]);
        let without_row = without_row.filter(|event| event.seq_num > 1 && seq_of_first(event, &items).is_none());
        let projection = [attributes::PK, attributes::SK, attributes::MESSAGE_SEQ].join(", ");
        let before = self.items(DOING, without_row.map(IndexEntry::key_before).collect(), Some(projection)).await?;
        let mut more = BTreeSet::new();
        for at in unknown {
            let event = &events[at];
            let messages_before = match seq_of_first(event, &items) {
                Some(first) => first.checked_sub(1),
                None => before.get(&event.key_before()).and_then(|item| number(item, attributes::MESSAGE_SEQ)),
            };
            counts[at] = messages_before.and_then(|before| event.count_after(before));
            // Without a count, all rows are tried that an append can hold.
            more.extend((1..counts[at].unwrap_or(MAX_TRANSACTION_ITEMS)).map(|index| event.row_key(index)));
        }
        items.extend(self.items(DOING, more, None).await?);

        let messages = events.iter().zip(counts).map(|(event, published)| {
            let mut messages = EventMessages { published, ..EventMessages::default() };
            for index in 0..MAX_TRANSACTION_ITEMS {
                let Some(item) = items.remove(&event.row_key(index)) else { continue };
                let row = UnreadableRow::of(&item);
                match read(item) {
                    Ok(row) => messages.rows.push(row),
                    Err(error) => messages.unreadable.push(row.because(error)),
                }
            }
            messages.rows.sort_by_key(|row| row.message_seq);
            messages
        });
        Ok(messages.collect())
    }
}

fn read(mut item: Item) -> serde_dynamo::Result<OutboxItem> {
    // An invalid trace header never prevents a message from being sent.
    if !is_trace_header(text(&item, attributes::TRACE_HEADER)) {
        item.remove(attributes::TRACE_HEADER);
    }
    serde_dynamo::from_item(item)
}
