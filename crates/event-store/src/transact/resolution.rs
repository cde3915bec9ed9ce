//! The result of a transaction whose append is in doubt, or whose request was executed before: the event that shows it, or the
//! stored response.

use daybook_decider::AggregateKey;
use daybook_table::keys;
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};
use ulid::Ulid;

use super::Transaction;
use super::decide::{Decide, End, TransactError, TransactOptions, Transacted};
use crate::append::FirstEvent;
use crate::backoff::Backoff;
use crate::error::StoreError;
use crate::idempotency::{StoredResponse, read_response};
use crate::item::event_item;
use crate::load::COMMIT_TIME;
use crate::store::EventStore;

impl<D: Decide> Transaction<'_, D> {
    /// The result of the append in doubt that is stored, if one is. Makes no call if no append with events is in doubt.
    ///
    /// Reads the first event after the version that the appends in doubt were decided on. If it is the event of another
    /// writer, none of them is stored, or ever will be. If there is no such event, they stay in doubt: a call that was
    /// lost may still arrive. `exists` means that the event is known to exist. A read during a transaction may not see
    /// it yet, so it is repeated.
    pub(super) async fn resolve(&mut self, exists: bool) -> Result<Option<Transacted>, StoreError> {
        let Some(FirstEvent { of, number, .. }) = self.in_doubt.event().cloned() else { return Ok(None) };
        let of = of.as_ref().unwrap_or(self.stream.key);
        let end = self.last_attempt + TransactOptions::LAST_CALLS;
        let mut retries = Backoff::until(end.min(Instant::now() + COMMIT_TIME));
        loop {
            let read = timeout_at(end, self.event_id(of, number)).await;
            match read.map_err(|elapsed| StoreError::timed_out("read an event", elapsed))?? {
                Some(id) => {
                    let Some(stored) = self.in_doubt.resolve_by_event(id) else { return Ok(None) };
                    self.in_doubt.clear();
                    self.put_in_cache(&stored.outcome);
                    return Ok(Some(Transacted::Decided(stored.outcome.response)));
                }
                None if exists && retries.wait_to_deadline().await => {}
                None => return Ok(None),
            }
        }
    }

    async fn event_id(&self, key: &AggregateKey, number: u64) -> Result<Option<Ulid>, StoreError> {
        let Some(row) = self.stream.store.row("read an event", key, keys::event_sk(number)).await? else {
            return Ok(None);
        };
        Ok(Some(event_item(row)?.into_event()?.event_id))
    }

    /// The error of a transaction that ends while an append is in doubt. Nothing is in doubt afterwards.
    pub(super) fn outcome_unknown(&mut self) -> TransactError<D::Error> {
        let (of, after) = self.in_doubt.event().map_or((None, 0), |first| (first.of.clone(), first.number - 1));
        let source = self.in_doubt.take_cause().unwrap_or_else(|| "the response was lost".into());
        TransactError::OutcomeUnknown { of, after, has_key: self.options.idempotency.is_some(), source }
    }

    /// The stored response, if there is one, in place of an error: the same request may have been executed before, and
    /// the state that was read may already contain its result.
    pub(super) async fn stored_response_or(&mut self, end: End<D::Error>) -> End<D::Error> {
        let is_undecided = matches!(
            end,
            Err(TransactError::Decide(_)
                | TransactError::Conflict { .. }
                | TransactError::Forgotten { .. }
                | TransactError::TooLarge { .. })
        );
        let Some(idempotency) = self.options.idempotency.filter(|_| is_undecided) else { return end };
        let is_forbidden = matches!(&end, Err(TransactError::Decide(error)) if D::is_forbidden(error));
        let read = self.stream.store.stored_response(self.stream.key, idempotency.key, self.stream.store.now());
        let read = timeout_at(self.last_attempt + TransactOptions::LAST_CALLS, read).await;
        let stored = read.map_err(|elapsed| StoreError::timed_out("read a stored response", elapsed))??;
        match stored.filter(|stored| !is_forbidden || idempotency.digest == stored.digest) {
            Some(stored) => self.replay(stored),
            None => end,
        }
    }

    /// The stored response as the result. It resolves the appends in doubt, because each would have stored its own
    /// response under the same key. Another process may have stored an equal one with other events, so none of their states is
    /// cached.
    pub(super) fn replay(&mut self, stored: StoredResponse) -> End<D::Error> {
        let own = self.in_doubt.resolve_by_response(&stored.response);
        let forgotten = own.iter().flat_map(|own| &own.outcome.forgotten);
        forgotten.for_each(|key| self.stream.store.forget(key));
        match self.options.idempotency {
            Some(idempotency) if idempotency.digest != stored.digest => Err(TransactError::KeyReused),
            None => Err(TransactError::KeyReused),
            // An earlier attempt of this call was stored, and only DynamoDB's response to it was lost.
            Some(_) if own.is_some() => Ok(Transacted::Decided(stored.response)),
            Some(_) => Ok(Transacted::Replayed(stored.response)),
        }
    }
}

impl EventStore {
    /// The response that is stored under a key, unless it has expired.
    pub async fn stored_response(
        &self,
        key: &AggregateKey,
        idempotency_key: &str,
        now: Timestamp,
    ) -> Result<Option<StoredResponse>, StoreError> {
        let row = self.row("read a stored response", key, keys::idempotency_sk(idempotency_key)).await?;
        let Some((mut stored, ttl)) = row.map(|row| read_response(key, row)).transpose()? else { return Ok(None) };
        if ttl <= now.as_second() {
            return Ok(None);
        }
        stored.open(&self.sealing, key).await?;
        Ok(Some(stored))
    }
}
