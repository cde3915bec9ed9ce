//! A decision in progress, on the typed state of the aggregate: its events are numbered and folded into that state, and their
//! messages built, one after the other.

use std::sync::Arc;

use crate::aggregate::{Aggregate, Ids, Message};
use crate::claim::{Claim, ClaimChanges};
use crate::deadline::{DeadlineChanges, Declaration};
use crate::folded::Folded;
use crate::json::{Json, tagged};
use crate::model::{CommandError, Decided, DecisionInput, DomainRejection};
use crate::panics::calling;
use crate::personal;
use crate::process::Dispatch;
use crate::record::{MAX_BYTES, MAX_RECORDS, MessageNumber, OutboxMessage, RecordedEvent};

/// The typed state of an aggregate, which [`Folded`] holds with its type erased.
pub(crate) struct AggregateState<A: Aggregate> {
    pub(crate) state: A::State,
    /// Empty unless [`Aggregate::FULL_HISTORY`].
    pub(crate) history: Vec<A::Event>,
}

impl<A: Aggregate> AggregateState<A> {
    pub(crate) fn new(state: A::State) -> Self {
        Self { state, history: Vec::new() }
    }

    pub(crate) fn is_deleted(&self) -> bool {
        calling("is_deleted", || A::is_deleted(&self.state))
    }

    pub(crate) fn is_forgotten(&self) -> bool {
        calling("is_forgotten", || A::is_forgotten(&self.state))
    }

    /// The state without the personal values about the aggregate, as it is read once they are forgotten. The error is the reason
    /// why it has no JSON form.
    pub(crate) fn forgotten(state: &A::State, id: &str) -> Result<A::State, String> {
        let json = Json::of(state).map_err(|error| error.to_string())?;
        let json = personal::forgotten(personal::attributed(json, (A::TYPE, id))?, &format!("{}/{id}", A::TYPE));
        json.read().map_err(|error| error.to_string())
    }

    /// The claims of an aggregate at this version, sorted and each once. None before the first event and after a deletion.
    pub(crate) fn claims(&self, version: u64) -> Vec<Claim> {
        if version == 0 || self.is_deleted() {
            return Vec::new();
        }
        let mut claims = calling("claims", || A::claims(&self.state));
        claims.sort();
        claims.dedup();
        claims
    }

    /// The deadlines of an aggregate at this version, sorted by name, and then its dispatches. None before the first event and
    /// after a deletion.
    pub(crate) fn deadlines(&self, version: u64) -> Vec<Declaration> {
        if version == 0 || self.is_deleted() {
            return Vec::new();
        }
        let deadlines = calling("deadlines", || A::deadlines(&self.state)).into_iter();
        let mut declared: Vec<_> = deadlines.map(|deadline| deadline.declaration).collect();
        declared.sort_by(|one, other| (&one.name, one.due).cmp(&(&other.name, other.due)));
        let dispatches = calling("dispatches", || A::dispatches(&self.state));
        if !dispatches.is_empty() {
            let is_process = !calling("sources", A::sources).all.is_empty();
            let of_process = |Dispatch(declaration)| if is_process { declaration } else { declaration.of_no_process() };
            declared.extend(dispatches.into_iter().map(of_process));
        }
        declared
    }

    pub(crate) fn apply(&mut self, event: &A::Event) {
        let state = calling("Default", || std::mem::take(&mut self.state));
        self.state = calling("evolve", || A::evolve(state, event));
        if A::FULL_HISTORY {
            self.history.push(event.clone());
        }
    }
}

impl<A: Aggregate> Clone for AggregateState<A> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), history: self.history.clone() }
    }
}

/// The events and messages of a decision in progress.
pub(crate) struct Draft<'a, A: Aggregate> {
    id: &'a str,
    input: &'a DecisionInput,
    ids: &'a Ids,
    before: &'a Folded,
    state_before: &'a AggregateState<A>,
    pub(crate) after: AggregateState<A>,
    events: Vec<RecordedEvent>,
    messages: Vec<OutboxMessage>,
    /// The events and messages so far, and the bytes of their texts.
    records: usize,
    bytes: usize,
}

impl<'a, A: Aggregate> Draft<'a, A> {
    /// A draft on `before`, whose state is `state_before`.
    pub(crate) fn new(
        before: &'a Folded,
        state_before: &'a AggregateState<A>,
        id: &'a str,
        input: &'a DecisionInput,
        ids: &'a Ids,
    ) -> Self {
        let (after, events, messages) = (state_before.clone(), Vec::new(), Vec::new());
        Self { id, input, ids, before, state_before, after, events, messages, records: 0, bytes: 0 }
    }

    pub(crate) fn version(&self) -> u64 {
        self.before.version + self.events.len() as u64
    }

    fn message_epoch(&self) -> u32 {
        if self.messages.is_empty() { self.before.message_epoch() } else { self.input.epoch }
    }

    fn message_seq(&self) -> u64 {
        self.before.message_seq + self.messages.len() as u64
    }

    pub(crate) fn extend(&mut self, events: Vec<A::Event>) -> Result<(), CommandError> {
        events.into_iter().try_for_each(|event| self.push(event))
    }

