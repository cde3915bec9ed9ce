//! The names of the document's components, and references to them.

use axum::http::StatusCode;
use serde_json::{Value, json};

/// A reference to the component of this kind and name.
pub(super) fn reference(kind: &str, name: &str) -> Value {
    json!({"$ref": format!("#/components/{kind}/{name}")})
}

/// The name that a reference ends with.
pub(super) fn referred_name(value: &Value) -> Option<&str> {
    value["$ref"].as_str()?.rsplit('/').next()
}

/// The reason phrase of a status in one word.
pub(super) fn reason(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or_default().replace(' ', "")
}

/// `lower-kebab` as `UpperCamel`. A word that begins with a digit gets an underscore, so that different names stay
/// different.
pub(super) fn upper_camel(kebab: &str) -> String {
    let word = |word: &str| match word.split_at_checked(1) {
        Some((first, rest)) if first.starts_with(|first: char| first.is_ascii_digit()) => format!("_{first}{rest}"),
        Some((first, rest)) => format!("{}{rest}", first.to_uppercase()),
        None => String::new(),
    };
    kebab.split('-').map(word).collect()
}
