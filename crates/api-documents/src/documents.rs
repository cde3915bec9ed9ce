//! The documents that describe the messages, and what they are made of: each message type, with the schema of the event that
//! EventBridge delivers for it.

use daybook_command_handler::openapi::{Schemas, Variant, variants};
use daybook_decider::{Model, OutboxMessage, Registry};
use serde_json::{Map, Value, json};

use crate::examples;

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

/// The default of the parameter `EventSource`, which the examples have.
const SOURCE: &str = "com.example.daybook";

struct Described {
    messages: Vec<DescribedMessage>,
    /// The schemas of the messages and those that they refer to, by name.
    schemas: Map<String, Value>,
}

struct DescribedMessage {
    aggregate_type: &'static str,
    message_type: String,
    description: String,
    /// The name of its schema: `order.OrderPlaced`.
    key: String,
    /// An event as EventBridge delivers it; `None` if no sample of a command leads to the message.
    example: Option<Value>,
}

impl Described {
    fn new(registry: &Registry) -> Self {
        let mut schemas = Schemas::default();
        let mut messages = Vec::new();
        for model in registry.iter() {
            let aggregate_type = model.type_name();
            let mut raw = Value::from(model.schemas().message.clone());
            let_members_be_added(&mut raw);
            let schema = schemas.adopt("", raw);
            let metadata = metadata_schema(aggregate_type, &mut schemas);
            let examples = examples::published(registry, model);
            for variant in variants(&schema, "type") {
                let event = event_schema(model, &variant, &metadata);
                let reference = schemas.add(&schema_name(aggregate_type, &variant.name), event);
                let key = reference["$ref"].as_str().and_then(|to| to.rsplit('/').next()).unwrap_or_default();
                messages.push(DescribedMessage {
                    aggregate_type,
                    key: key.to_owned(),
                    example: examples.get(&variant.name).map(|message| delivered(aggregate_type, message)),
                    message_type: variant.name,
                    description: variant.description,
                });
            }
        }
        let Value::Object(schemas) = schemas.into_all() else { unreachable!("schemas are an object by name") };
        Self { messages, schemas }
    }
}

/// A name in the characters that AsyncAPI allows.
fn schema_name(aggregate_type: &str, message_type: &str) -> String {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    format!("{aggregate_type}.{}", message_type.replace(|character: char| !is_allowed(character), "_"))
}

/// Lets objects have further members, whatever the Rust type allows: consumers ignore members that they do not know.
fn let_members_be_added(schema: &mut Value) {
    if let Value::Object(members) = schema {
        if members.get("additionalProperties") == Some(&Value::Bool(false)) {
            members.remove("additionalProperties");
        }
        members.values_mut().for_each(let_members_be_added);
    } else if let Value::Array(elements) = schema {
        elements.iter_mut().for_each(let_members_be_added);
    }
}

fn metadata_schema(aggregate_type: &str, schemas: &mut Schemas) -> Value {
    let mut metadata = schemas.adopt("", OutboxMessage::detail_schema().into())["properties"]["metadata"].take();
    metadata["properties"]["aggregateType"]["const"] = aggregate_type.into();
    schemas.add(&format!("{aggregate_type}.metadata"), metadata)
}

fn event_schema(model: &dyn Model, Variant { name, description, data }: &Variant, metadata: &Value) -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    let detail = json!({
        "type": "object",
        "description": "The message.",
        "properties": {"metadata": metadata, "data": data},
        "required": ["metadata", "data"],
    });
    let mut schema = json!({
        "title": name,
        "description": description,
        "type": "object",
        "properties": {
            "version": text("The version of the form of EventBridge's events."),
            "id": text("The id that EventBridge assigned; another one when the message is sent again."),
            "detail-type": {"type": "string", "const": name, "description": "The message type."},
            "source": text("The parameter EventSource of the stack."),
            "account": text("The AWS account of the bus."),
            "time": {"type": "string", "format": "date-time", "description": "The time of the decision, in seconds."},
            "region": text("The AWS region of the bus."),
            "resources": {
                "type": "array",
                "description": "The aggregate, as TYPE/ID.",
                "items": {"type": "string", "pattern": format!("^{}/", model.type_name())},
                "minItems": 1,
                "maxItems": 1,
            },
            "detail": detail,
        },
        "required": ["version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail"],
    });
    // A message that has the name of an event also has its version.
    if let Some(event) = model.events().iter().find(|event| event.name == name) {
        schema["x-event-version"] = event.version.into();
    }
    schema
}

fn delivered(aggregate_type: &str, message: &OutboxMessage) -> Value {
    json!({
        "version": "0",
        "id": "7bf73129-1428-4cd3-a780-95db273d1602",
        "detail-type": message.message_type,
        "source": SOURCE,
        "account": "123456789012",
        "time": format!("{:.0}", message.occurred_at),
        "region": "eu-central-1",
        "resources": [format!("{aggregate_type}/{}", daybook_command_handler::openapi::ID)],
        "detail": message.detail,
    })
}