    fn push(&mut self, event: A::Event) -> Result<(), CommandError> {
        let split = tagged::split(&event).map_err(|error| error.to_string());
        let (name, data) = split.map_err(unwritable::<A>("an event"))?;
        // It is read back from `data`: a large event is in memory only once.
        drop(event);
        let unwritable = |reason| CommandError::Unwritable { event: name.clone(), reason };
        let data = personal::attributed(data, (A::TYPE, self.id)).map_err(unwritable)?;
        self.count(&data)?;
        let (event, messages) = self.record(&name, data).map_err(unwritable)?;
        for (index, message) in messages.into_iter().enumerate() {
            let message = self.outbox_message(&event, index, message).map_err(unwritable)?;
            self.count(&message.detail)?;
            self.messages.push(message);
        }
        self.events.push(event);
        Ok(())
    }

    /// Counts one more event or message. A draft that has become too large to be appended fails here, so that the work
    /// for a request is bounded, whatever its commands cause.
    fn count(&mut self, text: &Json) -> Result<(), CommandError> {
        self.records += 1;
        self.bytes += text.text().len();
        if self.records > MAX_RECORDS {
            return Err(CommandError::TooMany);
        }
        if self.bytes > MAX_BYTES { Err(CommandError::TooLarge) } else { Ok(()) }
    }

    /// Folds an event. Returns it with its messages. The error is the reason why the event cannot be written.
    fn record(&mut self, name: &str, data: Json) -> Result<(RecordedEvent, Vec<Message>), String> {
        let event_type = A::EVENTS.iter().find(|event_type| event_type.name == name);
        let event_type = event_type.ok_or_else(|| "it is not one of the aggregate's EVENTS".to_owned())?;
        // The list of a type's aggregates is read from the feed of the opening event: a stream that begins with
        // another event would be missing from it.
        if let Some(opening) = A::EVENTS.first().filter(|opening| self.version() == 0 && opening.name != name) {
            return Err(format!(
                "a stream must begin with {}, the first of EVENTS: list the event that creates first",
                opening.name
            ));
        }

        // Folds the event as it will be read later. An event that cannot be read back would make the aggregate
        // permanently unreadable, and one that reads back differently would change the state later.
        let event: A::Event =
            tagged::join_event(name, &data).map_err(|reason| format!("it could not be read back: {reason}"))?;
        let state_before = self.after.state.clone();
        self.after.apply(&event);
        let announced = calling("announce", || A::announce(&state_before, &event, &self.after.state));

        let recorded = RecordedEvent {
            seq_num: self.version() + 1,
            event_id: self.ids.next(),
            event_type: name.to_owned(),
            event_version: event_type.version,
            data,
            meta: self.input.meta.clone(),
            occurred_at: self.input.now,
            message_seq: self.message_seq() + announced.len() as u64,
            message_epoch: if announced.is_empty() { self.message_epoch() } else { self.input.epoch },
            together: Vec::new(),
        };
        Ok((recorded, announced))
    }

    fn outbox_message(&self, event: &RecordedEvent, index: usize, message: Message) -> Result<OutboxMessage, String> {
        let (epoch, epoch_before) = (self.input.epoch, self.message_epoch());
        let number = MessageNumber { epoch, epoch_before, message_seq: self.message_seq() + 1, index };
        OutboxMessage::new((A::TYPE, self.id), event, number, (self.ids.next(), message))
    }

    /// The result. A state that has no JSON form is an error here: with its events stored, nothing could read it.
    pub(crate) fn finish(mut self, rejection: Option<DomainRejection>) -> Result<Decided, CommandError> {
        let unwritable_state = unwritable::<A>("the state");
        let forgets = self.after.is_forgotten() && !self.state_before.is_forgotten();
        if forgets {
            self.after.state = AggregateState::<A>::forgotten(&self.after.state, self.id).map_err(unwritable_state)?;
        }
        let state = Json::of(&self.after.state).map_err(|error| unwritable_state(error.to_string()))?;
        let state = personal::attributed(state, (A::TYPE, self.id)).map_err(unwritable_state)?;
        let state = Arc::new(state);
        let mut history_bytes = self.before.history_bytes;
        if A::FULL_HISTORY {
            history_bytes += self.events.iter().map(|event| event.data.text().len()).sum::<usize>();
        }
        let (version, message_seq) = (self.version(), self.message_seq());
        let is_deleted = version > 0 && self.after.is_deleted();
        let (had, has) = (self.state_before.claims(self.before.version), self.after.claims(version));
        let claims = ClaimChanges::between(&had, &has).map_err(unwritable::<A>("a claim"))?;
        let (had, has) = (self.state_before.deadlines(self.before.version), self.after.deadlines(version));
        let deadlines = DeadlineChanges::between(&had, &has).map_err(unwritable::<A>("a deadline"))?;
        let last_event = self.events.last().map(Into::into).or(self.before.last_event);
        let after = Folded { version, message_seq, history_bytes, is_deleted, last_event, state: Arc::new(self.after) };
        let sent = Vec::new();
        let (events, messages) = (self.events, self.messages);
        Ok(Decided { events, messages, claims, deadlines, forgets, after, state, sent, rejection })
    }
}

/// The error of something that the code of an aggregate has returned, and that cannot be stored, by the reason.
pub(crate) fn unwritable<A: Aggregate>(what: &'static str) -> impl Fn(String) -> CommandError + Copy {
    move |reason| CommandError::Unwritable { event: format!("{what} of {}", A::TYPE), reason }
}
