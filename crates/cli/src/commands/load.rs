//! `daybook load`: sends commands and reads to an API at a fixed rate, and reports latencies, responses and costs.
//!
//! `sender`: the options, and the requests: the examples of the API document.

mod sender;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

pub(super) use self::sender::LoadArgs;
use self::sender::{Api, Run};
use crate::operator::{Ended, Exit, Session};

/// The units and messages of a run. A test compares prices and quantities with docs/deploy.md, "Costs".
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UsedUnits {
    /// By a local stack; otherwise they are the documented units of each request.
    counted: bool,
    write_units: f64,
    read_units: f64,
    messages: f64,
}

impl UsedUnits {
    /// The documented units: a command appends one event and one message, with a few hundred bytes of data each. Every tenth
    /// command loads the state, with 50 events since the snapshot, as each read does.
    fn estimated(commands: u64, reads: u64) -> Self {
        let [commands, reads] = [commands, reads].map(|count| count as f64);
        let read_units = 2.0 * commands + 20.0 * reads;
        Self { counted: false, write_units: 7.0 * commands, read_units, messages: commands }
    }

    /// What a local stack has counted from one response of `GET /_dev/usage` to another.
    fn between(before: &Value, after: &Value) -> Self {
        let more = |name: &str| after[name].as_f64().unwrap_or_default() - before[name].as_f64().unwrap_or_default();
        let [write_units, read_units, messages] = ["writeUnits", "readUnits", "putEventsEntries"].map(more);
        Self { counted: true, write_units, read_units, messages }
    }

    /// The costs in US dollars, on demand in us-east-1, and their sum.
    fn costs(&self, commands: u64, reads: u64) -> ([(&'static str, f64); 6], f64) {
        let (commands, requests) = (commands as f64, (commands + reads) as f64);
        let per_million = [
            ("API Gateway", 1.00 * requests),
            // The command handler; the relay, in the worst case once for each message, and the snapshotter.
            ("Lambda", 0.30 * requests + (0.30 + 0.01) * commands),
            ("DynamoDB writes", 0.625 * self.write_units),
            ("DynamoDB reads", 0.125 * self.read_units),
            ("EventBridge", 1.00 * self.messages),
            ("logs and archive", (1.25 + 0.17) * commands),
        ];
        let costs = per_million.map(|(name, usd)| (name, usd / 1e6));
        (costs, costs.iter().map(|(_, usd)| usd).sum())
    }
}

pub(super) async fn run(args: LoadArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let (scripts, planned) = (sender::scripts(&stack.registry, &args.types)?, args.planned());
    let api = Api::connect(&args, &stack).await?;
    if !(api.is_local || args.yes) {
        let (url, duration, reads) = (&args.url, args.duration, planned * args.reads / 100);
        let (costs, usd) = UsedUnits::estimated(planned - reads, reads).costs(planned - reads, reads);
        let text = format!(
            "would send {planned} requests in {duration:#} to {url}, for about {usd:.6} USD; the events stay in its table: use a \
             stack for tests; nothing was sent, run it again with --yes"
        );
        let costs = BTreeMap::from(costs);
        let json = json!({"dryRun": true, "requests": planned, "url": url, "costsUsd": costs, "totalUsd": usd});
        return out.finish(&text, &json, None, true);
    }
    let before = api.usage().await?;
    let run = Run::of_requests(scripts, &args, &api, &stack).await;
    let counted = before.zip(api.quiet_usage().await).map(|(before, after)| UsedUnits::between(&before, &after));
    let interrupted = stack.interrupt.is_cancelled();
    let sent: usize = run.latencies.iter().map(Vec::len).sum();
    let not_sent = if interrupted { 0 } else { planned - sent as u64 };
    let (json, text) = report(&run, counted, not_sent, interrupted);
    out.print(json!({ "summary": json }), text)?;
    Ok(Exit::of(interrupted, run.failures == 0 && not_sent == 0))
}

fn report(run: &Run, counted: Option<UsedUnits>, not_sent: u64, interrupted: bool) -> (Value, String) {
    let Run { prefix, created, responses, failures, elapsed, latencies: [of_commands, of_reads], .. } = run;
    let [commands, reads] = [of_commands, of_reads].map(|latencies| latencies.len() as u64);
    let (requests, seconds, aggregates) = (commands + reads, elapsed.as_secs_f64(), created.len());
    let [rate, writes] = [requests, commands].map(|count| count as f64 / seconds.max(f64::EPSILON));
    let used = counted.unwrap_or_else(|| UsedUnits::estimated(commands, reads));
    let (costs, usd) = used.costs(commands, reads);
    let per_million = usd / requests.max(1) as f64 * 1e6;
    let all = [&of_commands[..], of_reads].concat();
    let (mut table, mut latencies) = (String::new(), BTreeMap::new());
    for (name, of_requests) in [("commands", of_commands), ("reads", of_reads), ("all", &all)] {
        let (requests, [p50, p90, p99, max]) = (of_requests.len(), quantiles(of_requests.clone()));
        table += &format!("\n{name:13} {requests:>9} {p50:>9.1} {p90:>9.1} {p99:>9.1} {max:>9.1}");
        latencies.insert(name, json!({"requests": requests, "p50Ms": p50, "p90Ms": p90, "p99Ms": p99, "maxMs": max}));
    }
    let json = json!({
        "requests": requests, "seconds": seconds, "requestsPerSecond": rate, "commandsPerSecond": writes,
        "interrupted": interrupted, "notSent": not_sent, "failures": failures, "responses": responses,
        "latencies": latencies, "used": used, "costsUsd": BTreeMap::from(costs), "totalUsd": usd,
        "usdPerMillion": per_million, "aggregates": aggregates, "idPrefix": prefix,
    });
    let responses: String =
        responses.iter().map(|(response, count)| format!("{count} responses {response}\n")).collect();
    let UsedUnits { counted, write_units, read_units, messages } = used;
    let source = if counted { "counted by the local stack" } else { "estimated from the documented units per request" };
    let costs = costs.map(|(name, usd)| format!("{name} {usd:.6}")).join(", ");
    let slow = "planned requests were not sent before the end: the API is slower than the rate; their wait is not in the \
                latencies; lower --rate or raise --concurrency";
    let slow = if not_sent > 0 { format!("{not_sent} {slow}\n") } else { String::new() };
    let early = if interrupted { "; stopped early by Ctrl-C" } else { "" };
    let text = format!(
        "latency in ms  requests       p50       p90       p99       max{table}\n{responses}{write_units:.1} write units, \
         {read_units:.1} read units, {messages} messages ({source})\n{usd:.6} USD on AWS with the prices of docs/deploy.md \
         ({costs}); {per_million:.2} USD for a million of these requests\n{slow}{aggregates} aggregates were created, with ids \
         that begin with {prefix}; their events stay in the table, and no command removes them\n{requests} requests in \
         {seconds:.1} s, {rate:.1}/s, {writes:.1} commands/s: {failures} failures{early}"
    );
    (json, text)
}

/// The median, the 90th and the 99th percentile and the maximum of latencies, in milliseconds.
fn quantiles(mut latencies: Vec<f64>) -> [f64; 4] {
    latencies.sort_by(f64::total_cmp);
    let last = latencies.len().saturating_sub(1);
    [50, 90, 99, 100].map(|percent| latencies.get((last * percent).div_ceil(100)).copied().unwrap_or_default())
}
