//! The rules of event buses: which entries reach which queues.

use std::collections::BTreeMap;

use daybook_event_pattern::EventPattern;
use serde_json::Value;

/// The rules of all event buses, by bus and name.
#[derive(Default)]
pub(crate) struct Rules(BTreeMap<(String, String), EventRule>);

pub(crate) struct EventRule {
    pattern: EventPattern,
    /// The ARNs of queues, by the id of the target.
    pub(crate) targets: BTreeMap<String, String>,
}

impl Rules {
    /// Creates a rule, or replaces its pattern.
    pub(crate) fn put(&mut self, bus: &str, name: &str, pattern: EventPattern) {
        let targets = self.remove(bus, name).map(|rule| rule.targets).unwrap_or_default();
        self.0.insert((bus.to_owned(), name.to_owned()), EventRule { pattern, targets });
    }

    pub(crate) fn get(&mut self, bus: &str, name: &str) -> Option<&mut EventRule> {
        self.0.get_mut(&(bus.to_owned(), name.to_owned()))
    }

    pub(crate) fn remove(&mut self, bus: &str, name: &str) -> Option<EventRule> {
        self.0.remove(&(bus.to_owned(), name.to_owned()))
    }

    /// The ARNs of the queues that get an event of a bus, once for each target.
    pub(crate) fn targets_of(&self, bus: &str, event: &Value) -> Vec<String> {
        let of_bus = self.0.iter().filter(|((of, _), _)| of == bus);
        let matching = of_bus.filter(|(_, rule)| rule.pattern.matches(event));
        matching.flat_map(|(_, rule)| rule.targets.values().cloned()).collect()
    }
}
