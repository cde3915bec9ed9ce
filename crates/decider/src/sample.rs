//! Values that fit a schema.

use serde_json::{Map, Value, json};

use crate::model::Model;

/// A sample of each command, as its name and its data.
pub fn samples(model: &dyn Model) -> Vec<Value> {
    let schema = Value::from(model.schemas().command.clone());
    let variants = schema["oneOf"].as_array().into_iter().flatten();
    let of = |variant: &Value| {
        let members = &variant["properties"];
        let data = members.get("data").map_or_else(|| json!({}), |data| sample(data, &schema));
        json!({"command": members["command"]["const"], "data": data})
    };
    variants.map(of).collect()
}

/// A value that fits a schema: the schema's example, or the simplest value.
pub fn sample(schema: &Value, root: &Value) -> Value {
    sample_within(schema, root, &[])
}

/// The value within those that fit `outer` references: a schema may refer to itself, so each is followed at most twice.
fn sample_within(schema: &Value, root: &Value, outer: &[&str]) -> Value {
    let sample = |schema: &Value| sample_within(schema, root, outer);
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#'));
        let target = target.filter(|_| outer.iter().filter(|outer| **outer == reference).count() < 2);
        return target.map(|target| sample_within(target, root, &[outer, &[reference]].concat())).unwrap_or_default();
    }
    for given in [&schema["examples"][0], &schema["const"], &schema["enum"][0]] {
        if !given.is_null() {
            return given.clone();
        }
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        if schema[choice][0].is_object() {
            return sample(&schema[choice][0]);
        }
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match kind {
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let members = required.map(|name| (name.to_owned(), sample(&schema["properties"][name])));
            members.collect::<Map<_, _>>().into()
        }
        Some("array") => json!([sample(&schema["items"])]),
        Some("string") => match schema["format"].as_str() {
            Some("date-time") => json!("2026-01-01T00:00:00Z"),
            Some("date") => json!("2026-01-01"),
            _ => json!("text"),
        },
        Some("integer" | "number") => json!(schema["minimum"].as_i64().unwrap_or_default().max(1)),
        Some("boolean") => json!(true),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_that_refers_to_itself_has_a_sample() {
        let node = json!({
            "type": "object", "properties": {"parts": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
            "required": ["parts"],
        });
        let root = json!({"$defs": {"Node": node}});
        assert!(sample(&node, &root)["parts"][0]["parts"].is_array());
    }
}
