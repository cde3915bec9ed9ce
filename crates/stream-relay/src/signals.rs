//! Logs and metrics of an invocation: a line for the batch, a line with the ids of whatever did not go smoothly, and
//! counters.

use std::collections::BTreeSet;
use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use crate::message::EntryError;
use crate::published::Published;

/// Maximum ids in a log line.
const IDS_LOGGED: usize = 100;
/// Maximum values of a metric that CloudWatch takes in a line.
const VALUES: usize = 100;

/// Names the units of the metrics.
pub(crate) fn describe() {
    for name in ["BatchSize", "MessagesSent", "MessagesRetried", "MessagesDeadLettered", "MessagesUnsettled"] {
        describe_counter!(name, Unit::Count, "");
    }
    describe_histogram!("Lag", Unit::Milliseconds, "");
}

/// Logs and counts what an invocation came to.
pub(crate) fn report(records: usize, published: &Published) {
    let Published { messages, unsettled, .. } = published;
    let ids = |indices: &BTreeSet<usize>| {
        let ids: Vec<_> = indices.iter().take(IDS_LOGGED).map(|&index| messages[index].id()).collect();
        ids.join(" ")
    };
    if let Some(EntryError { code, text }) = &published.deployment_error {
        tracing::error!(%code, %text, "the bus rejects this deployment, stopped sending");
    }
    let relevant: usize = messages.iter().map(|message| message.records.len()).sum();
    let (calls, sent, dead_lettered) = (published.calls, published.lags.len(), published.dead_lettered);
    let (retried, left) = (published.retried.len(), unsettled.len());
    tracing::info!(records, relevant, sent, retried, dead_lettered, unsettled = left, calls, "relayed");
    if retried > 0 {
        let distinct = published.retried.iter().copied().collect();
        tracing::info!(retried, ids = ids(&distinct), "sent more than once");
    }
    if left > 0 {
        let last_error = published.last_failed.and_then(|index| messages[index].last_error.as_ref());
        let (code, text) = EntryError::fields(last_error);
        tracing::error!(unsettled = left, ids = ids(unsettled), code, text, "unsettled, will be retried");
    }

    for (name, count) in [
        ("BatchSize", relevant),
        ("MessagesSent", sent),
        ("MessagesRetried", retried),
        ("MessagesDeadLettered", dead_lettered),
        ("MessagesUnsettled", left),
    ] {
        counter!(name).increment(count as u64);
    }
    for lag in spread(&published.lags) {
        histogram!("Lag").record(lag.as_secs_f64() * 1000.0);
    }
}

/// As many of the lags as CloudWatch takes, evenly by rank, so that the smallest, the largest and those between keep their
/// positions.
fn spread(lags: &[Duration]) -> Vec<Duration> {
    let mut lags = lags.to_vec();
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
        assert_eq!(spread(&lags(100)).len(), 100);
        let spread = spread(&lags(10_001));
        assert_eq!(spread.len(), 100);
        assert_eq!((spread[0], spread[99]), (Duration::ZERO, Duration::from_secs(10)));
        assert!((4_900..5_100).contains(&spread[50].as_millis()));
    }
}
