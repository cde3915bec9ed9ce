//! The schemas of the API's responses, for each aggregate type with the type's own state, events and messages.

use std::collections::{BTreeMap, BTreeSet};

use daybook_decider::Model;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::component::{reference, referred_name, upper_camel};
use super::json_schema::{in_document, one_of_tagged, replace, variants, written_schema};
use super::parameters::id_schema;
use crate::endpoints::events_of_aggregate::EventPage;
use crate::endpoints::events_of_type::{FeedEventJson, FeedPage};
use crate::endpoints::get::StateResponse;
use crate::endpoints::list::AggregatePage;
use crate::response::{EventJson, MessageJson, WriteResponse};

/// The schemas that others refer to as `#/components/schemas/NAME`.
#[derive(Default)]
pub struct Schemas(Map<String, Value>);

impl Schemas {
    /// All of them, by name.
    pub fn into_all(self) -> Value {
        self.0.into()
    }

    /// Adds schemas under names that no other schema takes.
    pub(super) fn extend(&mut self, schemas: impl Iterator<Item = (String, Value)>) {
        self.0.extend(schemas);
    }

    /// Adds a schema under this name, or under another if a different schema already has the name.
    pub fn add(&mut self, name: &str, schema: Value) -> Value {
        let mut name = name.to_owned();
        while self.0.get(&name).is_some_and(|taken| *taken != schema) {
            name.push('_');
        }
        let reference = reference("schemas", &name);
        self.0.insert(name, schema);
        reference
    }

    /// Adds the schema of a response, with some of its parts in the form of one aggregate type.
    pub(super) fn add_response<T: JsonSchema>(&mut self, name: &str, parts: &[(&str, &Value)]) -> Value {
        let mut schema = written_schema::<T>();
        // The schemas of one type replace these.
        for general in [EventJson::schema_name(), FeedEventJson::schema_name(), MessageJson::schema_name()] {
            if let Some(definitions) = schema["$defs"].as_object_mut() {
                definitions.remove(&*general);
            }
        }
        let mut schema = self.adopt("", schema);
        for (path, part) in parts {
            if let Some(place) = schema.pointer_mut(&format!("/properties/{path}")) {
                replace(place, part);
            }
        }
        self.add(name, schema)
    }

    /// Adds the definitions of a schema that schemars made as separate schemas, whose names begin with the prefix, and
    /// returns the schema.
    pub fn adopt(&mut self, prefix: &str, mut schema: Value) -> Value {
        let definitions = match schema["$defs"].take() {
            Value::Object(definitions) => definitions,
            _ => Map::new(),
        };
        if let Some(root) = schema.as_object_mut() {
            for member in ["$defs", "$schema", "title"] {
                root.remove(member);
            }
        }
        let named = |name: &str| if name.starts_with(prefix) { name.to_owned() } else { format!("{prefix}{name}") };
        let mut suffix = String::new();
        loop {
            let rename = |name: &str| format!("{}{suffix}", named(name));
            let renamed: Vec<_> = definitions
                .iter()
                .map(|(name, definition)| (rename(name), in_document(definition.clone(), &rename)))
                .collect();
            if renamed.iter().all(|(name, definition)| self.0.get(name).is_none_or(|taken| taken == definition)) {
                self.0.extend(renamed);
                return in_document(schema, &rename);
            }
            suffix.push('_');
        }
    }

    /// The schema that a reference refers to, or the schema itself if it is not a reference.
    pub(super) fn resolve(&self, schema: &Value) -> Value {
        referred_name(schema).and_then(|name| self.0.get(name)).unwrap_or(schema).clone()
    }
}

/// The schemas of a type of aggregate.
pub(super) struct TypeSchemas {
    /// The type's name in the form with which the names of its schemas begin.
    pub(super) name: String,
    pub(super) description: Value,
    pub(super) command_descriptions: BTreeMap<String, String>,
    pub(super) create: Value,
    /// Whether the create command has required fields.
    pub(super) create_needs_data: bool,
    pub(super) update: Option<Value>,
    pub(super) commands: Value,
    pub(super) state: Value,
    pub(super) write: Value,
    pub(super) event_page: Value,
    pub(super) aggregate_page: Value,
    event: Value,
}

impl TypeSchemas {
    pub(super) fn new(model: &dyn Model, schemas: &mut Schemas) -> Self {
        let name = upper_camel(model.type_name());
        let raw = model.schemas().clone();
        let mut command = schemas.adopt(&name, raw.command.into());
        let described = variants(&command, "command");
        let data_of = |command: &str| {
            let found = described.iter().find(|variant| variant.name == command);
            found.map_or_else(|| json!({"type": "object"}), |variant| schemas.resolve(&variant.data))
        };
        let create = data_of(model.commands().create);
        let update = model.commands().update.map(data_of);
        for variant in command["oneOf"].as_array_mut().into_iter().flatten() {
            let_empty_data_be_left_out(variant, schemas);
        }
        let command_descriptions = described.into_iter().map(|variant| (variant.name, variant.description)).collect();

        let state = schemas.adopt(&name, raw.state.into());
        let description = state["description"].clone();
        let state = schemas.add(&name, state);
        let event = event_schema(&name, model, raw.event, schemas);
        let message = message_schema(&name, raw.message, schemas);
        let create_needs_data = create["required"].as_array().is_some_and(|fields| !fields.is_empty());
        let commands = schemas.add(&format!("{name}Command"), command);
        let several = json!({"type": "array", "minItems": 1, "items": commands.clone()});
        Self {
            create: schemas.add(&format!("{name}Create"), with_id(create)),
            create_needs_data,
            update: update.map(|update| schemas.add(&format!("{name}Update"), update)),
            commands: json!({"oneOf": [commands, several]}),
            state: schemas.add_response::<StateResponse<'_>>(&format!("{name}Read"), &[("state", &state)]),
            write: schemas.add_response::<WriteResponse<'_>>(
                &format!("{name}Written"),
                &[("state", &state), ("events/items", &event), ("messages/items", &message)],
            ),
            event_page: schemas.add_response::<EventPage<'_>>(&format!("{name}Events"), &[("events/items", &event)]),
            aggregate_page: schemas.add_response::<AggregatePage<'_>>("Aggregates", &[]),
            name,
            description,
            command_descriptions,
            event,
        }
    }
}

