//! [`Model`] for any [`Aggregate`]: the one place that knows both the Rust types and what hides them.

use std::marker::PhantomData;
use std::sync::Arc;

use schemars::generate::SchemaSettings;
use schemars::schema_for;

use crate::aggregate::{Aggregate, Commands, Context, EventType, Ids};
use crate::draft::Draft;
use crate::json::{Json, tagged};
use crate::model::{
    CommandError, CommandRequest, Decided, DecisionInput, DomainRejection, Folded, Model, Schemas, UnreadableEvent,
    UnreadableKind,
};
use crate::reading::{read_command, read_event, unreadable};
use crate::record::RecordedEvent;

/// The model of the aggregate `A`.
pub(crate) struct ModelOf<A>(PhantomData<fn() -> A>);

impl<A: Aggregate> ModelOf<A> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }

    fn held(folded: &Folded) -> &Held<A> {
        folded.held.downcast_ref().expect("a state is only given back to the model that folded it")
    }
}

/// What [`Folded`] hides.
pub(crate) struct Held<A: Aggregate> {
    pub(crate) state: A::State,
    /// Empty unless [`Aggregate::FULL_HISTORY`].
    pub(crate) history: Vec<A::Event>,
}

impl<A: Aggregate> Clone for Held<A> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), history: self.history.clone() }
    }
}

impl<A: Aggregate> Held<A> {
    pub(crate) fn push(&mut self, event: A::Event) {
        self.state = A::evolve(std::mem::take(&mut self.state), &event);
        if A::FULL_HISTORY {
            self.history.push(event);
        }
    }
}

impl<A: Aggregate> Model for ModelOf<A> {
    fn type_name(&self) -> &'static str {
        A::TYPE
    }

    fn state_version(&self) -> u32 {
        A::STATE_VERSION
    }

    fn commands(&self) -> Commands {
        A::COMMANDS
    }

    fn events(&self) -> &'static [EventType] {
        A::EVENTS
    }

    fn retired(&self) -> &'static [EventType] {
        A::RETIRED
    }

    fn full_history(&self) -> bool {
        A::FULL_HISTORY
    }

    fn schemas(&self) -> Schemas {
        Schemas {
            command: schema_for!(A::Command),
            event: schema_for!(A::Event),
            message: A::message_schema(),
            // As it is answered, not as a snapshot may be read.
            state: SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<A::State>(),
        }
    }

    fn before_first_event(&self) -> Folded {
        let held = Held::<A> { state: A::State::default(), history: Vec::new() };
        Folded { version: 0, message_seq: 0, history_bytes: 0, held: Arc::new(held) }
    }

    fn restore(&self, version: u64, message_seq: u64, state: &Json) -> Result<Folded, serde_json::Error> {
        let held = Held::<A> { state: state.read()?, history: Vec::new() };
        Ok(Folded { version, message_seq, history_bytes: 0, held: Arc::new(held) })
    }

    fn read(&self, event: &RecordedEvent) -> Result<Vec<(String, Json)>, UnreadableEvent> {
        let split = |today: &A::Event| {
            tagged::split(today).map_err(|error| unreadable(event, UnreadableKind::Corrupt, error.to_string()))
        };
        read_event::<A>(event)?.iter().map(split).collect()
    }

    fn fold(&self, onto: Folded, events: &[RecordedEvent]) -> Result<Folded, UnreadableEvent> {
        let Folded { mut version, mut message_seq, mut history_bytes, held } = onto;
        let mut held = Arc::unwrap_or_clone(
            held.downcast::<Held<A>>().expect("a state is only given back to the model that folded it"),
        );
        for event in events {
            if event.seq_num != version + 1 {
                let reason = format!("it follows on {version}, so the stream has a gap");
                return Err(unreadable(event, UnreadableKind::Corrupt, reason));
            }
            for event in read_event::<A>(event)? {
                held.push(event);
            }
            version = event.seq_num;
            message_seq = event.message_seq;
            if A::FULL_HISTORY {
                history_bytes += event.data.text().len();
            }
        }
        Ok(Folded { version, message_seq, history_bytes, held: Arc::new(held) })
    }

    fn state(&self, folded: &Folded) -> Result<Json, serde_json::Error> {
        Json::of(&Self::held(folded).state)
    }

    fn is_deleted(&self, folded: &Folded) -> bool {
        folded.version > 0 && A::is_deleted(&Self::held(folded).state)
    }

    fn decide(
        &self,
        before: &Folded,
        id: &str,
        commands: &[CommandRequest],
        circumstances: &DecisionInput,
    ) -> Result<Decided, CommandError> {
        let commands = commands.iter().map(read_command::<A>).collect::<Result<Vec<_>, _>>()?;
        let ids = Ids::from_seed(circumstances.seed);
        let mut draft = Draft::<A>::new(before, Self::held(before), id, circumstances, &ids);
        for (place, (command, creates)) in (1..).zip(commands) {
            match (creates, draft.version()) {
                (true, 1..) if before.version == 0 => return Err(CommandError::CreatedTwice { place }),
                (true, 1..) => return Err(CommandError::Exists),
                (false, 1..) if self.is_deleted(before) => return Err(CommandError::Deleted),
                (false, 1..) if A::is_deleted(&draft.held.state) => return Err(CommandError::AfterDeletion { place }),
                (false, 0) => return Err(CommandError::Missing),
                (true, 0) | (false, 1..) => {}
            }
            let context = Context::new(id, circumstances.now, &circumstances.meta, &draft.held.history, &ids);
            match A::decide(&draft.held.state, command, &context) {
                Ok(events) if creates && events.is_empty() => return Err(created_without_event::<A>()),
                Ok(events) => draft.extend(events)?,
                Err(rejection) => {
                    // The batch's other events are dropped; the refusal is recorded on what was there before.
                    let mut draft = Draft::<A>::new(before, Self::held(before), id, circumstances, &ids);
                    if draft.version() > 0 {
                        draft.extend(rejection.recorded)?;
                    }
                    return Ok(draft.finish(Some(DomainRejection { name: rejection.name, detail: rejection.detail })));
                }
            }
        }
        Ok(draft.finish(None))
    }
}

/// An aggregate is there once its stream has an event.
fn created_without_event<A: Aggregate>() -> CommandError {
    CommandError::Unwritable {
        event: format!("a new {}", A::TYPE),
        reason: format!("{} came to no event, and an aggregate begins with one", A::COMMANDS.create),
    }
}
