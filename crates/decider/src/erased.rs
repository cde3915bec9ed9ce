//! The implementation of [`Model`] for every [`Aggregate`]: the only code that knows the Rust types behind a model.

use std::marker::PhantomData;
use std::sync::Arc;

use schemars::generate::SchemaSettings;
use schemars::schema_for;

use crate::access::{Access, Authorization};
use crate::aggregate::{Aggregate, Commands, Context, EventType, Ids};
use crate::aggregate_state::AggregateState;
use crate::caller::Caller;
use crate::draft::Draft;
use crate::json::{Json, tagged};
use crate::model::{
    CommandError, CommandRequest, Decided, DecisionInput, DomainRejection, Folded, Model, Schemas, UnreadableEvent,
    UnreadableKind,
};
use crate::reading::{read_command, read_event, unreadable};
use crate::record::RecordedEvent;

/// Why the downcast of a state cannot fail.
const OWN_STATE: &str = "a state is only passed to the model that folded it";

/// The model of the aggregate `A`.
pub(crate) struct ModelOf<A>(PhantomData<fn() -> A>);

impl<A: Aggregate> ModelOf<A> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }

    fn state_of(folded: &Folded) -> &AggregateState<A> {
        folded.state.downcast_ref().expect(OWN_STATE)
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
            // The schema of the serialized state, as responses contain it, not of what can be deserialized.
            state: SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<A::State>(),
        }
    }

    fn before_first_event(&self) -> Folded {
        let state = AggregateState::<A>::new(A::State::default());
        Folded { version: 0, message_seq: 0, history_bytes: 0, state: Arc::new(state) }
    }

    fn restore(&self, version: u64, message_seq: u64, state: &Json) -> Result<Folded, serde_json::Error> {
        let state = AggregateState::<A>::new(state.read()?);
        Ok(Folded { version, message_seq, history_bytes: 0, state: Arc::new(state) })
    }

    fn read(&self, event: &RecordedEvent) -> Result<Vec<(String, Json)>, UnreadableEvent> {
        let split = |current: &A::Event| {
            tagged::split(current).map_err(|error| unreadable(event, UnreadableKind::Corrupt, error.to_string()))
        };
        read_event::<A>(event)?.iter().map(split).collect()
    }

    fn fold(&self, onto: Folded, events: &[RecordedEvent]) -> Result<Folded, UnreadableEvent> {
        let Folded { mut version, mut message_seq, mut history_bytes, state } = onto;
        let mut state = Arc::unwrap_or_clone(state.downcast::<AggregateState<A>>().expect(OWN_STATE));
        for event in events {
            if event.seq_num != version + 1 {
                let reason = format!("the event before it is {version}, so the stream has a gap");
                return Err(unreadable(event, UnreadableKind::Corrupt, reason));
            }
            for event in read_event::<A>(event)? {
                state.apply(event);
            }
            version = event.seq_num;
            message_seq = event.message_seq;
            if A::FULL_HISTORY {
                history_bytes += event.data.text().len();
            }
        }
        Ok(Folded { version, message_seq, history_bytes, state: Arc::new(state) })
    }

    fn state(&self, folded: &Folded) -> Result<Json, serde_json::Error> {
        Json::of(&Self::state_of(folded).state)
    }

    fn is_deleted(&self, folded: &Folded) -> bool {
        folded.version > 0 && A::is_deleted(&Self::state_of(folded).state)
    }

    fn authorize(&self, caller: &Caller, access: Access<'_>, folded: Option<&Folded>) -> Authorization {
        A::authorize(caller, access, folded.map(|folded| &Self::state_of(folded).state))
    }

    fn decide(
        &self,
        before: &Folded,
        id: &str,
        commands: &[CommandRequest],
        input: &DecisionInput,
    ) -> Result<Decided, CommandError> {
        let read = commands.iter().map(read_command::<A>).collect::<Result<Vec<_>, _>>()?;
        let ids = Ids::from_seed(input.seed);
        let mut draft = Draft::<A>::new(before, Self::state_of(before), id, input, &ids);
        for ((nth, (command, creates)), request) in (1..).zip(read).zip(commands) {
            let exists = draft.version() > 0;
            let access = Access::Command(&request.command);
            let state = exists.then_some(&draft.after.state);
            if (exists || creates) && !A::authorize(&input.caller, access, state).is_allowed() {
                return Err(CommandError::Forbidden { command: request.command.clone() });
            }
            match (creates, draft.version()) {
                (true, 1..) if before.version == 0 => return Err(CommandError::CreatedTwice { nth }),
                (true, 1..) => return Err(CommandError::Exists),
                (false, 1..) if self.is_deleted(before) => return Err(CommandError::Deleted),
                (false, 1..) if A::is_deleted(&draft.after.state) => return Err(CommandError::AfterDeletion { nth }),
                (false, 0) => return Err(CommandError::Missing),
                (true, 0) | (false, 1..) => {}
            }
            let DecisionInput { now, ref meta, ref caller, .. } = *input;
            let context = Context { aggregate_id: id, now, meta, caller, history: &draft.after.history, ids: &ids };
            match A::decide(&draft.after.state, command, &context) {
                Ok(events) if creates && events.is_empty() => return Err(created_without_event::<A>()),
                Ok(events) => draft.extend(events)?,
                Err(rejection) => {
                    // The batch's other events are dropped: the rejection is recorded on the state before the batch.
                    let mut draft = Draft::<A>::new(before, Self::state_of(before), id, input, &ids);
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

/// The error of a create command that decides on no event: an aggregate exists only once its stream has one.
fn created_without_event<A: Aggregate>() -> CommandError {
    CommandError::Unwritable {
        event: format!("a new {}", A::TYPE),
        reason: format!("{} returned no event, and a new aggregate needs one", A::COMMANDS.create),
    }
}
