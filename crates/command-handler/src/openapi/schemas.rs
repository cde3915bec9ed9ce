//! The schemas: those of the types that are read and written, put together for each type of aggregate.

use std::collections::BTreeMap;

use daybook_decider::{Model, Registry};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::examples::ulid;
use super::headers::id_schema;
use super::problems;
use crate::answer::{EventAnswer, MessageAnswer, StateAnswer, WriteAnswer};
use crate::feeds::{Aggregates, Events, Feed, FeedEntry};
use crate::problem::Kind;

/// The schemas that others refer to.
#[derive(Default)]
pub(super) struct Schemas(Map<String, Value>);

/// The schemas of a type of aggregate, as calls use them.
pub(super) struct Resource {
    /// The type's name as names of schemas begin.
    pub(super) name: String,
    pub(super) description: Value,
    pub(super) command_descriptions: BTreeMap<String, String>,
    pub(super) create: Value,
    /// Whether the create command takes more than nothing.
    pub(super) create_needs_data: bool,
    pub(super) update: Option<Value>,
    pub(super) commands: Value,
    pub(super) read: Value,
    pub(super) written: Value,
    pub(super) events: Value,
    pub(super) list: Value,
    event: Value,
}

impl Resource {
    pub(super) fn new(model: &dyn Model, schemas: &mut Schemas) -> Self {
        let name = pascal(model.type_name());
        let raw = model.schemas();
        let mut command = schemas.adopt(&name, raw.command.into());
        let described = variants(&command, "command");
        let data_of = |command: &str| {
            let found = described.iter().find(|variant| variant.name == command);
            found.map_or_else(|| json!({"type": "object"}), |variant| schemas.resolve(&variant.data))
        };
        let create = data_of(model.commands().create);
        let update = model.commands().update.map(data_of);
        for variant in command["oneOf"].as_array_mut().into_iter().flatten() {
            schemas.let_empty_data_be_left_out(variant);
        }
        let command_descriptions = described.into_iter().map(|variant| (variant.name, variant.description)).collect();

        let state = schemas.adopt(&name, raw.state.into());
        let description = state["description"].clone();
        let state = schemas.add(&name, state);
        let event = schemas.add_events(&name, model, raw.event);
        let message = schemas.add_messages(&name, raw.message);
        let create_needs_data = create["required"].as_array().is_some_and(|fields| !fields.is_empty());
        let commands = schemas.add(&format!("{name}Command"), command);
        let several = json!({"type": "array", "minItems": 1, "items": commands.clone()});
        Self {
            create: schemas.add(&format!("{name}Create"), with_id(create)),
            create_needs_data,
            update: update.map(|update| schemas.add(&format!("{name}Update"), update)),
            commands: json!({"oneOf": [commands, several]}),
            read: schemas.add_answer::<StateAnswer<'_>>(&format!("{name}Read"), &[("state", &state)]),
            written: schemas.add_answer::<WriteAnswer<'_>>(
                &format!("{name}Written"),
                &[("state", &state), ("events/items", &event), ("messages/items", &message)],
            ),
            events: schemas.add_answer::<Events<'_>>(&format!("{name}Events"), &[("events/items", &event)]),
            list: schemas.add_answer::<Aggregates<'_>>("Aggregates", &[]),
            name,
            description,
            command_descriptions,
            event,
        }
    }
}

impl Schemas {
    /// All of them, by name.
    pub(super) fn into_all(self) -> Value {
        self.0.into()
    }

    /// Adds a schema under this name, or under another where the name is taken by a different schema.
    pub(super) fn add(&mut self, name: &str, schema: Value) -> Value {
        let mut name = name.to_owned();
        while self.0.get(&name).is_some_and(|taken| *taken != schema) {
            name.push('_');
        }
        let reference = reference(&name);
        self.0.insert(name, schema);
        reference
    }

