//! `daybook load`: sends commands and reads to an API at a fixed rate, and reports latencies, responses and costs.
//!
//! `args`: the options. `workload`: the requests, from the examples of the API document. `sender`: sends them at their planned
//! times. `costs`: what they cost.

mod args;
mod costs;
mod sender;
mod workload;

use std::io::{self, Write};

use serde_json::{Map, Value, json};

pub(super) use self::args::LoadArgs;
use self::costs::UsedUnits;
use self::sender::{Api, Run};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// Sends the requests, and prints the report.
pub(super) async fn run(args: LoadArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let (scripts, planned) = (workload::scripts(&context.registry, &args.types)?, args.planned());
    let api = Api::connect(&args, context).await?;
    if !(api.is_local || args.yes) {
        let (url, duration, reads) = (&args.url, args.duration, planned * args.reads / 100);
        let (costs, usd) = UsedUnits::estimated(planned - reads, reads).costs(planned - reads, reads);
        let text = format!(
            "would send {planned} requests in {duration:#} to {url}, for about {usd:.6} USD; the events stay in its table: use a \
             stack for tests; nothing was sent, run it again with --yes"
        );
        let json =
            json!({"dryRun": true, "requests": planned, "url": url, "costsUsd": by_name(costs), "totalUsd": usd});
        writeln!(context.out, "{}", output_line(args.json, json!({ "summary": json }), text))?;
        return Ok(Exit::Clean);
    }
    let before = api.usage().await?;
    let run = Run::new(scripts).send_all(&args, &api, &context.interrupt).await;
    let after = if before.is_some() { api.quiet_usage().await } else { None };
    let counted = before.zip(after).map(|(before, after)| UsedUnits::between(&before, &after));
    let interrupted = context.interrupt.is_set();
    let sent: usize = run.latencies.iter().map(Vec::len).sum();
    let not_sent = if interrupted { 0 } else { planned - sent as u64 };
    print_report(&run, counted, not_sent, interrupted, args.json, &mut context.out)?;
    Ok(match interrupted {
        true => Exit::Interrupted,
        false if run.failures == 0 && not_sent == 0 => Exit::Clean,
        false => Exit::Findings,
    })
}

fn print_report(
    run: &Run,
    counted: Option<UsedUnits>,
    not_sent: u64,
    interrupted: bool,
    as_json: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Run { prefix, created, responses, failures, elapsed, latencies: [of_commands, of_reads], .. } = run;
    let [commands, reads] = [of_commands, of_reads].map(|latencies| latencies.len() as u64);
    let (requests, seconds, aggregates) = (commands + reads, elapsed.as_secs_f64(), created.len());
    let [rate, writes] = [requests, commands].map(|count| count as f64 / seconds.max(f64::EPSILON));
    let used = counted.unwrap_or_else(|| UsedUnits::estimated(commands, reads));
    let (costs, usd) = used.costs(commands, reads);
    let per_million = usd / requests.max(1) as f64 * 1e6;
    let all = [&of_commands[..], of_reads].concat();
    let latencies = [("commands", of_commands), ("reads", of_reads), ("all", &all)]
        .map(|(name, latencies)| (name, latencies.len(), quantiles(latencies.clone())));
    if as_json {
        let latencies = latencies.map(|(name, requests, [p50, p90, p99, max])| {
            (name, json!({"requests": requests, "p50Ms": p50, "p90Ms": p90, "p99Ms": p99, "maxMs": max}))
        });
        let summary = json!({
            "requests": requests, "seconds": seconds, "requestsPerSecond": rate, "commandsPerSecond": writes,
            "interrupted": interrupted, "notSent": not_sent, "failures": failures, "responses": responses,
            "latencies": by_name(latencies), "used": used, "costsUsd": by_name(costs), "totalUsd": usd,
            "usdPerMillion": per_million, "aggregates": aggregates, "idPrefix": prefix,
        });
        return writeln!(out, "{}", json!({ "summary": summary }));
    }
    writeln!(out, "latency in ms  requests       p50       p90       p99       max")?;
    for (name, requests, [p50, p90, p99, max]) in latencies {
        writeln!(out, "{name:13} {requests:>9} {p50:>9.1} {p90:>9.1} {p99:>9.1} {max:>9.1}")?;
    }
    responses.iter().try_for_each(|(response, count)| writeln!(out, "{count} responses {response}"))?;
    let UsedUnits { counted, write_units, read_units, messages } = used;
    let source = if counted { "counted by the local stack" } else { "estimated from the documented units per request" };
    writeln!(out, "{write_units:.1} write units, {read_units:.1} read units, {messages} messages ({source})")?;
    let costs = costs.map(|(name, usd)| format!("{name} {usd:.6}")).join(", ");
    let prices = "on AWS with the prices of docs/deploy.md";
    writeln!(out, "{usd:.6} USD {prices} ({costs}); {per_million:.2} USD for a million of these requests")?;
    if not_sent > 0 {
        let hint =
            "the API is slower than the rate; their wait is not in the latencies; lower --rate or raise --concurrency";
        writeln!(out, "{not_sent} planned requests were not sent before the end: {hint}")?;
    }
    let stay = "their events stay in the table, and no command removes them";
    writeln!(out, "{aggregates} aggregates were created, with ids that begin with {prefix}; {stay}")?;
    let early = if interrupted { "; stopped early by Ctrl-C" } else { "" };
    writeln!(
        out,
        "{requests} requests in {seconds:.1} s, {rate:.1}/s, {writes:.1} commands/s: {failures} failures{early}"
    )
}

fn by_name<T: Into<Value>, const N: usize>(values: [(&str, T); N]) -> Map<String, Value> {
    values.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// The median, the 90th and the 99th percentile and the maximum of latencies, in milliseconds.
fn quantiles(mut latencies: Vec<f64>) -> [f64; 4] {
    latencies.sort_by(f64::total_cmp);
    let last = latencies.len().saturating_sub(1);
    [50, 90, 99, 100].map(|percent| latencies.get((last * percent).div_ceil(100)).copied().unwrap_or_default())
}
