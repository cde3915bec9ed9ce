//! The decision on the commands of one request, for all aggregates that they concern: those that the request names, and those
//! that aggregates send commands to.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

use jiff::Timestamp;
use ulid::Ulid;

use crate::aggregate_key::{AggregateKey, is_id};
use crate::folded::{CommandRequest, Folded};
use crate::involved::{Involved, Need, SentCommand};
use crate::model::{CommandError, Decided, DecisionInput, DomainRejection, Model, StateError};
use crate::record::{MAX_BYTES, MAX_RECORDS};
use crate::registry::Registry;

/// Commands of a request to one aggregate.
#[derive(Clone, Debug)]
pub struct Addressed<'a> {
    /// The aggregate.
    pub to: Cow<'a, AggregateKey>,
    /// The commands, at least one.
    pub commands: Cow<'a, [CommandRequest]>,
}

impl<'a> Addressed<'a> {
    /// These commands to this aggregate.
    pub fn new(to: &'a AggregateKey, commands: &'a [CommandRequest]) -> Self {
        Self { to: Cow::Borrowed(to), commands: Cow::Borrowed(commands) }
    }
}

/// What a request decides for each aggregate.
#[derive(Clone, Debug)]
pub struct Decisions {
    /// The aggregate that the request names first.
    pub own: Decided,
    /// The others that get commands: first those that the request names, then those that aggregates send commands to.
    pub others: Vec<(AggregateKey, Decided)>,
    /// How many others the request names.
    pub named: usize,
}

impl Decisions {
    /// No change of an aggregate, because of this rejection. Fails if its state has no JSON form, or its type is not registered.
    pub fn rejected(
        registry: &Registry,
        key: &AggregateKey,
        before: &Folded,
        rejection: DomainRejection,
    ) -> Result<Self, JointError> {
        let own = model(registry, key).and_then(|model| {
            Decided::nothing(model, &key.id, before).map_err(|error| match error {
                StateError::Panicked(panic) => CommandError::Panicked(panic),
                StateError::Json(error) => {
                    CommandError::Unwritable { event: format!("the state of {key}"), reason: error.to_string() }
                }
            })
        });
        let own = own.map_err(|error| JointError { aggregate: None, index: None, error })?;
        Ok(Decided { rejection: Some(rejection), ..own }.into())
    }
}

impl From<Decided> for Decisions {
    fn from(own: Decided) -> Self {
        Self { own, others: Vec::new(), named: 0 }
    }
}

/// The reason why a command of the request cannot be decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct JointError {
    /// The aggregate, if it is not the one that the request names first.
    pub aggregate: Option<Box<AggregateKey>>,
    /// The position of the command in the request, counted from 0, if the error is about one.
    pub index: Option<usize>,
    /// What is wrong.
    pub error: CommandError,
}

impl Involved {
    /// The aggregates and claims after a decision of one of them.
    fn change(&mut self, key: &AggregateKey, decided: &Decided) {
        self.aggregates.insert(key.clone(), decided.after.clone());
        for claim in &decided.claims.released {
            self.holders.get_mut(claim).and_then(|holder| holder.take_if(|holder| holder == key));
        }
        for claim in &decided.claims.taken {
            self.holders.get_mut(claim).map(|holder| holder.insert(key.clone()));
        }
    }

    /// Fails if a decision needs to know more, or involves too many.
    fn require(&self, needs: Vec<Need>) -> Result<(), JointError> {
        let is_too_many = self.is_too_many_with(&needs);
        if needs.is_empty() && !is_too_many {
            return Ok(());
        }
        let error = if is_too_many { CommandError::TooManyInvolved } else { CommandError::Needs(needs) };
        Err(JointError { aggregate: None, index: None, error })
    }
}

struct AddressedStep<'a> {
    to: Cow<'a, AggregateKey>,
    command: Cow<'a, CommandRequest>,
    /// The position in the request, of the command or of the one that sends it.
    index: usize,
    is_sent: bool,
}

