//! `daybook restore`, and `daybook republish`, which sends the messages of a time window again, also as a step of a restore.

use daybook_operations::republish::{RepublishCounts, RepublishOptions, Republished, Republishing, republish};
use daybook_operations::restore::{RestoreOptions, restore};
use serde_json::json;

use crate::operator::{Ended, Exit, Session};

pub(super) async fn run_restore(options: RestoreOptions, Session { stack, mut out }: Session<'_>) -> Ended {
    let interrupt = stack.interrupt.clone();
    let restored = restore(stack, options, |state, step, text| {
        out.print(json!({"step": step, "state": state, "text": text}), format!("{state} {step}: {text}"))
    });
    let is_complete = restored.await?;
    Ok(Exit::of(interrupt.is_cancelled() && !is_complete, is_complete))
}

pub(super) async fn run_republish(options: RepublishOptions, Session { stack, mut out }: Session<'_>) -> Ended {
    let republished = republish(&stack, &options, |found| match found {
        Republishing::Message(message, outcome) => out.print_message(&outcome, message.json(), &message.to_string()),
        Republishing::Gone { aggregate, seq_num, gone, published } => {
            let text = format!("{aggregate} event {seq_num}: {gone} of {published} messages no longer exist");
            let json =
                json!({"aggregate": aggregate.to_string(), "seqNum": seq_num, "messages": gone, "of": published});
            out.print_outcome("gone", json, &text)
        }
        Republishing::Unreadable(row) => out.print_unreadable(row),
    });
    let Republished { counts, how_to_go_on, failure } = republished.await?;
    let RepublishCounts { from, to, events, messages, sent, rejected, unreadable, gone, incomplete_from, .. } = &counts;
    let (sending, end) = if options.yes {
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
