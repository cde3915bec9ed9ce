//! The transaction of a command: load or take the cached state, decide, append, and again where another writer was faster.

use std::time::Duration;

use daybook_decider::{Decided, Folded, Model};
use daybook_table::AggregateKey;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::append::AppendError;
use crate::backoff::Backoff;
use crate::error::StoreError;
use crate::idempotency::{CommandResponse, IdempotencyKey, ResponseToStore, StoredResponse};
use crate::limits::TooLarge;
use crate::load::{LoadOptions, LoadPolicy};
use crate::store::EventStore;

/// The metadata may be behind events that are being committed for this long. What lasts longer is damage.
const COMMIT_TIME: Duration = Duration::from_secs(1);

/// What a caller does within a transaction. It is asked again, with another state, whenever an attempt is repeated.
pub trait Decide {
    /// The caller's own error.
    type Error;

    /// What to append to the aggregate at `before`. Every call takes a new time and new ids.
    ///
    /// # Errors
    ///
    /// When there is nothing to append to this state.
    fn decide(&self, before: &Folded) -> Result<Decided, Self::Error>;

    /// The response to the caller, should that be appended. It is asked for first: what has no response is not appended.
    ///
    /// # Errors
    ///
    /// When there is no such response.
    fn respond(
        &self,
        before: &Folded,
        decided: &Decided,
        detail: ResponseDetail,
    ) -> Result<CommandResponse, Self::Error>;
}

/// How much a response contains. Less is asked for where a response is too large to be stored.
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

/// How a transaction is carried out.
#[derive(Clone, Copy, Debug)]
pub struct TransactOptions<'a> {
    /// What the state may be folded from. Incrementally, the first attempt takes the cached state, without a read.
    pub policy: LoadPolicy,
    /// Whether the commands create the aggregate: where no state is cached, the first attempt then takes it not to exist.
    pub creates: bool,
    /// The version that the caller has seen. A conflict with it is the caller's to settle, and never retried without an
    /// idempotency key. Without a version, the commands are decided again on the newer state.
    pub expected_version: Option<u64>,
    /// The key under which the response is stored.
    pub idempotency: Option<IdempotencyKey<'a>>,
    /// Until when attempts are repeated.
    pub deadline: Instant,
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transacted {
    /// The response to what was decided now.
    Decided(CommandResponse),
    /// The response that the same request got before. Nothing was appended.
    Replayed(CommandResponse),
}

