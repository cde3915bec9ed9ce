//! The changes between two JSON Schema documents that break a consumer who knows only the earlier one.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};

use serde_json::{Number, Value};

/// The changes from one document to another that break a consumer, in the order of the earlier document: each with the message
/// and the member from the event as EventBridge delivers it, `order.OrderPlaced: detail.data.items[].quantity is not sent any more`.
///
/// A consumer who read every message of the earlier release reads every message of the later one, unless the later one may
/// contain something that the earlier one excluded, or lack something that it promised. New members and new message types
/// break nobody.
pub fn breaks(earlier: &Value, later: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for message in message_names(earlier) {
        let (old, new) = (&earlier["$defs"][message], &later["$defs"][message]);
        if !message_names(later).any(|name| name == message) {
            found.push(format!("{message} is not published any more"));
            continue;
        }
        let of_message = SchemaChange::find((earlier, old), (later, new)).into_iter();
        found.extend(of_message.map(|(path, change)| match path.as_str() {
            "" => format!("{message} {change}"),
            path => format!("{message}: {path} {change}"),
        }));
    }
    found
}

fn message_names(document: &Value) -> impl Iterator<Item = &str> {
    let references = document["oneOf"].as_array().into_iter().flatten();
    references.filter_map(|reference| reference["$ref"].as_str()?.strip_prefix("#/$defs/"))
}

/// Keywords that describe a value and do not restrict it.
const ANNOTATIONS: &str = "title description examples default deprecated readOnly writeOnly $comment $defs $schema";

/// Keywords that are compared one by one.
const COMPARED: [&str; 10] =
    ["$ref", "type", "const", "enum", "oneOf", "anyOf", "properties", "required", "items", "additionalProperties"];

const LOWER_LIMITS: [&str; 5] = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];
const UPPER_LIMITS: [&str; 5] = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];

pub(crate) struct SchemaChange<'a> {
    earlier: &'a Value,
    later: &'a Value,
    /// The pairs of references that are being compared: schemas may refer to themselves.
    entered: HashSet<(String, String)>,
    found: Vec<(String, String)>,
}