/// Adds the page of the feed, with the events of all types in it.
pub(super) fn feed_schema<'a>(
    types: impl Iterator<Item = (&'static str, &'a TypeSchemas)>,
    schemas: &mut Schemas,
) -> Value {
    let entry = written_schema::<FeedEventJson<'_>>();
    let own = ["aggregateType", "aggregateId"];
    let members: Map<_, _> = own.iter().map(|name| ((*name).to_owned(), entry["properties"][name].clone())).collect();
    let of_type = |(type_name, type_schemas): (&str, &'a TypeSchemas)| {
        let mut members = members.clone();
        members["aggregateType"]["const"] = type_name.into();
        json!({"allOf": [type_schemas.event, {"type": "object", "properties": members, "required": own}]})
    };
    let entries: Vec<_> = types.map(of_type).collect();
    let entry = schemas.add("FeedEntry", json!({"description": entry["description"], "oneOf": entries}));
    schemas.add_response::<FeedPage<'_>>("Feed", &[("events/items", &entry)])
}

/// Adds the events in their stored form: one schema for each, and one for any of them.
fn event_schema(type_name: &str, model: &dyn Model, raw: Schema, schemas: &mut Schemas) -> Value {
    let schema = schemas.adopt(type_name, raw.into());
    let envelope = schemas.adopt("", written_schema::<EventJson<'_>>());
    let described = |name: &str, description: &str, newest: u32| {
        let mut event = envelope.clone();
        event["description"] = description.into();
        event["properties"]["eventType"]["const"] = name.into();
        event["properties"]["eventVersion"] = versions(newest);
        event
    };
    let mut each = Vec::new();
    for variant in variants(&schema, "type") {
        let known = model.events().iter().find(|event| event.name == variant.name);
        let newest = known.map_or(1, |event| event.readable);
        let mut event = described(&variant.name, &variant.description, newest);
        let data = &mut event["properties"]["data"];
        replace(data, &variant.data);
        if newest > 1 {
            // Events are returned as they were stored, so an event may have the form of another version.
            *data = json!({"anyOf": [variant.data, {"description": "The form of another version."}]});
        }
        each.push((variant.name.clone(), schemas.add(&variant.name, event)));
    }
    let written: BTreeSet<_> = each.iter().map(|(name, _)| name.clone()).collect();
    for (name, newest) in model.stored_events().into_iter().filter(|(name, _)| !written.contains(*name)) {
        let event = described(name, "This release does not write this event; streams may contain it.", newest);
        each.push((name.to_owned(), schemas.add(name, event)));
    }
    schemas.add(&format!("{type_name}Event"), one_of_tagged("eventType", &each))
}

/// Adds the messages as writes return them: one schema for each, and one for any of them.
fn message_schema(type_name: &str, raw: Schema, schemas: &mut Schemas) -> Value {
    let schema = schemas.adopt(type_name, raw.into());
    let envelope = schemas.adopt("", written_schema::<MessageJson<'_>>());
    let mut each = Vec::new();
    for variant in variants(&schema, "type") {
        let mut message = envelope.clone();
        message["description"] = variant.description.into();
        message["properties"]["messageType"]["const"] = variant.name.clone().into();
        replace(&mut message["properties"]["data"], &variant.data);
        let name = format!("{}{}Message", variant.name[..1].to_uppercase(), &variant.name[1..]);
        each.push((variant.name, schemas.add(&name, message)));
    }
    schemas.add(&format!("{type_name}Message"), one_of_tagged("messageType", &each))
}

/// Makes `data` of a command optional if `{}` is valid.
fn let_empty_data_be_left_out(variant: &mut Value, schemas: &Schemas) {
    let data = schemas.resolve(&variant["properties"]["data"]);
    let needed = data["required"].as_array().is_some_and(|fields| !fields.is_empty());
    if let Some(required) = variant["required"].as_array_mut().filter(|_| !needed) {
        required.retain(|name| name != "data");
    }
}

/// A create command's data, with the id that the body may also contain.
fn with_id(mut data: Value) -> Value {
    data["properties"]["id"] = id_schema();
    data
}

/// The versions of an event that streams may contain.
fn versions(newest: u32) -> Value {
    match newest {
        1 => json!({"type": "integer", "const": 1}),
        _ => json!({"type": "integer", "minimum": 1, "maximum": newest}),
    }
}
