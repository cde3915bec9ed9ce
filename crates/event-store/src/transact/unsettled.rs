//! The reasons why an attempt has no result that the transaction can return at once.

use super::options::{TransactError, Transacted};
use crate::error::Cause;

/// The reason why the transaction cannot return the result of an attempt at once.
pub(super) enum Unsettled<E> {
    /// Another writer was faster.
    Overtaken { actual: u64 },
    /// Another writer's transaction is in progress.
    Busy,
    /// The version in the metadata is lower than that of the events.
    MetadataBehind { actual: u64 },
    /// Nothing was written, or the append is in doubt. Another attempt on the same state may help.
    Failed(Cause),
    /// Nothing was written: the append of the group failed because of one of its requests, perhaps another one. The
    /// attempt does not count as one of this request.
    GroupRejected,
    /// Nothing was written, and the request could not join the group of the requests before it.
    NotJoined,
    /// The attempt ends without an append. The value is the result of the transaction, if the state is current.
    NotWritten(Result<Transacted, TransactError<E>>),
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