    /// Takes in what schemars made: its definitions become schemas of their own, named after the type of aggregate.
    fn adopt(&mut self, prefix: &str, mut schema: Value) -> Value {
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
                .map(|(name, definition)| (rename(name), translate(definition.clone(), &rename)))
                .collect();
            if renamed.iter().all(|(name, definition)| self.0.get(name).is_none_or(|taken| taken == definition)) {
                self.0.extend(renamed);
                return translate(schema, &rename);
            }
            suffix.push('_');
        }
    }

    /// What a schema refers to, or it itself.
    fn resolve(&self, schema: &Value) -> Value {
        let name = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
        name.and_then(|name| self.0.get(name)).unwrap_or(schema).clone()
    }

    /// An answer's schema with parts of it in the form that they have for one type of aggregate.
    fn add_answer<T: JsonSchema>(&mut self, name: &str, parts: &[(&str, &Value)]) -> Value {
        let mut schema = written_schema::<T>();
        // Their places are taken by what has the form of one type.
        for general in ["EventAnswer", "FeedEntry", "MessageAnswer"] {
            if let Some(definitions) = schema["$defs"].as_object_mut() {
                definitions.remove(general);
            }
        }
        let mut schema = self.adopt("", schema);
        for (path, part) in parts {
            if let Some(place) = schema.pointer_mut(&format!("/properties/{path}")) {
                set(place, part);
            }
        }
        self.add(name, schema)
    }

    /// The events as they stand in streams: one schema for each, and one for any of them.
    fn add_events(&mut self, type_name: &str, model: &dyn Model, raw: Schema) -> Value {
        let schema = self.adopt(type_name, raw.into());
        let envelope = self.adopt("", written_schema::<EventAnswer<'_>>());
        let mut each = Vec::new();
        for variant in variants(&schema, "type") {
            let known = model.events().iter().find(|event| event.name == variant.name);
            let newest = known.map_or(1, |event| event.readable);
            let mut event = envelope.clone();
            event["description"] = variant.description.into();
            let members = &mut event["properties"];
            members["eventType"]["const"] = variant.name.clone().into();
            members["eventVersion"] = versions(newest);
            set(&mut members["data"], &variant.data);
            if newest > 1 {
                // A stream is answered as it was stored, so an event may have the form of another version.
                members["data"] = json!({"anyOf": [variant.data, {"description": "The form of another version."}]});
            }
            each.push((variant.name.clone(), self.add(&variant.name, event)));
        }
        let named = each.len();
        for (name, newest) in model.stored_events() {
            if each[..named].iter().any(|(written, _)| written == name) {
                continue;
            }
            let mut event = envelope.clone();
            event["description"] = "Not written by this release; streams may hold it.".into();
            let members = &mut event["properties"];
            members["eventType"]["const"] = name.into();
            members["eventVersion"] = versions(newest);
            each.push((name.to_owned(), self.add(name, event)));
        }
        self.add(&format!("{type_name}Event"), any_of_tagged("eventType", &each))
    }

    /// The messages as writes answer them: one schema for each, and one for any of them.
    fn add_messages(&mut self, type_name: &str, raw: Schema) -> Value {
        let schema = self.adopt(type_name, raw.into());
        let envelope = self.adopt("", written_schema::<MessageAnswer<'_>>());
        let mut each = Vec::new();
        for variant in variants(&schema, "type") {
            let mut message = envelope.clone();
            message["description"] = variant.description.into();
            message["properties"]["messageType"]["const"] = variant.name.clone().into();
            set(&mut message["properties"]["data"], &variant.data);
            let name = format!("{}{}Message", variant.name[..1].to_uppercase(), &variant.name[1..]);
            each.push((variant.name, self.add(&name, message)));
        }
        self.add(&format!("{type_name}Message"), any_of_tagged("messageType", &each))
    }

    /// The page of `/events`.
    pub(super) fn add_feed<'a>(&mut self, resources: impl Iterator<Item = (&'static str, &'a Resource)>) -> Value {
        let entry = written_schema::<FeedEntry<'_>>();
        let own = ["aggregateType", "aggregateId"];
        let members: Map<_, _> =
            own.iter().map(|name| ((*name).to_owned(), entry["properties"][name].clone())).collect();
        let of_type = |(type_name, resource): (&str, &'a Resource)| {
            let mut members = members.clone();
            members["aggregateType"]["const"] = type_name.into();
            json!({"allOf": [resource.event, {"type": "object", "properties": members, "required": own}]})
        };
        let entries: Vec<_> = resources.map(of_type).collect();
        let entry = self.add("FeedEntry", json!({"description": entry["description"], "oneOf": entries}));
        self.add_answer::<Feed<'_>>("Feed", &[("events/items", &entry)])
    }

    /// The body of a problem.
    pub(super) fn add_problem(&mut self, kind: Kind, registry: &Registry) {
        let mut members = json!({
            "type": {"type": "string", "const": kind.urn()},
            "title": {"type": "string"},
            "status": {"type": "integer", "const": kind.status().as_u16()},
            "detail": {"type": "string", "description": "What was wrong in this case, for a person."},
        });
        let version = |whose: &str| json!({"type": "integer", "minimum": 0, "description": whose});
        match kind {
            Kind::VersionConflict => {
                members["expected"] = version("The version that `If-Match` named.");
                members["actual"] = version("The version that the aggregate is at; 0 where there is none.");
            }
            Kind::Refused => {
                members["rejection"] = json!({
                    "type": "string",
                    "description": "Why, by a stable name of the aggregate's own, such as `InsufficientFunds`.",
                });
            }
            _ => {}
        }
        let required: Vec<_> = members.as_object().into_iter().flat_map(Map::keys).cloned().collect();
        let schema = json!({
            "type": "object",
            "description": kind.when(),
            "properties": members,
            "required": required,
            "examples": [problems::body(kind, registry)],
        });
        self.0.insert(problem_name(kind), schema);
    }
}

