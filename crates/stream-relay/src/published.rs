//! What publishing has come to.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use crate::message::{EntryError, PendingMessage};

/// Messages and what was counted while they were published. Messages are identified by their index.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) messages: Vec<PendingMessage>,
    /// The messages that are neither sent nor given up.
    pub(crate) unsettled: BTreeSet<usize>,
    pub(crate) calls: usize,
    /// Each message as often as it was sent again.
    pub(crate) retried: Vec<usize>,
    pub(crate) dead_lettered: usize,
    /// Of each message that the bus took, the time since its event.
    pub(crate) lags: Vec<Duration>,
    /// The message that failed most recently and was not given up for it.
    pub(crate) last_failed: Option<usize>,
    /// The first error of the deployment, after which nothing was sent.
    pub(crate) deployment_error: Option<EntryError>,
}

impl Published {
    /// Counts a message that the bus has just taken.
    pub(crate) fn count_sent(&mut self, index: usize) {
        let occurred = self.messages[index].entry().and_then(|entry| SystemTime::try_from(*entry.time()?).ok());
        let lag = occurred.and_then(|at| SystemTime::now().duration_since(at).ok());
        // No time has passed by a clock that is behind the writer's.
        self.lags.push(lag.unwrap_or_default());
    }
}
