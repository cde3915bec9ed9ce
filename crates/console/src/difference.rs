//! What differs between two JSON values.

use serde_json::Value;

/// Maximum differences that are listed.
const MAX_CHANGES: usize = 200;

/// A place at which two values differ.
#[derive(Debug, PartialEq)]
pub(crate) struct Change {
    /// The members and positions that lead to it, as in JavaScript: `items[0].quantity`.
    pub(crate) path: String,
    /// The value before; `None` if there was none.
    pub(crate) before: Option<String>,
    /// The value after; `None` if there is none.
    pub(crate) after: Option<String>,
}

/// The differences, in the order of their paths.
pub(crate) fn changes(before: &Value, after: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    compare(String::new(), Some(before), Some(after), &mut found);
    found
}

fn compare(path: String, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Change>) {
    if before == after || found.len() >= MAX_CHANGES {
        return;
    }
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let mut names: Vec<_> = before.keys().chain(after.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                compare(path, before.get(name), after.get(name), found);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            for index in 0..before.len().max(after.len()) {
                compare(format!("{path}[{index}]"), before.get(index), after.get(index), found);
            }
        }
        _ => found.push(Change { path, before: before.map(Value::to_string), after: after.map(Value::to_string) }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_name_the_members_that_differ() {
        let before = json!({"a": 1, "b": {"c": [1, 2]}, "same": "x"});
        let after = json!({"b": {"c": [1, 3, {"d": null}]}, "same": "x", "new": true});
        let change = |path: &str, before: Option<&str>, after: Option<&str>| Change {
            path: path.to_owned(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        let expected = [
            change("a", Some("1"), None),
            change("b.c[1]", Some("2"), Some("3")),
            change("b.c[2]", None, Some("{\"d\":null}")),
            change("new", None, Some("true")),
        ];
        assert_eq!(changes(&before, &after), expected);
        assert_eq!(changes(&before, &before), []);
    }
}
