//! The transaction of a command: load the state or use the cached one, decide, append, and repeat if another writer was
//! faster.
//!
//! The invariant: every append of a request that is in doubt, and every new one, is conditional on the same version, so
//! at most one of them is ever stored. A newer state is used only after it is known that none of those in doubt is stored.
//! Therefore, while an append is in doubt, the request appends again on the same version, until one of these appends or
//! that of another writer is stored. Until then, it joins only a group on that version.
//!
//! In reading order: `decide`: the caller's part; `options`: the options and results; `transaction`: the attempts;
//! `end_of_append`: what follows on an append; `others`: the other aggregates that the decision involves; `decision`: a
//! decision that is ready to be appended; `resolution`: the result of a transaction whose append is in doubt, or whose
//! request was executed before; `in_doubt`: appends with an unknown outcome.

mod decide;
mod decision;
mod end_of_append;
mod in_doubt;
mod options;
mod others;
mod resolution;
mod transaction;

use std::time::Duration;

use daybook_decider::Model;
use daybook_table::AggregateKey;
use tokio::time::Instant;

pub use self::decide::{Decide, ResponseDetail, Undecided};
pub use self::options::{TransactError, TransactOptions, Transacted};
use self::transaction::Transaction;
use crate::store::EventStore;

/// Maximum time that a request spends on waiting for other writers of its aggregate and on racing with them. If an
/// aggregate makes its writers wait this long, it has too many writers.
const RACE_TIME: Duration = Duration::from_secs(10);

impl EventStore {
    /// Decides on the aggregate and appends the result. Whenever another writer was faster, it repeats this on a newer
    /// state.
    ///
    /// Without contention, it makes one round trip if the cached state is current or the aggregate is new. Only an append may
    /// use a cached state, because its condition checks the version. A decision that appends nothing, and a conflict, are
    /// therefore decided again on a state that was read.
    ///
    /// Every attempt is a new decision with a new time, so that no event becomes visible later than
    /// [`SETTLE_WRITES`](crate::SETTLE_WRITES) after its time. Requests of this process for the same aggregate are
    /// decided one after the other, in the order of their arrival. Those that arrive while an append is in progress are
    /// appended together; each has its own result, as if it had been alone.
    pub async fn transact<D: Decide>(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        commands: &D,
        options: &TransactOptions<'_>,
    ) -> Result<Transacted, TransactError<D::Error>> {
        let race_until = options.deadline.min(Instant::now() + RACE_TIME);
        // Boxed, because it contains every call that it may make: a large value, which would be copied into the futures of
        // all callers.
        Box::pin(Transaction::new(self.stream(model, key), commands, options, race_until).run()).await
    }
}
