//! `daybook verify`: checks that the rows of aggregates are those that appends and snapshots write.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::Args;
use daybook_admin::{AdminCalls, Finding, Verified};
use daybook_decider::Model;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::operator::checkpoint::{Checkpoint, CheckpointArgs};
use crate::operator::listing::{ListedAggregate, Listing};
use crate::operator::pacing::Pacer;
use crate::operator::selection::{AggregateName, SelectionArgs};
use crate::operator::target::{SETTINGS_TO_VERIFY, STACK_HELP, StackArgs};
use crate::operator::walk::{AggregateWalk, WalkProgress};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

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
#[command(after_long_help = STACK_HELP)]
pub struct VerifyArgs {
    /// Aggregates to check. Default: all.
    #[arg(value_name = "TYPE/ID", conflicts_with_all = ["types", "event_types", "after", "checkpoint"])]
    pub aggregates: Vec<AggregateName>,
    /// Which aggregates.
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// Read the whole table instead of the index: also finds aggregates without their first events, and rows that belong to
    /// no aggregate.
    #[arg(long, conflicts_with_all = ["aggregates", "types", "event_types", "after"])]
    pub scan: bool,
    /// Maximum aggregates per second.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
    /// Maximum aggregates checked concurrently.
    #[arg(long, value_name = "N", default_value = "8")]
    pub concurrency: NonZeroUsize,
    /// Where the progress is stored.
    #[command(flatten)]
    pub checkpoint: CheckpointArgs,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// The numbers of checked items and of findings.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VerifyCounts {
    aggregates: u64,
    events: u64,
    messages: u64,
    snapshots: u64,
    outdated_snapshots: u64,
    findings: u64,
    aggregates_with_findings: u64,
    /// Differences that another release may have caused.
    warnings: u64,
}

/// Checks the aggregates.
pub(super) async fn run(args: VerifyArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let store = args.stack.store(&context.environment, SETTINGS_TO_VERIFY).await?;
    let options = json!({"types": args.selection.types, "eventTypes": args.selection.event_types, "scan": args.scan});
    let owner = args.stack.checkpoint_owner(&context.environment, &store, "verify", options).await;
    let (checkpoint, progress) = Checkpoint::open::<WalkProgress<VerifyCounts>>(&args.checkpoint, owner)?;
    let mut progress = progress.unwrap_or_default();
    let position = &progress.position;
    let listing = args.selection.list(&store, &context.registry, &args.aggregates, position).await?;
    let listing = if args.scan { Listing::scan(&store, position) } else { listing };
    let named = !args.aggregates.is_empty();
    let pacer = Pacer::new(args.rate, context.interrupt.clone());
    let visit = async |aggregate: &ListedAggregate, model: Option<&dyn Model>| {
        pacer.turn().await?;
        Some(match (model, &aggregate.key) {
            (Some(model), Some(key)) => store.admin().verify(model, key, Timestamp::now()).await.map(Some),
            // The type is not registered, the rows belong to no aggregate, or a row of the index cannot be read.
            _ => Ok(None),
        })
    };
    let report = |counts: &mut VerifyCounts, aggregate: &ListedAggregate, verified: Option<Verified>| {
        let (findings, warnings) = lines(aggregate, verified.as_ref(), named, args.json);
        counts.add(verified.as_ref(), (findings.len() as u64, warnings.len() as u64));
        findings.into_iter().chain(warnings)
    };
    let walk = AggregateWalk { listing, concurrency: args.concurrency, checkpoint };
    let how_to_go_on = walk.run(context, &mut progress, visit, report).await?;
    let counts = progress.counts;
    context.print_summary(args.json, &counts.text(), &counts, how_to_go_on.as_deref())?;
    if how_to_go_on.is_some() {
        return Ok(Exit::Interrupted);
    }
    Ok(if counts.findings == 0 { Exit::Clean } else { Exit::Findings })
}

/// The findings of an aggregate and the warnings, one per line.
fn lines(
    aggregate: &ListedAggregate,
    verified: Option<&Verified>,
    named: bool,
    as_json: bool,
) -> (Vec<String>, Vec<String>) {
    let line = |item: &str, kind: &str, what: String| {
        let json = json!({"aggregate": aggregate.name, "item": item, "kind": kind, "what": what});
        output_line(as_json, json, format!("{} {item} {kind}: {what}", aggregate.name))
    };
    if let Some(row) = &aggregate.unreadable {
        return (vec![line(&row.sk, "unreadable", row.reason.clone())], vec![]);
    }
    match verified {
        None => (vec![line("*", "unregistered", "no aggregate of this type is registered".to_owned())], vec![]),
        Some(verified) if verified.rows == 0 && named => {
            (vec![line("*", "missing", "it does not exist".to_owned())], vec![])
        }
        Some(verified) => {
            let of = |found: &[Finding]| {
                let line = |found: &Finding| line(&found.item, found.discrepancy.code(), found.discrepancy.to_string());
                found.iter().map(line).collect::<Vec<_>>()
            };
            (of(&verified.findings), of(&verified.warnings))
        }
    }
}

impl VerifyCounts {
    fn add(&mut self, verified: Option<&Verified>, (findings, warnings): (u64, u64)) {
        self.aggregates += 1;
        self.findings += findings;
        self.warnings += warnings;
        self.aggregates_with_findings += u64::from(findings > 0);
        if let Some(verified) = verified {
            self.events += verified.events;
            self.messages += verified.messages;
            self.snapshots += verified.snapshots;
            self.outdated_snapshots += verified.outdated;
        }
    }

    fn text(&self) -> String {
        let Self { aggregates, events, messages, snapshots, outdated_snapshots, findings, .. } = self;
        let result = match findings {
            0 => "nothing is wrong".to_owned(),
            _ => format!("{findings} findings in {} aggregates", self.aggregates_with_findings),
        };
        let warnings = match self.warnings {
            0 => String::new(),
            warnings => format!(", {warnings} warnings"),
        };
        format!(
            "verified {aggregates} aggregates: {events} events, {messages} messages, {snapshots} snapshots and \
             {outdated_snapshots} of another state version; {result}{warnings}"
        )
    }
}
