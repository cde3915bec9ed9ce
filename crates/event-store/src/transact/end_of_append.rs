//! The end of an append: the result of the transaction, or the preparation of its next attempt.

use std::sync::Arc;

use daybook_decider::{Claim, Folded};
use tokio::time::Instant;

use super::decide::Decide;
use super::in_doubt::AppendInDoubt;
use super::options::{End, TransactError, TransactOptions, Transacted};
use super::transaction::{Attempted, Proposed, Retry, StartState, Transaction};
use crate::append::{AppendError, FirstEvent};
use crate::error::Cause;
use crate::load::COMMIT_TIME;

impl<D: Decide> Transaction<'_, D> {
    /// The result of the transaction after an append on the state `before`. If the append failed, it is not stored or its
    /// outcome is unknown: prepares the next attempt.
    pub(super) fn end_of_append(
        &mut self,
        stored: Result<(), Arc<AppendError>>,
        before: &Folded,
        is_read: bool,
        first_event: Option<FirstEvent>,
        proposed: Result<Proposed, End<D::Error>>,
    ) -> Attempted<D::Error> {
        let Err(error) = stored else {
            self.in_doubt.clear();
            return Some(proposed.map_or_else(|end| end, |own| Ok(Transacted::Decided(own.outcome.response))));
        };
        let cause = Cause::from(Arc::clone(&error));
        let is_in_doubt = self.in_doubt.event().is_some();
        let same = StartState::Known(before.clone(), is_read);
        (self.state, self.retry) = match &*error {
            AppendError::KeysUsed(stored) => {
                let own = proposed.ok().filter(|_| self.options.idempotency.is_some());
                match own.and_then(|own| stored.get(own.index)?.clone()).map(|stored| self.replay(stored)) {
                    None => {
                        self.turn_until = self.last_attempt + TransactOptions::LAST_ATTEMPT;
                        (same, None)
                    }
                    // The commands are decided again on the current state: there, the caller may not be allowed to send
                    // them.
                    Some(Err(TransactError::KeyReused)) if !is_read => {
                        self.is_alone = true;
                        self.others.forget();
                        (StartState::Read, None)
                    }
                    Some(end) => return Some(end),
                }
            }
            AppendError::Unknown(_) => {
                if let Ok(Proposed { outcome, .. }) = proposed {
                    let cause = Cause::from(Arc::clone(&error));
                    self.in_doubt.add(AppendInDoubt { first: first_event, outcome, cause });
                }
                (same, Some(Retry::Failed(cause)))
            }
            // The other transaction may be the one in doubt, which has to be resolved on the same state.
            AppendError::Busy if is_in_doubt => (same, Some(Retry::Failed(cause))),
            AppendError::Busy => (StartState::Read, Some(Retry::Race)),
            // The version in the metadata is lower than that of the state, so no other writer was faster: another
            // transaction commits. At another version, it is another one.
            &AppendError::Conflict { actual } if actual < before.version() => {
                let known = self.behind.filter(|(version, _)| *version == actual);
                let (_, since) = *self.behind.insert(known.unwrap_or((actual, Instant::now())));
                let version = before.version();
                let source = format!("its metadata is at version {actual}, but its events end at {version}");
                if is_read && since.elapsed() >= COMMIT_TIME {
                    return Some(Err(self.stream.corrupt(source).into()));
                }
                self.others.forget();
                (StartState::Read, is_read.then(|| Retry::Failed(source.into())))
            }
            &AppendError::Conflict { actual } => {
                self.at_least = actual;
                // The faster append may be the one in doubt, which is resolved next.
                (StartState::Read, (!is_in_doubt).then_some(Retry::Race))
            }
            // The others may have changed by the append in doubt, which is resolved next.
            AppendError::Raced(_) if is_in_doubt => {
                self.others.forget();
                (StartState::Read, None)
            }
            AppendError::Raced(raced) => {
                self.others.raced(self.stream.store, raced);
                (same, Some(Retry::RaceOfOther))
            }
            AppendError::RowChanged => return Some(Err(TransactError::RowChanged)),
            AppendError::NotWritten(_) => (same, Some(Retry::Failed(cause))),
            // The error concerns one of the decisions, or all of them. The next attempt appends alone and shows which. Claims
            // concern those that change them.
            AppendError::Store(_)
            | AppendError::TooLarge(_)
            | AppendError::ClaimTaken { .. }
            | AppendError::NotReleased(_) => {
                let changes = |claim: &Claim| proposed.as_ref().is_ok_and(|own| own.claims.contains(claim));
                self.is_alone |= match &*error {
                    AppendError::ClaimTaken { claim, .. } => changes(claim),
                    AppendError::NotReleased(claims) => claims.iter().any(changes),
                    _ => true,
                };
                self.turn_until = self.last_attempt + TransactOptions::LAST_ATTEMPT;
                (same, None)
            }
        };
        if let Some(Retry::Failed(source)) = &self.retry {
            tracing::debug!(aggregate = %self.stream.key, error = source, "the append will be decided again");
        }
        None
    }
}