/// Decides the commands of a request on `before`, the state of the aggregate that it names first, one after the other, all or
/// nothing. After each follow the commands that it sends. Each is decided on the states after those before it. Fails if a command
/// cannot be decided. If the rules of an aggregate reject one, [`Decisions::own`] contains a `rejection`.
pub fn decide(
    registry: &Registry,
    before: &Folded,
    requests: &[Addressed<'_>],
    input: &DecisionInput,
) -> Result<Decisions, JointError> {
    let own = &*requests[0].to;
    if let [only] = requests {
        let decided = model(registry, own).and_then(|model| model.decide(before, &own.id, &only.commands, input));
        match decided {
            Ok(decided) if decided.sent.is_empty() => {
                if decided.rejection.is_none() {
                    input.involved.require(Vec::new())?;
                }
                return Ok(decided.into());
            }
            Ok(_) => {}
            Err(CommandError::Needs(needs)) if needs.contains(&Need::Aggregate(own.clone())) => {}
            Err(CommandError::Needs(needs)) => input.involved.require(needs)?,
            Err(error) => {
                let index = error.index().or((only.commands.len() == 1).then_some(0));
                return Err(JointError { aggregate: None, index, error });
            }
        }
    }
    let commands = requests.iter().flat_map(|request| request.commands.iter().map(|command| (&*request.to, command)));
    let steps = commands.enumerate().map(|(index, (to, command))| {
        let (to, command) = (Cow::Borrowed(to), Cow::Borrowed(command));
        AddressedStep { to, command, index, is_sent: false }
    });
    let mut named: Vec<&AggregateKey> = Vec::new();
    for request in requests {
        if !named.contains(&&*request.to) {
            named.push(&request.to);
        }
    }
    let mut joint = Joint { registry, own, before, input, involved: input.involved.clone(), parts: Vec::new() };
    joint.involved.aggregates.insert(own.clone(), before.clone());
    joint.decide(steps.collect(), &named)
}

/// Decides the command that the state `before` of an aggregate declares for a deadline, like [`decide`]. `None` if it does not
/// declare one of this name for this time: the state has changed since.
pub fn decide_due(
    registry: &Registry,
    key: &AggregateKey,
    before: &Folded,
    (name, due): (&str, Timestamp),
    input: &DecisionInput,
) -> Option<Result<Decisions, JointError>> {
    let failed = |error| JointError { aggregate: None, index: None, error };
    let declared = model(registry, key).and_then(|model| Ok(model.deadlines(before)?)).map_err(failed);
    let declared =
        declared.map(|all| all.into_iter().find(|deadline| (&*deadline.name, deadline.due) == (name, Some(due))));
    let command = declared.map(|found| found.map(|deadline| deadline.command)).transpose()?;
    Some(command.and_then(|command| decide(registry, before, &[Addressed::new(key, &[command])], input)))
}

fn model<'a>(registry: &'a Registry, key: &AggregateKey) -> Result<&'a dyn Model, CommandError> {
    registry.get(&key.aggregate_type).ok_or_else(|| CommandError::Unwritable {
        event: format!("a command to {key}"),
        reason: "its type is not registered".to_owned(),
    })
}

struct Joint<'a> {
    registry: &'a Registry,
    own: &'a AggregateKey,
    before: &'a Folded,
    input: &'a DecisionInput,
    /// The aggregates in their current state.
    involved: Involved,
    /// What is decided so far, by aggregate.
    parts: Vec<(AggregateKey, Decided)>,
}