/// A problem as answers refer to it.
pub(super) fn problem_reference(kind: Kind) -> Value {
    reference(&problem_name(kind))
}

fn problem_name(kind: Kind) -> String {
    format!("{kind:?}Problem")
}

/// The query parameters of a struct.
pub(super) fn query_parameters(schema: Schema) -> Vec<Value> {
    let schema = translate(schema.into(), &str::to_owned);
    let required = |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name));
    let members = schema["properties"].as_object().into_iter().flatten();
    members
        .map(|(name, member)| {
            let mut member = member.clone();
            let description = member.as_object_mut().and_then(|member| member.remove("description"));
            // A parameter that is not there is not null.
            if let Some(kind) = member["type"].get(0).cloned() {
                member["type"] = kind;
            }
            if member["default"].is_null()
                && let Some(member) = member.as_object_mut()
            {
                member.remove("default");
            }
            let mut parameter = json!({
                "name": name, "in": "query", "required": required(name), "description": description, "schema": member,
            });
            if let Some(example) = parameter_example(name, &parameter["schema"]) {
                parameter["example"] = example;
            }
            parameter
        })
        .collect()
}

/// What a query parameter looks like. That of an event type is one of those that there are.
fn parameter_example(name: &str, schema: &Value) -> Option<Value> {
    Some(match name {
        "after" if schema["type"] == "integer" => 100.into(),
        "after" => ulid(1).into(),
        "limit" => 100.into(),
        "version" => 2.into(),
        "rebuild" => true.into(),
        _ => return None,
    })
}

/// A variant of an enum that is written as name and data.
struct Variant {
    name: String,
    description: String,
    data: Value,
}

fn variants(schema: &Value, tag: &str) -> Vec<Variant> {
    let read = |variant: &Value| {
        let members = &variant["properties"];
        let data = members.get("data").cloned().unwrap_or_else(|| json!({"type": "object"}));
        let description = variant["description"].as_str().unwrap_or_default().to_owned();
        Some(Variant { name: members[tag]["const"].as_str()?.to_owned(), description, data })
    };
    schema["oneOf"].as_array().into_iter().flatten().filter_map(read).collect()
}

impl Schemas {
    /// `data` of a command may be missing where `{}` would do.
    fn let_empty_data_be_left_out(&self, variant: &mut Value) {
        let data = self.resolve(&variant["properties"]["data"]);
        let needed = data["required"].as_array().is_some_and(|fields| !fields.is_empty());
        if let Some(required) = variant["required"].as_array_mut().filter(|_| !needed) {
            required.retain(|name| name != "data");
        }
    }
}

