//! Values about persons, which can be forgotten.
//!
//! Stored rows contain a personal value sealed, and the code of an aggregate gets it opened. Both forms are an object with one
//! reserved key in the JSON around it, so the stores find them in any text, without its types:
//!
//! ```json
//! {"$personal":{"of":"customer/7","value":"Ann"}}
//! {"$personal":{"of":"customer/7","sealed":"kYv4…"}}
//! {"$personal":{"of":"customer/7"}}
//! ```
//!
//! The last is a value that was forgotten. Messages contain none of them, but the subject: `{"$subject":"customer/7"}`.

mod forms;

use std::cell::Cell;
use std::fmt;
use std::hash::{Hash, Hasher};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::json::strict::Strict;

pub(crate) use forms::reference_schema;
pub use forms::{
    Form, MARK, attributed, contains, forgotten, has_reserved_key, nullable, referring, replace, shown, subjects,
};
use forms::{KEY, SUBJECT};

/// A value about a person, such as a name. It is stored sealed under a key of its subject: an aggregate, usually the one whose
/// event contains it. Once the subject [is forgotten](crate::Aggregate::is_forgotten), nobody can read the value any more.
///
/// A caller writes and reads the plain value, or reads `null` if it is forgotten. Values are compared without their subjects.
#[derive(Clone)]
pub struct Personal<T> {
    of: Option<String>,
    value: Option<T>,
}

impl<T> Personal<T> {
    /// A value about the aggregate whose event or state contains it.
    pub const fn new(value: T) -> Self {
        Self { of: None, value: Some(value) }
    }

    /// A value about another aggregate, which may be of any type.
    pub fn about(aggregate_type: &str, id: &str, value: T) -> Self {
        Self { of: Some(format!("{aggregate_type}/{id}")), value: Some(value) }
    }

    /// A value that is forgotten.
    pub const fn forgotten() -> Self {
        Self { of: None, value: None }
    }

    /// The value; `None` if it is forgotten or was never set.
    pub const fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// Whether it has no value.
    pub const fn is_forgotten(&self) -> bool {
        self.value.is_none()
    }

    /// Another value about the same subject, such as a part of this one.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Personal<U> {
        Personal { of: self.of, value: self.value.map(map) }
    }
}

impl<T> From<T> for Personal<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// No value, as in a state before the first event.
impl<T> Default for Personal<T> {
    fn default() -> Self {
        Self::forgotten()
    }
}

impl<T: PartialEq> PartialEq for Personal<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Personal<T> {}

impl<T: Hash> Hash for Personal<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}

/// Without the value, because what is printed ends in logs.
impl<T> fmt::Debug for Personal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_forgotten() { "Personal(forgotten)" } else { "Personal(..)" })
    }
}

/// The object in JSON.
#[derive(Serialize)]
struct Marked<'a, T> {
    #[serde(rename = "$personal")]
    form: MarkedForm<'a, T>,
}

#[derive(Serialize)]
struct MarkedForm<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a T>,
}

impl<T: Serialize> Serialize for Personal<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let form = MarkedForm { of: self.of.as_deref(), value: self.value.as_ref() };
        Marked { form }.serialize(serializer)
    }
}

thread_local! {
    /// Whether a value was read that was plain.
    static WAS_PLAIN: Cell<bool> = const { Cell::new(false) };
}

/// The result of reading something, and whether that contained plain values, which have no subject.
pub(crate) fn reading<R>(read: impl FnOnce() -> R) -> (R, bool) {
    WAS_PLAIN.set(false);
    (read(), WAS_PLAIN.get())
}

/// Without the cause, which may quote the value.
fn other_form<E: Error>(_: serde_json::Error) -> E {
    E::custom("a personal value has another form")
}

/// A stored form, or the plain value as a caller sends it, or as it was stored before its field was personal.
impl<'de, T: DeserializeOwned> Deserialize<'de> for Personal<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        let object = value.as_object_mut().filter(|object| object.len() == 1);
        let form = match object.map(|object| (object.remove(KEY), object.remove(SUBJECT))) {
            Some((Some(form), _)) => Form::<Value>::deserialize(form),
            Some((None, Some(of))) => Option::deserialize(of).map(|of| Form { of, value: None, sealed: None }),
            Some((None, None)) | None => {
                WAS_PLAIN.set(true);
                return T::deserialize(Strict(value)).map(Self::new).map_err(other_form);
            }
        };
        let Form { of, value, sealed } = form.map_err(D::Error::custom)?;
        if sealed.is_some() {
            let of = of.unwrap_or_default();
            return Err(D::Error::custom(format!("a value about {of} is sealed, and was read without the keys")));
        }
        let value = value.map(T::deserialize).transpose().map_err(other_form)?;
        Ok(Self { of, value })
    }
}