impl Joint<'_> {
    fn decide(
        mut self,
        mut steps: VecDeque<AddressedStep<'_>>,
        named: &[&AggregateKey],
    ) -> Result<Decisions, JointError> {
        let mut needs = BTreeSet::new();
        // The aggregates that are created, and so probably do not exist: the condition of the append finds out. A decision
        // that ends without writing them has to read them.
        let mut assumed = BTreeSet::new();
        let (mut number, mut records, mut bytes) = (0, 0, 0);
        while let Some(step) = steps.pop_front() {
            number += 1;
            let aggregate = (*step.to != *self.own).then(|| step.to.clone().into_owned());
            let index = step.index;
            let failed = |error: CommandError| JointError {
                aggregate: aggregate.clone().map(Box::new),
                index: Some(index),
                error,
            };
            if number > MAX_RECORDS {
                return Err(failed(CommandError::TooMany));
            }
            let may_exist = is_id(&step.to.id) && model(self.registry, &step.to).is_ok();
            if may_exist && !self.involved.aggregates.contains_key(&*step.to) {
                assumed.insert(Need::Aggregate(step.to.clone().into_owned()));
            }
            let decided = self.step(&step, number);
            if let Err(CommandError::Needs(more)) = decided {
                needs.extend(more);
                continue;
            }
            if !matches!(decided, Ok(Decided { rejection: None, .. })) {
                needs.append(&mut assumed);
                // What is not known yet may be the reason.
                if !needs.is_empty() {
                    break;
                }
            }
            let decided = decided.map_err(failed)?;
            if let Some(rejection) = decided.rejection.clone() {
                let rejection = DomainRejection { index, by: aggregate.clone(), ..rejection };
                return self.rejected(step.to.into_owned(), decided, rejection).map_err(failed);
            }
            for SentCommand { to, command } in decided.sent.iter().rev().cloned() {
                steps.push_front(AddressedStep {
                    to: Cow::Owned(to),
                    command: Cow::Owned(command),
                    index,
                    is_sent: true,
                });
            }
            let texts = decided.events.iter().map(|event| event.data.text());
            let texts = texts.chain(decided.messages.iter().map(|message| message.detail.text()));
            (records, bytes) = texts.fold((records, bytes), |(records, bytes), text| (records + 1, bytes + text.len()));
            // Like a draft, so that the work for a request is bounded.
            if records > MAX_RECORDS || bytes > MAX_BYTES {
                let error = if records > MAX_RECORDS { CommandError::TooMany } else { CommandError::TooLarge };
                return Err(failed(error));
            }
            self.involved.change(&step.to, &decided);
            match self.parts.iter_mut().find(|(key, _)| *key == *step.to) {
                Some((_, part)) => part.add(decided),
                None => self.parts.push((step.to.into_owned(), decided)),
            }
        }
        self.involved.aggregates.remove(self.own);
        // What counts is who had the claims before.
        self.involved.holders.clone_from(&self.input.involved.holders);
        self.involved.require(needs.into_iter().collect())?;
        self.parts.sort_by_key(|(key, _)| named.iter().position(|named| *named == key).unwrap_or(named.len()));
        self.note_what_is_together();
        let (_, own) = self.parts.remove(0);
        Ok(Decisions { own, others: self.parts, named: named.len() - 1 })
    }

    /// Notes in the first event of each aggregate which others are appended with it.
    fn note_what_is_together(&mut self) {
        let first = |(key, part): &(AggregateKey, Decided)| {
            part.events.first().map(|event| (key.clone(), format!("{key}@{}", event.seq_num)))
        };
        let firsts: Vec<_> = self.parts.iter().filter_map(first).collect();
        for (key, part) in &mut self.parts {
            if let Some(event) = part.events.first_mut() {
                let others = firsts.iter().filter(|(other, _)| other != key);
                event.together = others.map(|(_, first)| first.clone()).collect();
            }
        }
    }

    fn step(&self, step: &AddressedStep<'_>, number: usize) -> Result<Decided, CommandError> {
        let model = model(self.registry, &step.to)?;
        let creates = model.command_name(&step.command.command) == model.commands().create;
        let to = &*step.to;
        let before = match self.involved.aggregates.get(to) {
            Some(known) => known.clone(),
            None if !is_id(&to.id) => return Err(CommandError::Missing),
            None if creates => model.before_first_event(),
            None => return Err(CommandError::Needs(vec![Need::Aggregate(to.clone())])),
        };
        let is_changed = self.parts.iter().any(|(key, _)| key == to);
        let original = if to == self.own { Some(self.before) } else { self.input.involved.aggregates.get(to) };
        // Each step has ids of its own: a decision has far fewer than 2^64.
        let Ulid(seed) = self.input.seed;
        let random = (seed & ((1 << 80) - 1)).wrapping_add((number as u128) << 64);
        let input = DecisionInput {
            seed: Ulid::from_parts(self.input.seed.timestamp_ms(), random),
            involved: self.involved.clone(),
            is_sent: step.is_sent,
            recorded_on: is_changed.then(|| original.cloned().unwrap_or_else(|| model.before_first_event())),
            ..self.input.clone()
        };
        model.decide(&before, &to.id, std::slice::from_ref(&*step.command), &input)
    }

    /// The result if an aggregate rejects its command: the others do not change.
    fn rejected(
        &self,
        by: AggregateKey,
        decided: Decided,
        rejection: DomainRejection,
    ) -> Result<Decisions, CommandError> {
        if by == *self.own {
            return Ok(Decided { rejection: Some(rejection), ..decided }.into());
        }
        let rejected = Decisions::rejected(self.registry, self.own, self.before, rejection);
        Ok(Decisions { others: vec![(by, decided)], ..rejected.map_err(|error| error.error)? })
    }
}
