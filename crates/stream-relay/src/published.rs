//! The result of publishing.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use crate::bus_check::NoSuchBus;
use crate::message::{EntryError, PendingMessage};

/// The messages, and the counts made while they were published. Messages are identified by their index.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) messages: Vec<PendingMessage>,
    /// The messages that were neither sent nor sent to the dead-letter queue.
    pub(crate) unsettled: BTreeSet<usize>,
    pub(crate) calls: usize,
    /// Messages that were sent again, once for each time.
    pub(crate) retried: Vec<usize>,
    pub(crate) dead_lettered: usize,
    /// The time from event to bus, of each message that the bus accepted.
    pub(crate) lags: Vec<Duration>,
    /// The message that failed most recently and can still be sent.
    pub(crate) last_failed: Option<usize>,
    /// The first error of the deployment, after which sending stopped.
    pub(crate) deployment_error: Option<EntryError>,
    /// An error with which the bus rejected several messages and accepted none, so that sending stopped.
    pub(crate) breaker_error: Option<EntryError>,
    /// Requests for which no TLS connection was made.
    pub(crate) tls_failures: usize,
}

impl Published {
    /// The bus did not exist meanwhile, so it has dropped every message that it accepted.
    pub(crate) fn dropped(&mut self, missing: &NoSuchBus) {
        // With a permanent error, a message is in the dead-letter queue.
        let messages = self.messages.iter().enumerate();
        self.unsettled
            .extend(messages.filter(|(_, message)| message.permanent_error.is_none()).map(|(index, _)| index));
        self.lags.clear();
        self.deployment_error = Some(EntryError::new("NoSuchBus", missing.to_string()));
    }

    /// Counts a message that the bus has just accepted.
    pub(crate) fn count_sent(&mut self, index: usize, now: SystemTime) {
        let lag = self.messages[index].occurred_at().and_then(|at| now.duration_since(at).ok());
        // The lag counts as zero when this clock is behind the writer's.
        self.lags.push(lag.unwrap_or_default());
    }
}
