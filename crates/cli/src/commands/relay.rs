//! `daybook relay`: the state of the relay.

use std::io;

use clap::{Args, Subcommand};
use daybook_console::stack::{RelayMapping, Shard};
use daybook_operations::relay::{IteratorAge, LATE, WaitingMessage, local_mappings, relay_state};
use serde_json::{Value, json};

use crate::operator::output::Output;
use crate::operator::{Exit, OnStack, OperatorError, Session};

/// Print the state of the relay and of its event source mapping.
#[derive(Clone, Debug, Subcommand)]
pub enum RelayCommand {
    Status(OnStack<RelayStatusArgs>),
}

/// Print the state of the relay: its event source mapping, the age of the oldest unsettled record, and the messages that wait.
///
/// For a deployed stack, the age is CloudWatch's, which arrives a minute or two late, and the waiting messages are those of the
/// relay's log lines of the last 15 minutes; some of them may have been sent since. For the local stack, `--local URL` prints the
/// state of each shard. The exit status is 1 if the mapping is not enabled, its last invocation failed, or messages are
/// more than a minute late.
#[derive(Clone, Debug, Args)]
pub struct RelayStatusArgs {
    /// The API of a local stack, such as http://127.0.0.1:3000, instead of a deployed stack.
    #[arg(long, value_name = "URL")]
    local: Option<String>,
}

#[derive(Default)]
struct Found {
    lines: Vec<(Value, String)>,
    mappings: usize,
    not_working: usize,
    late: bool,
    waiting: usize,
}

pub(super) async fn status(
    args: RelayStatusArgs,
    Session { stack, mut out }: Session<'_>,
) -> Result<Exit, OperatorError> {
    let mut found = Found::default();
    match &args.local {
        Some(url) => found.read_local(url).await?,
        None => {
            let state = relay_state(&stack).await?;
            state.mappings.into_iter().for_each(|mapping| found.add_mapping(mapping));
            found.add_age(state.age);
            found.waiting = state.waiting.len();
            for WaitingMessage { id, logged_at, error_code } in state.waiting {
                let json = json!({"waiting": id, "loggedAt": logged_at, "errorCode": error_code});
                found.add(json, format!("message {id} was unsettled at {logged_at} {error_code}"));
            }
        }
    }
    Ok(found.print(&mut out)?)
}

impl Found {
    fn add(&mut self, json: Value, text: String) {
        self.lines.push((json, text));
    }

    fn add_mapping(&mut self, RelayMapping { id, state, last_result }: RelayMapping) {
        self.mappings += 1;
        self.not_working += usize::from(state != "Enabled" || last_result.starts_with("PROBLEM"));
        let json = json!({"mapping": id, "state": state, "lastResult": last_result});
        self.add(json, format!("mapping {id} is {state}, its last result: {last_result}"));
    }

    fn add_age(&mut self, age: Option<IteratorAge>) {
        match age {
            Some(IteratorAge { milliseconds, at }) => {
                self.late = milliseconds > LATE.as_millis() as f64;
                let json = json!({"iteratorAgeMs": milliseconds, "at": at.to_string()});
                self.add(json, format!("the oldest record was {milliseconds} ms old at {at}"));
            }
            None => self.add(json!({ "iteratorAgeMs": null }), "no record was read in the last ten minutes".to_owned()),
        }
    }

    /// The shards of the mappings of a local stack.
    async fn read_local(&mut self, url: &str) -> Result<(), OperatorError> {
        for mapping in local_mappings(url).await? {
            let (name, state) = (&mapping.mapping, if mapping.enabled { "enabled" } else { "disabled" });
            self.mappings += 1;
            self.not_working += usize::from(!mapping.enabled);
            self.add(json!(mapping), format!("mapping {name} is {state}"));
            for Shard { shard, waiting, oldest_age_ms, last_result } in &mapping.shards {
                let (age, result) = (oldest_age_ms.unwrap_or_default(), last_result.as_deref().unwrap_or("none"));
                self.waiting += waiting;
                self.late |= u128::try_from(age).is_ok_and(|age| age > LATE.as_millis());
                let json = json!({
                    "mapping": name, "shard": shard, "waiting": waiting, "oldestAgeMs": age, "lastResult": result,
                });
                let text = format!(
                    "shard {shard}: {waiting} records wait, the oldest for {age} ms, its last result: {result}"
                );
                self.add(json, text);
            }
        }
        Ok(())
    }

    fn print(&mut self, out: &mut Output<'_>) -> io::Result<Exit> {
        std::mem::take(&mut self.lines).into_iter().try_for_each(|(json, text)| out.print(json, text))?;
        let Self { mappings, not_working, late, waiting, .. } = self;
        let are_late = if *late { "more than a minute late" } else { "not late" };
        let text = format!(
            "{mappings} mappings, {not_working} of them not working; {waiting} messages wait; messages are {are_late}"
        );
        let summary = json!({"mappings": mappings, "notWorking": not_working, "late": late, "waiting": waiting});
        out.finish(&text, &summary, None, *mappings > 0 && *not_working == 0 && !*late)
    }
}
