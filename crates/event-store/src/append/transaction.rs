//! The items of the transaction.

use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use daybook_decider::record::timestamp;
use daybook_decider::{AggregateKey, ClaimChanges, DeadlineChanges, Decided, Folded, OutboxMessage, RecordedEvent};
use daybook_table::{EventItem, OutboxItem, attributes, keys};
use jiff::Timestamp;
use tokio::time::Instant;

use super::AppendCall;
use super::batch::{AppendBatch, Attributes};
use super::claims::{ClaimHolders, ClaimWrite};
use crate::checksum;
use crate::error::StoreError;
use crate::idempotency::ResponseToStore;
use crate::item::{Item, row_key};
use crate::limits::{TooLarge, check_transaction};
use crate::store::EventStream;
use crate::subject_keys::{Keys, seal};

const SECONDS_A_DAY: i64 = 24 * 60 * 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Decision,
    /// An import. Its events may be old, so their outbox rows expire from the time of the import on. If their messages
    /// are not published, each event records it.
    Import(ImportWrite),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportWrite {
    /// Whether outbox rows are written, which the relay then sends.
    pub publish: bool,
    /// The time from which outbox rows expire.
    pub now: Timestamp,
}

#[derive(Clone, Copy, Debug)]
pub struct NewEvents<'a> {
    pub events: &'a [RecordedEvent],
    pub messages: &'a [OutboxMessage],
    pub claims: &'a ClaimChanges,
    pub deadlines: &'a DeadlineChanges,
    /// Whether the personal values about the aggregate are forgotten.
    pub forgets: bool,
    pub after: &'a Folded,
}

impl<'a> From<&'a Decided> for NewEvents<'a> {
    fn from(decided: &'a Decided) -> Self {
        let Decided { events, messages, claims, deadlines, forgets, after, .. } = decided;
        Self { events, messages, claims, deadlines, forgets: *forgets, after }
    }
}

impl EventStream<'_> {
    /// The call that appends what was decided on version `before`. It is not sent after `send_until`.
    pub(crate) fn call(&self, before: u64, send_until: Instant) -> AppendCall {
        let table_name = self.store.settings.table_name.clone();
        let (client, sealing) = (self.store.once.clone(), self.store.sealing.clone());
        AppendCall { client, table_name, key: self.key.clone(), before, send_until, sealing }
    }

    /// The items of new events, if they fit a transaction of their own.
    pub(crate) fn batch(
        &self,
        new: NewEvents<'_>,
        to_store: Option<&ResponseToStore<'_>>,
        origin: Origin,
        holders: &ClaimHolders,
        keys_of_subjects: &Keys,
    ) -> Result<Result<AppendBatch, TooLarge>, StoreError> {
        let end = new.after.version();
        let corrupt = |error: serde_dynamo::Error| StoreError::corrupt(format!("a new row of {}", self.key), error);
        let events = new.events.iter().map(|event| {
            let mut row = self.event_row(event, end, origin);
            if let Some(sealed) = seal(&row.data, &row.pk, keys_of_subjects)? {
                row.data = sealed;
            }
            serde_dynamo::to_item(row).map_err(corrupt)
        });
        let messages = new.messages.iter().map(|message| self.outbox_row(message, origin));
        let messages = messages.map(|row| serde_dynamo::to_item(row).map_err(corrupt));
        let rows = events.chain(messages).map(|row| row.map(checksum::seal)).collect::<Result<Vec<Item>, _>>()?;
        let claims = ClaimWrite::all((self.store.table_name(), &self.store.sealing), self.key, new.claims, holders)?;
        let deadlines = self.deadlines(new, origin)?;
        let response = to_store.map(|to_store| to_store.row(self.key, keys_of_subjects));
        let response = response.transpose()?;
        let forgets = new.forgets.then(|| self.store.sealing.forget(self.key, self.store.now())).transpose()?;

        let (created, changed) = self.metadata(new);
        // The complete metadata, to compute its size. The creation time of an existing aggregate is not known here,
        // but every time has the same length.
        let attributes = created.iter().chain(&changed).map(|(name, value)| ((*name).to_owned(), value.clone()));
        let metadata: Item = metadata_key(self.key).into_iter().chain(attributes).collect();
        let items = std::iter::once(&metadata).chain(&rows).chain(deadlines.iter().map(|deadline| &deadline.row));
        let items = items.chain(claims.iter().map(|claim| &claim.row));
        // The key that is removed has an item too.
        let forgotten = forgets.is_some().then(Item::new);
        let bytes = match check_transaction(items.chain(&forgotten), response.as_ref()) {
            Ok(bytes) => bytes,
            Err(limit) => return Ok(Err(limit)),
        };

        let item = |put| TransactWriteItem::builder().put(put).build();
        let response = response.zip(to_store).map(|(row, to_store)| {
            (to_store.idempotency.key.to_owned(), item(to_store.put_unless_used(self.store.table_name(), row)))
        });
        Ok(Ok(AppendBatch {
            created,
            changed: if new.events.is_empty() { Vec::new() } else { changed },
            first_event: new.events.first().map(|event| (event.seq_num, event.event_id)),
            rows: rows.into_iter().map(|row| item(self.put_new(row))).chain(forgets).collect(),
            deadlines: deadlines.into_iter().map(|write| ((keys::pk(self.key), write.sk), write.item)).collect(),
            claims,
            responses: response.into_iter().collect(),
            bytes,
            ..AppendBatch::default()
        }))
    }

    /// The row of an event whose append ends at event `end`.
    pub(super) fn event_row(&self, event: &RecordedEvent, end: u64, origin: Origin) -> EventItem {
        let settings = &self.store.settings;
        let has_snapshots = !self.model.full_history() && !self.key.is_reserved();
        let due = has_snapshots && event.seq_num.is_multiple_of(settings.snapshot_every);
        EventItem {
            append_end: (event.seq_num < end).then_some(end),
            not_published: matches!(origin, Origin::Import(ImportWrite { publish: false, .. })).then_some(true),
            ..EventItem::new(self.key, event, settings.event_type_shards, due)
        }
    }

    pub(super) fn outbox_row(&self, message: &OutboxMessage, origin: Origin) -> OutboxItem {
        let stored_at = match origin {
            Origin::Decision => message.occurred_at,
            Origin::Import(ImportWrite { now, .. }) => now,
        };
        let ttl = stored_at.as_second() + self.store.settings.outbox_ttl_days * SECONDS_A_DAY;
        OutboxItem::new(self.key, message, ttl)
    }

    /// The attributes of the metadata that only the first append sets, and those that every append sets.
    fn metadata(&self, new: NewEvents<'_>) -> (Attributes, Attributes) {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let number = |value: u64| AttributeValue::N(value.to_string());
        let time = |event: Option<&RecordedEvent>| event.map(|event| timestamp(event.occurred_at)).unwrap_or_default();
        let created = vec![
            (attributes::AGGREGATE_TYPE, text(&self.key.aggregate_type)),
            (attributes::AGGREGATE_ID, text(&self.key.id)),
            (attributes::CREATED_AT, text(&time(new.events.first()))),
        ];
        let mut changed = vec![
            (attributes::CURRENT_SEQ_NUM, number(new.after.version())),
            (attributes::MESSAGE_SEQ, number(new.after.message_seq())),
            (attributes::UPDATED_AT, text(&time(new.events.last()))),
        ];
        if self.model.is_deleted(new.after) {
            changed.push((attributes::DELETED, AttributeValue::Bool(true)));
        }
        (created, changed)
    }

    fn put_new(&self, row: Item) -> Put {
        Put::builder()
            .table_name(&self.store.settings.table_name)
            .set_item(Some(row))
            .condition_expression(format!("attribute_not_exists({})", attributes::PK))
            .build()
            .expect("table and item are set above")
    }
}

