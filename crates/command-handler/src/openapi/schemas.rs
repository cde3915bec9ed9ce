//! The schemas of the document, which are made by schemars, and the examples beside them, with the sample values of all.

use daybook_decider::personal;
use jiff::Timestamp;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Map, Value, json};
use ulid::Ulid;

/// The id in all examples.
pub const ID: &str = "123";

/// The time of all examples: 2026-01-01T00:00:00Z.
pub(crate) const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The time up to which the feeds of the examples are settled: a minute later.
pub(crate) const SETTLED: Timestamp = Timestamp::constant(1_767_225_660, 0);

/// A ULID at the time of the examples: the same at every run.
pub(crate) fn ulid(random: u128) -> Ulid {
    Ulid::from_parts(u64::try_from(NOW.as_millisecond()).unwrap_or_default(), random)
}

pub(crate) struct Content {
    pub(crate) schema: Value,
    pub(crate) examples: Value,
}

/// The examples that exist, in the form of the document.
pub(crate) fn named<const N: usize>(examples: [(&str, Option<Value>); N]) -> Value {
    let there = examples.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!({"value": value?}))));
    there.collect::<Map<_, _>>().into()
}

pub(crate) fn json_of(value: &impl Serialize) -> Option<Value> {
    serde_json::from_str(&personal::shown(&serde_json::to_string(value).ok()?)).ok()
}

/// The schemas that others refer to as `#/components/schemas/NAME`.
#[derive(Default)]
pub struct Schemas(Map<String, Value>);

impl Schemas {
    pub fn into_all(self) -> Value {
        self.0.into()
    }

    /// Adds schemas under names that no other schema takes.
    pub(crate) fn extend(&mut self, schemas: impl Iterator<Item = (String, Value)>) {
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
    pub(crate) fn add_response<T: JsonSchema>(&mut self, name: &str, parts: &[(&str, &Value)]) -> Value {
        let mut schema = written_schema::<T>();
        // The schemas of one type replace these.
        if let Some(definitions) = schema["$defs"].as_object_mut() {
            definitions.retain(|name, _| !["EventJson", "FeedEventJson", "MessageJson"].contains(&name.as_str()));
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
    pub(crate) fn resolve(&self, schema: &Value) -> Value {
        referred_name(schema).and_then(|name| self.0.get(name)).unwrap_or(schema).clone()
    }
}

/// A variant of an enum that is written as name and data.
pub struct Variant {
    pub name: String,
    pub description: String,
    pub data: Value,
}

pub fn variants(schema: &Value, tag: &str) -> Vec<Variant> {
    let read = |variant: &Value| {
        let members = &variant["properties"];
        let data = members.get("data").cloned().unwrap_or_else(|| json!({"type": "object"}));
        let description = variant["description"].as_str().unwrap_or_default().to_owned();
        Some(Variant { name: members[tag]["const"].as_str()?.to_owned(), description, data })
    };
    schema["oneOf"].as_array().into_iter().flatten().filter_map(read).collect()
}

pub(crate) fn one_of_tagged(member: &str, each: &[(String, Value)]) -> Value {
    let references: Vec<_> = each.iter().map(|(_, reference)| reference).collect();
    let mapping: Map<_, _> = each.iter().map(|(name, reference)| (name.clone(), reference["$ref"].clone())).collect();
    json!({"oneOf": references, "discriminator": {"propertyName": member, "mapping": mapping}})
}

/// Replaces a schema; the description of the replaced schema stays if the new one has none.
pub(crate) fn replace(place: &mut Value, schema: &Value) {
    let description = place["description"].take();
    *place = schema.clone();
    if !description.is_null() && place["description"].is_null() {
        place["description"] = description;
    }
}

/// The schema of a value that this crate writes. An optional member is omitted instead of being null.
pub(crate) fn written_schema<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = Value::from(generator.into_root_schema_for::<T>());
    without_null(&mut schema);
    let definitions = schema["$defs"].as_object_mut().into_iter().flat_map(Map::values_mut);
    definitions.for_each(without_null);
    schema
}

/// The schema with references into the document, and with the bounds that the formats of integers stand for.
pub(crate) fn in_document(mut schema: Value, rename: &impl Fn(&str) -> String) -> Value {
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
            // No other tool knows this format.
            if members.get("format").is_some_and(|format| format == "uint") {
                members.remove("format");
            }
            for member in members.values_mut() {
                *member = in_document(member.take(), rename);
            }
        }
        Value::Array(elements) => {
            for element in elements {
                *element = in_document(element.take(), rename);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    schema
}

pub(crate) fn without_null(object: &mut Value) {
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

pub(crate) const ID_CHARACTERS: &str = "[A-Za-z0-9._~-]{1,128}";

/// An id, by the rule of [`daybook_table::keys::is_id`].
pub(crate) fn id_schema() -> Value {
    json!({
        "type": "string",
        "pattern": format!("^{ID_CHARACTERS}$"),
        "minLength": 1,
        "maxLength": daybook_table::keys::MAX_ID,
        "not": {"enum": [".", ".."]},
        "examples": [ID],
    })
}

pub(crate) fn reference(kind: &str, name: &str) -> Value {
    json!({"$ref": format!("#/components/{kind}/{name}")})
}

pub(crate) fn referred_name(value: &Value) -> Option<&str> {
    value["$ref"].as_str()?.rsplit('/').next()
}

/// `lower-kebab` as `UpperCamel`. A word that begins with a digit gets an underscore, so that different names stay
/// different.
pub(crate) fn upper_camel(kebab: &str) -> String {
    let word = |word: &str| match word.split_at_checked(1) {
        Some((first, rest)) if first.starts_with(|first: char| first.is_ascii_digit()) => format!("_{first}{rest}"),
        Some((first, rest)) => format!("{}{rest}", first.to_uppercase()),
        None => String::new(),
    };
    kebab.split('-').map(word).collect()
}
