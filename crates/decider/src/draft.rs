//! A decision while it is being made: events are numbered and folded, messages announced, one after the other.

use std::sync::Arc;

use crate::aggregate::{Aggregate, Ids};
use crate::erased::Held;
use crate::json::tagged;
use crate::model::{CommandError, Decided, DecisionInput, DomainRejection, Folded};
use crate::record::{OutboxMessage, RecordedEvent};
use crate::registry::MAX_NAME;

/// The events and messages of a decision while it is being made.
pub(crate) struct Draft<'a, A: Aggregate> {
    id: &'a str,
    circumstances: &'a DecisionInput,
    ids: &'a Ids,
    pub(crate) held: Held<A>,
    before: &'a Folded,
    message_seq: u64,
    history_bytes: usize,
    events: Vec<RecordedEvent>,
    messages: Vec<OutboxMessage>,
}

impl<'a, A: Aggregate> Draft<'a, A> {
    pub(crate) fn new(
        before: &'a Folded,
        held: &Held<A>,
        id: &'a str,
        circumstances: &'a DecisionInput,
        ids: &'a Ids,
    ) -> Self {
        Self {
            id,
            circumstances,
            ids,
            held: held.clone(),
            before,
            message_seq: before.message_seq,
            history_bytes: before.history_bytes,
            events: Vec::new(),
            messages: Vec::new(),
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.before.version + self.events.len() as u64
    }

    pub(crate) fn extend(&mut self, events: Vec<A::Event>) -> Result<(), CommandError> {
        events.into_iter().try_for_each(|event| self.push(event))
    }

    fn push(&mut self, event: A::Event) -> Result<(), CommandError> {
        let (name, data) = tagged::split(&event).map_err(|error| CommandError::Unwritable {
            event: format!("an event of {}", A::TYPE),
            reason: error.to_string(),
        })?;
        let unwritable = |reason: String| CommandError::Unwritable { event: name.clone(), reason };
        let version = A::EVENTS
            .iter()
            .find(|known| known.name == name)
            .ok_or_else(|| unwritable("it is not one of the aggregate's EVENTS".to_owned()))?
            .version;
        // By its name the aggregate is found: a stream that opens with another would be missing from every list.
        if let Some(opening) = A::EVENTS.first().filter(|opening| self.version() == 0 && opening.name != name) {
            return Err(unwritable(format!(
                "a stream opens with {}, the first of EVENTS: put first the event that creates",
                opening.name
            )));
        }

        // Folded as it will be read. What cannot be read back would make the aggregate unreadable for good, and what is
        // read back otherwise would make it another one later.
        let event: A::Event = tagged::join("type", &name, &data)
            .map_err(|reason| unwritable(format!("it could not be read back: {reason}")))?;
        let state_before = self.held.state.clone();
        self.held.push(event.clone());
        let announced = A::announce(&state_before, &event, &self.held.state);
        if A::FULL_HISTORY {
            self.history_bytes += data.text().len();
        }

        let recorded = RecordedEvent {
            seq_num: self.version() + 1,
            event_id: self.ids.next(),
            event_type: name.clone(),
            event_version: version,
            data,
            meta: self.circumstances.meta.clone(),
            occurred_at: self.circumstances.now,
            message_seq: self.message_seq + announced.len() as u64,
        };
        for (index, message) in announced.into_iter().enumerate() {
            let (message_type, data) = message.0.map_err(unwritable)?;
            if !(1..=MAX_NAME).contains(&message_type.chars().count()) {
                return Err(unwritable(format!(
                    "the message name {message_type:?} must have 1 to {MAX_NAME} characters"
                )));
            }
            self.message_seq += 1;
            let message = OutboxMessage::new(
                (A::TYPE, self.id),
                &recorded,
                (self.message_seq, index),
                (self.ids.next(), message_type, data),
            )
            .map_err(|error| unwritable(error.to_string()))?;
            self.messages.push(message);
        }
        self.events.push(recorded);
        Ok(())
    }

    pub(crate) fn finish(self, refusal: Option<DomainRejection>) -> Decided {
        let after = Folded {
            version: self.version(),
            message_seq: self.message_seq,
            history_bytes: self.history_bytes,
            held: Arc::new(self.held),
        };
        Decided { events: self.events, messages: self.messages, after, refusal }
    }
}
