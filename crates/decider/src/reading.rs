//! Conversion of commands and stored events into the aggregate's own types.

use crate::aggregate::{Aggregate, EventType, StoredEvent};
use crate::folded::CommandRequest;
use crate::json::{Json, tagged};
use crate::model::CommandError;
use crate::panics::{calling, catch};
use crate::personal::{attributed, reading};
use crate::record::RecordedEvent;
use crate::unreadable::{UnreadableEvent, UnreadableKind, panicked_on, unreadable};

/// The command at `index` of a batch. `known` are the names of the aggregate's commands.
pub(crate) fn read_command<A: Aggregate>(
    (index, request): (usize, &CommandRequest),
    known: &[String],
) -> Result<A::Command, CommandError> {
    let command = request.command.clone();
    if !known.contains(&command) {
        return Err(CommandError::Unknown { index, command, known: known.to_vec() });
    }
    tagged::join_command(&request.command, &request.data).map_err(|reason| CommandError::Invalid {
        index,
        command,
        reason,
    })
}

/// What to do if an event of today's version does not have today's form.
const CHANGED_FORM: &str =
    "if the code has changed this form, raise its version, and convert the earlier one in upcast";

/// Maximum upcast steps of one event. No event has that many versions: a longer chain is a cycle.
const MAX_UPCASTS: usize = 1_000;

/// The events that a stored event is read as, in the form that this code writes, for code that knows the aggregate's
/// types. `id` is that of its aggregate.
pub fn read_stored<A: Aggregate>(id: &str, event: &RecordedEvent) -> Result<Vec<A::Event>, UnreadableEvent> {
    let read = || {
        let (events, was_plain) = reading(|| read_event::<A>(event));
        // Values that were stored before their field was personal get their subject here.
        if !was_plain {
            return events;
        }
        let attribute = |event: A::Event| {
            let (name, data) = tagged::split(&event).map_err(|error| error.to_string())?;
            tagged::join_event(&name, &attributed(data, (A::TYPE, id))?)
        };
        let attributed: Result<_, _> = events?.into_iter().map(attribute).collect();
        attributed.map_err(|reason| unreadable(event, UnreadableKind::Corrupt, reason))
    };
    catch(A::TYPE, read).map_err(panicked_on(event))?
}

/// Applies all upcasts to a stored event. Returns the resulting events, in the form that this code writes.
pub(crate) fn read_event<A: Aggregate>(event: &RecordedEvent) -> Result<Vec<A::Event>, UnreadableEvent> {
    let corrupt = |reason: String| unreadable(event, UnreadableKind::Corrupt, reason);
    let read = |name: &str, data: &Json| tagged::join_event(name, data).map_err(corrupt);
    if distance::<A>(&event.event_type, event.event_version) == Some(0) {
        let read = tagged::join_event(&event.event_type, &event.data);
        return Ok(vec![read.map_err(|reason| corrupt(format!("{reason}; {CHANGED_FORM}")))?]);
    }
    if is_form(A::RETIRED, &event.event_type, event.event_version) {
        return Ok(Vec::new());
    }
    if !is_form(A::EVENTS, &event.event_type, event.event_version) {
        let reason = "this code does not know that form; a newer release wrote it".to_owned();
        return Err(unreadable(event, UnreadableKind::Newer, reason));
    }
    let data = event.data.read().map_err(|error| corrupt(error.to_string()))?;
    let mut pending = vec![(0, StoredEvent { name: event.event_type.clone(), version: event.event_version, data })];
    let mut current = Vec::new();
    while let Some((steps, stored)) = pending.pop() {
        let (name, version) = (stored.name.clone(), stored.version);
        // An upcast may return a retired event, which needs no further step.
        if is_form(A::RETIRED, &name, version) {
            continue;
        }
        let left = distance::<A>(&name, version);
        if left == Some(0) {
            let data = Json::of(&stored.data).map_err(|error| corrupt(error.to_string()))?;
            current.push(read(&name, &data)?);
            continue;
        }
        let step = calling("upcast", || A::upcast(stored))
            .map_err(|error| corrupt(format!("as {name} version {version}, {error}")))?;
        // A step that does not change the name must approach the version that is written. For a name that is no longer
        // written, it must raise the version.
        let is_nearer = |next: &StoredEvent| match (left, distance::<A>(&next.name, next.version)) {
            (Some(left), Some(next)) => next < left,
            _ => next.version > version,
        };
        if step.iter().any(|next| next.name == name && !is_nearer(next)) {
            return Err(corrupt(format!("this code has no upcast for {name} version {version}")));
        }
        if steps == MAX_UPCASTS {
            return Err(corrupt(format!("its upcasts never reach a current version, as of {name} version {version}")));
        }
        // Events are popped from the back, so the result of an upcast is pushed in reverse to preserve its order.
        pending.extend(step.into_iter().rev().map(|next| (steps + 1, next)));
    }
    Ok(current)
}

/// Whether one of these events has this name and can be read in this version.
fn is_form(events: &[EventType], name: &str, version: u32) -> bool {
    events.iter().flat_map(EventType::forms).any(|(known, readable)| known == name && version <= readable)
}

/// The number of versions between an event's form and the one that is written; `None` when this name is not written.
fn distance<A: Aggregate>(name: &str, version: u32) -> Option<u32> {
    A::EVENTS.iter().find(|known| known.name == name).map(|known| known.version.abs_diff(version))
}
