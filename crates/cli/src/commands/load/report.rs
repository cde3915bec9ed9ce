//! The report of a run.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::costs::UsedUnits;
use super::measurements::{Measurements, ResponseKind};

/// What a run has measured, and what it has used.
pub(super) struct LoadReport<'a> {
    /// The beginning of the ids that were created.
    pub(super) prefix: &'a str,
    pub(super) measured: &'a Measurements,
    pub(super) used: &'a UsedUnits,
    /// Whether Ctrl-C ended the run.
    pub(super) interrupted: bool,
}

impl LoadReport<'_> {
    pub(super) fn print(&self, as_json: bool, out: &mut dyn Write) -> io::Result<()> {
        if as_json { writeln!(out, "{}", json!({ "summary": self.json() })) } else { self.print_text(out) }
    }

    fn json(&self) -> Value {
        let Self { prefix, measured, used, interrupted } = self;
        let latencies: Map<_, _> =
            measured.latencies().into_iter().map(|(name, latencies)| (name.to_owned(), json!(latencies))).collect();
        let response = |(result, count): (&ResponseKind, &u64)| match result {
            ResponseKind::Status { status, problem } => json!({"status": status, "problem": problem, "count": count}),
            ResponseKind::None { reason } => json!({"noResponse": reason, "count": count}),
        };
        let costs = used.costs();
        json!({
            "requests": measured.requests(), "seconds": measured.elapsed.as_secs_f64(), "interrupted": interrupted,
            "notSent": measured.not_sent, "latencies": latencies,
            "responses": measured.responses.iter().map(response).collect::<Vec<_>>(),
            "conflicts": measured.conflicts(), "failures": measured.failures(),
            "used": used, "costsUsd": costs, "totalUsd": costs.total(),
            "aggregates": measured.aggregates, "idPrefix": prefix,
        })
    }

    fn print_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { prefix, measured, interrupted, .. } = self;
        let (requests, seconds) = (measured.requests(), measured.elapsed.as_secs_f64());
        writeln!(out, "{:27} {:>9} {:>9} {:>9} {:>9} {:>9}", "latency in ms", "requests", "p50", "p90", "p99", "max")?;
        for (name, latencies) in measured.latencies() {
            let (p50, p90, p99, max) = (latencies.p50_ms, latencies.p90_ms, latencies.p99_ms, latencies.max_ms);
            writeln!(out, "{name:27} {:>9} {p50:>9.1} {p90:>9.1} {p99:>9.1} {max:>9.1}", latencies.requests)?;
        }
        for (result, count) in &measured.responses {
            match result {
                ResponseKind::Status { status, problem: None } => writeln!(out, "{count} responses {status}")?,
                ResponseKind::Status { status, problem: Some(problem) } => {
                    writeln!(out, "{count} responses {status} {problem}")?;
                }
                ResponseKind::None { reason } => writeln!(out, "{count} requests without a response: {reason}")?,
            }
        }
        self.print_costs(out)?;
        if measured.not_sent > 0 {
            let hint = "the API is slower than the rate; their wait is not in the latencies; lower --rate or raise --concurrency";
            writeln!(out, "{} planned requests were not sent before the end: {hint}", measured.not_sent)?;
        }
        writeln!(
            out,
            "{} aggregates were created, with ids that begin with {prefix}; their events stay in the table, and no command \
             removes them",
            measured.aggregates
        )?;
        let (conflicts, failures) = (measured.conflicts(), measured.failures());
        let early = if *interrupted { "; stopped early by Ctrl-C" } else { "" };
        writeln!(
            out,
            "{requests} requests in {seconds:.1} s, {:.1}/s: {conflicts} conflicts, {failures} failures{early}",
            requests as f64 / seconds.max(f64::EPSILON)
        )
    }

    fn print_costs(&self, out: &mut dyn Write) -> io::Result<()> {
        let UsedUnits { counted, dynamodb_calls, read_units, write_units, stream_invocations, messages, .. } =
            self.used;
        let source =
            if *counted { "counted by the local stack" } else { "estimated from the documented units per request" };
        writeln!(out, "{write_units:.1} write units, {read_units:.1} read units, {messages} messages ({source})")?;
        let listed = |calls: &std::collections::BTreeMap<String, u64>| {
            calls.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
        };
        if *counted {
            let (calls, invocations) = (listed(dynamodb_calls), listed(stream_invocations));
            writeln!(out, "calls to DynamoDB: {calls}; invocations by the stream: {invocations}")?;
        }
        let costs = self.used.costs();
        let parts = costs.lines().map(|(name, cost)| format!("{name} {cost:.6}")).join(", ");
        let each = costs.total() / self.measured.requests().max(1) as f64 * 1e6;
        writeln!(
            out,
            "{:.6} USD on AWS with the prices of docs/deploy.md ({parts}); {each:.2} USD for a million of these requests",
            costs.total()
        )
    }
}
