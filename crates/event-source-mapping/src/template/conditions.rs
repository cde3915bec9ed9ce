//! The template as JSON. Every tag is replaced by its long form, so that there is only one form to read.
//!
//! Conditions that depend on parameters alone: replaces each `Fn::If` by the branch that a deployment with these parameters
//! would take, and leaves out the resources that it would not create.

use serde_json::{Map, Value};

use crate::template::node::{Parameters, TemplateError};

/// The template without those `Fn::If`s and resources, and without the members and elements whose branch is
/// `AWS::NoValue`.
pub(crate) fn resolve(template: Value, parameters: &Parameters) -> Value {
    let conditions = template.get("Conditions").cloned().unwrap_or_default();
    let resolver = Resolver { conditions, parameters };
    let mut template = resolver.resolve(template).unwrap_or_default();
    if let Some(resources) = template.get_mut("Resources").and_then(Value::as_object_mut) {
        resources.retain(|_, resource| resolver.is_created(resource));
    }
    template
}

struct Resolver<'a> {
    conditions: Value,
    parameters: &'a Parameters,
}

impl Resolver<'_> {
    /// `None` for `AWS::NoValue`.
    fn resolve(&self, value: Value) -> Option<Value> {
        match value {
            Value::Object(object) => self.resolve_object(object),
            Value::Array(elements) => Some(elements.into_iter().filter_map(|element| self.resolve(element)).collect()),
            single => Some(single),
        }
    }

    fn resolve_object(&self, mut object: Map<String, Value>) -> Option<Value> {
        if object.get("Ref").is_some_and(|name| name == "AWS::NoValue") {
            return None;
        }
        let branch = match object.get("Fn::If").and_then(Value::as_array).map(Vec::as_slice) {
            Some([Value::String(name), _, _]) => self.condition(&self.conditions[name]),
            _ => None,
        };
        if let (Some(holds), Some(Value::Array(mut branches))) = (branch, object.get_mut("Fn::If").map(Value::take)) {
            return self.resolve(branches.swap_remove(if holds { 1 } else { 2 }));
        }
        let members = object.into_iter().filter_map(|(name, value)| Some((name, self.resolve(value)?)));
        Some(Value::Object(members.collect()))
    }

    fn is_created(&self, resource: &Value) -> bool {
        let condition = resource.get("Condition").and_then(Value::as_str);
        condition.and_then(|name| self.condition(&self.conditions[name])).unwrap_or(true)
    }

    /// Whether a condition holds; `None` if that depends on more than parameters.
    fn condition(&self, condition: &Value) -> Option<bool> {
        let (name, operand) = condition.as_object()?.iter().next()?;
        let operands = || operand.as_array().map(Vec::as_slice);
        match name.as_str() {
            "Condition" => self.condition(&self.conditions[operand.as_str()?]),
            "Fn::Equals" => match operands()? {
                [one, other] => Some(self.text(one)? == self.text(other)?),
                _ => None,
            },
            "Fn::Not" => Some(!self.condition(operands()?.first()?)?),
            "Fn::And" => operands()?.iter().map(|one| self.condition(one)).try_fold(true, |all, one| Some(all & one?)),
            "Fn::Or" => operands()?.iter().map(|one| self.condition(one)).try_fold(false, |any, one| Some(any | one?)),
            _ => None,
        }
    }

    fn text(&self, value: &Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            Value::Object(object) => self.parameters.get(object.get("Ref")?.as_str()?).cloned(),
            Value::Null | Value::Array(_) => None,
        }
    }
}

/// Reads a template: `!Ref A` becomes `{"Ref": "A"}`.
pub(crate) fn parse(text: &str) -> Result<Value, TemplateError> {
    let yaml: serde_yaml_ng::Value = serde_yaml_ng::from_str(text)?;
    // A tag becomes the name of an only member: `{"!Ref": "A"}`.
    let json = serde_json::to_value(yaml).map_err(|error| TemplateError::at("", error.to_string()))?;
    Ok(long_form(json))
}

fn long_form(value: Value) -> Value {
    let member = |(name, value): (String, Value)| match (name.strip_prefix('!'), long_form(value)) {
        (None, value) => (name, value),
        (Some(tag @ ("Ref" | "Condition")), operand) => (tag.to_owned(), operand),
        (Some("GetAtt"), Value::String(path)) => {
            let path = path.split_once('.').map_or(vec![path.as_str()], |(resource, name)| vec![resource, name]);
            ("Fn::GetAtt".to_owned(), path.into())
        }
        (Some(tag), operand) => (format!("Fn::{tag}"), operand),
    };
    match value {
        Value::Array(elements) => elements.into_iter().map(long_form).collect(),
        Value::Object(members) => members.into_iter().map(member).collect(),
        single => single,
    }
}
