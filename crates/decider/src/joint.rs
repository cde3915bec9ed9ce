//! The decision on the commands of one request, for all aggregates that they concern: those that the request names, and those
//! that aggregates send commands to.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

use ulid::Ulid;

use crate::aggregate_key::AggregateKey;
use crate::folded::{CommandRequest, Folded};
use crate::involved::{Involved, Need};
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

    /// The error of a decision that needs to know more, or involves too many.
    fn asked(&self, needs: Vec<Need>) -> JointError {
        let is_too_many = self.len() + needs.len() > Self::MAX;
        let error = if is_too_many { CommandError::TooManyInvolved } else { CommandError::Needs(needs) };
        JointError { aggregate: None, index: None, error }
    }
}

/// Commands to one aggregate, which are decided together.
struct Step<'a> {
    to: AggregateKey,
    commands: Cow<'a, [CommandRequest]>,
    /// The position of the first command in the request, or of the command that sends it.
    index: usize,
    is_sent: bool,
}

/// Decides the commands of a request on `before`, the state of the aggregate that it names first, one after the other, all or
/// nothing. Those that aggregates send follow, in their order. Each is decided on the state after those before it.
///
/// # Errors
///
/// When a command cannot be decided. When the rules of an aggregate reject one, [`Decisions::own`] contains a `rejection`.
pub fn decide(
    registry: &Registry,
    before: &Folded,
    requests: &[Addressed<'_>],
    input: &DecisionInput,
) -> Result<Decisions, JointError> {
    let own = &*requests[0].to;
    if let [only] = requests {
        let model = model(registry, own).map_err(|error| JointError { aggregate: None, index: None, error })?;
        match model.decide(before, &own.id, &only.commands, input) {
            Ok(decided) if decided.sent.is_empty() => return Ok(decided.into()),
            Ok(_) => {}
            Err(CommandError::Needs(needs)) if needs.contains(&Need::Aggregate(own.clone())) => {}
            Err(CommandError::Needs(needs)) => return Err(input.involved.asked(needs)),
            Err(error) => return Err(JointError { aggregate: None, index: error.index(), error }),
        }
    }
    let mut index = 0;
    let steps = requests.iter().map(|request| {
        let (to, commands) = (request.to.clone().into_owned(), Cow::Borrowed(&*request.commands));
        let step = Step { to, commands, index, is_sent: false };
        index += request.commands.len();
        step
    });
    let named: BTreeSet<_> = requests.iter().map(|request| &*request.to).collect();
    let named = named.len() - 1;
    let mut joint = Joint { registry, own, before, input, involved: input.involved.clone(), parts: Vec::new() };
    joint.involved.aggregates.insert(own.clone(), before.clone());
    joint.decide(steps.collect(), named)
}

fn model<'a>(registry: &'a Registry, key: &AggregateKey) -> Result<&'a dyn Model, CommandError> {
    registry.get(&key.aggregate_type).ok_or_else(|| CommandError::Unwritable {
        event: format!("a command to {key}"),
        reason: "its type is not registered".to_owned(),
    })
}

/// A decision in progress.
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
    fn decide(mut self, mut steps: VecDeque<Step<'_>>, named: usize) -> Result<Decisions, JointError> {
        let mut needs = BTreeSet::new();
        // The aggregates that are created, and so probably do not exist: the condition of the append finds out. A decision
        // that does not write them needs to know.
        let mut assumed = BTreeSet::new();
        let (mut number, mut records, mut bytes) = (0, 0, 0);
        while let Some(step) = steps.pop_front() {
            number += 1;
            let aggregate = (step.to != *self.own).then(|| step.to.clone());
            let index = step.index;
            let failed = |error: CommandError| {
                let index = match error.index() {
                    Some(of_step) if !step.is_sent => Some(index + of_step),
                    None if step.commands.len() > 1 => None,
                    _ => Some(index),
                };
                JointError { aggregate: aggregate.clone().map(Box::new), index, error }
            };
            if number > MAX_RECORDS {
                return Err(failed(CommandError::TooMany));
            }
            if !self.involved.aggregates.contains_key(&step.to) && model(self.registry, &step.to).is_ok() {
                assumed.insert(Need::Aggregate(step.to.clone()));
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
                let index = if step.is_sent { index } else { index + rejection.index };
                let rejection = DomainRejection { index, by: aggregate.clone(), ..rejection };
                return self.rejected(step.to, decided, rejection).map_err(failed);
            }
            steps.extend(decided.sent.iter().map(|sent| Step {
                to: sent.to.clone(),
                commands: Cow::Owned(vec![sent.command.clone()]),
                index: index + sent.index,
                is_sent: true,
            }));
            let texts = decided.events.iter().map(|event| event.data.text());
            let texts = texts.chain(decided.messages.iter().map(|message| message.detail.text()));
            (records, bytes) = texts.fold((records, bytes), |(records, bytes), text| (records + 1, bytes + text.len()));
            // Like a draft, so that the work for a request is bounded.
            if records > MAX_RECORDS || bytes > MAX_BYTES {
                let error = if records > MAX_RECORDS { CommandError::TooMany } else { CommandError::TooLarge };
                return Err(failed(error));
            }
            self.involved.change(&step.to, &decided);
            match self.parts.iter_mut().find(|(key, _)| *key == step.to) {
                Some((_, part)) => *part = part.clone().then(decided),
                None => self.parts.push((step.to, decided)),
            }
        }
        self.involved.aggregates.remove(self.own);
        if !needs.is_empty() || self.involved.len() > Involved::MAX {
            return Err(self.involved.asked(needs.into_iter().collect()));
        }
        self.note_what_is_together();
        let (_, own) = self.parts.remove(0);
        Ok(Decisions { own, others: self.parts, named })
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

    /// Decides the commands of one step.
    fn step(&self, step: &Step<'_>, number: usize) -> Result<Decided, CommandError> {
        let model = model(self.registry, &step.to)?;
        let creates =
            step.commands.first().is_some_and(|first| model.command_name(&first.command) == model.commands().create);
        let before = match self.involved.aggregates.get(&step.to) {
            Some(known) => known.clone(),
            None if creates => model.before_first_event(),
            None => return Err(CommandError::Needs(vec![Need::Aggregate(step.to.clone())])),
        };
        let is_changed = self.parts.iter().any(|(key, _)| *key == step.to);
        let original =
            if step.to == *self.own { Some(self.before) } else { self.input.involved.aggregates.get(&step.to) };
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
        model.decide(&before, &step.to.id, &step.commands, &input)
    }

    /// The result if an aggregate rejects its command: the others do not change.
    fn rejected(
        &self,
        by: AggregateKey,
        decided: Decided,
        rejection: DomainRejection,
    ) -> Result<Decisions, CommandError> {
        let rejection = Some(rejection);
        if by == *self.own {
            return Ok(Decided { rejection, ..decided }.into());
        }
        let own = Decided::nothing(model(self.registry, self.own)?, self.before).map_err(|error| match error {
            StateError::Panicked(panic) => CommandError::Panicked(panic),
            StateError::Json(error) => {
                CommandError::Unwritable { event: format!("the state of {}", self.own), reason: error.to_string() }
            }
        })?;
        Ok(Decisions { own: Decided { rejection, ..own }, others: vec![(by, decided)], named: 0 })
    }
}
