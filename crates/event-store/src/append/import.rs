//! The append of events that exist already, such as those of another table.

use daybook_decider::{Model, OutboxMessage, RecordedEvent, personal};
use daybook_table::{AggregateKey, keys};
use serde::Serialize;
use tokio::time::Instant;

use super::AppendError;
use super::claims::ClaimHolders;
use super::transaction::{ImportWrite, NewEvents, Origin};
use crate::checksum::seal;
use crate::error::{Cause, StoreError};
use crate::limits::item_size;
use crate::store::EventStore;
use crate::subject_keys::stack_key_for;

impl EventStore {
    /// Appends imported events and their messages to an aggregate, if it is at version `before`. The transaction is sent
    /// once, and not after `send_until`.
    pub async fn import(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        before: u64,
        new: NewEvents<'_>,
        options: ImportWrite,
        send_until: Instant,
    ) -> Result<(), AppendError> {
        let stream = self.stream(model, key);
        let subjects = new.events.iter().flat_map(|event| personal::subjects(event.data.text()));
        let keys = self.sealing.keys_for(subjects.chain(stack_key_for(new.claims)).collect()).await?;
        let batch = stream.batch(new, None, Origin::Import(options), &ClaimHolders::default(), &keys)??;
        stream.call(before, send_until).send(batch).await
    }

    /// The bytes of the rows of an imported event and its messages.
    pub fn imported_sizes(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        event: &RecordedEvent,
        messages: &[OutboxMessage],
        options: ImportWrite,
    ) -> Result<Vec<usize>, StoreError> {
        fn size(row: &impl Serialize) -> serde_dynamo::Result<usize> {
            Ok(item_size(&seal(serde_dynamo::to_item(row)?)))
        }
        let (stream, origin) = (self.stream(model, key), Origin::Import(options));
        // The end of the append is not known yet; no number takes more bytes than this one.
        let event = size(&stream.event_row(event, keys::MAX_SEQ_NUM, origin));
        let messages = messages.iter().map(|message| size(&stream.outbox_row(message, origin)));
        let sizes = std::iter::once(event).chain(messages).collect::<Result<_, _>>();
        sizes.map_err(|error| stream.corrupt(Cause::from(error)))
    }
}
