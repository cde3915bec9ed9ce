//! Commands and stored events as the aggregate's own types.

use schemars::{Schema, schema_for};

use crate::aggregate::{Aggregate, StoredEvent};
use crate::json::{Json, tagged};
use crate::model::{CommandError, CommandRequest, UnreadableEvent};
use crate::record::RecordedEvent;

/// The command, and whether it is the one that creates.
pub(crate) fn read_command<A: Aggregate>(request: &CommandRequest) -> Result<(A::Command, bool), CommandError> {
    let command = tagged::join("command", &request.command, &request.data).map_err(|reason| {
        let known = tags(&schema_for!(A::Command), "command");
        if known.contains(&request.command) {
            CommandError::Invalid { command: request.command.clone(), reason }
        } else {
            CommandError::Unknown { command: request.command.clone(), known }
        }
    })?;
    Ok((command, request.command == A::COMMANDS.create))
}

/// More steps than an event has ever had versions: a chain of upcasts that is longer goes round in circles.
const MAX_UPCASTS: usize = 1_000;

/// The event as today's code knows it, after as many upcasts as it takes.
pub(crate) fn read_event<A: Aggregate>(event: &RecordedEvent) -> Result<Vec<A::Event>, UnreadableEvent> {
    let is_current =
        |name: &str, version: u32| A::EVENTS.iter().any(|known| known.name == name && known.version == version);
    let read = |name: &str, data: &Json| tagged::join("type", name, data).map_err(|reason| unreadable(event, reason));
    if is_current(&event.event_type, event.event_version) {
        return Ok(vec![read(&event.event_type, &event.data)?]);
    }
    let data = event.data.read().map_err(|error| unreadable(event, error.to_string()))?;
    let mut pending = vec![(0, StoredEvent { name: event.event_type.clone(), version: event.event_version, data })];
    let mut current = Vec::new();
    while let Some((steps, stored)) = pending.pop() {
        if is_current(&stored.name, stored.version) {
            let data = Json::of(&stored.data).map_err(|error| unreadable(event, error.to_string()))?;
            current.push(read(&stored.name, &data)?);
            continue;
        }
        let (name, version) = (stored.name.clone(), stored.version);
        let newer = A::upcast(stored);
        if newer.iter().any(|newer| newer.name == name && newer.version <= version) {
            return Err(unreadable(event, format!("this code has no upcast for {name} version {version}")));
        }
        if steps == MAX_UPCASTS {
            let reason = format!("its upcasts never reach a current version, as of {name} version {version}");
            return Err(unreadable(event, reason));
        }
        // Popped from the back, so what an upcast returns is pushed in reverse to keep its order.
        pending.extend(newer.into_iter().rev().map(|newer| (steps + 1, newer)));
    }
    Ok(current)
}

pub(crate) fn unreadable(event: &RecordedEvent, reason: String) -> UnreadableEvent {
    UnreadableEvent {
        seq_num: event.seq_num,
        event_type: event.event_type.clone(),
        event_version: event.event_version,
        reason,
    }
}

/// The names of an adjacently tagged enum's variants, read from its schema.
pub(crate) fn tags(schema: &Schema, tag: &str) -> Vec<String> {
    let variants = schema.get("oneOf").and_then(|variants| variants.as_array());
    variants
        .into_iter()
        .flatten()
        .filter_map(|variant| variant.pointer(&format!("/properties/{tag}/const"))?.as_str().map(str::to_owned))
        .collect()
}
