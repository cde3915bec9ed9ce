//! The rows of one event as they are stored, for a person who wants to see the table itself.

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_event_store::StoreError;
use daybook_event_store::internal::Item;
use daybook_table::{AggregateKey, keys};
use futures_util::future::try_join3;
use serde_json::{Map, Value};

use crate::handle::Admin;

impl Admin<'_> {
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
