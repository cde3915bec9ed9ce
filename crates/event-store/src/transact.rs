//! The transaction of a command: load or use the cached state, decide, append, and repeat when another writer was
//! faster.

use daybook_decider::{Decided, Folded, Model};
use daybook_table::AggregateKey;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::append::AppendError;
use crate::backoff::Backoff;
use crate::error::StoreError;
use crate::event_stream::EventStream;
use crate::fold::COMMIT_TIME;
use crate::idempotency::{CommandResponse, IdempotencyKey, ResponseToStore, StoredResponse};
use crate::limits::TooLarge;
use crate::load::{LoadOptions, LoadPolicy};
use crate::store::EventStore;

/// The caller's part of a transaction. Its methods are called again, with another state, whenever an attempt is
/// repeated.
pub trait Decide {
    /// The caller's own error.
    type Error;

    /// Decides what to append to the aggregate at `before`. Every call uses a new time and new ids.
    ///
    /// # Errors
    ///
    /// When nothing can be appended to this state.
    fn decide(&self, before: &Folded) -> Result<Decided, Self::Error>;

    /// The response to the caller if the decision is appended. It is built before the append: a decision without a
    /// response is not appended.
    ///
    /// # Errors
    ///
    /// When the response cannot be built.
    fn respond(
        &self,
        before: &Folded,
        decided: &Decided,
        detail: ResponseDetail,
    ) -> Result<CommandResponse, Self::Error>;
}

/// The contents of a response. It is reduced when a response is too large to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseDetail {
    /// State, events and messages.
    Full,
    /// Events and messages, without the state.
    WithoutState,
    /// The version alone.
    VersionOnly,
}

impl ResponseDetail {
    fn less(self) -> Option<Self> {
        match self {
            Self::Full => Some(Self::WithoutState),
            Self::WithoutState => Some(Self::VersionOnly),
            Self::VersionOnly => None,
        }
    }
}

/// The options of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct TransactOptions<'a> {
    /// The state that a fold may start from. With `Incremental`, the first attempt uses the cached state, without a
    /// read.
    pub policy: LoadPolicy,
    /// Whether the commands create the aggregate: when no state is cached, the first attempt then assumes that it does
    /// not exist.
    pub creates: bool,
    /// The version that the caller has seen. A conflict with it is returned to the caller, and retried only with an
    /// idempotency key. Without a version, the commands are decided again on the newer state.
    pub expected_version: Option<u64>,
    /// The key under which the response is stored.
    pub idempotency: Option<IdempotencyKey<'a>>,
    /// The time until which attempts are repeated.
    pub deadline: Instant,
}

/// The result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transacted {
    /// The response to a new decision.
    Decided(CommandResponse),
    /// The stored response to the same request. Nothing was appended.
    Replayed(CommandResponse),
}

/// The errors of a transaction.
#[derive(Debug, thiserror::Error)]
pub enum TransactError<E> {
    /// The caller's own error.
    #[error("the commands cannot be decided")]
    Decide(E),
    /// The aggregate is at another version than the caller has seen.
    #[error("version {expected} was expected, the aggregate is at version {actual}")]
    Conflict {
        /// The version that the caller has seen.
        expected: u64,
        /// The version of the aggregate.
        actual: u64,
    },
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// Other writers were faster at every attempt until the deadline. Nothing was appended.
    #[error("other writers were faster until the deadline")]
    Contended,
    /// The append exceeds a limit of DynamoDB.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Anything else.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EventStore {
    /// Decides on the aggregate and appends the result, repeated on a newer state whenever another writer was faster.
    ///
    /// One round trip when the cached state is current or the aggregate is new. Only an append may use a cached state,
    /// because its condition checks the version: a decision that appends nothing is repeated on a state that was read.
    ///
    /// # Errors
    ///
    /// See [`TransactError`]. Nothing was written, with the exception that [`append`](Self::append) describes.
    pub async fn transact<D: Decide>(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        commands: &D,
        options: &TransactOptions<'_>,
    ) -> Result<Transacted, TransactError<D::Error>> {
        Transaction { stream: self.stream(model, key), commands, options }.run().await
    }
}

struct Transaction<'a, D> {
    stream: EventStream<'a>,
    commands: &'a D,
    options: &'a TransactOptions<'a>,
}

/// The reason why an attempt has not settled the transaction.
enum Unsettled<E> {
    /// Another writer was faster.
    Overtaken { actual: u64 },
    /// The version in the metadata is lower than that of the events.
    MetadataBehind { actual: u64 },
    /// Nothing was sent. The value is the result of the transaction if the state is current.
    NotSent(Result<Transacted, TransactError<E>>),
    /// Another attempt changes nothing.
    Final(TransactError<E>),
}

