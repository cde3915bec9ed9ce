//! The names of the variants of an adjacently tagged enum.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::iter::once;
use std::mem::discriminant;

use schemars::Schema;
use serde::de::value::{Error, MapDeserializer, StrDeserializer};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

/// The names by which serde reads the variants of an enum with the tag `tag`, aliases included. There are none if the type is
/// not such an enum, or if its `Deserialize` is written by hand.
///
/// Serde passes the names to the deserializer of the tag, so they are known without a value. A JSON schema contains them too,
/// but making it takes so long that a function would notice it in each start.
pub(crate) fn names_in_serde<T: DeserializeOwned>(tag: &str) -> Vec<String> {
    let read = Read::default();
    read_tag::<T>(tag, Tag { name: None, read: &read });
    read.names.get().iter().map(|&name| name.to_owned()).collect()
}

/// The variant that serde reads under a name, as a number that is the same for all its names.
fn variant_in_serde<T: DeserializeOwned>(tag: &str, name: &str) -> Option<u64> {
    let read = Read::default();
    read_tag::<T>(tag, Tag { name: Some(name), read: &read });
    read.variant.get()
}

/// The aliases among these names of serde, each with the name of its variant. That name is in the schema, which is made only
/// if there are aliases.
pub(crate) fn aliases<T: DeserializeOwned>(
    tag: &str,
    names: &[String],
    schema: impl FnOnce() -> Schema,
) -> Vec<(String, String)> {
    let variants: Vec<_> = names.iter().map(|name| (name, variant_in_serde::<T>(tag, name))).collect();
    let distinct: BTreeSet<_> = variants.iter().map(|(_, variant)| variant).collect();
    if distinct.len() == names.len() {
        return Vec::new();
    }
    let in_schema = names_in_schema(&schema(), tag);
    let (of_variants, aliases): (Vec<_>, Vec<_>) = variants.into_iter().partition(|(name, _)| in_schema.contains(name));
    let name_of = |variant| of_variants.iter().find(|(_, other)| *other == variant);
    aliases.into_iter().filter_map(|(alias, variant)| Some((alias.clone(), name_of(variant)?.0.clone()))).collect()
}

/// Reads a value that has only a tag. This fails; what serde asks for is in `tag.read`.
fn read_tag<T: DeserializeOwned>(key: &str, tag: Tag<'_>) {
    let _: Result<T, Error> = T::deserialize(MapDeserializer::new(once((key, tag))));
}

pub(crate) fn names_in_schema(schema: &Schema, tag: &str) -> Vec<String> {
    let variants = schema.get("oneOf").and_then(|variants| variants.as_array());
    variants
        .into_iter()
        .flatten()
        .filter_map(|variant| variant.pointer(&format!("/properties/{tag}/const"))?.as_str().map(str::to_owned))
        .collect()
}

/// The variants of this name in the schema of such an enum.
fn variants_in_schema<'a>(schema: &'a Schema, name: &str) -> impl Iterator<Item = &'a Value> {
    let variants = schema.get("oneOf").and_then(|variants| variants.as_array());
    let is_named = move |variant: &&Value| {
        variant["properties"].as_object().is_some_and(|members| members.values().any(|member| member["const"] == name))
    };
    variants.into_iter().flatten().filter(is_named)
}

/// Whether the schema of such an enum admits no unknown member beside the tag and the content of a variant.
pub(crate) fn is_strict(schema: &Schema, name: &str) -> bool {
    variants_in_schema(schema, name).all(|variant| variant["additionalProperties"] == false)
}

/// Whether the content of a variant can be an object, or is absent.
pub(crate) fn is_object(schema: &Schema, name: &str) -> bool {
    variants_in_schema(schema, name).all(|variant| may_be_object(schema, &variant["properties"]["data"], 16))
}

