//! `daybook relay`: the state of the relay.

use clap::Subcommand;
use daybook_console::stack::{IteratorAge, Relay, RelayMapping};
use daybook_operations::health::{LATE, LoggedMessage, relay, waiting_messages};
use serde_json::json;

use crate::operator::{CommandFuture, Ended, NoArgs, OnStack, OperatorContext, Session};

/// Print the state of the relay and of its event source mapping.
#[derive(Clone, Debug, Subcommand)]
pub enum RelayCommand {
    /// Print the state of the relay: its event source mapping, the age of the oldest unsettled record, and the messages that wait.
    ///
    /// The age is CloudWatch's, which arrives a minute or two late, and the waiting messages are those of the relay's log lines of the
    /// last 15 minutes; some of them may have been sent since. For the local stack, the page *Stream* of its console shows the state of
    /// each shard. The exit status is 1 if the mapping is not enabled, its last invocation failed, or messages are more than a
    /// minute late.
    Status(OnStack<NoArgs>),
}

impl RelayCommand {
    pub(super) fn run(self, context: &mut OperatorContext) -> CommandFuture<'_> {
        let Self::Status(command) = self;
        command.run_on_named(context, status)
    }
}

async fn status(_: NoArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let Relay { mappings, age } = relay(&stack).await?;
    let waiting = waiting_messages(&stack).await?;
    let mut not_working = 0;
    for RelayMapping { id, state, last_result } in &mappings {
        not_working += usize::from(state != "Enabled" || last_result.starts_with("PROBLEM"));
        let json = json!({"mapping": id, "state": state, "lastResult": last_result});
        out.print(json, format!("mapping {id} is {state}, its last result: {last_result}"))?;
    }
    match &age {
        Some(IteratorAge { milliseconds, at }) => {
            let json = json!({"iteratorAgeMs": milliseconds, "at": at.to_string()});
            out.print(json, format!("the oldest record was {milliseconds} ms old at {at}"))?;
        }
        None => out.print(json!({ "iteratorAgeMs": null }), "no record was read in the last ten minutes".to_owned())?,
    }
    for LoggedMessage { id, logged_at, error_code } in &waiting {
        let json = json!({"waiting": id, "loggedAt": logged_at, "errorCode": error_code});
        out.print(json, format!("message {id} was unsettled at {logged_at} {error_code}"))?;
    }
    let late = age.is_some_and(|age| age.milliseconds > LATE.as_millis() as f64);
    let are_late = if late { "more than a minute late" } else { "not late" };
    let (mappings, waiting) = (mappings.len(), waiting.len());
    let text = format!(
        "{mappings} mappings, {not_working} of them not working; {waiting} messages wait; messages are {are_late}"
    );
    let summary = json!({"mappings": mappings, "notWorking": not_working, "late": late, "waiting": waiting});
    out.finish(&text, &summary, None, mappings > 0 && not_working == 0 && !late)
}
