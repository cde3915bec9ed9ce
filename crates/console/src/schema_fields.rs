//! The form of a command, from its JSON Schema, and the command from the form.

use daybook_decider::sample;
use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::request::PostedForm;

const DATA: &str = "data.";

#[derive(Debug)]
pub(crate) struct CommandForm<'a> {
    pub(crate) name: &'a str,
    pub(crate) description: &'a str,
    fields: Vec<Field<'a>>,
}

#[derive(Debug)]
struct Field<'a> {
    name: &'a str,
    description: &'a str,
    kind: Kind<'a>,
    is_required: bool,
    example: Option<String>,
}

#[derive(Debug, PartialEq)]
enum Kind<'a> {
    Text,
    Number,
    Flag,
    Choice(Vec<&'a str>),
    /// Everything else: lists and objects.
    Json,
}

pub(crate) fn commands(schema: &Value) -> Vec<CommandForm<'_>> {
    let variants = schema.get("oneOf").and_then(Value::as_array);
    variants.into_iter().flatten().filter_map(|variant| command(schema, variant)).collect()
}

fn command<'a>(schema: &'a Value, variant: &'a Value) -> Option<CommandForm<'a>> {
    let name = variant.pointer("/properties/command/const")?.as_str()?;
    let data = variant.pointer("/properties/data").map(|data| resolved(schema, data));
    let properties = data.and_then(|data| data.get("properties")).and_then(Value::as_object);
    let field = |(name, property): (&'a String, &'a Value)| {
        let target = resolved(schema, property);
        let kind = kind(target);
        let example = match kind {
            Kind::Json => {
                let given = example(schema, property).cloned().unwrap_or_else(|| sample(property, schema));
                serde_json::to_string_pretty(&given).ok()
            }
            _ => example(schema, property).map(|found| found.as_str().map_or_else(|| found.to_string(), str::to_owned)),
        };
        Field {
            name,
            description: text(property, "description").or(text(target, "description")).unwrap_or_default(),
            kind,
            is_required: data.is_some_and(|data| is_required(data, name)),
            example,
        }
    };
    let fields = properties.into_iter().flatten().map(field).collect();
    Some(CommandForm { name, description: text(variant, "description").unwrap_or_default(), fields })
}

/// The example of a schema, or its default.
fn example<'a>(root: &'a Value, schema: &'a Value) -> Option<&'a Value> {
    let of = |schema: &'a Value| schema.get("examples").and_then(|examples| examples.get(0)).or(schema.get("default"));
    of(schema).or_else(|| of(resolved(root, schema)))
}

fn is_required(schema: &Value, name: &str) -> bool {
    let names = schema.get("required").and_then(Value::as_array);
    names.is_some_and(|names| names.iter().any(|required| required == name))
}

fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|path| root.pointer(path.strip_prefix('#')?));
    target.unwrap_or(schema)
}

fn text<'a>(schema: &'a Value, name: &str) -> Option<&'a str> {
    schema.get(name)?.as_str()
}

fn kind(schema: &Value) -> Kind<'_> {
    let texts = |values: &[Value]| values.iter().all(Value::is_string);
    if let Some(values) = schema.get("enum").and_then(Value::as_array).filter(|values| texts(values)) {
        return Kind::Choice(values.iter().filter_map(Value::as_str).collect());
    }
    if let Some(variants) = schema.get("oneOf").and_then(Value::as_array) {
        let names: Option<Vec<_>> = variants.iter().map(|variant| text(variant, "const")).collect();
        return names.map_or(Kind::Json, Kind::Choice);
    }
    let of_type = match schema.get("type") {
        Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).find(|name| *name != "null"),
        Some(Value::String(name)) => Some(name.as_str()),
        _ => None,
    };
    match of_type {
        Some("string") => Kind::Text,
        Some("integer" | "number") => Kind::Number,
        Some("boolean") => Kind::Flag,
        _ => Kind::Json,
    }
}

