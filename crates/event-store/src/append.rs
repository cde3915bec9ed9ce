//! The append: one transaction that updates the metadata, puts the events, and puts the messages into the outbox.
//!
//! In reading order: `transaction`: its items; `commit`: sends it until its outcome is known; `attempt_error`: the
//! meaning of a failed attempt; `error`: the errors of an append.

mod attempt_error;
mod commit;
mod error;
mod transaction;

use daybook_decider::{Decided, Model};
use daybook_table::AggregateKey;
use tokio::time::Instant;

pub use self::error::AppendError;
use crate::idempotency::ResponseToStore;
use crate::loaded::Loaded;
use crate::store::EventStore;

impl EventStore {
    /// Appends the events and messages that were decided on version `before`, if the aggregate is still at that
    /// version, and stores a response under an idempotency key: both happen or neither. A decision without events can
    /// also have a response, which is then stored alone.
    ///
    /// Retries contention and throttling until `deadline`. An unknown outcome (a time-out, a lost connection) is
    /// resolved before anything is reported: the same transaction is sent again with the same client token, and its
    /// first event is read.
    ///
    /// # Errors
    ///
    /// See [`AppendError`]. Nothing was written, with one exception: [`StoreError::Unavailable`] at the deadline may
    /// leave the outcome unknown.
    ///
    /// [`StoreError::Unavailable`]: crate::StoreError::Unavailable
    pub async fn append(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        before: u64,
        decided: &Decided,
        to_store: Option<ResponseToStore<'_>>,
        deadline: Instant,
    ) -> Result<Loaded, AppendError> {
        let stream = self.stream(model, key);
        if !decided.events.is_empty() || to_store.is_some() {
            let transaction = stream.transaction(before, decided, to_store.as_ref())?;
            stream.commit(&transaction, decided.events.first(), to_store.is_some(), deadline).await?;
        }
        Ok(stream.cache(decided.after.clone())?)
    }
}
