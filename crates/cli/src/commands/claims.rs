//! `daybook claims`.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::{Args, Subcommand};
use daybook_operations::claims::{ClaimCounts, CorrectedClaims, rebuild_claims};
use daybook_operations::selection::Selection;
use daybook_operations::walk::{WalkOptions, Walked};
use serde_json::json;

use crate::operator::{Ended, OnStack, Session};

/// Correct which aggregates have unique values.
#[derive(Clone, Debug, Subcommand)]
pub enum ClaimsCommand {
    Rebuild(OnStack<ClaimsRebuildArgs>),
}

/// Correct the claims of a type after `Aggregate::claims` was introduced or changed.
///
/// Run it after the deployment, when no instance of the earlier release writes any more. It releases the claims that states do not
/// have any more, takes those that nobody has, and reports each claim that two aggregates should have: the one that has it
/// keeps it. It is safe beside writers, and can be repeated.
#[derive(Clone, Debug, Args)]
pub struct ClaimsRebuildArgs {
    /// The aggregate type.
    #[arg(value_name = "TYPE")]
    aggregate_type: String,
    /// Write the claims; without this option, the command is a dry run.
    #[arg(long)]
    yes: bool,
    /// Maximum aggregates and claims per second.
    #[arg(long, value_name = "N", default_value = "100")]
    rate: NonZeroU32,
    /// Maximum aggregates processed concurrently.
    #[arg(long, value_name = "N", default_value = "8")]
    concurrency: NonZeroUsize,
}

pub(super) async fn rebuild(args: ClaimsRebuildArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let ClaimsRebuildArgs { aggregate_type, yes: writes, rate, concurrency } = args;
    let selection = Selection { types: vec![aggregate_type], ..Selection::default() };
    let options = WalkOptions { selection, rate, concurrency, checkpoint: None };
    let would_be = if writes { "" } else { "would be " };
    let rebuilt = rebuild_claims(&stack, &options, writes, |aggregate, result| {
        let lines = match result {
            Ok(CorrectedClaims { taken, released, elsewhere }) => {
                let released = released.iter().map(|claim| ("released", format!("{would_be}released: {claim}")));
                let taken = taken.iter().map(|claim| ("taken", format!("{would_be}taken: {claim}")));
                let elsewhere = elsewhere.iter().map(|(claim, holder)| ("elsewhere", format!("{holder} has {claim}")));
                released.chain(taken).chain(elsewhere).collect()
            }
            Err(reason) => vec![("failed", reason.clone())],
        };
        lines.into_iter().try_for_each(|(outcome, what)| {
            out.print(json!({"aggregate": aggregate, "outcome": outcome, "what": what}), format!("{aggregate}: {what}"))
        })
    });
    let Walked { counts, how_to_go_on } = rebuilt.await?;
    let ClaimCounts { taken, released, elsewhere, failed, .. } = counts;
    let text = format!(
        "{released} claims {would_be}released, {taken} {would_be}taken; other aggregates have {elsewhere}, {failed} aggregates \
         cannot be read"
    );
    out.finish(&text, &counts, how_to_go_on.as_deref(), elsewhere + failed == 0)
}
