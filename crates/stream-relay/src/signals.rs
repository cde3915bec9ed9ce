//! Logs and metrics of an invocation: one line for the batch, one line with the ids for each kind of irregularity, and
//! counters.

use std::collections::BTreeSet;
use std::time::Duration;

use daybook_function_runtime::FailureCounter;
use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use crate::hints::SentHints;
use crate::message::{EntryError, Published};

const IDS_LOGGED: usize = 100;
/// Maximum values of a metric that CloudWatch accepts in a line.
const VALUES: usize = 100;

pub(crate) fn describe() {
    for name in [
        "BatchSize",
        "MessagesSent",
        "MessagesRetried",
        "MessagesDeadLettered",
        "MessagesUnsettled",
        "MessagesFailed",
        "BreakerOpened",
        "TlsFailures",
        "AggregatesSent",
        "AggregatesUnsettled",
        "DeadlinesSent",
        "DeadlinesUnsettled",
    ] {
        describe_counter!(name, Unit::Count, "");
    }
    describe_histogram!("Lag", Unit::Milliseconds, "");
}

pub(crate) fn report(
    records: usize,
    published: &Published,
    [changes, deadlines]: &[SentHints; 2],
    failures: &FailureCounter,
) {
    let Published { messages, unsettled, .. } = published;
    let ids = |indices: &BTreeSet<usize>| {
        let ids: Vec<_> = indices.iter().take(IDS_LOGGED).map(|&index| messages[index].id()).collect();
        ids.join(" ")
    };
    if let Some(EntryError { code, text }) = &published.deployment_error {
        tracing::error!(%code, %text, "the bus rejects this deployment, stopped sending");
    }
    if let Some(EntryError { code, text }) = &published.breaker_error {
        tracing::error!(%code, %text, "the bus rejects several messages and accepts none, left them unsettled");
    }
    if published.tls_failures > 0 {
        tracing::error!(requests = published.tls_failures, "no TLS connection to the bus");
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
        ("BreakerOpened", usize::from(published.breaker_error.is_some())),
        ("TlsFailures", published.tls_failures),
        ("AggregatesSent", changes.sent),
        ("AggregatesUnsettled", changes.unsettled.len()),
        ("DeadlinesSent", deadlines.sent),
        ("DeadlinesUnsettled", deadlines.unsettled.len()),
    ] {
        counter!(name).increment(count as u64);
    }
    let failed = dead_lettered + left + changes.unsettled.len() + deadlines.unsettled.len();
    failures.count_of_version(failed as u64);
    for lag in sample(&published.lags) {
        histogram!("Lag").record(lag.as_secs_f64() * 1000.0);
    }
}

/// A sample of the lags, as many as CloudWatch accepts, evenly spaced by rank. The smallest and the largest lag are in
/// the sample, and its quantiles are nearly those of all lags.
fn sample(lags: &[Duration]) -> Vec<Duration> {
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
    fn sampled_lags_preserve_the_extremes_and_the_middle() {
        let lags = |count: u64| (0..count).rev().map(Duration::from_millis).collect::<Vec<_>>();
        assert_eq!(sample(&lags(100)).len(), 100);
        let sample = sample(&lags(10_001));
        assert_eq!(sample.len(), 100);
        assert_eq!((sample[0], sample[99]), (Duration::ZERO, Duration::from_secs(10)));
        assert!((4_900..5_100).contains(&sample[50].as_millis()));
    }
}
