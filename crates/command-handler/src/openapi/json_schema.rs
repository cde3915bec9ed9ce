//! Converts JSON Schema from the form of schemars into the form of the document.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// A variant of an enum that is written as name and data.
pub struct Variant {
    pub name: String,
    /// Its description; may be empty.
    pub description: String,
    /// The schema of its data.
    pub data: Value,
}

/// The variants of an enum that is tagged with this member.
pub fn variants(schema: &Value, tag: &str) -> Vec<Variant> {
    let read = |variant: &Value| {
        let members = &variant["properties"];
        let data = members.get("data").cloned().unwrap_or_else(|| json!({"type": "object"}));
        let description = variant["description"].as_str().unwrap_or_default().to_owned();
        Some(Variant { name: members[tag]["const"].as_str()?.to_owned(), description, data })
    };
    schema["oneOf"].as_array().into_iter().flatten().filter_map(read).collect()
}

/// One of several schemas, which a member distinguishes.
pub(super) fn one_of_tagged(member: &str, each: &[(String, Value)]) -> Value {
    let references: Vec<_> = each.iter().map(|(_, reference)| reference).collect();
    let mapping: Map<_, _> = each.iter().map(|(name, reference)| (name.clone(), reference["$ref"].clone())).collect();
    json!({"oneOf": references, "discriminator": {"propertyName": member, "mapping": mapping}})
}

/// Replaces a schema; the description of the replaced schema stays if the new one has none.
pub(super) fn replace(place: &mut Value, schema: &Value) {
    let description = place["description"].take();
    *place = schema.clone();
    if !description.is_null() && place["description"].is_null() {
        place["description"] = description;
    }
}

/// The schema of a value that this crate writes. An optional member is omitted instead of being null.
pub(super) fn written_schema<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = Value::from(generator.into_root_schema_for::<T>());
    without_null(&mut schema);
    let definitions = schema["$defs"].as_object_mut().into_iter().flat_map(Map::values_mut);
    definitions.for_each(without_null);
    schema
}

/// The schema with references into the document, and with the bounds that the formats of integers stand for.
pub(super) fn in_document(mut schema: Value, rename: &impl Fn(&str) -> String) -> Value {
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

pub(super) fn without_null(object: &mut Value) {
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
