//! The implementation of [`Model`] for every [`Aggregate`]: the only code that knows the Rust types behind a model.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use schemars::generate::SchemaSettings;
use schemars::schema_for;

use crate::access::{Access, Authorization};
use crate::aggregate::{Aggregate, Commands, Context, EventType, Ids, Rejection};
use crate::caller::Caller;
use crate::claim::Claim;
use crate::deadline::{Declaration, DeclaredDeadline};
use crate::draft::{AggregateState, Draft, unwritable};
use crate::folded::{CommandRequest, Folded};
use crate::involved::Exchange;
use crate::json::{Json, tagged};
use crate::model::{CommandError, Decided, DecisionInput, DomainRejection, Model, Schemas, StateError};
use crate::panics::{AggregatePanic, calling, catch};
use crate::personal;
use crate::process::Source;
use crate::reading::{read_command, read_event};
use crate::record::{MessageNumber, OutboxMessage, RecordedEvent};
use crate::unreadable::{UnreadableEvent, UnreadableKind, panicked_on, unreadable};
use crate::variant_names::{aliases, names_in_schema, names_in_serde};

/// Why the downcast of a state cannot fail.
const OWN_STATE: &str = "a state is only passed to the model that folded it";

/// The model of the aggregate `A`.
pub(crate) struct ModelOf<A> {
    /// Made when they are first needed: no command needs them, and they would take a third of a function's initialization.
    schemas: OnceLock<Schemas>,
    /// The names of the commands, aliases too.
    commands: Vec<String>,
    /// The aliases of commands, each with the name that everything but serde knows.
    aliases: Vec<(String, String)>,
    /// The names by which serde reads the events, if it reports them.
    events: Vec<String>,
    sources: Vec<Source>,
    before_first_event: Folded,
    aggregate: PhantomData<fn() -> A>,
}

impl<A: Aggregate> ModelOf<A> {
    /// Fails if the `Default` of the state panics, or the `Deserialize` or `JsonSchema` from which the names are read.
    pub(crate) fn new() -> Result<Self, AggregatePanic> {
        catch(A::TYPE, || {
            let state = AggregateState::<A>::new(calling("Default", A::State::default));
            let (version, message_seq, history_bytes, is_deleted) = (0, 0, 0, false);
            let before_first_event =
                Folded { version, message_seq, history_bytes, is_deleted, last_event: None, state: Arc::new(state) };
            let (mut commands, events) = (names_in_serde::<A::Command>("command"), names_in_serde::<A::Event>("type"));
            if commands.is_empty() {
                commands = calling("JsonSchema", || names_in_schema(&schema_for!(A::Command), "command"));
            }
            let command_schema = || calling("JsonSchema", || schema_for!(A::Command));
            let aliases = aliases::<A::Command>("command", &commands, command_schema);
            let (schemas, sources) = (OnceLock::new(), calling("sources", A::sources).all);
            Self { schemas, commands, aliases, events, sources, before_first_event, aggregate: PhantomData }
        })
    }

    /// The names of the commands and of the events. Those of the events are missing if serde does not report them.
    pub(crate) fn names(&self) -> (&[String], &[String]) {
        (&self.commands, &self.events)
    }

    pub(crate) fn try_schemas(&self) -> Result<&Schemas, AggregatePanic> {
        catch(A::TYPE, || self.schemas.get_or_init(|| calling("JsonSchema", schemas::<A>)))
    }

    fn state_of(folded: &Folded) -> &AggregateState<A> {
        folded.state.downcast_ref().expect(OWN_STATE)
    }
}

