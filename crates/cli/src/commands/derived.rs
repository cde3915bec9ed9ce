//! `daybook claims rebuild` and `daybook deadlines rebuild`: rows that follow from states.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::{Args, Subcommand};
use daybook_operations::derived::{Corrected, CorrectedClaims, CorrectedCounts, Derived, rebuild};
use daybook_operations::selection::Selection;
use daybook_operations::walk::{WalkOptions, Walked};
use serde_json::json;

use crate::operator::{Ended, OnStack, Session};

/// Correct which aggregates have unique values.
#[derive(Clone, Debug, Subcommand)]
pub enum ClaimsCommand {
    /// Correct the claims of a type after `Aggregate::claims` was introduced or changed.
    ///
    /// Run it after the deployment, when no instance of the earlier release writes any more. It releases the claims that states do
    /// not have any more, takes those that nobody has, and reports each claim that two aggregates should have: the one that has it
    /// keeps it. It is safe beside writers, and can be repeated.
    Rebuild(OnStack<RebuildArgs>),
}

#[derive(Clone, Debug, Args)]
pub struct RebuildArgs {
    /// The aggregate type.
    #[arg(value_name = "TYPE")]
    aggregate_type: String,
    /// Write the rows; without this option, the command is a dry run.
    #[arg(long)]
    yes: bool,
    /// Maximum aggregates and claims per second.
    #[arg(long, value_name = "N", default_value = "100")]
    rate: NonZeroU32,
    /// Maximum aggregates processed concurrently.
    #[arg(long, value_name = "N", default_value = "8")]
    concurrency: NonZeroUsize,
}

/// Corrects rows of a type.
pub(super) async fn correct(rows: Derived<'_>, args: RebuildArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let RebuildArgs { aggregate_type, yes: writes, rate, concurrency } = args;
    let selection = Selection { types: vec![aggregate_type], ..Selection::default() };
    let options = WalkOptions { selection, rate, concurrency };
    let would_be = if writes { "" } else { "would be " };
    let rebuilt = rebuild(&stack, &options, rows, writes, |aggregate, result| {
        let lines = match result {
            Ok(corrected) => lines(corrected, would_be),
            Err(reason) => vec![("failed", reason.clone())],
        };
        lines.into_iter().try_for_each(|(outcome, what)| {
            out.print(json!({"aggregate": aggregate, "outcome": outcome, "what": what}), format!("{aggregate}: {what}"))
        })
    });
    let Walked { counts, how_to_go_on } = rebuilt.await?;
    let CorrectedCounts { added, removed, elsewhere, failed, .. } = counts;
    let text = match rows {
        Derived::Claims(_) => format!(
            "{removed} claims {would_be}released, {added} {would_be}taken; other aggregates have {elsewhere}, {failed} \
             aggregates cannot be read"
        ),
        Derived::Deadlines { .. } => {
            format!("{added} deadlines {would_be}set, {removed} {would_be}deleted; {failed} aggregates cannot be read")
        }
    };
    out.finish(&text, &counts, how_to_go_on.as_deref(), elsewhere + failed == 0)
}

/// What a correction changes, each with its outcome.
fn lines(corrected: &Corrected, would_be: &str) -> Vec<(&'static str, String)> {
    let Corrected { claims: CorrectedClaims { taken, released, elsewhere }, deadlines } = corrected;
    let released = released.iter().map(|claim| ("released", format!("{would_be}released: {claim}")));
    let taken = taken.iter().map(|claim| ("taken", format!("{would_be}taken: {claim}")));
    let elsewhere = elsewhere.iter().map(|(claim, holder)| ("elsewhere", format!("{holder} has {claim}")));
    let deleted = deadlines.dropped.iter().map(|name| ("deleted", format!("{would_be}deleted: {name}")));
    let set = deadlines.set.iter().map(|(name, due)| ("set", format!("{would_be}set: {name}, due {due}")));
    released.chain(taken).chain(elsewhere).chain(deleted).chain(set).collect()
}
