//! The latencies and responses of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::workload::RequestKind;

/// The precision of latencies: three significant digits.
const DIGITS: u8 = 3;

/// The largest latency in microseconds: an hour. Longer ones count as this.
const MAX_LATENCY: u64 = 3_600_000_000;

/// The groups of requests whose latencies are reported.
const GROUPS: [&str; 3] = ["commands", "commands to hot aggregates", "reads"];

/// The result of one request.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) kind: RequestKind,
    /// From the planned time to the response.
    pub(super) latency: Duration,
    /// Whether the request created an aggregate.
    pub(super) created: bool,
    pub(super) result: ResponseKind,
}

/// What a request got.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ResponseKind {
    /// A status, and the type of the problem if there is one.
    Status { status: u16, problem: Option<String> },
    /// No response.
    None { reason: String },
}

/// The measurements of all requests.
#[derive(Debug)]
pub(super) struct Measurements {
    latencies: [Histogram<u64>; 3],
    pub(super) responses: BTreeMap<ResponseKind, u64>,
    pub(super) aggregates: u64,
    pub(super) elapsed: Duration,
    /// The planned requests that were not sent before the end.
    pub(super) not_sent: u64,
}

/// The latencies of a group of requests, in milliseconds.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Latencies {
    pub(super) requests: u64,
    pub(super) p50_ms: f64,
    pub(super) p90_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
}

impl Measurements {
    pub(super) fn new() -> Self {
        let histogram = || Histogram::new_with_bounds(1, MAX_LATENCY, DIGITS).expect("the bounds are allowed");
        Self {
            latencies: [histogram(), histogram(), histogram()],
            responses: BTreeMap::new(),
            aggregates: 0,
            elapsed: Duration::ZERO,
            not_sent: 0,
        }
    }

    pub(super) fn add(&mut self, Measured { kind, latency, created, result }: Measured) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latencies[group(kind)].saturating_record(micros);
        self.aggregates += u64::from(created);
        *self.responses.entry(result).or_default() += 1;
    }

    pub(super) fn requests(&self) -> u64 {
        self.latencies.iter().map(Histogram::len).sum()
    }

    pub(super) fn reads(&self) -> u64 {
        self.latencies[group(RequestKind::Read)].len()
    }

    pub(super) fn commands(&self) -> u64 {
        self.requests() - self.reads()
    }

    /// Lost races, which the caller has to resolve.
    pub(super) fn conflicts(&self) -> u64 {
        self.count(|result| matches!(result, ResponseKind::Status { status: 409, .. }))
    }

    /// The requests that got neither a success nor a conflict.
    pub(super) fn failures(&self) -> u64 {
        self.count(|result| !matches!(result, ResponseKind::Status { status: 200..=299 | 409, .. }))
    }

    /// Whether all planned requests were sent, and none failed.
    pub(super) fn is_clean(&self) -> bool {
        self.failures() == 0 && self.not_sent == 0
    }

    /// The latencies of each group that has requests, and of all requests.
    pub(super) fn latencies(&self) -> Vec<(&'static str, Latencies)> {
        let mut all = self.latencies[0].clone();
        self.latencies[1..].iter().for_each(|group| all.add(group).expect("all histograms have the same bounds"));
        let groups = GROUPS.into_iter().zip(&self.latencies).chain([("all", &all)]);
        groups.filter(|(_, group)| !group.is_empty()).map(|(name, group)| (name, Latencies::of(group))).collect()
    }

    fn count(&self, is_counted: impl Fn(&ResponseKind) -> bool) -> u64 {
        self.responses.iter().filter(|(result, _)| is_counted(result)).map(|(_, count)| count).sum()
    }
}

impl Latencies {
    fn of(histogram: &Histogram<u64>) -> Self {
        let ms = |micros: u64| micros as f64 / 1000.0;
        Self {
            requests: histogram.len(),
            p50_ms: ms(histogram.value_at_quantile(0.5)),
            p90_ms: ms(histogram.value_at_quantile(0.9)),
            p99_ms: ms(histogram.value_at_quantile(0.99)),
            max_ms: ms(histogram.max()),
        }
    }
}

fn group(kind: RequestKind) -> usize {
    match kind {
        RequestKind::Command => 0,
        RequestKind::Hot(_) => 1,
        RequestKind::Read => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_reported_by_group_and_response() {
        let mut measurements = Measurements::new();
        let status =
            |status, problem: Option<&str>| ResponseKind::Status { status, problem: problem.map(str::to_owned) };
        for (kind, ms, result) in [
            (RequestKind::Command, 10, status(201, None)),
            (RequestKind::Command, 30, status(200, None)),
            (RequestKind::Hot(0), 50, status(409, Some("version-conflict"))),
            (RequestKind::Read, 5, status(503, Some("unavailable"))),
        ] {
            let latency = Duration::from_millis(ms);
            measurements.add(Measured { kind, latency, created: ms == 10, result });
        }
        assert_eq!((measurements.commands(), measurements.reads(), measurements.aggregates), (3, 1, 1));
        assert_eq!((measurements.conflicts(), measurements.failures(), measurements.is_clean()), (1, 1, false));
        let latencies = measurements.latencies();
        let names: Vec<_> = latencies.iter().map(|(name, latencies)| (*name, latencies.requests)).collect();
        assert_eq!(names, [("commands", 2), ("commands to hot aggregates", 1), ("reads", 1), ("all", 4)]);
        let all = &latencies[3].1;
        assert!((9.9..10.1).contains(&all.p50_ms) && (49.9..50.1).contains(&all.max_ms), "{all:?}");
    }
}