impl<D: Decide> Transaction<'_, D> {
    async fn run(&self) -> Result<Transacted, TransactError<D::Error>> {
        let mut backoff = Backoff::until(self.options.deadline);
        let mut behind_since = None;
        let mut load = LoadOptions { policy: self.options.policy, ..LoadOptions::default() };
        let mut unread = self.state_without_read();
        loop {
            let is_read = unread.is_none();
            let before = match unread.take() {
                Some(before) => before,
                None => self.stream.load(load).await?.folded,
            };
            match self.attempt(&before).await {
                Ok(transacted) => return Ok(transacted),
                Err(Unsettled::Overtaken { actual }) => {
                    if !backoff.wait().await {
                        return Err(TransactError::Contended);
                    }
                    load.at_least = actual;
                }
                Err(Unsettled::MetadataBehind { actual }) => {
                    let since = *behind_since.get_or_insert_with(Instant::now);
                    if is_read && (since.elapsed() >= COMMIT_TIME || !backoff.wait().await) {
                        let version = before.version();
                        let source = format!("its metadata is at version {actual}, but its events end at {version}");
                        return Err(self.stream.corrupt(source).into());
                    }
                }
                // No condition has checked whether the state is current.
                Err(Unsettled::NotSent(_)) if !is_read => {}
                Err(Unsettled::NotSent(end)) => return self.stored_response_or(end).await,
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
    async fn attempt(&self, before: &Folded) -> Result<Transacted, Unsettled<D::Error>> {
        let TransactOptions { expected_version, idempotency, deadline, .. } = *self.options;
        let EventStream { store, model, key } = self.stream;
        let (version, now) = (before.version(), Timestamp::now());
        let not_decided = |error| Unsettled::NotSent(Err(TransactError::Decide(error)));
        let decided = self.commands.decide(before).map_err(not_decided)?;
        if let Some(expected) = expected_version.filter(|&expected| expected != version) {
            return Err(Unsettled::NotSent(Err(TransactError::Conflict { expected, actual: version })));
        }
        let mut detail = ResponseDetail::Full;
        loop {
            let response = self.commands.respond(before, &decided, detail).map_err(not_decided)?;
            if decided.events.is_empty() && idempotency.is_none() {
                return Err(Unsettled::NotSent(Ok(Transacted::Decided(response))));
            }
            let to_store =
                idempotency.map(|idempotency| ResponseToStore { idempotency, response: response.clone(), now });
            match store.append(model, key, version, &decided, to_store, deadline).await {
                Ok(_) => return Ok(Transacted::Decided(response)),
                Err(AppendError::KeyUsed(stored)) => return self.replay(stored).map_err(Unsettled::Final),
                // The version is lower, so no other writer was faster.
                Err(AppendError::Conflict { actual }) if actual < version => {
                    return Err(Unsettled::MetadataBehind { actual });
                }
                // With a key, the other writer may have been this same request.
                Err(AppendError::Conflict { actual }) if expected_version.is_none() || idempotency.is_some() => {
                    return Err(Unsettled::Overtaken { actual });
                }
                Err(AppendError::Conflict { actual }) => {
                    return Err(Unsettled::Final(TransactError::Conflict { expected: version, actual }));
                }
                Err(AppendError::TooLarge(limit)) => {
                    let is_for_the_response = match limit {
                        TooLarge::Response { .. } => true,
                        TooLarge::Transaction { .. } => idempotency.is_some(),
                        TooLarge::Item { .. } | TooLarge::Items { .. } => false,
                    };
                    let less = detail.less().filter(|_| is_for_the_response);
                    detail = less.ok_or(Unsettled::NotSent(Err(limit.into())))?;
                }
                Err(AppendError::Store(error)) => return Err(Unsettled::Final(error.into())),
            }
        }
    }

    /// The stored response, if there is one, in place of an error: the state that was read may be the result of this
    /// same request, sent before.
    async fn stored_response_or(
        &self,
        end: Result<Transacted, TransactError<D::Error>>,
    ) -> Result<Transacted, TransactError<D::Error>> {
        let is_undecided = matches!(end, Err(TransactError::Decide(_) | TransactError::Conflict { .. }));
        let Some(idempotency) = self.options.idempotency.filter(|_| is_undecided) else { return end };
        let stored = self.stream.store.stored_response(self.stream.key, idempotency.key, Timestamp::now()).await?;
        stored.map_or(end, |stored| self.replay(stored))
    }

    fn replay(&self, stored: StoredResponse) -> Result<Transacted, TransactError<D::Error>> {
        match self.options.idempotency {
            Some(idempotency) if idempotency.is_of(&stored) => Ok(Transacted::Replayed(stored.response)),
            _ => Err(TransactError::KeyReused),
        }
    }
}
