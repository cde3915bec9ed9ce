//! Outbox rows, as long as they are there: what was announced can be sent again with the same ids and the same bytes.

use daybook_table::trace::is_trace_header;
use daybook_table::{AggregateKey, OutboxItem, attributes, keys};

use super::handle::Admin;
use crate::error::StoreError;
use crate::item::{Item, number, row_key, text};

/// Some outbox rows of an aggregate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutboxPage {
    /// Those that can be read, in order of their sort keys.
    pub rows: Vec<OutboxItem>,
    /// Those that cannot.
    pub unreadable: Vec<UnreadableRow>,
    /// The sort key that the next page comes after; none when this was the last.
    pub next: Option<String>,
}

/// An outbox row that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRow {
    /// Its sort key.
    pub sk: String,
    /// Why not.
    pub reason: String,
}

impl Admin<'_> {
    /// Outbox rows of the events `first` to `last` of an aggregate, 1 MB of them at most, after the sort key `after`.
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
        let sk = |item: &Item| text(item, attributes::SK).to_owned();
        let mut found = OutboxPage { next: page.last_evaluated_key.as_ref().map(sk), ..OutboxPage::default() };
        for item in page.items.unwrap_or_default() {
            let sk = sk(&item);
            match read(item) {
                Ok(row) => found.rows.push(row),
                Err(reason) => found.unreadable.push(UnreadableRow { sk, reason }),
            }
        }
        Ok(found)
    }

    /// How many messages an aggregate had announced up to and including event `seq_num`; none when that event is not there
    /// or its count cannot be read.
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

fn read(mut item: Item) -> Result<OutboxItem, String> {
    // Tracing never costs a message.
    if !is_trace_header(text(&item, attributes::TRACE_HEADER)) {
        item.remove(attributes::TRACE_HEADER);
    }
    serde_dynamo::from_item(item).map_err(|error| error.to_string())
}
