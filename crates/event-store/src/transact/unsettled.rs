//! The reason why an attempt has not settled a transaction.

use super::options::{TransactError, Transacted};
use crate::error::Cause;

/// The reason why an attempt has not settled the transaction.
pub(super) enum Unsettled<E> {
    /// Another writer was faster.
    Overtaken { actual: u64 },
    /// Another writer's transaction is in progress.
    Busy,
    /// The version in the metadata is lower than that of the events.
    MetadataBehind { actual: u64 },
    /// Nothing was written, or the append is in doubt. Another attempt on the same state may help.
    Failed(Cause),
    /// Nothing was written because of another request of the same append: the attempt does not count.
    Shared,
    /// Nothing was written, and the request could not join the group of those before it.
    NotJoined,
    /// Nothing was written. The value is the result of the transaction if the state is current.
    NotWritten(Result<Transacted, TransactError<E>>),
    /// Nothing was written, and the state was current.
    Ended(Result<Transacted, TransactError<E>>),
    /// Another attempt would have the same result.
    Final(TransactError<E>),
}

/// The reason for a pause before the next attempt.
pub(super) enum Pause {
    /// Another writer was faster, or is writing.
    Race,
    /// Nothing was written, or the append is in doubt.
    Failed(Cause),
    /// The metadata is behind the events, as it is while another transaction commits.
    MetadataBehind { actual: u64, version: u64 },
}
