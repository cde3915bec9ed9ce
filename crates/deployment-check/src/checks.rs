//! All checks, and the assumptions that none of them covers.
//!
//! The checks stand by subject, in the order in which they run. The alarms come first: the dead-letter check raises one.

mod delivery;
mod messaging;
mod settings;
mod table;

use super::check::Check;

pub(super) fn all() -> Vec<Check> {
    let groups = [settings::checks(), table::checks(), messaging::checks(), delivery::checks()];
    groups.into_iter().flatten().collect()
}

/// What the code relies on, and no check of this command sees.
pub const NOT_SEEN: [&str; 11] = [
    "an event source mapping retries a batch from its lowest failed sequence number",
    "an event source mapping discards a record at the maximum age (23 hours), and writes it whole to the bucket",
    "a stream stores its records for 24 hours, and the parent of a split shard is read before its children",
    "DynamoDB throttles a partition at 1,000 write units a second, and cancels a transaction with ThrottlingError",
    "a call whose response is lost was executed at most once",
    "DynamoDB deletes rows whose ttl has passed, as a REMOVE of its own service",
    "EventBridge returns InternalFailure or ThrottlingException for single entries of a request",
    "CodeDeploy invokes the deployment hook before it moves requests, and rolls back when the hook reports Failed",
    "CodeDeploy rolls a deployment back when an alarm of the new version goes into ALARM state",
    "EventBridge invokes the reactor each minute",
    "point-in-time recovery restores the table, and the archive replays messages",
];
