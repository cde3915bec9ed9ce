//! What an operator hears of an invocation: a line for the batch, a line with the ids of whatever did not go smoothly, and
//! metrics.

use std::time::{Duration, SystemTime};

use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use crate::message::{EntryError, Message};

/// So many ids a log line names.
const IDS_LOGGED: usize = 100;
/// CloudWatch takes so many values of a metric in a line.
const VALUES: usize = 100;

/// What is counted while an invocation goes on.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) calls: usize,
    /// Messages by their index, each as often as it was sent again.
    pub(crate) retried: Vec<usize>,
    pub(crate) parked: usize,
    /// Of each message that the bus took, how long after its event.
    pub(crate) lags: Vec<Duration>,
    /// Why something was not sent, most recently.
    pub(crate) last_failure: Option<EntryError>,
}

/// Names the units of the metrics.
pub(crate) fn describe() {
    for name in ["BatchSize", "MessagesSent", "MessagesRetried", "MessagesParked", "MessagesHeldBack"] {
        describe_counter!(name, Unit::Count, "");
    }
    describe_histogram!("Lag", Unit::Milliseconds, "");
}

impl Tally {
    /// The bus has just taken a message.
    pub(crate) fn sent(&mut self, entry: &PutEventsRequestEntry) {
        let occurred = entry.time().and_then(|at| SystemTime::try_from(*at).ok());
        let lag = occurred.and_then(|at| SystemTime::now().duration_since(at).ok());
        // A clock that is behind the writer's says that no time has passed.
        self.lags.push(lag.unwrap_or_default());
    }

    /// Tells it all.
    pub(crate) fn tell(mut self, records: usize, messages: &[Message], held: &[usize]) {
        let ids = |indices: &[usize]| {
            let ids: Vec<_> = indices.iter().take(IDS_LOGGED).map(|&index| messages[index].id()).collect();
            ids.join(" ")
        };
        let relevant: usize = messages.iter().map(|message| message.records.len()).sum();
        let (calls, sent, parked) = (self.calls, self.lags.len(), self.parked);
        let retried = self.retried.len();
        tracing::info!(records, relevant, sent, retried, parked, held = held.len(), calls, "relayed");
        if retried > 0 {
            self.retried.sort_unstable();
            self.retried.dedup();
            tracing::info!(retried, ids = ids(&self.retried), "sent more than once");
        }
        if !held.is_empty() {
            let (code, text) = EntryError::fields(self.last_failure.as_ref());
            tracing::error!(held = held.len(), ids = ids(held), code, text, "held back, to come again");
        }

        for (name, count) in [
            ("BatchSize", relevant),
            ("MessagesSent", sent),
            ("MessagesRetried", retried),
            ("MessagesParked", parked),
            ("MessagesHeldBack", held.len()),
        ] {
            counter!(name).increment(count as u64);
        }
        for lag in spread(self.lags) {
            histogram!("Lag").record(lag.as_secs_f64() * 1000.0);
        }
    }
}

/// As many of these as CloudWatch takes, evenly by rank, so that the smallest, the largest and what is between keep their
/// places.
fn spread(mut lags: Vec<Duration>) -> Vec<Duration> {
    if lags.len() <= VALUES {
        return lags;
    }
    lags.sort_unstable();
    let last = lags.len() - 1;
    (0..VALUES).map(|rank| lags[rank * last / (VALUES - 1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_keeps_the_extremes_and_the_middle() {
        let lags = |count: u64| (0..count).rev().map(Duration::from_millis).collect::<Vec<_>>();
        assert_eq!(spread(lags(100)).len(), 100);
        let spread = spread(lags(10_001));
        assert_eq!(spread.len(), 100);
        assert_eq!((spread[0], spread[99]), (Duration::ZERO, Duration::from_secs(10)));
        assert!((4_900..5_100).contains(&spread[50].as_millis()));
    }
}
