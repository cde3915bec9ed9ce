//! A decision that is ready to be appended.

use std::collections::BTreeSet;

use daybook_decider::{Claim, Folded};

use super::decide::{Decide, ResponseDetail};
use super::options::{End, TransactError, TransactOptions, Transacted};
use crate::append::{Batch, Origin};
use crate::event_stream::EventStream;
use crate::idempotency::ResponseToStore;
use crate::limits::TooLarge;
use crate::loaded::Loaded;
use crate::stored_response::CommandResponse;

/// A decision that is ready to be appended.
pub(super) struct Decision {
    pub(super) batch: Batch,
    pub(super) after: Loaded,
    pub(super) response: CommandResponse,
}

impl EventStream<'_> {
    /// Decides on one state, with a reduced response when the full one does not fit. A decision that appends nothing is the
    /// result of the transaction, if the state is current.
    pub(super) fn decide<D: Decide>(
        &self,
        commands: &D,
        options: &TransactOptions<'_>,
        before: &Folded,
        foreign: &BTreeSet<Claim>,
    ) -> Result<Decision, End<D::Error>> {
        let TransactOptions { expected_version, idempotency, .. } = *options;
        let in_flight = self.store.in_flight.begin(&self.store.clock);
        let (version, now) = (before.version(), self.store.now());
        let not_decided = |error| Err(TransactError::Decide(error));
        let decided = commands.decide(before).map_err(not_decided)?;
        if let Some(expected) = expected_version.filter(|&expected| expected != version) {
            return Err(Err(TransactError::Conflict { expected, actual: version }));
        }
        let mut detail = ResponseDetail::Full;
        loop {
            let response = commands.respond(before, &decided, detail).map_err(not_decided)?;
            if decided.events.is_empty() && idempotency.is_none() {
                return Err(Ok(Transacted::Decided(response)));
            }
            let to_store =
                idempotency.map(|idempotency| ResponseToStore { idempotency, response: response.clone(), now });
            match self.batch((&decided).into(), to_store.as_ref(), Origin::Decision, foreign) {
                Ok(Ok(mut batch)) => {
                    batch.in_flight = in_flight;
                    return Ok(Decision {
                        batch,
                        after: Loaded { folded: decided.after, state: decided.state },
                        response,
                    });
                }
                Ok(Err(limit)) => {
                    let is_for_the_response = match limit {
                        TooLarge::Response { .. } => true,
                        TooLarge::Transaction { .. } => idempotency.is_some(),
                        TooLarge::Item { .. } | TooLarge::Items { .. } => false,
                    };
                    let less = detail.less().filter(|_| is_for_the_response);
                    detail = less.ok_or(Err(limit.into()))?;
                }
                Err(error) => return Err(Err(error.into())),
            }
        }
    }
}
