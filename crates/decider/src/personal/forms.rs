//! The forms of personal values in JSON texts, which are found without the types around them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::convert::Infallible;

use schemars::Schema;
use schemars::transform::{RecursiveTransform, Transform, transform_subschemas};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::json::Json;

/// The key of a personal value. A request of a caller does not contain it.
pub(super) const KEY: &str = "$personal";

/// The key of a subject, which stands for a value in messages. A request of a caller does not contain it either.
pub(super) const SUBJECT: &str = "$subject";

/// The member of a schema that marks a personal value.
pub const MARK: &str = "x-personal";

/// The beginning of each form in a text. Nothing else in JSON has these characters: a quotation mark within a text is escaped,
/// and one that ends a text is not followed by a dollar sign.
const BEGINNING: &str = r#"{"$personal":"#;

/// The key as a member, wherever it stands.
const MEMBER: &str = r#""$personal":"#;

const STILL_JSON: &str = "a value in JSON is replaced by another";

/// The content of the member `$personal`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "V: Deserialize<'de>"))]
pub struct Form<V = Box<RawValue>> {
    /// The subject, `type/id`; the aggregate of the row if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The value, while it is open.
    #[serde(skip_serializing_if = "Option::is_none", default = "Option::default", deserialize_with = "some")]
    pub value: Option<V>,
    /// The value, while it is sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sealed: Option<String>,
}

/// A value that is `null` is a value.
fn some<'de, D: Deserializer<'de>, V: Deserialize<'de>>(deserializer: D) -> Result<Option<V>, D::Error> {
    V::deserialize(deserializer).map(Some)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Marked {
    #[serde(rename = "$personal")]
    form: Form,
}

impl Form {
    /// The object with the key, as text.
    pub fn text(self) -> String {
        serde_json::to_string(&Marked { form: self }).expect("texts and raw JSON have a JSON form")
    }
}

/// Whether a text contains a personal value, in any form.
pub fn contains(text: &str) -> bool {
    text.contains(BEGINNING)
}

/// The text with each personal value replaced by another text; `None` if it contains none. Everything else stays as it is. Fails
/// if `by` does.
pub fn replace<E>(text: &str, mut by: impl FnMut(Form) -> Result<String, E>) -> Result<Option<String>, E> {
    let (mut replaced, mut rest) = (String::new(), text);
    while let Some(start) = rest.find(BEGINNING) {
        replaced.push_str(&rest[..start]);
        rest = &rest[start..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Marked>();
        let Some(Ok(Marked { form })) = values.next() else {
            // Code of the project has written another object under the reserved key, which is not a personal value.
            replaced.push_str(BEGINNING);
            rest = &rest[BEGINNING.len()..];
            continue;
        };
        rest = &rest[values.byte_offset()..];
        replaced.push_str(&by(form)?);
    }
    if rest.len() == text.len() {
        return Ok(None);
    }
    replaced.push_str(rest);
    Ok(Some(replaced))
}

/// The text with each personal value replaced by another text, if it contains one.
fn replaced(text: &str, mut by: impl FnMut(Form) -> String) -> Option<String> {
    match replace(text, |form| Ok::<_, Infallible>(by(form))) {
        Ok(replaced) => replaced,
    }
}

/// The text as a caller sees it: with plain values, and `null` for those that are forgotten.
pub fn shown(text: &str) -> Cow<'_, str> {
    let by = |form: Form| form.value.map_or_else(|| "null".to_owned(), |value| shown(value.get()).into_owned());
    replaced(text, by).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// The JSON with the subject in place of each value, which has one.
pub fn referring(json: Json) -> Json {
    let by = |form: Form| json!({ SUBJECT: form.of }).to_string();
    replaced(json.text(), by).map_or(json, |text| Json::parse(text).expect(STILL_JSON))
}

/// The subjects of the values that a text contains, sealed or open. That of a value without one is empty.
pub fn subjects(text: &str) -> BTreeSet<String> {
    let mut subjects = BTreeSet::new();
    replaced(text, |Form { of, value, sealed }| {
        if value.is_some() || sealed.is_some() {
            subjects.insert(of.unwrap_or_default());
        }
        String::new()
    });
    subjects
}

/// The JSON with this subject, a type and an id, for each value that has none. Fails if a value cannot be stored, because it
/// would not be found again or is sealed already: the reason.
pub fn attributed(json: Json, (aggregate_type, id): (&str, &str)) -> Result<Json, String> {
    if !json.text().contains(MEMBER) {
        return Ok(json);
    }
    let mut reason = None;
    let by = |form: Form| {
        if form.sealed.is_some() {
            reason = Some("a personal value is sealed already");
        } else if form.value.as_ref().is_some_and(|value| contains(value.get())) {
            reason = Some("a personal value contains another one: make its parts personal instead");
        }
        Form { of: form.of.or_else(|| Some(format!("{aggregate_type}/{id}"))), ..form }.text()
    };
    let attributed = replaced(json.text(), by);
    let rest = replaced(json.text(), |_| String::new());
    if rest.as_deref().unwrap_or(json.text()).contains(MEMBER) {
        reason = Some("a personal value is flattened or has a tag: give it a member of its own");
    }
    match reason {
        Some(reason) => Err(reason.to_owned()),
        None => Ok(attributed.map_or(json, |text| Json::parse(text).expect(STILL_JSON))),
    }
}

/// The JSON without the values about a subject.
pub fn forgotten(json: Json, subject: &str) -> Json {
    let by = |form: Form| {
        let is_about = form.of.as_deref() == Some(subject);
        Form { value: form.value.filter(|_| !is_about), ..form }.text()
    };
    replaced(json.text(), by).map_or(json, |text| Json::parse(text).expect(STILL_JSON))
}

/// Whether an object in a text that a caller sent has a reserved key, however it is escaped. The text must be JSON.
pub fn has_reserved_key(text: &str) -> bool {
    // The keys themselves, or an escape that may hide a part of them.
    if ![KEY, SUBJECT, "\\u00"].iter().any(|part| text.contains(part)) {
        return false;
    }
    let mut rest = text;
    while let Some(start) = rest.find('"') {
        rest = &rest[start..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        let Some(Ok(name)) = values.next() else { return true };
        rest = &rest[values.byte_offset()..];
        if rest.trim_start().starts_with(':') && [KEY, SUBJECT].contains(&name.as_str()) {
            return true;
        }
    }
    false
}

/// The schema of what a caller reads: a value that is forgotten is `null`.
pub fn nullable(mut schema: Schema) -> Schema {
    RecursiveTransform(|schema: &mut Schema| {
        if schema.get(MARK).is_some() && schema.get("anyOf").is_none() {
            let mut value = std::mem::take(schema);
            value.remove(MARK);
            *schema = json!({ "anyOf": [value, { "type": "null" }], MARK: true }).try_into().expect("an object");
        }
    })
    .transform(&mut schema);
    schema
}

/// The schema of messages: they contain subjects instead of values.
pub(crate) fn reference_schema(mut schema: Schema) -> Schema {
    fn reference(schema: &mut Schema) {
        if schema.get(MARK).is_some() {
            let subject = json!({ SUBJECT: { "type": "string" } });
            let of = json!({ "type": "object", "properties": subject, "required": [SUBJECT], MARK: true });
            *schema = of.try_into().expect("an object");
        } else {
            transform_subschemas(&mut reference, schema);
        }
    }
    reference(&mut schema);
    schema
}
