//! Example messages: each aggregate type executes samples of its commands, so the examples are what the code publishes.

use std::collections::{BTreeMap, BTreeSet};

use daybook_command_handler::openapi::{ID, NOW, sample, ulid, variants};
use daybook_decider::{Caller, CommandRequest, Decided, DecisionInput, Folded, Json, Meta, Model, OutboxMessage};
use serde_json::Value;

/// Factors of the numbers in samples: rules often depend on the sign or the size of a number.
const FACTORS: [i64; 4] = [1, -1, 1000, -1000];

/// The first message of each type that the samples lead to, by message type.
pub(crate) fn published(model: &dyn Model) -> BTreeMap<String, OutboxMessage> {
    let commands = samples(model);
    let (mut found, mut seen_events) = (BTreeMap::new(), BTreeSet::new());
    let mut states = vec![model.before_first_event()];
    while let Some(before) = states.pop() {
        for command in &commands {
            let Some(decided) = decide(model, &before, command) else { continue };
            for message in decided.messages {
                found.entry(message.message_type.clone()).or_insert(message);
            }
            // The search continues only from states after an event type that it finds for the first time, so it ends.
            if decided.events.into_iter().any(|event| seen_events.insert(event.event_type)) {
                states.push(decided.after);
            }
        }
    }
    found
}

fn decide(model: &dyn Model, before: &Folded, command: &CommandRequest) -> Option<Decided> {
    // The random half of a ULID: the same at every run, and different for each version.
    let seed = ulid((1 + u128::from(before.version())) << 64);
    let meta = Meta { correlation_id: Some(ulid(0).to_string()), ..Meta::default() };
    let input = DecisionInput { now: NOW, seed, meta, epoch: 1, caller: Caller::anonymous() };
    model.decide(before, ID, std::slice::from_ref(command), &input).ok()
}

/// Samples of each command, one for each factor of its numbers.
fn samples(model: &dyn Model) -> Vec<CommandRequest> {
    let schema = Value::from(model.schemas().command.clone());
    let mut samples: Vec<CommandRequest> = Vec::new();
    for factor in FACTORS {
        for variant in variants(&schema, "command") {
            let data = scaled(sample(&variant.data, &schema), factor);
            samples.extend(Json::of(&data).ok().map(|data| CommandRequest { command: variant.name, data }));
        }
    }
    samples
}

fn scaled(value: Value, factor: i64) -> Value {
    match value {
        Value::Number(number) => {
            number.as_i64().map_or(Value::Number(number), |number| number.saturating_mul(factor).into())
        }
        Value::Array(elements) => elements.into_iter().map(|element| scaled(element, factor)).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, member)| (name, scaled(member, factor)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other,
    }
}
