//! The attempts of a transaction.

use daybook_decider::Folded;
use daybook_table::keys;
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};
use ulid::Ulid;

use super::decide::{Decide, ResponseDetail};
use super::in_doubt::InDoubt;
use super::options::{TransactError, TransactOptions, Transacted};
use crate::append::AppendError;
use crate::backoff::Backoff;
use crate::error::{Cause, StoreError};
use crate::event_stream::EventStream;
use crate::fold::COMMIT_TIME;
use crate::idempotency::{ResponseToStore, StoredResponse};
use crate::item::event_item;
use crate::limits::TooLarge;
use crate::load::{LoadOptions, LoadPolicy};
use crate::settle::SEND_WINDOW;

pub(super) struct Transaction<'a, D> {
    stream: EventStream<'a>,
    commands: &'a D,
    options: &'a TransactOptions<'a>,
    /// The time until which lost races are repeated.
    race_until: Instant,
    /// The deadline, or the start of the transaction if that is later: one attempt is always made.
    last_attempt: Instant,
    in_doubt: InDoubt,
}

/// The reason why an attempt has not settled the transaction.
enum Unsettled<E> {
    /// Another writer was faster.
    Overtaken { actual: u64 },
    /// Another writer's transaction is in progress.
    Busy,
    /// The version in the metadata is lower than that of the events.
    MetadataBehind { actual: u64 },
    /// Nothing was written, or the append is in doubt. Another attempt on the same state may help.
    Failed(Cause),
    /// Nothing was written. The value is the result of the transaction if the state is current.
    NotWritten(Result<Transacted, TransactError<E>>),
    /// Another attempt would have the same result.
    Final(TransactError<E>),
}

impl<'a, D: Decide> Transaction<'a, D> {
    pub(super) fn new(
        stream: EventStream<'a>,
        commands: &'a D,
        options: &'a TransactOptions<'a>,
        race_until: Instant,
    ) -> Self {
        let last_attempt = options.deadline.max(Instant::now());
        Self { stream, commands, options, race_until, last_attempt, in_doubt: InDoubt::default() }
    }

    pub(super) async fn run(mut self) -> Result<Transacted, TransactError<D::Error>> {
        let end = self.attempts().await;
        match self.settle(false).await {
            Ok(Some(stored)) => Ok(stored),
            Ok(None) if self.in_doubt.event_number().is_none() => end,
            Ok(None) | Err(_) => Err(self.outcome_unknown()),
        }
    }

    async fn attempts(&mut self) -> Result<Transacted, TransactError<D::Error>> {
        let mut backoff = Backoff::until(self.options.deadline);
        let mut race = Backoff::of_race(self.race_until);
        let mut behind_since = None;
        let mut load = LoadOptions { policy: self.options.policy, ..LoadOptions::default() };
        let mut known = self.state_without_read().map(|state| (state, false));
        loop {
            let (before, is_read) = match known.take() {
                Some(known) => known,
                None => {
                    // A newer state may contain an append in doubt, and deciding on it would append twice.
                    if let Some(number) = self.in_doubt.event_number() {
                        match self.settle(load.at_least >= number).await? {
                            Some(stored) => return Ok(stored),
                            None if self.in_doubt.event_number().is_some() => return Err(self.outcome_unknown()),
                            None => {}
                        }
                    }
                    (self.stream.load(load).await?.folded, true)
                }
            };
            match self.attempt(&before).await {
                Ok(transacted) => return Ok(transacted),
                Err(Unsettled::Overtaken { actual }) => {
                    load.at_least = actual;
                    // With an expected version there is no race to repeat: the state that is read decides the response.
                    if self.options.expected_version.is_none() && !race.wait().await {
                        return Err(TransactError::Contended);
                    }
                }
                Err(Unsettled::Busy) => {
                    if !race.wait().await {
                        return Err(TransactError::Contended);
                    }
                    // The other transaction may be the one in doubt, which has to be settled on the same state.
                    known = self.in_doubt.event_number().map(|_| (before, is_read));
                }
                Err(Unsettled::MetadataBehind { actual }) => {
                    let since = *behind_since.get_or_insert_with(Instant::now);
                    if is_read && (since.elapsed() >= COMMIT_TIME || !backoff.wait().await) {
                        let version = before.version();
                        let source = format!("its metadata is at version {actual}, but its events end at {version}");
                        return Err(self.stream.corrupt(source).into());
                    }
                }
                Err(Unsettled::Failed(source)) => {
                    tracing::debug!(aggregate = %self.stream.key, error = source, "the append will be decided again");
                    if !backoff.wait().await {
                        return Err(StoreError::Unavailable { doing: "append", source }.into());
                    }
                    known = Some((before, is_read));
                }
                // No condition has checked whether the state is current.
                Err(Unsettled::NotWritten(_)) if !is_read => {}
                Err(Unsettled::NotWritten(end)) => return self.stored_response_or(end).await,
                Err(Unsettled::Final(error)) => return Err(error),
            }
        }
    }

