//! Reading of JSON that a caller sent: strictly, and with errors in terms of JSON instead of Rust.
//!
//! `serde_json` also reads a struct from an array of its fields, in their order in the source. No API document
//! describes that, and a field that is added or moved would change what such an array means. So a struct, at any
//! depth, is read from an object or not at all.
//!
//! Values that serde buffers before it knows their type are out of reach: the content of untagged and internally
//! tagged enums, and of enums and structs beside `#[serde(flatten)]`.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};

/// Reads text as a `T`. The error is a text for the caller: what does not fit, and where.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_path_to_error::deserialize(Strict(&mut serde_json::Deserializer::from_str(text))).map_err(explain)
}

/// A wrapper around a deserializer, visitor, seed or access of serde, which also wraps everything that is read through
/// it.
pub(crate) struct Strict<T>(pub(crate) T);

/// A wrapper around the visitor of a struct, which accepts objects only.
struct Object<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for Object<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Strict(map))
    }
}

/// Methods that forward to the wrapped value.
macro_rules! forward {
    (to deserializer: $($method:ident($($name:ident: $kind:ty),*)),+ $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, $($name: $kind,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method($($name,)* Strict(visitor))
        })+
    };
    (to visitor: $($method:ident($($kind:ty)?)),+ $(,)?) => {
        $(forward! { one $method($($kind)?) })+
    };
    (one $method:ident($kind:ty)) => {
        fn $method<E: serde::de::Error>(self, value: $kind) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    };
    (one $method:ident()) => {
        fn $method<E: serde::de::Error>(self) -> Result<V::Value, E> {
            self.0.$method()
        }
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, Object(visitor))
    }

    forward! { to deserializer:
        deserialize_any(), deserialize_ignored_any(), deserialize_identifier(),
        deserialize_bool(), deserialize_char(), deserialize_str(), deserialize_string(),
        deserialize_i8(), deserialize_i16(), deserialize_i32(), deserialize_i64(), deserialize_i128(),
        deserialize_u8(), deserialize_u16(), deserialize_u32(), deserialize_u64(), deserialize_u128(),
        deserialize_f32(), deserialize_f64(), deserialize_bytes(), deserialize_byte_buf(),
        deserialize_option(), deserialize_unit(), deserialize_seq(), deserialize_map(),
        deserialize_unit_struct(name: &'static str), deserialize_newtype_struct(name: &'static str),
        deserialize_tuple(len: usize), deserialize_tuple_struct(name: &'static str, len: usize),
        deserialize_enum(name: &'static str, variants: &'static [&'static str]),
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Strict<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    forward! { to visitor:
        visit_bool(bool), visit_i64(i64), visit_u64(u64), visit_i128(i128), visit_u128(u128), visit_f64(f64),
        visit_str(&str), visit_borrowed_str(&'de str), visit_string(String),
        visit_bytes(&[u8]), visit_borrowed_bytes(&'de [u8]), visit_byte_buf(Vec<u8>), visit_none(), visit_unit(),
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Strict(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Strict(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, sequence: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Strict(sequence))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Strict(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(Strict(data))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(Strict(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Strict<A> {
    type Error = A::Error;
    type Variant = Strict<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (name, variant) = self.0.variant_seed(seed)?;
        Ok((name, Strict(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Strict(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(len, Strict(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Object(visitor))
    }
}

/// Describes what is wrong and where, also for stored events. It names a path into the data instead of a column of the
/// text, and no Rust types.
pub(super) fn explain(error: serde_path_to_error::Error<serde_json::Error>) -> String {
    let path = error.path().to_string();
    let reason = error.into_inner().to_string();
    let reason = in_json_terms(reason.rsplit_once(" at line ").map_or(reason.as_str(), |(reason, _)| reason));
    if path == "." { reason } else { format!("{path}: {reason}") }
}

/// The first words of what serde reports as expected, and the JSON term for each.
const EXPECTED: [(&str, &str); 13] = [
    ("a map", "an object"),
    ("struct ", "an object"),
    ("internally tagged enum ", "an object"),
    ("adjacently tagged enum ", "an object"),
    ("a sequence", "an array"),
    ("tuple struct ", "an array"),
    ("tuple variant", "an array"),
    ("a tuple", "an array"),
    ("unit", "null"),
    ("f32", "a number"),
    ("f64", "a number"),
    ("newtype variant", "an object"),
    ("enum ", "a variant"),
];

/// The range of a Rust integer type.
fn integer(expected: &str) -> Option<String> {
    let (kind, but) = expected.strip_prefix("a nonzero ").map_or((expected, ""), |kind| (kind, " other than 0"));
    macro_rules! range_of {
        ($($known:ident),+) => {
            match kind {
                $(stringify!($known) => Some(format!("an integer from {} to {}{but}", $known::MIN, $known::MAX)),)+
                _ => None,
            }
        };
    }
    range_of!(i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize)
}

fn in_json_terms(reason: &str) -> String {
    if reason.starts_with("data did not match any variant of untagged enum ") {
        return "it has none of the forms that it can have".to_owned();
    }
    let Some((found, expected)) = reason.rsplit_once(", expected ") else { return reason.to_owned() };
    let found = match found {
        "invalid type: map" => "invalid type: object",
        "invalid type: sequence" => "invalid type: array",
        "invalid type: unit variant" => "invalid type: string",
        other => other,
    };
    if let Some(integer) = integer(expected) {
        // serde_json also reads an integer of more than 64 bits as a floating point number.
        return match found.strip_prefix("invalid type: floating point ") {
            Some(_) => format!("invalid number, expected {integer} in plain digits"),
            None => format!("{found}, expected {integer}"),
        };
    }
    let found = found.replacen("invalid type: floating point ", "invalid type: number ", 1);
    let Some((_, json)) = EXPECTED.iter().find(|(prefix, _)| expected.starts_with(prefix)) else {
        return format!("{found}, expected {expected}");
    };
    let length = expected.find(" with ").or_else(|| expected.find(" of size ")).map_or("", |at| &expected[at..]);
    format!("{found}, expected {json}{length}")
}