impl AppendCall {
    /// The items of a transaction in order: the metadata, the row that is required, those of other aggregates, the events and
    /// messages, the deadlines, the claims, and the responses to store.
    pub(super) fn transaction(&self, batch: AppendBatch) -> Vec<TransactWriteItem> {
        let metadata = metadata_item(&self.table_name, &self.key, self.before, batch.created, batch.changed);
        let responses = batch.responses.into_iter().map(|(_, put)| put);
        let claims = batch.claims.into_iter().map(|claim| claim.item);
        let others = batch.required.into_iter().chain(batch.others.into_iter().map(|(_, item)| item));
        let rows = batch.rows.into_iter().chain(batch.deadlines.into_values());
        std::iter::once(metadata).chain(others).chain(rows).chain(claims).chain(responses).collect()
    }
}

/// The item of the metadata of an aggregate, on condition of its version. It sets these attributes, or only checks the
/// version if there are none to change.
pub(super) fn metadata_item(
    table_name: &str,
    key: &AggregateKey,
    version: u64,
    created: Attributes,
    changed: Attributes,
) -> TransactWriteItem {
    let item = TransactWriteItem::builder();
    let key = metadata_key(key);
    let all_old = ReturnValuesOnConditionCheckFailure::AllOld;
    let (condition, mut values) = is_at(version);
    if changed.is_empty() {
        let check = ConditionCheck::builder().table_name(table_name).set_key(Some(key)).condition_expression(condition);
        let check = check.set_expression_attribute_values((!values.is_empty()).then_some(values));
        let check = check.return_values_on_condition_check_failure(all_old).build();
        return item.condition_check(check.expect("table, key and condition are set above")).build();
    }
    let created = if version == 0 { created } else { Vec::new() };
    let attributes: Attributes = created.into_iter().chain(changed).collect();
    let sets: Vec<_> = attributes.iter().map(|(name, _)| format!("{name} = :{name}")).collect();
    values.extend(attributes.into_iter().map(|(name, value)| (format!(":{name}"), value)));
    let update = Update::builder().table_name(table_name).set_key(Some(key)).condition_expression(condition);
    let update = update.update_expression(format!("SET {}", sets.join(", ")));
    let update = update.set_expression_attribute_values(Some(values));
    let update = update.return_values_on_condition_check_failure(all_old).build();
    item.update(update.expect("table, key and expression are set above")).build()
}

fn metadata_key(key: &AggregateKey) -> Item {
    row_key(keys::pk(key), keys::METADATA.to_owned())
}

/// The condition that the metadata is at a version, and its values.
///
/// It never includes "or does not exist": that would let a wrong version begin a stream with a gap.
fn is_at(version: u64) -> (String, Item) {
    match version {
        0 => (format!("attribute_not_exists({})", attributes::PK), Item::new()),
        version => {
            let value = Item::from([(":before".to_owned(), AttributeValue::N(version.to_string()))]);
            (format!("{} = :before", attributes::CURRENT_SEQ_NUM), value)
        }
    }
}
