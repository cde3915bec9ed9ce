//! The changes between two JSON Schema documents that break a consumer who knows only the earlier one.

use std::fmt;

use serde_json::Value;

use crate::schema_change::SchemaChange;

/// A change that breaks a consumer of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Break {
    /// The aggregate type and the message type: `order.OrderPlaced`.
    pub message: String,
    /// The member, from the event as EventBridge delivers it: `detail.data.items[].quantity`. Empty for the whole message.
    pub path: String,
    /// What changed.
    pub change: String,
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, path, change } = self;
        if path.is_empty() { write!(f, "{message} {change}") } else { write!(f, "{message}: {path} {change}") }
    }
}

/// The changes from one document to another that break a consumer, in the order of the earlier document.
///
/// A consumer who read every message of the earlier release reads every message of the later one, unless the later one may
/// contain something that the earlier one excluded, or lack something that it promised. New members and new message types
/// break nobody.
pub fn breaks(earlier: &Value, later: &Value) -> Vec<Break> {
    let mut found = Vec::new();
    for message in message_names(earlier) {
        let (old, new) = (&earlier["$defs"][message], &later["$defs"][message]);
        if !message_names(later).any(|name| name == message) {
            let change = "is not published any more".to_owned();
            found.push(Break { message: message.to_owned(), path: String::new(), change });
            continue;
        }
        let of_message = SchemaChange::find((earlier, old), (later, new)).into_iter();
        found.extend(of_message.map(|(path, change)| Break { message: message.to_owned(), path, change }));
    }
    found
}

fn message_names(document: &Value) -> impl Iterator<Item = &str> {
    let references = document["oneOf"].as_array().into_iter().flatten();
    references.filter_map(|reference| reference["$ref"].as_str()?.strip_prefix("#/$defs/"))
}