impl<T: JsonSchema> JsonSchema for Personal<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Personal{}", T::schema_name()).into()
    }

    /// The plain value, as a command contains it, with a mark.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = generator.subschema_for::<T>();
        schema.insert(MARK.to_owned(), true.into());
        schema
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Json;
    use crate::personal::{attributed, has_reserved_key, shown, subjects};

    fn text(value: &impl Serialize) -> String {
        serde_json::to_string(value).unwrap()
    }

    #[test]
    fn value_is_read_back_from_each_form() {
        let ann = Personal::new("Ann".to_owned());
        assert_eq!(text(&ann), r#"{"$personal":{"value":"Ann"}}"#);
        for form in
            [r#""Ann""#, r#"{"$personal":{"value":"Ann"}}"#, r#"{"$personal":{"of":"customer/7","value":"Ann"}}"#]
        {
            assert_eq!(serde_json::from_str::<Personal<String>>(form).unwrap(), ann, "{form}");
        }
        for form in [r#"{"$personal":{"of":"customer/7"}}"#, r#"{"$subject":"customer/7"}"#] {
            assert!(serde_json::from_str::<Personal<String>>(form).unwrap().is_forgotten(), "{form}");
        }
        let sealed = serde_json::from_str::<Personal<String>>(r#"{"$personal":{"of":"customer/7","sealed":"AAAA"}}"#);
        assert!(sealed.unwrap_err().to_string().contains("customer/7 is sealed"));
        assert_eq!(serde_json::from_str::<Personal<Option<u8>>>("null").unwrap().get(), Some(&None));
        let none: Personal<Option<u8>> = serde_json::from_str(&text(&Personal::new(None::<u8>))).unwrap();
        assert!(!none.is_forgotten());
    }

    #[test]
    fn value_is_not_printed() {
        assert_eq!(format!("{:?}", Personal::new("Ann")), "Personal(..)");
    }

    #[test]
    fn texts_around_values_stay_as_they_are() {
        let tricky =
            r#"{"note":"{\"$personal\":{\"value\":1}}","big":1e400,"name":{"$personal":{"value":"A\"}n"}},"end":[]}"#;
        let expected = r#"{"note":"{\"$personal\":{\"value\":1}}","big":1e400,"name":"A\"}n","end":[]}"#;
        assert_eq!(shown(tricky), expected);
        let json = attributed(Json::parse(tricky.to_owned()).unwrap(), ("customer", "7")).unwrap();
        assert_eq!(subjects(json.text()), ["customer/7".to_owned()].into());
        assert_eq!(shown(json.text()), expected);
    }

    #[test]
    fn values_that_would_not_be_found_again_are_rejected() {
        let nested = text(&Personal::new(json!({"street": Personal::about("customer", "8", "Main")})));
        let flattened = r#"{"since":1,"$personal":{"value":"Ann"}}"#.to_owned();
        let beside = r#"{"$personal":{"value":"Ann"},"since":1}"#.to_owned();
        let sealed = r#"{"$personal":{"of":"customer/7","sealed":"AAAA"}}"#.to_owned();
        for (text, reason) in
            [(nested, "another one"), (flattened, "flattened"), (beside, "flattened"), (sealed, "sealed")]
        {
            let error = attributed(Json::parse(text).unwrap(), ("customer", "7")).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn reserved_keys_are_found_however_they_are_written() {
        for text in [
            r#"{"$personal":1}"#,
            r#"[{"a":{"\u0024personal":1}}]"#,
            r#"{"$pers\u006fnal":1}"#,
            r#"{"$subject":1}"#,
            r#"{"a":{"$personal" :1},"a":1e400}"#,
        ] {
            assert!(has_reserved_key(text), "{text}");
        }
        for text in [r#"{"personal":"$personal"}"#, r#"["\u0024personal"]"#, r#"{"note":"{\"$personal\":1}"}"#] {
            assert!(!has_reserved_key(text), "{text}");
        }
    }
}
