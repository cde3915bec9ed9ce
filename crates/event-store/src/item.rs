//! Items in the SDK's form.

use std::collections::HashMap;
use std::str::FromStr;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_table::{EventItem, attributes};

use crate::error::StoreError;

pub type Item = HashMap<String, AttributeValue>;

pub fn row_key(pk: String, sk: String) -> Item {
    let key = [(attributes::PK, pk), (attributes::SK, sk)];
    Item::from(key.map(|(name, value)| (name.to_owned(), AttributeValue::S(value))))
}

/// The text of an attribute; empty when it is absent or not a text.
pub fn text<'a>(item: &'a Item, name: &str) -> &'a str {
    item.get(name).and_then(|value| value.as_s().ok()).map(String::as_str).unwrap_or_default()
}

/// The number of an attribute; `None` when it is absent or not a number of this type.
pub fn number<N: FromStr>(item: &Item, name: &str) -> Option<N> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

pub fn event_item(item: Item) -> Result<EventItem, StoreError> {
    let keys = format!("item {} {}", text(&item, attributes::PK), text(&item, attributes::SK));
    serde_dynamo::from_item(item).map_err(|error| StoreError::corrupt(keys, error))
}
