//! The names of the variants of an adjacently tagged enum.

use std::cell::Cell;
use std::iter::once;

use schemars::Schema;
use serde::de::value::{Error, MapDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// The names by which serde reads the variants of an enum with the tag `tag`, aliases included. There are none if the type is
/// not such an enum, or if its `Deserialize` is written by hand.
///
/// Serde passes the names to the deserializer of the tag, so they are known without a value. A JSON schema contains them too,
/// but making it takes so long that a function would notice it in each start.
pub(crate) fn names_in_serde<T: DeserializeOwned>(tag: &str) -> Vec<String> {
    let names = Cell::default();
    // This fails, because the tag has no value.
    let _: Result<T, Error> = T::deserialize(MapDeserializer::new(once((tag, Tag(&names)))));
    names.get().iter().map(|&name| name.to_owned()).collect()
}

/// The names in the schema of such an enum.
pub(crate) fn names_in_schema(schema: &Schema, tag: &str) -> Vec<String> {
    let variants = schema.get("oneOf").and_then(|variants| variants.as_array());
    variants
        .into_iter()
        .flatten()
        .filter_map(|variant| variant.pointer(&format!("/properties/{tag}/const"))?.as_str().map(str::to_owned))
        .collect()
}

/// The tag's deserializer, which stores the names.
#[derive(Clone, Copy)]
struct Tag<'a>(&'a Cell<&'static [&'static str]>);

impl IntoDeserializer<'_> for Tag<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Tag<'_> {
    type Error = Error;

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        self.0.set(names);
        Err(Error::custom("the tag has no value"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("the tag has no value"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use schemars::{JsonSchema, schema_for};
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "command", content = "data", deny_unknown_fields)]
    #[expect(dead_code, reason = "only its names are read")]
    enum Strict {
        Begin {},
        #[serde(rename = "go")]
        Go {
            to: String,
        },
        #[serde(alias = "Stop")]
        End(u32),
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "type", content = "data", rename_all = "camelCase")]
    #[expect(dead_code, reason = "only its names are read")]
    enum Tolerant {
        HasHappened,
        HasEnded { at: String },
    }

    #[derive(Deserialize)]
    #[serde(tag = "type")]
    #[expect(dead_code, reason = "only its names are read")]
    enum WithoutContent {
        Happened { at: String },
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its names are read")]
    enum WithoutTag {
        Happened { at: String },
    }

    #[test]
    fn names_of_an_enum_are_in_serde_and_in_the_schema() {
        assert_eq!(names_in_serde::<Strict>("command"), ["Begin", "go", "End", "Stop"]);
        assert_eq!(names_in_schema(&schema_for!(Strict), "command"), ["Begin", "go", "End"]);
        assert_eq!(names_in_serde::<Tolerant>("type"), ["hasHappened", "hasEnded"]);
        assert_eq!(names_in_schema(&schema_for!(Tolerant), "type"), ["hasHappened", "hasEnded"]);
    }

    #[test]
    fn other_types_have_no_names_in_serde() {
        assert!(names_in_serde::<Strict>("type").is_empty(), "it has another tag");
        assert!(names_in_serde::<WithoutContent>("type").is_empty());
        assert!(names_in_serde::<WithoutTag>("type").is_empty());
        assert!(names_in_serde::<serde_json::Value>("type").is_empty());
    }
}
