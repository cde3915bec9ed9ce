//! Outbox rows that are not deleted yet: their messages can be sent again with the same ids and the same bytes.

use daybook_table::trace::is_trace_header;
use daybook_table::{AggregateKey, OutboxItem, attributes, keys};

use super::handle::Admin;
use crate::error::StoreError;
use crate::item::{Item, number, row_key, text};
use crate::unreadable_row::UnreadableRow;

/// One page of the outbox rows of an aggregate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutboxPage {
    /// The readable rows, in order of their sort keys.
    pub rows: Vec<OutboxItem>,
    /// The unreadable rows.
    pub unreadable: Vec<UnreadableRow>,
    /// The sort key after which the next page starts; `None` when this was the last page.
    pub next: Option<String>,
}

impl Admin<'_> {
    /// The outbox rows of the events `first` to `last` of an aggregate, after the sort key `after`: a maximum of 1 MB.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn outbox(
        &self,
        key: &AggregateKey,
        first: u64,
        last: u64,
        after: Option<String>,
    ) -> Result<OutboxPage, StoreError> {
        let page = self
            .store
            .rows_between(key, keys::outbox_sk(first, 0), keys::outbox_end(last))
            .set_exclusive_start_key(after.map(|sk| row_key(key.pk(), sk)))
            .send()
            .await
            .map_err(|error| StoreError::of_call("read outbox rows", error))?;
        let next = page.last_evaluated_key.map(|last| text(&last, attributes::SK).to_owned());
        let mut found = OutboxPage { next, ..OutboxPage::default() };
        for item in page.items.unwrap_or_default() {
            let row = UnreadableRow::of(&item);
            match read(item) {
                Ok(row) => found.rows.push(row),
                Err(error) => found.unreadable.push(row.because(error)),
            }
        }
        Ok(found)
    }

    /// The number of an aggregate's messages up to and including event `seq_num`; `None` when that event does not
    /// exist or its count cannot be read.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn messages_up_to(&self, key: &AggregateKey, seq_num: u64) -> Result<Option<u64>, StoreError> {
        if seq_num == 0 {
            return Ok(Some(0));
        }
        let output = self
            .store
            .row(key, keys::event_sk(seq_num))
            .projection_expression(attributes::MESSAGE_SEQ)
            .send()
            .await
            .map_err(|error| StoreError::of_call("read an event's count of messages", error))?;
        Ok(output.item.and_then(|item| number(&item, attributes::MESSAGE_SEQ)))
    }
}

fn read(mut item: Item) -> serde_dynamo::Result<OutboxItem> {
    // An invalid trace header never prevents a message from being sent.
    if !is_trace_header(text(&item, attributes::TRACE_HEADER)) {
        item.remove(attributes::TRACE_HEADER);
    }
    serde_dynamo::from_item(item)
}