/// A create command's data, with the id that the body may have beside it.
fn with_id(mut data: Value) -> Value {
    data["properties"]["id"] = id_schema();
    data
}

/// The versions of an event that streams may hold.
fn versions(newest: u32) -> Value {
    match newest {
        1 => json!({"type": "integer", "const": 1}),
        _ => json!({"type": "integer", "minimum": 1, "maximum": newest}),
    }
}

/// One of several schemas that a member tells apart.
fn any_of_tagged(member: &str, each: &[(String, Value)]) -> Value {
    let references: Vec<_> = each.iter().map(|(_, reference)| reference).collect();
    let mapping: Map<_, _> = each.iter().map(|(name, reference)| (name.clone(), reference["$ref"].clone())).collect();
    json!({"oneOf": references, "discriminator": {"propertyName": member, "mapping": mapping}})
}

/// Puts a schema in the place of another, whose description it keeps.
fn set(place: &mut Value, schema: &Value) {
    let description = place["description"].take();
    *place = schema.clone();
    if !description.is_null() && place["description"].is_null() {
        place["description"] = description;
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The schema of what this crate writes. A member that may be missing is one that is left out instead of being null.
fn written_schema<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = Value::from(generator.into_root_schema_for::<T>());
    without_null(&mut schema);
    let definitions = schema["$defs"].as_object_mut().into_iter().flat_map(Map::values_mut);
    definitions.for_each(without_null);
    schema
}

fn without_null(object: &mut Value) {
    let required = object["required"].clone();
    let is_required = |name: &str| required.as_array().is_some_and(|names| names.iter().any(|one| one == name));
    for (name, member) in object["properties"].as_object_mut().into_iter().flatten() {
        if !is_required(name)
            && let Some(kind) = member["type"].get(0).cloned()
        {
            member["type"] = kind;
        }
    }
}

/// With references into the document, and with the bounds that the formats of integers stand for.
fn translate(mut schema: Value, rename: &impl Fn(&str) -> String) -> Value {
    match &mut schema {
        Value::Object(members) => {
            if let Some(name) = members.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix("#/$defs/")) {
                let name = rename(name);
                members.insert("$ref".to_owned(), format!("#/components/schemas/{name}").into());
            }
            if let Some((least, most)) = members.get("format").and_then(Value::as_str).and_then(bounds) {
                members.entry("minimum").or_insert(least);
                members.entry("maximum").or_insert(most);
            }
            // A word that no other tool knows.
            if members.get("format").is_some_and(|format| format == "uint") {
                members.remove("format");
            }
            for member in members.values_mut() {
                *member = translate(member.take(), rename);
            }
        }
        Value::Array(elements) => {
            for element in elements {
                *element = translate(element.take(), rename);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    schema
}

fn bounds(format: &str) -> Option<(Value, Value)> {
    Some(match format {
        "int8" => (i8::MIN.into(), i8::MAX.into()),
        "int16" => (i16::MIN.into(), i16::MAX.into()),
        "int32" => (i32::MIN.into(), i32::MAX.into()),
        "int64" => (i64::MIN.into(), i64::MAX.into()),
        "uint8" => (u8::MIN.into(), u8::MAX.into()),
        "uint16" => (u16::MIN.into(), u16::MAX.into()),
        "uint32" => (u32::MIN.into(), u32::MAX.into()),
        "uint64" => (u64::MIN.into(), u64::MAX.into()),
        _ => return None,
    })
}

/// `lower-kebab` as `UpperCamel`. A word that begins with a digit is set off, so that no two types get the same name.
fn pascal(type_name: &str) -> String {
    let word = |word: &str| match word.split_at_checked(1) {
        Some((first, rest)) if first.starts_with(|first: char| first.is_ascii_digit()) => format!("_{first}{rest}"),
        Some((first, rest)) => format!("{}{rest}", first.to_uppercase()),
        None => String::new(),
    };
    type_name.split('-').map(word).collect()
}