impl<A: Aggregate> Model for ModelOf<A> {
    fn type_name(&self) -> &'static str {
        A::TYPE
    }

    fn rust_type(&self) -> &'static str {
        std::any::type_name::<A>()
    }

    fn state_version(&self) -> u32 {
        A::STATE_VERSION
    }

    fn commands(&self) -> Commands {
        A::COMMANDS
    }

    fn command_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.iter().find(|(alias, _)| alias == name).map_or(name, |(_, command)| command)
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

    fn sources(&self) -> &[Source] {
        &self.sources
    }

    fn schemas(&self) -> &Schemas {
        self.try_schemas().unwrap_or_else(|panic| panic!("{panic}"))
    }

    fn before_first_event(&self) -> Folded {
        self.before_first_event.clone()
    }

    fn restore(&self, version: u64, message_seq: u64, state: &Json) -> Result<Folded, StateError> {
        catch(A::TYPE, || {
            let state = AggregateState::<A>::new(state.read()?);
            let is_deleted = version > 0 && state.is_deleted();
            let state = Arc::new(state);
            Ok(Folded { version, message_seq, history_bytes: 0, is_deleted, last_event: None, state })
        })?
    }

    fn read(&self, event: &RecordedEvent) -> Result<Vec<(String, Json)>, UnreadableEvent> {
        let split = |current: &A::Event| {
            tagged::split(current).map_err(|error| unreadable(event, UnreadableKind::Corrupt, error.to_string()))
        };
        catch(A::TYPE, || read_event::<A>(event)?.iter().map(split).collect()).map_err(panicked_on(event))?
    }

    fn fold(&self, onto: Folded, events: &[RecordedEvent]) -> Result<Folded, UnreadableEvent> {
        let Some(last) = events.last() else { return Ok(onto) };
        let Folded { mut version, mut message_seq, mut history_bytes, state, .. } = onto;
        let state = state.downcast::<AggregateState<A>>().expect(OWN_STATE);
        let mut state = catch(A::TYPE, || Arc::unwrap_or_clone(state)).map_err(panicked_on(last))?;
        for event in events {
            if event.seq_num != version + 1 {
                let reason = format!("the event before it is {version}, so the stream has a gap");
                return Err(unreadable(event, UnreadableKind::Corrupt, reason));
            }
            catch(A::TYPE, || {
                read_event::<A>(event)?.iter().for_each(|event| state.apply(event));
                Ok(())
            })
            .map_err(panicked_on(event))??;
            version = event.seq_num;
            message_seq = event.message_seq;
            if A::FULL_HISTORY {
                history_bytes += event.data.text().len();
            }
        }
        let is_deleted = catch(A::TYPE, || state.is_deleted()).map_err(panicked_on(last))?;
        let last_event = Some(last.into());
        Ok(Folded { version, message_seq, history_bytes, is_deleted, last_event, state: Arc::new(state) })
    }

    fn announced(
        &self,
        before: &Folded,
        id: &str,
        event: &RecordedEvent,
        epoch: u32,
    ) -> Result<Vec<OutboxMessage>, UnreadableEvent> {
        let announced = || {
            let mut state = Self::state_of(before).clone();
            let ids = Ids::from_seed(event.event_id);
            ids.next();
            let mut messages = Vec::new();
            for current in read_event::<A>(event)? {
                let state_before = state.state.clone();
                state.apply(&current);
                for message in calling("announce", || A::announce(&state_before, &current, &state.state)) {
                    let index = messages.len();
                    let epoch_before = if index == 0 { before.message_epoch() } else { epoch };
                    let message_seq = before.message_seq + index as u64 + 1;
                    let number = MessageNumber { epoch, epoch_before, message_seq, index };
                    let message = OutboxMessage::new((A::TYPE, id), event, number, (ids.next(), message));
                    messages.push(message.map_err(|reason| unreadable(event, UnreadableKind::Corrupt, reason))?);
                }
            }
            Ok(messages)
        };
        catch(A::TYPE, announced).map_err(panicked_on(event))?
    }

    fn state(&self, folded: &Folded) -> Result<Json, StateError> {
        Ok(catch(A::TYPE, || Json::of(&Self::state_of(folded).state))??)
    }

    fn is_forgotten(&self, folded: &Folded) -> Result<bool, AggregatePanic> {
        catch(A::TYPE, || Self::state_of(folded).is_forgotten())
    }

    fn without_personal(&self, folded: Folded, id: &str) -> Result<Folded, StateError> {
        let AggregateState { state, history } = Self::state_of(&folded).clone();
        let state = catch(A::TYPE, || AggregateState::<A>::forgotten(&state, id))?;
        let state = state.map_err(|reason| StateError::Json(serde::ser::Error::custom(reason)))?;
        Ok(Folded { state: Arc::new(AggregateState::<A> { state, history }), ..folded })
    }

    fn forget(&self) -> Option<&'static str> {
        A::FORGET
    }

    fn claims(&self, folded: &Folded) -> Result<Vec<Claim>, AggregatePanic> {
        let mut claims = catch(A::TYPE, || Self::state_of(folded).claims(folded.version))?;
        claims.retain(|claim| claim.check().is_ok());
        Ok(claims)
    }

    fn deadlines(&self, folded: &Folded) -> Result<Vec<DeclaredDeadline>, AggregatePanic> {
        let deadlines = catch(A::TYPE, || Self::state_of(folded).deadlines(folded.version))?;
        let mut names = BTreeSet::new();
        let declared = deadlines.into_iter().filter_map(Declaration::declared);
        Ok(declared.filter(|declared| names.insert(declared.name.clone())).collect())
    }

    fn authorize(
        &self,
        caller: &Caller,
        access: Access<'_>,
        id: Option<&str>,
        folded: Option<&Folded>,
    ) -> Result<Authorization, AggregatePanic> {
        let state = folded.map(|folded| &Self::state_of(folded).state);
        catch(A::TYPE, || calling("authorize", || A::authorize(caller, access.of(), id, state)))
    }

    fn decide(
        &self,
        before: &Folded,
        id: &str,
        commands: &[CommandRequest],
        input: &DecisionInput,
    ) -> Result<Decided, CommandError> {
        let input = &input.after(before);
        let commands = &self.without_aliases(commands);
        // A missing aggregate is reported before an error in the data of a command that changes it.
        let is_change = |command: &CommandRequest| self.commands.contains(&command.command) && !creates::<A>(command);
        if before.version == 0 && commands.first().is_some_and(is_change) {
            return Err(CommandError::Missing);
        }
        catch(A::TYPE, || self.decide_each(before, id, commands, input))?
    }
}

