//! The rows of deadlines: items of the transaction by the difference of deadlines. They have no conditions, because they change
//! only together with the version of the aggregate, or are marked as fired or failed in between.
//!
//! Invariant: an aggregate has a row for each deadline that its state declares, and no others. After a change of
//! `Aggregate::deadlines`, that holds again when `daybook deadlines rebuild` has ended.

use aws_sdk_dynamodb::types::{Delete, Put, TransactWriteItem};
use daybook_decider::{Due, RecordedEvent};
use daybook_table::{DeadlineCause, DeadlineItem, keys};
use jiff::Timestamp;

use super::transaction::{ImportWrite, NewEvents, Origin};
use crate::checksum::seal;
use crate::error::{Cause, StoreError};
use crate::item::{Item, row_key};
use crate::store::EventStream;

pub(super) struct DeadlineWrite {
    pub(super) sk: String,
    /// The row, or its key if it is dropped.
    pub(super) row: Item,
    pub(super) item: TransactWriteItem,
}

impl EventStream<'_> {
    pub(super) fn deadlines(&self, new: NewEvents<'_>, origin: Origin) -> Result<Vec<DeadlineWrite>, StoreError> {
        if new.deadlines.is_empty() {
            return Ok(Vec::new());
        }
        let (table, shards) = (self.store.table_name(), self.store.settings.event_type_shards);
        let (cause, now) = self.cause(new, origin)?;
        // What was imported without publishing was sent where it comes from.
        let is_sent = matches!(origin, Origin::Import(ImportWrite { publish: false, .. }));
        let set = new.deadlines.set.iter().map(|(name, due)| {
            let (due, to) = match due {
                Due::At(due) => (*due, None),
                Due::Now(to) => (now, Some(to.to_string())),
            };
            let item = DeadlineItem { to, ..DeadlineItem::new(self.key, (name, due), cause.clone(), shards, now) };
            let item = if is_sent && item.to.is_some() { item.fired() } else { item };
            let (sk, row) = (item.sk.clone(), serde_dynamo::to_item(item).map(seal));
            let row: Item = row.map_err(|error| self.corrupt(Cause::from(error)))?;
            let put = Put::builder().table_name(table).set_item(Some(row.clone()));
            let put = put.build().expect("table and item are set above");
            Ok(DeadlineWrite { sk, row, item: TransactWriteItem::builder().put(put).build() })
        });
        let dropped = new.deadlines.dropped.iter().map(|name| {
            let sk = keys::deadline_sk(name);
            let row = row_key(keys::pk(self.key), sk.clone());
            let delete = Delete::builder().table_name(table).set_key(Some(row.clone()));
            let delete = delete.build().expect("table and key are set above");
            Ok(DeadlineWrite { sk, row, item: TransactWriteItem::builder().delete(delete).build() })
        });
        set.chain(dropped).collect()
    }

    /// The event that sets deadlines, and when they are set. For a correction, it is the last event.
    fn cause(&self, new: NewEvents<'_>, origin: Origin) -> Result<(DeadlineCause, Timestamp), StoreError> {
        let now = match origin {
            Origin::Import(options) => options.now,
            Origin::Decision => new.events.last().map_or_else(|| self.store.now(), |event| event.occurred_at),
        };
        let of = |seq_num, event_id, correlation_id| DeadlineCause { seq_num, event_id, correlation_id };
        if let Some(RecordedEvent { seq_num, event_id, meta, .. }) = new.events.last() {
            return Ok((of(*seq_num, *event_id, meta.correlation_id.clone()), now));
        }
        let last = new.after.last_event().ok_or_else(|| self.corrupt("its last event is not known"))?;
        Ok((of(new.after.version(), last.event_id, None), now))
    }
}
