//! The time after its decision within which an event becomes visible, or never does.
//!
//! The time and the id of an event are fixed when it is decided, and its rows are visible some time later. A reader
//! that follows events by their ids can rely on its cursor only up to events that are older than [`SETTLE_WRITES`]:
//! later events with earlier ids may still appear until then. The difference between the clocks of writers and
//! readers is not included.

use std::time::Duration;

/// Maximum age of a decision when its transaction is sent. An older decision is made again, with a new time and new
/// ids. This much time is used only by a process that stalls, or encodes megabytes on a small share of a CPU.
pub const SEND_WINDOW: Duration = Duration::from_secs(2);

/// Time limit of the call that sends a transaction. DynamoDB responds within milliseconds; the first call of a process
/// takes up to a second, because it opens the connection. A transaction is sent once: if its outcome is unknown, the
/// next attempt is a new decision on the same version, and only one of the two can be stored.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for which a call may still take effect after its sender has stopped waiting: the call may be on its way through
/// the network, or DynamoDB may have begun the transaction, which it then finishes. It matters only if the sender
/// cannot make another attempt, because its time is over or its process has ended.
pub const ARRIVAL_TIME: Duration = Duration::from_secs(1);

/// The longest time between the decision on an event, which is its time and the time of its id, and the moment when
/// its rows are visible to a strongly consistent read.
pub const SETTLE_WRITES: Duration = SEND_WINDOW.saturating_add(CALL_TIMEOUT).saturating_add(ARRIVAL_TIME);
