//! JSON documents that differ from given ones in a few places.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

/// A change of one place in a document.
#[derive(Clone, Debug)]
enum Change {
    /// Another value.
    Replace(Value),
    /// An object without one of its members, a list without one of its elements; null for other values.
    Remove(Index),
    /// A list with this value and a copy, an object with one of its members under another name.
    Repeat(Index),
    /// The value as JSON in a text.
    AsText,
}

/// Texts of JSON that a [`Value`] cannot contain, by the text that stands for each.
fn beyond_values() -> [(&'static str, String); 3] {
    [
        ("\"@huge\"", "1e400".to_owned()),
        ("\"@half\"", r#""\ud800""#.to_owned()),
        ("\"@deep\"", "[".repeat(200) + &"]".repeat(200)),
    ]
}

/// Values that occur in events, at their limits, and others.
fn odd() -> impl Strategy<Value = Value> {
    let texts = [
        "",
        "@huge",
        "@half",
        "@deep",
        "-1",
        "0",
        "18446744073709551615",
        "1e400",
        "\0",
        "..",
        "é",
        "[",
        "{}",
        "null",
        "PATCH",
        "two words",
        "AGGREGATE#account#",
        "OUTBOX#",
        "EVENT#000000000001",
        "#METADATA",
        "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "+99999-01-01T00:00:00Z",
        "2026-11-21T02:43:51.136Z",
    ];
    let leaf = prop_oneof![
        select(texts.to_vec()).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!("x".repeat(3_000))),
        select(vec![json!(null), json!(true), json!(0), json!(1), json!(-1)]),
        select(vec![json!(u64::MAX), json!(i64::MIN), json!(1.5), json!(-1e308)]),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        let names = prop_oneof![
            select(&["S", "N", "BOOL", "M", "messageId", "Records", "detail"][..]).prop_map(str::to_owned),
            ".{0,3}"
        ];
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map(names, inner, 0..3).prop_map(|members| json!(members))
        ]
    })
}

/// The text of one of these documents, changed in one to three places.
pub(super) fn mutated(originals: Vec<Value>) -> impl Strategy<Value = String> {
    let change = prop_oneof![
        3 => odd().prop_map(Change::Replace),
        3 => any::<Index>().prop_map(Change::Remove),
        1 => any::<Index>().prop_map(Change::Repeat),
        1 => Just(Change::AsText),
    ];
    (select(originals), vec((any::<Index>(), any::<bool>(), change), 1..4)).prop_map(|(mut document, changes)| {
        for (place, is_within, change) in &changes {
            apply(&mut document, place, *is_within, change);
        }
        beyond_values().iter().fold(document.to_string(), |text, (name, json)| text.replace(name, json))
    })
}

/// Changes the document. `is_within` means that JSON in a text is changed there.
fn apply(document: &mut Value, place: &Index, is_within: bool, change: &Change) {
    let mut places = vec![String::new()];
    list(document, "", &mut places);
    let value = document.pointer_mut(place.get::<String>(&places)).unwrap();
    let inner = value.as_str().filter(|_| is_within).and_then(|text| serde_json::from_str::<Value>(text).ok());
    if let Some(mut inner) = inner.filter(|inner| inner.is_object() || inner.is_array()) {
        apply(&mut inner, place, is_within, change);
        *value = inner.to_string().into();
        return;
    }
    match (change, &mut *value) {
        (Change::Replace(other), _) => *value = other.clone(),
        (Change::AsText, _) => *value = value.to_string().into(),
        (Change::Remove(index), Value::Object(members)) if !members.is_empty() => {
            let name = members.keys().nth(index.index(members.len())).unwrap().clone();
            members.remove(&name);
        }
        (Change::Remove(index), Value::Array(elements)) if !elements.is_empty() => {
            elements.remove(index.index(elements.len()));
        }
        (Change::Remove(_), _) => *value = Value::Null,
        (Change::Repeat(index), Value::Object(members)) if !members.is_empty() => {
            let member = members.values().nth(index.index(members.len())).unwrap().clone();
            members.insert("other".to_owned(), member);
        }
        (Change::Repeat(_), _) => *value = json!([*value, *value]),
    }
}

/// Adds the places below `prefix`, as JSON pointers.
fn list(value: &Value, prefix: &str, places: &mut Vec<String>) {
    let mut add = |name: String, value: &Value| {
        let place = format!("{prefix}/{}", name.replace('~', "~0").replace('/', "~1"));
        places.push(place.clone());
        list(value, &place, places);
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| add(name.clone(), value)),
        Value::Array(elements) => elements.iter().enumerate().for_each(|(index, value)| add(index.to_string(), value)),
        _ => {}
    }
}
