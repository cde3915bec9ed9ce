//! Each aggregate type executes samples of its commands, so the example messages are what the code publishes.

use std::collections::{BTreeMap, BTreeSet};

use daybook_command_handler::openapi::execute;
use daybook_decider::{Caller, Decided, Model, OutboxMessage, Registry, samples};
use serde_json::{Map, Value};

/// Factors of the numbers in samples: rules often depend on the sign or the size of a number.
const FACTORS: [i64; 4] = [1, -1, 1000, -1000];

/// The first message of each type that the samples lead to, by message type.
pub(crate) fn published(registry: &Registry, model: &dyn Model) -> BTreeMap<String, OutboxMessage> {
    let mut found = BTreeMap::new();
    for message in decisions(registry, model).into_iter().flat_map(|decided| decided.messages) {
        found.entry(message.message_type.clone()).or_insert(message);
    }
    found
}

/// What the type decides on each sample, before its first event and in the states that the samples lead to.
pub(crate) fn decisions(registry: &Registry, model: &dyn Model) -> Vec<Decided> {
    let samples = samples(model);
    let commands: Vec<_> =
        FACTORS.iter().flat_map(|&factor| samples.iter().map(move |sample| scaled(sample, factor))).collect();
    let (mut found, mut seen_events) = (Vec::new(), BTreeSet::new());
    let mut states = vec![model.before_first_event()];
    while let Some(before) = states.pop() {
        for command in &commands {
            // With a name only if the rules reject a caller without one.
            for caller in [Caller::anonymous(), Caller::named("ann")] {
                let Some(decided) = execute(registry, model, &before, &[command], Some(&caller)) else { continue };
                // The search continues only from states after an event type that it finds for the first time, so it ends.
                if decided.events.iter().any(|event| seen_events.insert(event.event_type.clone())) {
                    states.push(decided.after.clone());
                }
                let is_rejected = decided.rejection.is_some();
                found.push(decided);
                if !is_rejected {
                    break;
                }
            }
        }
    }
    found
}

fn scaled(value: &Value, factor: i64) -> Value {
    match value {
        Value::Number(number) => {
            number.as_i64().map_or_else(|| value.clone(), |number| number.saturating_mul(factor).into())
        }
        Value::Array(elements) => elements.iter().map(|element| scaled(element, factor)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), scaled(member, factor))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}
