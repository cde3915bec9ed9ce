//! A decision that is ready to be appended.

use daybook_decider::{AggregateKey, Decided, Folded, Involved, Need};

use super::decide::{Decide, ResponseDetail, Undecided};
use super::options::{End, TransactError, TransactOptions, Transacted};
use crate::append::{Batch, ClaimHolders, NotBuilt};
use crate::event_stream::EventStream;
use crate::idempotency::ResponseToStore;
use crate::limits::TooLarge;
use crate::loaded::Loaded;
use crate::stored_response::CommandResponse;

/// A decision that is ready to be appended.
pub(super) struct Decision {
    pub(super) batch: Batch,
    pub(super) outcome: Outcome,
}

/// What follows if a decision is stored.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) after: Loaded,
    /// The other aggregates that change, after the decision.
    pub(super) others: Vec<(AggregateKey, Loaded)>,
    pub(super) response: CommandResponse,
}

/// Why there is nothing to append.
pub(super) enum NotDecided<E> {
    /// The decision needs to know this about other aggregates.
    Needs(Vec<Need>),
    /// This is the result of the transaction, if the states are current.
    End(End<E>),
}

impl<E> From<TransactError<E>> for NotDecided<E> {
    fn from(error: TransactError<E>) -> Self {
        Self::End(Err(error))
    }
}

impl EventStream<'_> {
    /// Decides on one state, with a reduced response when the full one does not fit.
    pub(super) fn decide<D: Decide>(
        &self,
        commands: &D,
        options: &TransactOptions<'_>,
        before: &Folded,
        involved: &Involved,
        holders: &ClaimHolders,
    ) -> Result<Decision, NotDecided<D::Error>> {
        let TransactOptions { expected_version, idempotency, .. } = *options;
        let in_flight = self.store.in_flight.begin(&self.store.clock);
        let (version, now) = (before.version(), self.store.now());
        let decided = commands.decide(before, involved).map_err(|undecided| match undecided {
            Undecided::Needs(needs) => NotDecided::Needs(needs),
            Undecided::Error(error) => TransactError::Decide(error).into(),
        })?;
        if let Some(expected) = expected_version.filter(|&expected| expected != version) {
            return Err(TransactError::Conflict { expected, actual: version }.into());
        }
        let has_events =
            !decided.own.events.is_empty() || decided.others.iter().any(|(_, other)| !other.events.is_empty());
        let mut detail = ResponseDetail::Full;
        loop {
            let response = commands.respond(before, &decided, detail).map_err(TransactError::Decide)?;
            if !has_events && idempotency.is_none() {
                return Err(NotDecided::End(Ok(Transacted::Decided(response))));
            }
            let to_store =
                idempotency.map(|idempotency| ResponseToStore { idempotency, response: response.clone(), now });
            match self.joint_batch(&decided, to_store.as_ref(), involved, holders, |name| commands.model(name)) {
                Ok(mut batch) => {
                    batch.in_flight = in_flight;
                    if let Some(row) = commands.requires() {
                        let key = (row.item.pk.clone(), row.item.sk.clone());
                        let required = batch.require(&key, row.check(self.store.table_name()));
                        required.map_err(|limit| TransactError::TooLarge { limit, of: None })?;
                    }
                    let loaded = |Decided { after, state, .. }| Loaded { folded: after, state };
                    let others = decided.others.into_iter().filter(|(_, other)| !other.events.is_empty());
                    let others = others.map(|(key, other)| (key, loaded(other))).collect();
                    let outcome = Outcome { after: loaded(decided.own), others, response };
                    return Ok(Decision { batch, outcome });
                }
                Err(NotBuilt::TooLarge(limit, of)) => {
                    let is_for_the_response = match limit {
                        TooLarge::Response { .. } => true,
                        TooLarge::Transaction { .. } => idempotency.is_some(),
                        TooLarge::Item { .. } | TooLarge::Items { .. } => false,
                    };
                    let less = detail.less().filter(|_| is_for_the_response);
                    detail = less.ok_or(TransactError::TooLarge { limit, of })?;
                }
                Err(NotBuilt::ClaimTaken { claim, holder }) => {
                    return Err(TransactError::ClaimTaken { claim, holder }.into());
                }
                Err(NotBuilt::Store(error)) => return Err(TransactError::from(error).into()),
            }
        }
    }
}
