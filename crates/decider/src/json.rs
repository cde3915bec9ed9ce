//! JSON text exactly as it was written: stored data goes from the table to a response or onto the bus without
//! being parsed and printed again, so numbers, key order and escapes survive exactly.

pub(crate) mod strict;

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// One well-formed JSON value as text.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Writes `value` as JSON. Fails if `value` has no JSON form: a map whose keys are not strings, or a `Serialize` that fails.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// Wraps a text that must be JSON. Fails if the text is not JSON.
    pub fn parse(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self)
    }

    /// `{}`.
    pub fn empty_object() -> Self {
        Self(RawValue::from_string("{}".to_owned()).expect("an empty object is JSON"))
    }

    /// The text.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Reads the value as a `T`. Fails if the value does not have the shape of a `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.text())
    }

    /// Reads a value that a caller sent as a `T`. A struct is read from an object only, whereas [`read`](Self::read) also accepts
    /// an array of its fields. The error is a text for the caller: what does not fit, and where.
    pub fn read_strictly<T: DeserializeOwned>(&self) -> Result<T, String> {
        strict::read(self.text())
    }
}

impl JsonSchema for Json {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Json".into()
    }

    /// Any JSON.
    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        Schema::default()
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Serde enums whose variants have a name and content, `{"<tag>": name, "<content>": data}`, split and joined as text.
pub(crate) mod tagged {
    use super::{Deserialize, DeserializeOwned, Json, RawValue, Serialize, strict};

    /// The form of event and message enums.
    #[derive(Deserialize)]
    struct Typed {
        #[serde(rename = "type")]
        name: String,
        data: Option<Box<RawValue>>,
    }

    /// Splits `#[serde(tag = "type", content = "data")]` into name and data.
    pub(crate) fn split(value: &impl Serialize) -> Result<(String, Json), serde_json::Error> {
        let typed: Typed = serde_json::from_str(&serde_json::to_string(value)?)?;
        Ok((typed.name, typed.data.map_or_else(Json::empty_object, Json)))
    }

    /// Joins an event from its stored name and data.
    pub(crate) fn join_event<T: DeserializeOwned>(name: &str, data: &Json) -> Result<T, String> {
        join("type", name, data, |text| {
            serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(text)).map_err(strict::explain)
        })
    }

    /// Joins a command from the name and data that a caller sent.
    pub(crate) fn join_command<T: DeserializeOwned>(name: &str, data: &Json) -> Result<T, String> {
        join("command", name, data, strict::read)
    }

    fn join<T: DeserializeOwned>(
        tag: &str,
        name: &str,
        data: &Json,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        let name = serde_json::to_string(name).map_err(|error| error.to_string())?;
        read(&format!(r#"{{"{tag}":{name},"data":{}}}"#, data.text())).or_else(|error| {
            // `split` turns a variant without content into `{}`, but serde accepts such a variant only without data.
            let bare = is_empty_object(data).then(|| serde_json::from_str(&format!(r#"{{"{tag}":{name}}}"#)).ok());
            bare.flatten().ok_or(error)
        })
    }

    fn is_empty_object(data: &Json) -> bool {
        let inside = data.text().strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        inside.is_some_and(|inside| inside.trim().is_empty())
    }
}
