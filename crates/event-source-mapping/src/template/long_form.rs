//! The template as JSON. Every tag is replaced by its long form, so that there is only one form to read.

use serde_json::{Map, Value};
use serde_yaml_ng::Value as Yaml;

use crate::template::error::TemplateError;

/// Reads a template: `!Ref A` becomes `{"Ref": "A"}`.
pub(crate) fn parse(text: &str) -> Result<Value, TemplateError> {
    long_form(serde_yaml_ng::from_str(text)?)
}

fn long_form(yaml: Yaml) -> Result<Value, TemplateError> {
    Ok(match yaml {
        Yaml::Null => Value::Null,
        Yaml::Bool(flag) => flag.into(),
        Yaml::Number(number) => {
            serde_json::to_value(number).map_err(|error| TemplateError::at("", error.to_string()))?
        }
        Yaml::String(text) => text.into(),
        Yaml::Sequence(elements) => elements.into_iter().map(long_form).collect::<Result<_, _>>()?,
        Yaml::Mapping(members) => members
            .into_iter()
            .map(|(key, value)| Ok((key_text(key)?, long_form(value)?)))
            .collect::<Result<_, TemplateError>>()?,
        Yaml::Tagged(tagged) => {
            let operand = long_form(tagged.value)?;
            let tag = tagged.tag.to_string();
            let (name, operand) = match (tag.trim_start_matches('!'), operand) {
                (name @ ("Ref" | "Condition"), operand) => (name.to_owned(), operand),
                ("GetAtt", Value::String(path)) => {
                    let path =
                        path.split_once('.').map_or(vec![path.as_str()], |(resource, name)| vec![resource, name]);
                    ("Fn::GetAtt".to_owned(), path.into())
                }
                (name, operand) => (format!("Fn::{name}"), operand),
            };
            Value::Object(Map::from_iter([(name, operand)]))
        }
    })
}

fn key_text(key: Yaml) -> Result<String, TemplateError> {
    match key {
        Yaml::String(text) => Ok(text),
        Yaml::Number(number) => Ok(number.to_string()),
        Yaml::Bool(flag) => Ok(flag.to_string()),
        other => Err(TemplateError::at("", format!("{other:?} cannot be a key"))),
    }
}
