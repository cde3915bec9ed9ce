//! `daybook verify`.

use clap::Args;
use daybook_decider::AggregateKey;
use daybook_operations::verify::{VerifyCounts, VerifyFinding, verify};
use daybook_operations::walk::{WalkOptions, Walked};
use serde_json::json;

use crate::operator::{Ended, Session};

/// Check the rows of aggregates against each other and against the code, and change nothing.
///
/// The command checks that event numbers have no gap or duplicate, that the metadata match the last event, that the
/// messages have no gap and are those that the events published, that ids are unique and the feed finds every event, that
/// events are readable, that snapshots equal the fold of their events, and that all other rows than the metadata are as they
/// were written, by their checksums. It prints a line for each finding, `TYPE/ID ROW KIND: what`, and a summary. A message that
/// this release would publish differently is a warning, which does not change the exit status.
///
/// Every check costs strongly consistent reads of the checked rows. Aggregates are found by their first events in the
/// index, without a scan of the table. An aggregate without its first event, or whose first event has no index keys, is
/// found only by `--scan`. A missing message is not a finding if its event is older than two days, because the time to
/// live of the message may have passed.
#[derive(Clone, Debug, Args)]
pub struct VerifyArgs {
    /// Aggregates to check. Default: all.
    #[arg(value_name = "TYPE/ID", conflicts_with_all = ["types", "event_types", "after"])]
    aggregates: Vec<AggregateKey>,
    #[command(flatten)]
    walk: WalkOptions,
    /// Read the whole table instead of the index: also finds aggregates without their first events, and rows that belong to
    /// no aggregate.
    #[arg(long, conflicts_with_all = ["aggregates", "types", "event_types", "after"])]
    scan: bool,
}

pub(super) async fn run(args: VerifyArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let options = args.walk.of(args.aggregates);
    let verified = verify(&stack, &options, args.scan, |aggregate, VerifyFinding { item, kind, detail }| {
        let json = json!({"aggregate": aggregate, "item": item, "kind": kind, "detail": detail});
        out.print(json, format!("{aggregate} {item} {kind}: {detail}"))
    });
    let Walked { counts, how_to_go_on } = verified.await?;
    let VerifyCounts { aggregates, events, messages, snapshots, outdated_snapshots, findings, .. } = counts;
    let result = match findings {
        0 => "nothing is wrong".to_owned(),
        _ => format!("{findings} findings in {} aggregates", counts.aggregates_with_findings),
    };
    let warnings = if counts.warnings > 0 { format!(", {} warnings", counts.warnings) } else { String::new() };
    let text = format!(
        "verified {aggregates} aggregates: {events} events, {messages} messages, {snapshots} snapshots and \
         {outdated_snapshots} of another state version; {result}{warnings}"
    );
    out.finish(&text, &counts, how_to_go_on.as_deref(), findings == 0)
}