/// Why a transaction has no response.
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
        /// The version that it has.
        actual: u64,
    },
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// Other writers were faster at every attempt until the deadline. Nothing was appended.
    #[error("other writers were faster until the deadline")]
    Contended,
    /// DynamoDB would not take it.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Anything else.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EventStore {
    /// Decides on the aggregate and appends what was decided, again on a newer state wherever another writer was faster.
    ///
    /// One round trip where the cached state is current or the aggregate is new. Only an append may be built on a cached
    /// state, because its condition finds out whether that is current: what appends nothing is decided on a state that was
    /// read for it.
    ///
    /// # Errors
    ///
    /// See [`TransactError`]. Nothing was written, with the exception that [`append`](Self::append) names.
    pub async fn transact<D: Decide>(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        commands: &D,
        options: &TransactOptions<'_>,
    ) -> Result<Transacted, TransactError<D::Error>> {
        let mut backoff = Backoff::until(options.deadline);
        let mut behind_since = None;
        let mut load = LoadOptions { policy: options.policy, ..LoadOptions::default() };
        let mut unread = self.state_without_read(model, key, options);
        loop {
            let state = match unread.take() {
                Some(folded) => State::Unread(folded),
                None => State::Read(self.load_with(model, key, load).await?.folded),
            };
            match self.attempt(model, key, state.folded(), commands, options).await? {
                Attempt::Settled(transacted) => return Ok(transacted),
                Attempt::Overtaken { actual } => {
                    if !backoff.wait().await {
                        return Err(TransactError::Contended);
                    }
                    load.at_least = actual;
                }
                Attempt::MetadataBehind { actual } => {
                    let since = *behind_since.get_or_insert_with(Instant::now);
                    if state.is_read() && (since.elapsed() >= COMMIT_TIME || !backoff.wait().await) {
                        return Err(metadata_behind(key, actual, state.folded().version()).into());
                    }
                }
                // Nothing was sent, so no condition has found out whether the state is current.
                Attempt::NothingToAppend(_) | Attempt::TooLarge(_) | Attempt::Failed(_) if !state.is_read() => {}
                Attempt::NothingToAppend(response) => return Ok(Transacted::Decided(response)),
                Attempt::TooLarge(limit) => return Err(limit.into()),
                Attempt::Failed(error) => return self.replay_or(key, options.idempotency, error).await,
            }
        }
    }

    /// The state that the first attempt takes without a call: as this process last saw it, or none if it is to be created.
    fn state_without_read(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        options: &TransactOptions<'_>,
    ) -> Option<Folded> {
        match options.policy {
            LoadPolicy::Rebuild => None,
            LoadPolicy::Incremental => {
                let cached = self.cached(key).map(|loaded| loaded.folded);
                cached.or_else(|| options.creates.then(|| model.before_first_event()))
            }
        }
    }

    /// Decides on one state and appends, with a smaller response where that is what does not fit.
    async fn attempt<D: Decide>(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        before: &Folded,
        commands: &D,
        options: &TransactOptions<'_>,
    ) -> Result<Attempt<D::Error>, TransactError<D::Error>> {
        let (version, now) = (before.version(), Timestamp::now());
        let decided = match commands.decide(before) {
            Ok(decided) => decided,
            Err(error) => return Ok(Attempt::Failed(TransactError::Decide(error))),
        };
        if let Some(expected) = options.expected_version.filter(|&expected| expected != version) {
            return Ok(Attempt::Failed(TransactError::Conflict { expected, actual: version }));
        }
        let mut detail = ResponseDetail::Full;
        loop {
            let response = match commands.respond(before, &decided, detail) {
                Ok(response) => response,
                Err(error) => return Ok(Attempt::Failed(TransactError::Decide(error))),
            };
            if decided.events.is_empty() && options.idempotency.is_none() {
                return Ok(Attempt::NothingToAppend(response));
            }
            let to_store =
                options.idempotency.map(|idempotency| ResponseToStore { idempotency, response: response.clone(), now });
            match self.append(model, key, version, &decided, to_store, options.deadline).await {
                Ok(_) => return Ok(Attempt::Settled(Transacted::Decided(response))),
                Err(AppendError::KeyUsed(stored)) => {
                    return replay(options.idempotency, stored).map(Attempt::Settled);
                }
                // No writer was faster.
                Err(AppendError::Conflict { actual }) if actual < version => {
                    return Ok(Attempt::MetadataBehind { actual });
                }
                // With a key, the writer that was faster may have been this very request.
                Err(AppendError::Conflict { actual })
                    if options.expected_version.is_none() || options.idempotency.is_some() =>
                {
                    return Ok(Attempt::Overtaken { actual });
                }
                Err(AppendError::Conflict { actual }) => {
                    return Err(TransactError::Conflict { expected: version, actual });
                }
                Err(AppendError::TooLarge(limit)) => {
                    let is_for_the_response = options.idempotency.is_some()
                        && matches!(limit, TooLarge::Answer { .. } | TooLarge::Transaction { .. });
                    match detail.less().filter(|_| is_for_the_response) {
                        Some(less) => detail = less,
                        None => return Ok(Attempt::TooLarge(limit)),
                    }
                }
                Err(AppendError::Store(error)) => return Err(error.into()),
            }
        }
    }

    /// The stored response where there is one, else the error: the state that it comes from may be the work of the same
    /// request.
    async fn replay_or<E>(
        &self,
        key: &AggregateKey,
        idempotency: Option<IdempotencyKey<'_>>,
        error: TransactError<E>,
    ) -> Result<Transacted, TransactError<E>> {
        let Some(IdempotencyKey { key: idempotency_key, .. }) = idempotency else { return Err(error) };
        match self.stored_response(key, idempotency_key, Timestamp::now()).await? {
            Some(stored) => replay(idempotency, stored),
            None => Err(error),
        }
    }
}

/// The state that an attempt is made on.
enum State {
    /// Taken from the cache, or to be created: perhaps not current.
    Unread(Folded),
    /// Read for this attempt.
    Read(Folded),
}

impl State {
    fn folded(&self) -> &Folded {
        match self {
            Self::Unread(folded) | Self::Read(folded) => folded,
        }
    }

    fn is_read(&self) -> bool {
        matches!(self, Self::Read(_))
    }
}

/// What one attempt came to.
enum Attempt<E> {
    /// It is appended, or the same request was before.
    Settled(Transacted),
    /// Another writer was faster.
    Overtaken { actual: u64 },
    /// The metadata is at an earlier version than the events are.
    MetadataBehind { actual: u64 },
    /// The commands changed nothing, and nothing is to be stored.
    NothingToAppend(CommandResponse),
    /// What was decided does not fit, however small the response.
    TooLarge(TooLarge),
    /// There is no decision, or none for the version that the caller has seen, or no response.
    Failed(TransactError<E>),
}

fn replay<E>(
    idempotency: Option<IdempotencyKey<'_>>,
    StoredResponse { digest, response }: StoredResponse,
) -> Result<Transacted, TransactError<E>> {
    match idempotency {
        Some(idempotency) if idempotency.digest == digest => Ok(Transacted::Replayed(response)),
        _ => Err(TransactError::KeyReused),
    }
}

fn metadata_behind(key: &AggregateKey, metadata: u64, events: u64) -> StoreError {
    let source = format!("its metadata are at {metadata}, and its events go to {events}").into();
    StoreError::Corrupt { item: key.to_string(), source }
}
