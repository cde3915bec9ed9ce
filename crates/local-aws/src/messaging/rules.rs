//! The rules of event buses: which entries reach which queues.

use std::collections::BTreeMap;

use serde_json::Value;

/// The rules of all event buses, by bus and name.
#[derive(Default)]
pub(crate) struct Rules(BTreeMap<(String, String), EventRule>);

/// A rule with its targets.
pub(crate) struct EventRule {
    pattern: Value,
    /// The ARNs of queues, by the id of the target.
    pub(crate) targets: BTreeMap<String, String>,
}

impl Rules {
    /// Creates a rule, or replaces its pattern.
    pub(crate) fn put(&mut self, bus: &str, name: &str, pattern: Value) {
        let targets = self.remove(bus, name).map(|rule| rule.targets).unwrap_or_default();
        self.0.insert((bus.to_owned(), name.to_owned()), EventRule { pattern, targets });
    }

    pub(crate) fn get(&mut self, bus: &str, name: &str) -> Option<&mut EventRule> {
        self.0.get_mut(&(bus.to_owned(), name.to_owned()))
    }

    pub(crate) fn remove(&mut self, bus: &str, name: &str) -> Option<EventRule> {
        self.0.remove(&(bus.to_owned(), name.to_owned()))
    }

    /// The ARNs of the queues that get an event of a bus.
    pub(crate) fn targets_of(&self, bus: &str, event: &Value) -> Vec<String> {
        let of_bus = self.0.iter().filter(|((of, _), _)| of == bus);
        let matching = of_bus.filter(|(_, rule)| matches(&rule.pattern, event));
        matching.flat_map(|(_, rule)| rule.targets.values().cloned()).collect()
    }
}

/// Whether a pattern has only what [`matches`] reads: objects, and arrays of texts, numbers and prefixes.
pub(crate) fn is_supported(pattern: &Value) -> bool {
    match pattern {
        Value::Object(members) => !members.is_empty() && members.values().all(is_supported),
        Value::Array(tests) => !tests.is_empty() && tests.iter().all(|test| prefix(test).is_some() || is_plain(test)),
        _ => false,
    }
}

/// Whether an event matches a pattern. An array in the event matches if one of its elements does.
fn matches(pattern: &Value, event: &Value) -> bool {
    match (pattern, event) {
        (Value::Object(members), _) => members.iter().all(|(name, pattern)| matches(pattern, &event[name])),
        (_, Value::Array(values)) => values.iter().any(|value| matches(pattern, value)),
        (Value::Array(tests), _) => tests.iter().any(|test| match prefix(test) {
            Some(prefix) => event.as_str().is_some_and(|text| text.starts_with(prefix)),
            None => test == event,
        }),
        _ => false,
    }
}

fn is_plain(test: &Value) -> bool {
    test.is_string() || test.is_number()
}

fn prefix(test: &Value) -> Option<&str> {
    test.as_object().filter(|members| members.len() == 1)?.get("prefix")?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn event_matches_if_each_field_has_one_of_its_values() {
        let event = json!({"source": "daybook", "resources": ["todo/1"], "detail": {"metadata": {"seqNum": 2}}});
        for (pattern, expected) in [
            (json!({"source": ["other", "daybook"]}), true),
            (json!({"source": ["daybook"], "resources": [{"prefix": "todo/"}]}), true),
            (json!({"resources": [{"prefix": "account/"}]}), false),
            (json!({"detail": {"metadata": {"seqNum": [2]}}}), true),
            (json!({"detail": {"metadata": {"seqNum": ["2"]}}}), false),
            (json!({"detail-type": ["x"]}), false),
        ] {
            assert!(is_supported(&pattern), "{pattern}");
            assert_eq!(matches(&pattern, &event), expected, "{pattern}");
        }
        for wrong in
            [json!({}), json!({"source": "daybook"}), json!({"source": []}), json!({"source": [{"exists": true}]})]
        {
            assert!(!is_supported(&wrong), "{wrong}");
        }
    }
}
