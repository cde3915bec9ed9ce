//! The append: one transaction that updates the metadata, puts the events, and puts the messages into the outbox.
//!
//! In reading order: `transaction`: its items; `batch`: the items of several decisions; `call`: sends the transaction and
//! interprets a failure; `error`: the errors of an append; `import`: appends
//! of events that exist already.

pub(crate) mod batch;
mod call;
pub(crate) mod error;
mod import;
mod transaction;

use daybook_decider::{Decided, Model};
use daybook_table::AggregateKey;
use tokio::time::Instant;

pub(crate) use self::batch::Batch;
pub use self::error::AppendError;
pub(crate) use self::error::SendError;
pub use self::transaction::ImportOptions;
pub(crate) use self::transaction::Origin;
use crate::idempotency::ResponseToStore;
use crate::loaded::Loaded;
use crate::store::EventStore;

impl EventStore {
    /// Appends the events and messages that were decided on version `before`, if the aggregate is still at that
    /// version, and stores a response under an idempotency key: both happen or neither. A decision without events can
    /// also have a response, which is then stored alone.
    ///
    /// The transaction is sent once, and not after `send_until`: [`transact`](Self::transact) repeats the decision, and
    /// resolves unknown outcomes.
    pub async fn append(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        before: u64,
        decided: &Decided,
        to_store: Option<ResponseToStore<'_>>,
        send_until: Instant,
    ) -> Result<Loaded, AppendError> {
        let stream = self.stream(model, key);
        if !decided.events.is_empty() || to_store.is_some() {
            let batch = stream.batch(decided, to_store.as_ref(), Origin::Decision)?;
            stream.call(before, batch, send_until).send().await?;
        }
        Ok(stream.cache(decided.after.clone())?)
    }
}
