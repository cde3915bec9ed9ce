//! Rows as DynamoDB returns them.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_types::base64;
use daybook_event_store::internal::unpack;
use daybook_table::StoredText;
use serde_json::Value;

/// A row.
pub type Item = HashMap<String, AttributeValue>;

/// The text of an attribute.
pub fn text<'a>(row: &'a Item, name: &str) -> &'a str {
    row[name].as_s().unwrap()
}

/// The number of an attribute.
pub fn number(row: &Item, name: &str) -> u64 {
    row[name].as_n().unwrap().parse().unwrap()
}

/// A row with a checksum that matches, as if the store had written it like this.
pub fn sealed(row: Item) -> Item {
    daybook_event_store::internal::seal_with_checksum(row)
}

/// A row in the notation of DynamoDB's own documents: `{"seqNum": {"N": "1"}}`.
pub fn notation(row: &Item) -> Value {
    serde_json::to_value(serde_dynamo::Item::from(row.clone())).unwrap()
}

/// A row in that notation, as text, with what is compressed in it.
pub fn uncompressed(row: &Value) -> String {
    let bytes =
        row.as_object().into_iter().flatten().filter_map(|(_, value)| base64::decode(value["B"].as_str()?).ok());
    let texts = bytes.filter_map(|bytes| unpack(StoredText::Compressed(bytes.into())).ok());
    texts.fold(row.to_string(), |all, text| all + &text)
}