    /// The state of the first attempt, without a call: the cached state, or the state before the first event if the
    /// commands create the aggregate.
    fn state_without_read(&self) -> Option<Folded> {
        if self.options.policy == LoadPolicy::Rebuild {
            return None;
        }
        let EventStream { store, model, key } = self.stream;
        let cached = store.cached(key).map(|loaded| loaded.folded);
        cached.or_else(|| self.options.creates.then(|| model.before_first_event()))
    }

    /// Decides on one state and appends, with a reduced response when the full one does not fit.
    async fn attempt(&mut self, before: &Folded) -> Result<Transacted, Unsettled<D::Error>> {
        let TransactOptions { expected_version, idempotency, .. } = *self.options;
        let EventStream { store, model, key } = self.stream;
        let (version, now, send_until) = (before.version(), Timestamp::now(), Instant::now() + SEND_WINDOW);
        let not_decided = |error| Unsettled::NotWritten(Err(TransactError::Decide(error)));
        let decided = self.commands.decide(before).map_err(not_decided)?;
        if let Some(expected) = expected_version.filter(|&expected| expected != version) {
            return Err(Unsettled::NotWritten(Err(TransactError::Conflict { expected, actual: version })));
        }
        let mut detail = ResponseDetail::Full;
        loop {
            let response = self.commands.respond(before, &decided, detail).map_err(not_decided)?;
            if decided.events.is_empty() && idempotency.is_none() {
                return Err(Unsettled::NotWritten(Ok(Transacted::Decided(response))));
            }
            let to_store =
                idempotency.map(|idempotency| ResponseToStore { idempotency, response: response.clone(), now });
            let append = store.append(model, key, version, &decided, to_store, send_until);
            let appended = timeout_at(self.last_attempt + TransactOptions::LAST_ATTEMPT, append).await;
            match appended.unwrap_or_else(|elapsed| Err(AppendError::Unknown(elapsed.into()))) {
                Ok(_) => {
                    self.in_doubt.clear();
                    return Ok(Transacted::Decided(response));
                }
                Err(AppendError::Unknown(cause)) => {
                    let text = cause.to_string();
                    self.in_doubt.add(&decided, response, cause);
                    return Err(Unsettled::Failed(text.into()));
                }
                // On the current state, the caller may not be allowed to send the commands.
                Err(AppendError::KeyUsed(stored)) => {
                    return self.replay(stored).map_err(|reused| Unsettled::NotWritten(Err(reused)));
                }
                // The version is lower, so no other writer was faster.
                Err(AppendError::Conflict { actual }) if actual < version => {
                    return Err(Unsettled::MetadataBehind { actual });
                }
                Err(AppendError::Conflict { actual }) => return Err(Unsettled::Overtaken { actual }),
                Err(AppendError::Busy) => return Err(Unsettled::Busy),
                Err(AppendError::NotWritten(cause)) => return Err(Unsettled::Failed(cause)),
                Err(AppendError::TooLarge(limit)) => {
                    let is_for_the_response = match limit {
                        TooLarge::Response { .. } => true,
                        TooLarge::Transaction { .. } => idempotency.is_some(),
                        TooLarge::Item { .. } | TooLarge::Items { .. } => false,
                    };
                    let less = detail.less().filter(|_| is_for_the_response);
                    detail = less.ok_or(Unsettled::NotWritten(Err(limit.into())))?;
                }
                Err(AppendError::Store(error)) => return Err(Unsettled::Final(error.into())),
            }
        }
    }

