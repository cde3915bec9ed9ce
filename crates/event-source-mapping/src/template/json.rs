//! The template as JSON, its values with their paths, and the errors in them.
//!
//! Every tag is replaced by its long form, so that there is only one form to read. Of conditions that depend on parameters alone,
//! each `Fn::If` is replaced by the branch that a deployment with these parameters would take, and the resources that it would not
//! create are left out.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde_json::{Map, Value};

/// The values of parameters: their defaults, or those of a deployment.
pub(crate) type Parameters = BTreeMap<String, String>;

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

/// The template without the `Fn::If`s and the resources that these parameters decide on, and without the members and elements
/// whose branch is `AWS::NoValue`.
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
        Node::root(value, self.parameters).known().ok()
    }
}

/// A value that may depend on a resource that only a deployment creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A literal, or the default of a parameter.
    Known(String),
    /// An intrinsic function in its short form: `!Ref Table`, `!GetAtt Queue.Arn`.
    Unresolved(String),
}

/// A value, its path, and the parameters that resolve `!Ref`.
#[derive(Clone, Debug)]
pub(crate) struct Node<'a> {
    value: &'a Value,
    path: String,
    parameters: &'a Parameters,
}

impl<'a> Node<'a> {
    pub(crate) fn root(value: &'a Value, parameters: &'a Parameters) -> Self {
        Self { value, path: String::new(), parameters }
    }

    pub(crate) fn error(&self, reason: impl Into<String>) -> TemplateError {
        TemplateError::at(&self.path, reason)
    }

    /// The member with this name; `None` if it is missing or null.
    pub(crate) fn get(&self, name: &str) -> Result<Option<Node<'a>>, TemplateError> {
        let member = self.object()?.get(name).filter(|value| !value.is_null());
        Ok(member.map(|value| self.child(value, name)))
    }

    /// The node at this path of names; `None` if one is missing.
    pub(crate) fn find(&self, names: &[&str]) -> Result<Option<Node<'a>>, TemplateError> {
        names.iter().try_fold(Some(self.clone()), |node, name| node.map_or(Ok(None), |node| node.get(name)))
    }

    pub(crate) fn required(&self, name: &str) -> Result<Node<'a>, TemplateError> {
        self.get(name)?.ok_or_else(|| self.error(format!("{name} is missing")))
    }

    pub(crate) fn members(&self) -> Result<impl Iterator<Item = (&'a str, Node<'a>)>, TemplateError> {
        Ok(self.object()?.iter().map(|(name, value)| (name.as_str(), self.child(value, name))))
    }

    pub(crate) fn elements(&self) -> Result<impl Iterator<Item = Node<'a>>, TemplateError> {
        let elements = self.value.as_array().ok_or_else(|| self.error("must be a list"))?;
        Ok(elements.iter().enumerate().map(|(index, value)| self.child(value, &index.to_string())))
    }

    /// A text, number or boolean, or an intrinsic function that returns one.
    pub(crate) fn setting(&self) -> Result<Setting, TemplateError> {
        match self.value {
            Value::String(text) => Ok(Setting::Known(text.clone())),
            Value::Number(number) => Ok(Setting::Known(number.to_string())),
            Value::Bool(flag) => Ok(Setting::Known(flag.to_string())),
            other => {
                let found = other.as_object().and_then(intrinsic);
                let (name, operand) = found.ok_or_else(|| self.error("must be a single value"))?;
                let parameter = operand.as_str().filter(|_| name == "Ref").and_then(|id| self.parameters.get(id));
                let unresolved = || Setting::Unresolved(short_form(name, operand));
                Ok(parameter.map_or_else(unresolved, |default| Setting::Known(default.clone())))
            }
        }
    }

    /// A value that must be known before the deployment.
    pub(crate) fn known(&self) -> Result<String, TemplateError> {
        match self.setting()? {
            Setting::Known(text) => Ok(text),
            Setting::Unresolved(expression) => Err(self.error(format!(
                "{expression} is not known before the deployment; use a literal, or !Ref to a parameter with a Default"
            ))),
        }
    }

    pub(crate) fn flag(&self) -> Result<bool, TemplateError> {
        let text = self.known()?;
        text.parse().map_err(|_| self.error(format!("{text:?} is not true or false")))
    }

    pub(crate) fn number<T>(&self, range: RangeInclusive<T>) -> Result<T, TemplateError>
    where
        T: FromStr + PartialOrd + Display,
    {
        let text = self.known()?;
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            self.error(format!("{text:?} is not a whole number from {} to {}", range.start(), range.end()))
        })
    }

    fn object(&self) -> Result<&'a Map<String, Value>, TemplateError> {
        self.value.as_object().ok_or_else(|| self.error("must be a map"))
    }

    fn child(&self, value: &'a Value, name: &str) -> Node<'a> {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Node { value, path, parameters: self.parameters }
    }
}

fn intrinsic(object: &Map<String, Value>) -> Option<(&str, &Value)> {
    let mut members = object.iter();
    let (name, operand) = members.next()?;
    let is_intrinsic = members.next().is_none() && (name == "Ref" || name == "Condition" || name.starts_with("Fn::"));
    is_intrinsic.then_some((name.as_str(), operand))
}

/// An intrinsic function in its short form: complete if its operand is simple, otherwise its name and an ellipsis.
fn short_form(name: &str, operand: &Value) -> String {
    let name = name.trim_start_matches("Fn::");
    match operand {
        Value::String(text) => format!("!{name} {text}"),
        Value::Array(path) if name == "GetAtt" => {
            let path: Vec<_> = path.iter().filter_map(Value::as_str).collect();
            format!("!GetAtt {}", path.join("."))
        }
        _ => format!("!{name} …"),
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    #[error("template is not YAML")]
    Yaml(#[from] serde_yaml_ng::Error),
    #[error("template at {path:?}: {reason}")]
    At {
        /// The keys that lead to it, joined by dots.
        path: String,
        reason: String,
    },
}

impl TemplateError {
    fn at(path: &str, reason: impl Into<String>) -> Self {
        Self::At { path: path.to_owned(), reason: reason.into() }
    }
}
