//! Event patterns of AWS: which events a rule of an event bus selects, and which records an event source mapping passes
//! to its function. Both services use one language, with different sets of operators.
//!
//! Invariants:
//! - A pattern is read completely before it is used, so that a wrong one is rejected with its reason and never selects
//!   too little silently.
//! - An array in an event stands for its elements, as in [event-ruler], the library of the services: a value matches if
//!   one of the elements does, and if the elements are objects, all fields of a pattern must match in the same element.
//!
//! `comparison`: the operators, and which of them a service has.
//!
//! [event-ruler]: https://github.com/aws/event-ruler

mod comparison;

use serde_json::{Map, Value};

use crate::comparison::{Comparison, Service};

/// A pattern: an object with a member for each field of the event, and alternatives.
#[derive(Clone, Debug, PartialEq)]
pub struct EventPattern {
    fields: Vec<(String, FieldPattern)>,
    /// The alternatives of `$or`, one of which must match; empty without it.
    alternatives: Vec<EventPattern>,
}

#[derive(Clone, Debug, PartialEq)]
enum FieldPattern {
    /// The field is an object with these fields.
    Object(EventPattern),
    /// The field has a value for which one of the comparisons holds.
    AnyOf(Vec<Comparison>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", if path.is_empty() { String::new() } else { format!("{path}: ") })]
pub struct PatternError {
    /// The field: `detail.metadata`. Empty for the whole pattern.
    pub path: String,
    pub reason: String,
}

impl EventPattern {
    /// Reads the pattern of a rule of an event bus.
    pub fn new(pattern: &Value) -> Result<Self, PatternError> {
        Self::at("", pattern, Service::EventBridge)
    }

    /// Reads a pattern of the `FilterCriteria` of an event source mapping, which has fewer operators.
    pub fn of_filter(pattern: &Value) -> Result<Self, PatternError> {
        Self::at("", pattern, Service::Lambda)
    }

    /// The pattern of a field, or the whole one if the path is empty.
    fn at(path: &str, pattern: &Value, service: Service) -> Result<Self, PatternError> {
        let wrong = |path: &str, reason: &str| PatternError { path: path.to_owned(), reason: reason.to_owned() };
        let Value::Object(members) = pattern else { return Err(wrong(path, "a pattern is a JSON object")) };
        if members.is_empty() {
            return Err(wrong(path, "an object of a pattern needs a field"));
        }
        let (mut fields, mut alternatives) = (Vec::new(), Vec::new());
        for (name, member) in members {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            match member {
                Value::Array(patterns) if name == "$or" && patterns.len() >= 2 => {
                    alternatives =
                        patterns.iter().map(|pattern| Self::at(&path, pattern, service)).collect::<Result<_, _>>()?;
                }
                _ if name == "$or" => return Err(wrong(&path, "$or needs two patterns or more")),
                Value::Object(_) => {
                    fields.push((name.clone(), FieldPattern::Object(Self::at(&path, member, service)?)))
                }
                Value::Array(values) if !values.is_empty() => {
                    let comparisons = values.iter().map(|value| Comparison::new(value, service));
                    let comparisons = comparisons.collect::<Result<_, _>>().map_err(|reason| wrong(&path, &reason))?;
                    fields.push((name.clone(), FieldPattern::AnyOf(comparisons)));
                }
                _ => return Err(wrong(&path, &format!("{member} must be an object, or an array with values"))),
            }
        }
        Ok(Self { fields, alternatives })
    }

    pub fn matches(&self, event: &Value) -> bool {
        match event {
            Value::Object(members) => self.matches_object(members),
            // The fields are absent from an array if they are absent from each of its elements.
            Value::Array(elements) if self.matches_object(&Map::new()) => {
                elements.iter().all(|element| self.matches(element))
            }
            Value::Array(elements) => elements.iter().any(|element| self.matches(element)),
            _ => self.matches_object(&Map::new()),
        }
    }

    fn matches_object(&self, members: &Map<String, Value>) -> bool {
        let fits = |(name, pattern): &(String, FieldPattern)| match (pattern, members.get(name)) {
            (FieldPattern::Object(pattern), field) => pattern.matches(field.unwrap_or(&Value::Null)),
            (FieldPattern::AnyOf(comparisons), field) => {
                let leaves = leaves(field);
                comparisons.iter().any(|comparison| comparison.holds_for(&leaves))
            }
        };
        self.fields.iter().all(fits)
            && (self.alternatives.is_empty() || self.alternatives.iter().any(|pattern| pattern.matches_object(members)))
    }
}

/// The values of a field with which a pattern is compared: the elements of an array, or the value itself. An object is no
/// value.
fn leaves(field: Option<&Value>) -> Vec<&Value> {
    match field {
        Some(Value::Array(elements)) => elements.iter().flat_map(|element| leaves(Some(element))).collect(),
        Some(Value::Object(_)) | None => Vec::new(),
        Some(value) => vec![value],
    }
}