    /// The result of the append in doubt that is stored, if one is. Makes no call if none with events is in doubt.
    ///
    /// Reads the first event after the version that they were decided on. If it is the event of another writer, none
    /// of them is stored, or ever will be. If there is no such event, they stay in doubt: a call that was lost may
    /// still arrive. `exists` means that the event is known to exist: a read during a transaction may not see it yet.
    async fn settle(&mut self, exists: bool) -> Result<Option<Transacted>, StoreError> {
        let Some(number) = self.in_doubt.event_number() else { return Ok(None) };
        let mut retries = Backoff::until(Instant::now() + COMMIT_TIME);
        loop {
            let read = timeout_at(self.last_attempt + TransactOptions::LAST_CALLS, self.event_id(number)).await;
            let unavailable =
                |elapsed| StoreError::Unavailable { doing: "read an event", source: Cause::from(elapsed) };
            match read.map_err(unavailable)?? {
                Some(id) => {
                    let Some(stored) = self.in_doubt.settle_by_event(id) else { return Ok(None) };
                    self.in_doubt.clear();
                    self.stream.cache(stored.after)?;
                    return Ok(Some(Transacted::Decided(stored.response)));
                }
                None if exists && retries.wait().await => {}
                None => return Ok(None),
            }
        }
    }

    /// The id of a stored event.
    async fn event_id(&self, number: u64) -> Result<Option<Ulid>, StoreError> {
        let row = self.stream.store.row(self.stream.key, keys::event_sk(number)).send().await;
        let row = row.map_err(|error| StoreError::of_call("read an event", error))?;
        let Some(item) = row.item else { return Ok(None) };
        Ok(Some(event_item(item)?.into_event()?.event_id))
    }

    /// The error of a transaction that ends while an append is in doubt. Nothing is in doubt afterwards.
    fn outcome_unknown(&mut self) -> TransactError<D::Error> {
        let after = self.in_doubt.event_number().map_or(0, |number| number - 1);
        let source = self.in_doubt.take_cause().unwrap_or_else(|| "the response was lost".into());
        TransactError::OutcomeUnknown { after, has_key: self.options.idempotency.is_some(), source }
    }

    /// The stored response, if there is one, in place of an error: the state that was read may already contain the
    /// result of this same request, which was sent before.
    async fn stored_response_or(
        &mut self,
        end: Result<Transacted, TransactError<D::Error>>,
    ) -> Result<Transacted, TransactError<D::Error>> {
        let is_undecided = matches!(end, Err(TransactError::Decide(_) | TransactError::Conflict { .. }));
        let Some(idempotency) = self.options.idempotency.filter(|_| is_undecided) else { return end };
        let is_forbidden = matches!(&end, Err(TransactError::Decide(error)) if D::is_forbidden(error));
        let stored = self.stream.store.stored_response(self.stream.key, idempotency.key, Timestamp::now()).await?;
        match stored.filter(|stored| !is_forbidden || idempotency.is_of(stored)) {
            Some(stored) => self.replay(stored),
            None => end,
        }
    }

    /// The stored response. It settles the appends in doubt, which would have stored theirs under the same key.
    fn replay(&mut self, stored: StoredResponse) -> Result<Transacted, TransactError<D::Error>> {
        let is_own = self.in_doubt.settle_by_response(&stored.response).is_some();
        match self.options.idempotency {
            Some(idempotency) if !idempotency.is_of(&stored) => Err(TransactError::KeyReused),
            None => Err(TransactError::KeyReused),
            // An earlier attempt of this call was stored, and only DynamoDB's response to it was lost.
            Some(_) if is_own => Ok(Transacted::Decided(stored.response)),
            Some(_) => Ok(Transacted::Replayed(stored.response)),
        }
    }
}