/// Whether a part of a schema admits an object. Deeper than `depth`, as in a type that contains itself, it may.
fn may_be_object(schema: &Schema, part: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return true };
    let target = part["$ref"].as_str().and_then(|reference| schema.pointer(reference.trim_start_matches('#')));
    let mut choices = ["oneOf", "anyOf"].into_iter().filter_map(|choice| part[choice].as_array());
    let kind = &part["type"];
    target.is_none_or(|target| may_be_object(schema, target, depth))
        && choices.all(|choices| choices.iter().any(|choice| may_be_object(schema, choice, depth)))
        && (kind.is_null() || kind == "object" || kind.as_array().is_some_and(|kinds| kinds.contains(&"object".into())))
}

/// What serde reads of a tag.
#[derive(Default)]
struct Read {
    names: Cell<&'static [&'static str]>,
    variant: Cell<Option<u64>>,
}

#[derive(Clone, Copy)]
struct Tag<'a> {
    name: Option<&'a str>,
    read: &'a Read,
}

impl IntoDeserializer<'_> for Tag<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The value of a tag: a variant without content.
impl<'de, 'a> EnumAccess<'de> for Tag<'a> {
    type Error = Error;
    type Variant = <StrDeserializer<'a, Error> as EnumAccess<'de>>::Variant;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self::Variant), Error> {
        let name: StrDeserializer<'a, Error> = self.name.unwrap_or_default().into_deserializer();
        let (variant, content) = name.variant_seed(seed)?;
        let mut hasher = DefaultHasher::new();
        discriminant(&variant).hash(&mut hasher);
        self.read.variant.set(Some(hasher.finish()));
        Ok((variant, content))
    }
}

impl<'de> Deserializer<'de> for Tag<'_> {
    type Error = Error;

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.read.names.set(names);
        match self.name {
            Some(_) => visitor.visit_enum(self),
            None => Err(Error::custom("the tag has no value")),
        }
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

    #[derive(Deserialize, JsonSchema)]
    enum Colour {
        Red,
        /// With a description, its variants are a choice in the schema.
        Green,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is read")]
    struct Content {
        next: Option<Box<Content>>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "command", content = "data")]
    #[expect(dead_code, reason = "only its schema is read")]
    enum Data {
        Nothing,
        Fields { colour: Colour },
        Object(Content),
        Optional(Option<Content>),
        Colour(Colour),
        OptionalColour(Option<Colour>),
        Pair(u32, u32),
    }

    #[test]
    fn content_of_a_variant_is_an_object_also_behind_references_and_choices() {
        let schema = schema_for!(Data);
        for name in ["Nothing", "Fields", "Object", "Optional"] {
            assert!(is_object(&schema, name), "{name}");
        }
        for name in ["Colour", "OptionalColour", "Pair"] {
            assert!(!is_object(&schema, name), "{name}");
        }
        let endless = serde_json::json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}});
        assert!(may_be_object(&endless.clone().try_into().unwrap(), &endless, 16));
    }

    #[test]
    fn names_of_an_enum_are_in_serde_and_in_the_schema() {
        assert_eq!(names_in_serde::<Strict>("command"), ["Begin", "go", "End", "Stop"]);
        assert_eq!(names_in_schema(&schema_for!(Strict), "command"), ["Begin", "go", "End"]);
        assert_eq!(names_in_serde::<Tolerant>("type"), ["hasHappened", "hasEnded"]);
        assert_eq!(names_in_schema(&schema_for!(Tolerant), "type"), ["hasHappened", "hasEnded"]);
    }

    #[test]
    fn aliases_are_found_with_the_names_of_their_variants() {
        let names = names_in_serde::<Strict>("command");
        assert_eq!(aliases::<Strict>("command", &names, || schema_for!(Strict)), [("Stop".into(), "End".into())]);
        let names = names_in_serde::<Tolerant>("type");
        assert!(aliases::<Tolerant>("type", &names, || panic!("no schema is needed")).is_empty());
    }

    #[test]
    fn other_types_have_no_names_in_serde() {
        assert!(names_in_serde::<Strict>("type").is_empty(), "it has another tag");
        assert!(names_in_serde::<WithoutContent>("type").is_empty());
        assert!(names_in_serde::<WithoutTag>("type").is_empty());
        assert!(names_in_serde::<serde_json::Value>("type").is_empty());
    }
}
