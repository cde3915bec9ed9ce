//! `daybook republish`.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::Args;
use daybook_event_store::UnreadableRow;
use daybook_operations::moment::Moment;
use daybook_operations::republish::{
    MessageLabel, RepublishCounts, RepublishOptions, Republished, Republishing, Window, republish,
};
use daybook_operations::selection::AggregateName;
use serde_json::json;

use crate::operator::args::CheckpointArgs;
use crate::operator::{Exit, OperatorError, Session};

/// Send the messages of a time window again, with the same ids and bytes, from the outbox rows in the table.
///
/// For outages in which the stream was not read for more than 24 hours, so that it has deleted its records. The rows stay in the
/// table for OUTBOX_TTL_DAYS. A dry run by default; `--yes` sends the messages. Consumers that received a message before
/// recognize it by its message id.
///
/// The events of the window are found in the index, by the time in their ids; the table is not scanned. Clocks of writers
/// differ, so let the window begin a little earlier and end a little later. The window is sent in the order of its events: the
/// messages of an aggregate one after the other, those of different aggregates concurrently. Messages whose rows no longer exist
/// are counted, and their events are printed.
/// Rows that cannot be read are also counted and printed. The summary contains the time from which events of the window
/// may still be missing, because their commands may not be complete.
#[derive(Clone, Debug, Args)]
pub struct RepublishArgs {
    #[command(flatten)]
    window: WindowArgs,
    /// Send the messages; without this option, the command is a dry run.
    #[arg(long)]
    yes: bool,
    /// Maximum messages per second.
    #[arg(long, value_name = "N", default_value = "100")]
    rate: NonZeroU32,
    /// Maximum concurrent requests to the bus, of up to ten messages each.
    #[arg(long, value_name = "N", default_value = "64")]
    concurrency: NonZeroUsize,
    #[command(flatten)]
    checkpoint: CheckpointArgs,
}

/// Which events.
#[derive(Clone, Debug, Args)]
pub(super) struct WindowArgs {
    /// The beginning, included: 2026-11-20T08:00:00Z, or a duration before now, such as 30m, 2h, 7d.
    #[arg(long, value_name = "TIME")]
    from: Moment,
    /// The end, not included: a time, a duration before now, or now.
    #[arg(long, value_name = "TIME", default_value = "now")]
    to: Moment,
    /// Only aggregates of this type; can be repeated.
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Only this aggregate; can be repeated.
    #[arg(long = "aggregate", value_name = "TYPE/ID", conflicts_with = "types")]
    aggregates: Vec<AggregateName>,
    /// Only messages of this type; can be repeated.
    #[arg(long = "message-type", value_name = "TYPE")]
    message_types: Vec<String>,
    /// An event type that the table contains and the code no longer declares; can be repeated.
    #[arg(long = "event-type", value_name = "NAME")]
    event_types: Vec<String>,
}

pub(super) async fn run(args: RepublishArgs, Session { stack, mut out }: Session<'_>) -> Result<Exit, OperatorError> {
    let RepublishArgs { window, yes, rate, concurrency, checkpoint } = args;
    let WindowArgs { from, to, types, aggregates, message_types, event_types } = window;
    let window = Window { from, to, types, aggregates, message_types, event_types };
    let options = RepublishOptions { window, sends: yes, rate, concurrency, checkpoint: checkpoint.checkpoint };
    let republished = republish(&stack, &options, |found| match found {
        Republishing::Message { aggregate, message: MessageLabel { seq, name, id }, outcome } => {
            let why = outcome.reason();
            let reason = why.map(|why| format!(" ({why})")).unwrap_or_default();
            let json = json!({
                "aggregate": aggregate.to_string(), "messageSeq": seq, "messageType": name, "messageId": id, "why": why,
            });
            out.print_outcome(outcome.name(), json, &format!("{aggregate} {seq} {name} {id}{reason}"))
        }
        Republishing::Gone { aggregate, seq_num, gone, published } => {
            let text = format!("{aggregate} event {seq_num}: {gone} of {published} messages no longer exist");
            let json =
                json!({"aggregate": aggregate.to_string(), "seqNum": seq_num, "messages": gone, "of": published});
            out.print_outcome("gone", json, &text)
        }
        Republishing::Unreadable(row) => {
            let UnreadableRow { pk, sk, reason } = row;
            let aggregate = row.aggregate().map_or_else(|| pk.clone(), |key| key.to_string());
            let json = json!({"aggregate": aggregate, "item": sk, "why": reason});
            out.print_outcome("unreadable", json, &format!("{aggregate} {sk}: {reason}"))
        }
    });
    let Republished { counts, how_to_go_on, failure } = republished.await?;
    let RepublishCounts { from, to, events, messages, sent, rejected, unreadable, gone, incomplete_from, .. } = &counts;
    let (sending, end) = if yes {
        (format!("{sent} messages sent, {rejected} rejected by the bus"), "")
    } else {
        (format!("{messages} messages would be sent"), "; this was a dry run, --yes sends them")
    };
    let incomplete =
        incomplete_from.as_ref().map(|from| format!("; events from {from} on may be missing")).unwrap_or_default();
    let text = format!(
        "{events} events in the window from {from} to {to}: {sending}, {unreadable} unreadable, {gone} no longer \
         exist{incomplete}{end}"
    );
    let exit = out.finish(&text, &counts, how_to_go_on.as_deref(), counts.is_clean())?;
    failure.map_or(Ok(exit), Err)
}
