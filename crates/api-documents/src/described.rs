//! Each message type, with the schema of the event that EventBridge delivers for it.

use daybook_command_handler::openapi::{Schemas, Variant, variants};
use daybook_decider::{Model, OutboxMessage, Registry};
use serde_json::{Map, Value, json};

use crate::examples;

/// The default of the parameter `EventSource`, which the examples have.
const SOURCE: &str = "com.example.daybook";

pub(crate) struct Described {
    pub(crate) messages: Vec<DescribedMessage>,
    /// The schemas of the messages and those that they refer to, by name.
    pub(crate) schemas: Map<String, Value>,
}

pub(crate) struct DescribedMessage {
    pub(crate) aggregate_type: &'static str,
    pub(crate) message_type: String,
    pub(crate) description: String,
    /// The name of its schema: `order.OrderPlaced`.
    pub(crate) key: String,
    /// An event as EventBridge delivers it; `None` if no sample of a command leads to the message.
    pub(crate) example: Option<Value>,
}

impl Described {
    pub(crate) fn new(registry: &Registry) -> Self {
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

/// Adds the schema of the metadata of an aggregate type's messages.
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