impl<A: Aggregate> ModelOf<A> {
    /// The commands under the names of their variants.
    fn without_aliases<'a>(&self, commands: &'a [CommandRequest]) -> Cow<'a, [CommandRequest]> {
        if commands.iter().all(|request| self.command_name(&request.command) == request.command) {
            return Cow::Borrowed(commands);
        }
        let renamed = |request: &CommandRequest| CommandRequest {
            command: self.command_name(&request.command).to_owned(),
            data: request.data.clone(),
        };
        Cow::Owned(commands.iter().map(renamed).collect())
    }

    fn decide_each(
        &self,
        before: &Folded,
        id: &str,
        requests: &[CommandRequest],
        input: &DecisionInput,
    ) -> Result<Decided, CommandError> {
        let read = requests.iter().enumerate().map(|request| read_command::<A>(request, &self.commands));
        let commands = read.collect::<Result<Vec<_>, _>>()?;
        let (ids, exchange) = (Ids::from_seed(input.seed), Exchange::new(&input.involved));
        let mut draft = Draft::<A>::new(before, Self::state_of(before), id, input, &ids);
        let mut sent = Vec::new();
        for ((index, command), request) in commands.into_iter().enumerate().zip(requests) {
            let (creates, exists) = (creates::<A>(request), draft.version() > 0);
            if exists || creates {
                // Nothing else about the aggregate is reported to a caller who may not change it.
                let is_allowed = input.is_sent || {
                    let (access, state) = (Access::Command(&command), exists.then_some(&draft.after.state));
                    calling("authorize", || A::authorize(&input.caller, access, Some(id), state)).is_allowed()
                };
                if !is_allowed {
                    return Err(CommandError::Forbidden { index, command: request.command.clone() });
                }
            }
            match (creates, draft.version()) {
                (true, 1..) if before.version == 0 => return Err(CommandError::CreatedTwice { index }),
                (true, 1..) => return Err(CommandError::Exists { index }),
                (false, 1..) if before.is_deleted => return Err(CommandError::Deleted),
                (false, 1..) if draft.after.is_deleted() => return Err(CommandError::AfterDeletion { index }),
                (false, 0) => return Err(CommandError::Missing),
                (true, 0) | (false, 1..) => {}
            }
            let DecisionInput { now, ref meta, ref caller, .. } = *input;
            let history = draft.after.history.as_slice();
            let context = Context { aggregate_id: id, now, meta, caller, history, ids: &ids, exchange: &exchange };
            let decision = calling("decide", || A::decide(&draft.after.state, command, &context));
            let needs = exchange.needs.take();
            if !needs.is_empty() {
                return Err(CommandError::Needs(needs.into_iter().collect()));
            }
            match decision {
                // An aggregate exists only once its stream has an event.
                Ok(events) if creates && events.is_empty() => {
                    let reason = format!("{} returned no event, and a new aggregate needs one", A::COMMANDS.create);
                    return Err(CommandError::Unwritable { event: format!("a new {}", A::TYPE), reason });
                }
                Ok(events) => {
                    draft.extend(events)?;
                    for command in exchange.sent.take() {
                        let mut command = command.map_err(unwritable::<A>("a decision"))?;
                        let data = personal::attributed(command.command.data, (A::TYPE, id));
                        command.command.data = data.map_err(unwritable::<A>("a decision"))?;
                        sent.push(command);
                    }
                }
                Err(Rejection { name, detail, recorded }) => {
                    // The batch's other events are dropped: the rejection is recorded on the state before the batch.
                    let before = input.recorded_on.as_ref().unwrap_or(before);
                    let mut draft = Draft::<A>::new(before, Self::state_of(before), id, input, &ids);
                    if draft.version() > 0 {
                        draft.extend(recorded)?;
                    }
                    let rejection = DomainRejection { name, detail, index, by: None };
                    return Ok(Decided { sent, ..draft.finish(Some(rejection))? });
                }
            }
        }
        Ok(Decided { sent, ..draft.finish(None)? })
    }
}

fn schemas<A: Aggregate>() -> Schemas {
    Schemas {
        command: schema_for!(A::Command),
        event: personal::nullable(schema_for!(A::Event)),
        message: personal::reference_schema(A::message_schema()),
        // The schema of the serialized state, as responses contain it, not of what can be deserialized.
        state: personal::nullable(
            SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<A::State>(),
        ),
        part: A::part_schema().map(personal::nullable),
    }
}

fn creates<A: Aggregate>(request: &CommandRequest) -> bool {
    request.command == A::COMMANDS.create
}
