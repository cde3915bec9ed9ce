//! The transaction of a command: load or use the cached state, decide, append, and repeat when another writer was
//! faster.
//!
//! In reading order: `decide`: the caller's part; `options`: the options and results; `transaction`: the attempts;
//! `in_doubt`: appends with an unknown outcome.

mod decide;
mod in_doubt;
mod options;
mod transaction;

use std::time::Duration;

use daybook_decider::Model;
use daybook_table::AggregateKey;
use tokio::time::Instant;

pub use self::decide::{Decide, ResponseDetail};
pub use self::options::{TransactError, TransactOptions, Transacted};
use self::transaction::Transaction;
use crate::store::EventStore;

/// Maximum time that a request spends on waiting for other writers of its aggregate and on racing with them. An
/// aggregate that makes its writers wait this long has too many of them.
const RACE_TIME: Duration = Duration::from_secs(10);

impl EventStore {
    /// Decides on the aggregate and appends the result, repeated on a newer state whenever another writer was faster.
    ///
    /// One round trip when the cached state is current or the aggregate is new. Only an append may use a cached state,
    /// because its condition checks the version: a decision that appends nothing, and a conflict, are decided again on
    /// a state that was read.
    ///
    /// Every attempt is a new decision with a new time, so that no event becomes visible later than
    /// [`SETTLE_WRITES`](crate::SETTLE_WRITES) after its time. Requests of this process for the same aggregate are
    /// carried out one after the other, in the order of their arrival.
    ///
    /// # Errors
    ///
    /// See [`TransactError`]. Nothing was written, except perhaps with [`TransactError::OutcomeUnknown`].
    pub async fn transact<D: Decide>(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        commands: &D,
        options: &TransactOptions<'_>,
    ) -> Result<Transacted, TransactError<D::Error>> {
        let race_until = options.deadline.min(Instant::now() + RACE_TIME);
        // A group commit would be added here: the request that has its turn could decide for all requests that wait.
        let Some(_turn) = self.turns.take(key, race_until).await else { return Err(TransactError::Contended) };
        Transaction::new(self.stream(model, key), commands, options, race_until).run().await
    }
}
