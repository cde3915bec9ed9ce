//! `daybook restore`.

use std::num::NonZeroU32;

use clap::Args;
use daybook_operations::restore::{RestoreOptions, restore};
use jiff::Timestamp;
use serde_json::json;

use crate::operator::{Exit, OperatorError, Session};

/// Replace the table of a stack by a restored one, step by step.
///
/// Without `--yes`, the command changes nothing, and prints which steps are done and which are not. With `--yes`, it closes the
/// API, stops the relay, restores and verifies the table, updates the stack to this table and the next epoch, and lists the
/// lost events. The API stays closed, so that you can decide what to do about them. With `--yes --open`, it also sends messages
/// again, enables the event source mappings, opens the API and enables TTL. It reads from AWS what is done: after a failure or
/// Ctrl-C, run it again. docs/restore.md describes what a restore does to events, messages, consumers and views. Run it in a
/// checkout of the deployed commit.
#[derive(Clone, Debug, Args)]
pub struct RestoreArgs {
    /// Name of the restored table: the name of the stack, a hyphen and more. If the table exists, it is used.
    #[arg(long, value_name = "NAME")]
    into: String,
    /// Time to restore to, the last moment before the damage, such as 2026-11-20T08:00:00Z.
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// The table to restore. Default: that of the stack.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// The new epoch. Default: that of the stack, plus 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    epoch: Option<u32>,
    /// Send the messages since this time again. Default: an hour before the time of the restore.
    #[arg(long, value_name = "TIME")]
    republish_from: Option<Timestamp>,
    /// Maximum aggregates verified, and messages sent, per second.
    #[arg(long, value_name = "N", default_value = "100")]
    rate: NonZeroU32,
    /// Also take the steps that open the API again.
    #[arg(long)]
    open: bool,
    /// Take the steps; without this option, the command only prints them.
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(args: RestoreArgs, Session { stack, mut out }: Session<'_>) -> Result<Exit, OperatorError> {
    let RestoreArgs { into, at, source, epoch, republish_from, rate, open: opens, yes: executes } = args;
    let options = RestoreOptions { into, at, source, epoch, republish_from, rate, opens, executes };
    let interrupt = stack.interrupt.clone();
    let restored = restore(stack, options, |state, step, text| {
        out.print(json!({"step": step, "state": state, "text": text}), format!("{state} {step}: {text}"))
    });
    let is_complete = restored.await?;
    Ok(Exit::of(interrupt.is_set() && !is_complete, is_complete))
}