impl<'a> SchemaChange<'a> {
    /// The changes from a schema to another, each with its path. Each schema is paired with the document that its
    /// references point into.
    pub(crate) fn find(
        (earlier, old): (&'a Value, &Value),
        (later, new): (&'a Value, &Value),
    ) -> Vec<(String, String)> {
        let mut this = Self { earlier, later, entered: HashSet::new(), found: Vec::new() };
        this.compare("", old, new);
        this.found
    }

    fn compare(&mut self, path: &str, old: &Value, new: &Value) {
        if let (Some(old), Some(new)) = (old["$ref"].as_str(), new["$ref"].as_str())
            && !self.entered.insert((old.to_owned(), new.to_owned()))
        {
            return;
        }
        let (old, new) = (resolved(self.earlier, old), resolved(self.later, new));
        if !is_restricted(old) {
            return;
        }
        if let Some(variants) = variants(self.later, new) {
            return variants.iter().for_each(|variant| self.compare(path, old, variant));
        }
        if let Some(variants) = variants(self.earlier, old) {
            return self.compare_with_nearest(path, &variants, new);
        }
        self.compare_values(path, old, new);
        self.compare_limits(path, old, new);
        self.compare_members(path, old, new);
        if is_restricted(&old["items"]) {
            self.compare(&format!("{path}[]"), &old["items"], &new["items"]);
        }
        if old["additionalProperties"].is_object() {
            self.compare(&join(path, "*"), &old["additionalProperties"], &new["additionalProperties"]);
        }
        let is_other = |keyword: &str| {
            let compared = is_annotation(keyword) || COMPARED.contains(&keyword) || keyword.starts_with("x-");
            // The limits that a number's format implies are keywords too, so the format itself is not compared.
            let is_of_number = keyword == "format" && is_number(old);
            !compared && !is_of_number && !LOWER_LIMITS.contains(&keyword) && !UPPER_LIMITS.contains(&keyword)
        };
        for (keyword, value) in old.as_object().into_iter().flatten().filter(|(keyword, _)| is_other(keyword)) {
            if new.get(keyword) != Some(value) {
                let now = new.get(keyword).map_or("is gone".to_owned(), |now| format!("is now {now}"));
                self.report(path, format!("had the {keyword} {value}, which {now}"));
            }
        }
    }

    /// Compares with the variant that has the fewest changes.
    fn compare_with_nearest(&mut self, path: &str, variants: &[Value], new: &Value) {
        let of_variant = |variant| {
            let (entered, found) = (self.entered.clone(), Vec::new());
            let mut this = Self { earlier: self.earlier, later: self.later, entered, found };
            this.compare(path, variant, new);
            this.found
        };
        let nearest = variants.iter().map(of_variant).min_by_key(Vec::len);
        self.found.extend(nearest.into_iter().flatten());
    }

    fn compare_values(&mut self, path: &str, old: &Value, new: &Value) {
        if let Some(old) = types(old) {
            let new = types(new);
            let fits = |kind: &&str| old.contains(*kind) || (*kind == "integer" && old.contains("number"));
            if new.as_ref().is_none_or(|new| !new.iter().all(fits)) {
                let list = |types: &BTreeSet<&str>| types.iter().copied().collect::<Vec<_>>().join(" or ");
                let new = new.as_ref().map_or("any type".to_owned(), list);
                return self.report(path, format!("was {} and is now {new}", list(&old)));
            }
        }
        let Some(old) = values(old) else { return };
        let text = |values: Vec<&Value>| values.into_iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
        match values(new) {
            None => self.report(path, format!("had one of the values {}, and now has any", text(old))),
            Some(new) => {
                let added: Vec<_> = new.into_iter().filter(|value| !old.contains(value)).collect();
                if !added.is_empty() {
                    self.report(path, format!("can have the new value {}", text(added)));
                }
            }
        }
    }

    fn compare_limits(&mut self, path: &str, old: &Value, new: &Value) {
        for limit in LOWER_LIMITS.into_iter().chain(UPPER_LIMITS) {
            let allowed = if LOWER_LIMITS.contains(&limit) { Ordering::Greater } else { Ordering::Less };
            let Value::Number(before) = &old[limit] else { continue };
            match &new[limit] {
                Value::Number(now) if [allowed, Ordering::Equal].contains(&order(now, before)) => {}
                Value::Number(now) => self.report(path, format!("had the {limit} {before}, which is now {now}")),
                _ if new.get("const").is_some() || new.get("enum").is_some() => {}
                _ => self.report(path, format!("had the {limit} {before}, which is gone")),
            }
        }
    }

    fn compare_members(&mut self, path: &str, old: &Value, new: &Value) {
        let required = |schema: &Value, name: &str| {
            schema["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name))
        };
        for (name, member) in old["properties"].as_object().into_iter().flatten() {
            let path = join(path, name);
            match new["properties"].get(name) {
                None => self.report(&path, "is not sent any more".to_owned()),
                Some(_) if required(old, name) && !required(new, name) => {
                    self.report(&path, "was always sent and is now optional".to_owned());
                }
                Some(now) => self.compare(&path, member, now),
            }
        }
    }

    fn report(&mut self, path: &str, change: String) {
        self.found.push((path.to_owned(), change));
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn resolved<'a>(document: &'a Value, mut schema: &'a Value) -> &'a Value {
    while let Some(reference) = schema["$ref"].as_str() {
        schema = document.pointer(reference.trim_start_matches('#')).unwrap_or(&Value::Null);
    }
    schema
}

fn is_restricted(schema: &Value) -> bool {
    schema.as_object().is_some_and(|members| members.keys().any(|keyword| !is_annotation(keyword)))
}

fn is_annotation(keyword: &str) -> bool {
    ANNOTATIONS.split(' ').any(|annotation| annotation == keyword)
}

/// The variants of a schema, each with what the schema requires of all of them.
fn variants(document: &Value, schema: &Value) -> Option<Vec<Value>> {
    let mut common = schema.as_object()?.clone();
    let Value::Array(variants) = common.remove("oneOf").or_else(|| common.remove("anyOf"))? else { return None };
    let with_common = |variant: &Value| {
        let mut members = common.clone();
        for (keyword, value) in resolved(document, variant).as_object().into_iter().flatten() {
            match (members.get_mut(keyword), value) {
                (Some(Value::Object(properties)), Value::Object(more)) => properties.extend(more.clone()),
                (Some(Value::Array(required)), Value::Array(more)) if keyword == "required" => {
                    required.extend(more.clone());
                }
                _ => {
                    members.insert(keyword.clone(), value.clone());
                }
            }
        }
        Value::Object(members)
    };
    Some(variants.iter().map(with_common).collect())
}

fn is_number(schema: &Value) -> bool {
    types(schema).is_some_and(|types| types.iter().any(|kind| ["integer", "number"].contains(kind)))
}

/// The types that a value may have; `None` for all.
fn types(schema: &Value) -> Option<BTreeSet<&str>> {
    match (&schema["type"], values(schema)) {
        (Value::String(kind), _) => Some([kind.as_str()].into()),
        (Value::Array(kinds), _) => Some(kinds.iter().filter_map(Value::as_str).collect()),
        (_, Some(values)) => Some(values.into_iter().map(type_of).collect()),
        _ => None,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The values that are listed; `None` if there is no list.
fn values(schema: &Value) -> Option<Vec<&Value>> {
    schema.get("const").map(|value| vec![value]).or_else(|| Some(schema.get("enum")?.as_array()?.iter().collect()))
}

fn order(one: &Number, other: &Number) -> Ordering {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => one.as_f64().partial_cmp(&other.as_f64()).unwrap_or(Ordering::Equal),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changes(old: &Value, new: &Value) -> Vec<String> {
        let found = SchemaChange::find((old, old), (new, new));
        found.into_iter().map(|(path, change)| format!("{path} {change}")).collect()
    }

    /// A schema of an object with one required member, which has this schema.
    fn object(member: &Value) -> Value {
        json!({"type": "object", "properties": {"a": member}, "required": ["a"]})
    }

    #[test]
    fn changes_that_break_no_reader_are_not_found() {
        let old = object(&json!({"type": "string", "description": "One.", "enum": ["x", "y"]}));
        let mut new = object(&json!({"type": "string", "description": "Other.", "enum": ["x"]}));
        new["properties"]["b"] = json!({"type": "integer"});
        new["required"] = json!(["a", "b"]);
        assert_eq!(changes(&old, &new), Vec::<String>::new());
        for (old, new) in [
            (json!({"type": "integer", "minimum": 0}), json!({"type": "integer", "minimum": 1})),
            (json!({"type": "number"}), json!({"type": "integer"})),
            (json!({"type": ["string", "null"]}), json!({"type": "string"})),
            (json!({"maxLength": 5, "type": "string"}), json!({"maxLength": 4, "type": "string", "pattern": "^x"})),
            (json!({"oneOf": [{"const": "x"}, {"const": "y"}]}), json!({"oneOf": [{"const": "y"}]})),
            (json!({"type": "integer", "format": "uint64", "minimum": 0}), json!({"type": "integer", "minimum": 0})),
            (json!({"anyOf": [{"type": "object"}, {"type": "null"}]}), json!({"type": "object"})),
            (
                json!({"type": "object", "properties": {"b": {}}, "required": ["b"], "oneOf": [{"properties": {"c": {}}}]}),
                json!({"type": "object", "properties": {"b": {}}, "required": ["b"], "oneOf": [{"properties": {"c": {}}}]}),
            ),
            (json!({}), json!({"type": "string"})),
            (json!(true), json!({"type": "string"})),
        ] {
            assert_eq!(changes(&object(&old), &object(&new)), Vec::<String>::new(), "{old} {new}");
        }
    }

    #[test]
    fn each_change_that_breaks_a_reader_is_found_with_its_path() {
        let same = object(&json!({"type": "string"}));
        let optional = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        assert_eq!(changes(&same, &optional), ["a was always sent and is now optional"]);
        assert_eq!(changes(&same, &json!({"type": "object"})), ["a is not sent any more"]);
        assert_eq!(changes(&optional, &json!({"type": "object"})), ["a is not sent any more"]);
        for (old, new, expected) in [
            (json!({"type": "string"}), json!({"type": "integer"}), "a was string and is now integer"),
            (json!({"type": "integer"}), json!({"type": "number"}), "a was integer and is now number"),
            (json!({"type": "string"}), json!({"type": ["string", "null"]}), "a was string and is now null or string"),
            (json!({"type": "string"}), json!({}), "a was string and is now any type"),
            (json!({"enum": ["x"]}), json!({"enum": ["x", "y"]}), "a can have the new value \"y\""),
            (json!({"const": "x"}), json!({"const": "y"}), "a can have the new value \"y\""),
            (json!({"const": "x"}), json!({"type": "string"}), "a had one of the values \"x\", and now has any"),
            (json!({"minimum": 1}), json!({"minimum": 0}), "a had the minimum 1, which is now 0"),
            (json!({"maximum": 1}), json!({}), "a had the maximum 1, which is gone"),
            (json!({"maxItems": 1}), json!({"maxItems": 2}), "a had the maxItems 1, which is now 2"),
            (json!({"pattern": "^x"}), json!({"pattern": "^y"}), "a had the pattern \"^x\", which is now \"^y\""),
            (json!({"format": "date-time"}), json!({}), "a had the format \"date-time\", which is gone"),
            (
                json!({"items": {"type": "string"}}),
                json!({"items": {"type": "null"}}),
                "a[] was string and is now null",
            ),
            (
                json!({"additionalProperties": {"type": "string"}}),
                json!({"additionalProperties": {"type": "null"}}),
                "a.* was string and is now null",
            ),
            (
                json!({"oneOf": [{"const": "x"}, {"const": "y"}]}),
                json!({"oneOf": [{"const": "y"}, {"const": "z"}]}),
                "a can have the new value \"z\"",
            ),
            (
                json!({"maximum": 18_446_744_073_709_551_614_u64}),
                json!({"maximum": 18_446_744_073_709_551_615_u64}),
                "a had the maximum 18446744073709551614, which is now 18446744073709551615",
            ),
        ] {
            assert_eq!(changes(&object(&old), &object(&new)), [expected], "{old} {new}");
        }
    }

    #[test]
    fn schema_that_refers_to_itself_is_compared_once() {
        let tree = |value: &str| {
            json!({
                "$ref": "#/$defs/Node",
                "$defs": {"Node": {
                    "type": "object",
                    "properties": {
                        "value": {"type": value},
                        "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                    },
                    "required": ["value", "children"],
                }},
            })
        };
        assert_eq!(changes(&tree("string"), &tree("string")), Vec::<String>::new());
        assert_eq!(changes(&tree("string"), &tree("null")), ["value was string and is now null"]);
    }

    #[test]
    fn combined_schema_that_changed_is_a_change() {
        let (old, new) = (json!({"allOf": [{"minimum": 1}]}), json!({"allOf": [{"minimum": 0}]}));
        assert_eq!(
            changes(&object(&old), &object(&new)),
            ["a had the allOf [{\"minimum\":1}], which is now [{\"minimum\":0}]"]
        );
    }
}
