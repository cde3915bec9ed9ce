//! The documents that describe the messages.

use daybook_decider::Registry;
use serde_json::{Map, Value, json};

use crate::described::{Described, DescribedMessage};

const OF_COMPONENTS: &str = "#/components/schemas/";

/// The JSON Schema of all messages: each event on the bus matches one of its definitions.
pub fn json_schema(registry: &Registry) -> Value {
    let Described { messages, mut schemas } = Described::new(registry);
    for schema in schemas.values_mut() {
        refer_to_definitions(schema);
    }
    let each: Vec<_> = messages.iter().map(|message| json!({"$ref": format!("#/$defs/{}", message.key)})).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Daybook messages",
        "description": "The events that EventBridge delivers for the messages of the aggregates. `daybook schemas` prints this.",
        "oneOf": each,
        "$defs": schemas,
    })
}

pub fn asyncapi(registry: &Registry) -> Value {
    let Described { messages, schemas } = Described::new(registry);
    let (mut channels, mut operations) = (Map::new(), Map::new());
    for model in registry.iter() {
        let name = model.type_name();
        let own: Vec<_> = messages.iter().filter(|message| message.aggregate_type == name).collect();
        let named = |message: &&DescribedMessage| {
            let reference = json!({"$ref": format!("#/components/messages/{}", message.key)});
            (message.key.clone(), reference)
        };
        let of_channel: Vec<_> =
            own.iter().map(|message| json!({"$ref": format!("#/channels/{name}/messages/{}", message.key)})).collect();
        let channel = json!({
            "address": "{eventBusName}",
            "title": format!("Messages of {name}"),
            "description": model.schemas().state.get("description").and_then(Value::as_str).unwrap_or_default(),
            "parameters": {"eventBusName": {"description": "The output EventBusName of the stack."}},
            "messages": own.iter().map(named).collect::<Map<_, _>>(),
        });
        channels.insert(name.to_owned(), channel);
        let operation = json!({
            "action": "send",
            "channel": {"$ref": format!("#/channels/{name}")},
            "summary": format!("Publishes the messages of {name}."),
            "messages": of_channel,
        });
        operations.insert(format!("publish.{name}"), operation);
    }
    let described = |message: DescribedMessage| (message.key.clone(), message_object(message));
    json!({
        "asyncapi": "3.0.0",
        "id": "urn:daybook:messages",
        "info": {
            "title": "Daybook messages",
            "version": env!("CARGO_PKG_VERSION"),
            "description": include_str!("description.md").trim_end(),
            "license": {"name": env!("CARGO_PKG_LICENSE")},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": messages.into_iter().map(described).collect::<Map<_, _>>(),
            "schemas": schemas,
        },
    })
}

fn message_object(message: DescribedMessage) -> Value {
    let mut object = json!({
        "name": message.message_type,
        "title": message.message_type,
        "summary": message.description,
        "contentType": "application/json",
        "correlationId": {"location": "$message.payload#/detail/metadata/correlationId"},
        "payload": {"$ref": format!("{OF_COMPONENTS}{}", message.key)},
    });
    if let Some(example) = message.example {
        object["examples"] = json!([{"name": "one", "payload": example}]);
    }
    object
}

/// Replaces references into the components of a document by references to definitions of a schema.
fn refer_to_definitions(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get_mut("$ref")
                && let Some(name) = reference.strip_prefix(OF_COMPONENTS)
            {
                *reference = format!("#/$defs/{name}");
            }
            members.values_mut().for_each(refer_to_definitions);
        }
        Value::Array(elements) => elements.iter_mut().for_each(refer_to_definitions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
