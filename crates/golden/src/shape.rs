//! The shape of an event's data: a short form of its JSON Schema, without the descriptions.

use daybook_decider::personal;
use serde_json::{Map, Value, json};

/// The member for the shape of a personal value that is more than a text or a number.
const PERSONAL: &str = "personal";

/// Returns the shape of a schema. An object becomes its members with their shapes, and `?` follows the name of an
/// optional member. A list becomes a list of one shape. Any other schema becomes its type and format, or remains the
/// whole schema if type and format do not describe it. `personal` precedes that of a personal value.
pub(crate) fn of(schema: &Value, root: &Value) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#'));
        return of(target.expect("a schema refers to its own definitions"), root);
    }
    if schema.get(personal::MARK).is_some() {
        return match of(&schema["anyOf"][0], root) {
            Value::String(kind) => format!("personal {kind}").into(),
            other => json!({ PERSONAL: other }),
        };
    }
    match schema["type"].as_str() {
        Some("object") if schema.get("additionalProperties").is_none_or(Value::is_boolean) => {
            let required = |name| schema["required"].as_array().is_some_and(|names| names.contains(&Value::from(name)));
            let members = schema["properties"].as_object().into_iter().flatten().map(|(name, member)| {
                let mark = if required(name.as_str()) { "" } else { "?" };
                (format!("{name}{mark}"), of(member, root))
            });
            members.collect::<Map<_, _>>().into()
        }
        Some("array") if schema["items"].is_object() => vec![of(&schema["items"], root)].into(),
        Some(kind) if schema.get("enum").or(schema.get("const")).is_none() => {
            let format = schema["format"].as_str().map(|format| format!(" {format}"));
            format!("{kind}{}", format.unwrap_or_default()).into()
        }
        _ => undescribed(schema, root),
    }
}

/// The schema without descriptions, its references resolved.
fn undescribed(schema: &Value, root: &Value) -> Value {
    match schema {
        Value::Object(members) if members.contains_key("$ref") => of(schema, root),
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, value)| !(*name == "description" && value.is_string()));
            kept.map(|(name, value)| (name.clone(), undescribed(value, root))).collect::<Map<_, _>>().into()
        }
        Value::Array(elements) => elements.iter().map(|element| undescribed(element, root)).collect(),
        other => other.clone(),
    }
}

/// Lists the differences between `data` and a shape: missing members, and members that the shape does not have.
pub(crate) fn misfits(data: &Value, shape: &Value) -> Vec<String> {
    match (data, shape) {
        (_, Value::Object(shapes)) if shapes.len() == 1 && shapes.contains_key(PERSONAL) => {
            misfits(data, &shapes[PERSONAL])
        }
        (Value::Object(members), Value::Object(shapes)) => {
            let shape_of = |name: &str| shapes.get(name).or_else(|| shapes.get(&format!("{name}?")));
            let unknown =
                members.keys().filter(|name| shape_of(name).is_none()).map(|name| format!("{name} is unknown"));
            let missing = shapes.keys().filter(|name| !name.ends_with('?') && !members.contains_key(*name));
            let within = members
                .iter()
                .filter_map(|(name, value)| Some((name, misfits(value, shape_of(name)?))))
                .flat_map(|(name, found)| found.into_iter().map(move |misfit| format!("{name}.{misfit}")));
            unknown.chain(missing.map(|name| format!("{name} is missing"))).chain(within).collect()
        }
        (Value::Array(elements), Value::Array(shapes)) => {
            elements.iter().flat_map(|element| misfits(element, &shapes[0])).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn shape_of_a_described_schema_omits_the_descriptions() {
    let root = serde_json::json!({
        "$defs": {
            "Line": {
                "description": "A line.", "type": "object", "required": ["description"],
                "properties": {
                    "description": {"description": "What.", "type": "string"},
                    "count": {"type": "integer", "format": "uint32", "description": "How many."}
                }
            },
            "Kind": {"oneOf": [{"const": "a", "type": "string", "description": "A."}]}
        }
    });
    let schema = serde_json::json!({
        "type": "object", "required": ["lines", "kind"],
        "properties": {
            "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
            "kind": {"$ref": "#/$defs/Kind", "description": "Which."},
            "note": {"type": ["string", "null"], "description": "Perhaps."}
        }
    });
    let shape = serde_json::json!({
        "lines": [{"description": "string", "count?": "integer uint32"}],
        "kind": {"oneOf": [{"const": "a", "type": "string"}]},
        "note?": {"type": ["string", "null"]}
    });
    assert_eq!(of(&schema, &root), shape);

    let data = serde_json::json!({"lines": [{"count": 1, "what": 2}], "note": null});
    assert_eq!(misfits(&data, &shape), ["kind is missing", "lines.what is unknown", "lines.description is missing"]);
}
