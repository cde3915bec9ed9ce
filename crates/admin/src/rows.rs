//! Reads rows of the table: many by their keys; the events of one aggregate, page by page; the rows of one event as they are stored,
//! for a person who wants to see the table itself; and every partition of the table, for when the index may not lead to all of them.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::RecordedEvent;
use daybook_event_store::StoreError;
use daybook_event_store::internal::{Item, batch_get, row_key, text};
use daybook_table::{AggregateKey, attributes, keys};
use futures_util::future::try_join3;
use serde_json::{Map, Value};
use tokio::time::sleep;

use crate::handle::Admin;

const PAGE: usize = 1000;

/// Attempts to read an event that the metadata counts. A query during a transaction may leave out some of its rows.
const READS: usize = 20;

const BETWEEN_READS: Duration = Duration::from_millis(50);

pub(crate) type PrimaryKey = (String, String);

/// The position at which a scan continues: after a row.
pub type ScanKey = Item;

impl Admin<'_> {
    /// The rows with these keys that exist, strongly consistent: all their attributes, or those of `projection`, which must
    /// contain the keys. `doing` is the purpose of the calls, for errors.
    pub(crate) async fn items(
        &self,
        doing: &'static str,
        keys: BTreeSet<PrimaryKey>,
        projection: Option<String>,
    ) -> Result<HashMap<PrimaryKey, Item>, StoreError> {
        let keys = keys.into_iter().map(|(pk, sk)| row_key(pk, sk)).collect();
        let items =
            batch_get((self.store.client(), &self.store.settings().table_name), keys, projection, doing).await?;
        let key = |item: &Item| (text(item, attributes::PK).to_owned(), text(item, attributes::SK).to_owned());
        Ok(items.into_iter().map(|item| (key(&item), item)).collect())
    }

    /// The next events of an aggregate after number `after`, up to `version`: a maximum of 1 MB. The inner error is the reason
    /// why they cannot be read.
    pub async fn events_up_to(
        &self,
        key: &AggregateKey,
        after: u64,
        version: u64,
    ) -> Result<Result<Vec<RecordedEvent>, String>, StoreError> {
        let left = usize::try_from(version - after).unwrap_or(PAGE).min(PAGE);
        for _ in 0..READS {
            let page = self.store.events(key, after, left).await?;
            if let Some(row) = page.unreadable.first() {
                return Ok(Err(format!("its row {} cannot be read: {}", row.sk, row.reason)));
            }
            if !page.items.is_empty() {
                return Ok(Ok(page.items));
            }
            sleep(BETWEEN_READS).await;
        }
        Ok(Err(format!("event {} is missing, its metadata counts {version}", after + 1)))
    }

    /// The rows of event `seq_num` as JSON: the event, its messages, and the metadata of its aggregate. A binary value is
    /// replaced by its length.
    pub async fn rows_of_event(&self, key: &AggregateKey, seq_num: u64) -> Result<Vec<Value>, StoreError> {
        let rows = |first: String, last: String| read(self.store.rows_between(key, first, last));
        let (event, messages, metadata) = try_join3(
            rows(keys::event_sk(seq_num), keys::event_sk(seq_num)),
            rows(keys::outbox_sk(seq_num, 0), keys::outbox_end(seq_num)),
            rows(keys::METADATA.to_owned(), keys::METADATA.to_owned()),
        )
        .await?;
        Ok(event.into_iter().chain(messages).chain(metadata).map(object).collect())
    }

    /// The partition keys of the next megabyte of a segment of the table, each once in all pages, and the position at which
    /// the scan continues; `None` at its end. `segment` is its number, counted from 0, and the number of segments, which are
    /// disjoint and can be read in parallel. A full scan reads the whole table, page by page, at the capacity of eventually
    /// consistent reads.
    pub async fn partitions(
        &self,
        (segment, segments): (u32, u32),
        after: Option<ScanKey>,
    ) -> Result<(Vec<String>, Option<ScanKey>), StoreError> {
        let last = after.as_ref().map(|row| text(row, attributes::PK).to_owned());
        let scan = self.store.client().scan().table_name(&self.store.settings().table_name);
        let scan = scan.projection_expression(attributes::PK).set_exclusive_start_key(after);
        let [segment, segments] = [segment, segments].map(|number| i32::try_from(number).unwrap_or(i32::MAX));
        let page = scan.segment(segment).total_segments(segments).send().await;
        let page = page.map_err(|error| StoreError::of_call("scan the table", error))?;
        let rows = page.items.unwrap_or_default();
        let mut pks: Vec<_> = rows.iter().map(|row| text(row, attributes::PK).to_owned()).collect();
        // A scan returns the rows of a partition one after the other.
        pks.dedup();
        if last.is_some() && last.as_ref() == pks.first() {
            pks.remove(0);
        }
        Ok((pks, page.last_evaluated_key))
    }
}

async fn read(query: QueryFluentBuilder) -> Result<Vec<Item>, StoreError> {
    let output = query.send().await.map_err(|error| StoreError::of_call("read the rows of an event", error))?;
    Ok(output.items.unwrap_or_default())
}

fn object(item: Item) -> Value {
    Value::Object(item.into_iter().map(|(name, attribute)| (name, value(attribute))).collect::<Map<_, _>>())
}

fn value(attribute: AttributeValue) -> Value {
    match attribute {
        AttributeValue::S(text) => text.into(),
        AttributeValue::N(number) => number.parse().map_or(number.into(), Value::Number),
        AttributeValue::Bool(flag) => flag.into(),
        AttributeValue::L(list) => list.into_iter().map(value).collect(),
        AttributeValue::M(map) => object(map),
        AttributeValue::B(bytes) => format!("({} bytes)", bytes.as_ref().len()).into(),
        _ => Value::Null,
    }
}