impl CommandForm<'_> {
    /// The fields, with the values of a form that was sent before. Values that the form does not have are examples.
    pub(crate) fn markup(&self, sent: Option<&PostedForm>) -> Markup {
        html! {
            @for field in &self.fields { (field.markup(sent)) }
            @if self.fields.is_empty() { p.hint { "The command has no data." } }
        }
    }

    pub(crate) fn data(&self, form: &PostedForm) -> Result<Value, String> {
        let mut data = Map::new();
        for field in &self.fields {
            let given = form.values(&field.input()).next().unwrap_or_default().replace("\r\n", "\n");
            if given.is_empty() && (!field.is_required || field.kind != Kind::Text) {
                continue;
            }
            let value = match field.kind {
                Kind::Text | Kind::Choice(_) => given.into(),
                // What is no number is sent as it is: the API says what it expects.
                Kind::Number => {
                    serde_json::from_str::<Value>(&given).ok().filter(Value::is_number).unwrap_or(given.into())
                }
                Kind::Flag => (given == "true").into(),
                Kind::Json => {
                    serde_json::from_str(&given).map_err(|error| format!("{} is not JSON: {error}", field.name))?
                }
            };
            data.insert(field.name.to_owned(), value);
        }
        Ok(data.into())
    }
}

impl Field<'_> {
    fn input(&self) -> String {
        format!("{DATA}{}", self.name)
    }

    fn markup(&self, sent: Option<&PostedForm>) -> Markup {
        let input = self.input();
        let value = match sent {
            Some(form) => form.values(&input).next().unwrap_or_default(),
            None if self.is_required => self.example.as_deref().unwrap_or_default(),
            None => "",
        };
        let hint = format!("hint-{}", self.name);
        html! {
            div.field {
                label for=(input) { (self.name) @if !self.is_required { span.hint { " optional" } } }
                @match &self.kind {
                    Kind::Text => { input id=(input) name=(input) value=(value) aria-describedby=(hint) autocomplete="off" spellcheck="false"; }
                    Kind::Number => { input id=(input) name=(input) value=(value) aria-describedby=(hint) inputmode="decimal" autocomplete="off"; }
                    Kind::Flag => select id=(input) name=(input) aria-describedby=(hint) {
                        @for option in ["", "true", "false"] {
                            @if !(option.is_empty() && self.is_required) { option value=(option) selected[value == option] { (option) } }
                        }
                    },
                    Kind::Choice(options) => select id=(input) name=(input) aria-describedby=(hint) {
                        @if !self.is_required { option value="" {} }
                        @for option in options { option value=(option) selected[value == *option] { (option) } }
                    },
                    Kind::Json => textarea id=(input) name=(input) aria-describedby=(hint) rows=(value.lines().count().clamp(4, 16)) spellcheck="false" placeholder="JSON" { (value) },
                }
                p.hint id=(hint) { (self.description) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "oneOf": [
                {"properties": {"command": {"const": "Open"}, "data": {
                    "properties": {
                        "name": {"type": "string", "description": "The name."},
                        "amount": {"type": "integer", "examples": [5]},
                        "urgent": {"type": ["boolean", "null"]},
                        "status": {"$ref": "#/$defs/Status"},
                        "items": {"type": "array"}
                    },
                    "required": ["name", "amount"]
                }}},
                {"properties": {"command": {"const": "Close"}}}
            ],
            "$defs": {"Status": {"oneOf": [{"const": "new"}, {"const": "old"}]}}
        })
    }

    fn form(fields: &[(&str, &str)]) -> PostedForm {
        PostedForm(fields.iter().map(|(name, value)| (format!("data.{name}"), (*value).to_owned())).collect())
    }

    #[test]
    fn form_becomes_data_of_the_types_of_the_schema() {
        let schema = schema();
        let commands = commands(&schema);
        assert_eq!(commands.iter().map(|command| command.name).collect::<Vec<_>>(), ["Open", "Close"]);
        let sent =
            form(&[("name", "a\r\nb"), ("amount", "1.50"), ("urgent", "true"), ("status", "old"), ("items", "[1]")]);
        let expected = json!({"name": "a\nb", "amount": 1.50, "urgent": true, "status": "old", "items": [1]});
        assert_eq!(commands[0].data(&sent).unwrap(), expected);
        let sent = form(&[("name", ""), ("amount", "many"), ("urgent", ""), ("status", ""), ("items", "")]);
        assert_eq!(commands[0].data(&sent).unwrap(), json!({"name": "", "amount": "many"}));
        assert!(commands[0].data(&form(&[("items", "[")])).unwrap_err().starts_with("items is not JSON"));
        assert_eq!(commands[1].data(&form(&[])).unwrap(), json!({}));
    }

    #[test]
    fn required_fields_begin_with_their_example() {
        let schema = schema();
        let markup = commands(&schema)[0].markup(None).into_string();
        assert!(markup.contains("name=\"data.amount\" value=\"5\""), "{markup}");
        assert!(markup.contains("<option value=\"new\">"), "{markup}");
    }
}
