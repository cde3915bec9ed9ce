//! `daybook relay status`.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::operator::relay_state::{IteratorAge, RelayMapping, iterator_age, relay_mappings};
use crate::operator::signed_calls::{CLOUDWATCH, CLOUDWATCH_LOGS, LAMBDA, SignedCalls};
use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// The age of the oldest unsettled record from which messages count as late, as in the alarm messages-late.
const LATE: Duration = Duration::from_secs(60);

/// How far back logs are read.
const LOG_WINDOW: SignedDuration = SignedDuration::from_mins(15);

/// Maximum pages of log lines.
const MAX_LOG_PAGES: usize = 20;

/// The beginning of the log line of an invocation that left messages unsettled.
const UNSETTLED: &str = "unsettled, will be retried";

/// Print the state of the relay: its event source mapping, the age of the oldest unsettled record, and the messages that wait.
///
/// For a deployed stack, the age is CloudWatch's, which arrives a minute or two late, and the waiting messages are those of the
/// relay's log lines of the last 15 minutes; some of them may have been sent since. For the local stack, `--local URL` prints the
/// state of each shard. The exit status is 1 if the mapping is not enabled, its last invocation failed, or messages are
/// more than a minute late.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct RelayStatusArgs {
    /// The API of a local stack, such as http://127.0.0.1:3000, instead of a deployed stack.
    #[arg(long, value_name = "URL")]
    pub local: Option<String>,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// What was found.
#[derive(Default)]
struct Findings {
    lines: Vec<(Value, String)>,
    mappings: usize,
    not_working: usize,
    late: bool,
    waiting: usize,
}

/// Prints the state.
pub(super) async fn run(args: RelayStatusArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let mut findings = Findings::default();
    match &args.local {
        Some(url) => findings.read_local(url).await?,
        None => {
            let function = args.stack.relay_function(&context.environment)?;
            let log_group = args.stack.relay_logs(&context.environment)?;
            findings.read_mappings(&SignedCalls::connect(&context.environment, LAMBDA).await?, &function).await?;
            findings.read_age(&SignedCalls::connect(&context.environment, CLOUDWATCH).await?, &function).await?;
            let logs = SignedCalls::connect(&context.environment, CLOUDWATCH_LOGS).await?;
            findings.read_waiting(&logs, &log_group).await?;
        }
    }
    let Findings { lines, mappings, not_working, late, waiting } = findings;
    for (json, text) in lines {
        writeln!(context.out, "{}", output_line(args.json, json, text))?;
    }
    let are_late = if late { "more than a minute late" } else { "not late" };
    let text = format!(
        "{mappings} mappings, {not_working} of them not working; {waiting} messages wait; messages are {are_late}"
    );
    let summary = json!({"mappings": mappings, "notWorking": not_working, "late": late, "waiting": waiting});
    context.print_summary(args.json, &text, &summary, None)?;
    Ok(if mappings == 0 || not_working > 0 || late { Exit::Findings } else { Exit::Clean })
}

impl Findings {
    fn add(&mut self, json: Value, text: String) {
        self.lines.push((json, text));
    }

    async fn read_mappings(&mut self, lambda: &SignedCalls, function: &str) -> Result<(), OperatorError> {
        for RelayMapping { id, state, last_result } in relay_mappings(lambda, function).await? {
            self.mappings += 1;
            self.not_working += usize::from(state != "Enabled" || last_result.starts_with("PROBLEM"));
            let json = json!({"mapping": id, "state": state, "lastResult": last_result});
            self.add(json, format!("mapping {id} is {state}, its last result: {last_result}"));
        }
        Ok(())
    }

    async fn read_age(&mut self, cloudwatch: &SignedCalls, function: &str) -> Result<(), OperatorError> {
        match iterator_age(cloudwatch, function).await? {
            Some(IteratorAge { milliseconds, at }) => {
                self.late = milliseconds > LATE.as_millis() as f64;
                let json = json!({"iteratorAgeMs": milliseconds, "at": at.to_string()});
                self.add(json, format!("the oldest record was {milliseconds} ms old at {at}"));
            }
            None => self.add(json!({ "iteratorAgeMs": null }), "no record was read in the last ten minutes".to_owned()),
        }
        Ok(())
    }

    /// The messages of the last log lines about unsettled messages.
    async fn read_waiting(&mut self, logs: &SignedCalls, log_group: &str) -> Result<(), OperatorError> {
        let since = (Timestamp::now() - LOG_WINDOW).as_millisecond();
        let mut waiting: BTreeMap<String, (String, String)> = BTreeMap::new();
        let mut next = Value::Null;
        for _ in 0..MAX_LOG_PAGES {
            let mut request =
                json!({"logGroupName": log_group, "startTime": since, "filterPattern": format!("\"{UNSETTLED}\"")});
            if !next.is_null() {
                request["nextToken"] = next;
            }
            let response = logs.post("FilterLogEvents", &request).await?;
            for event in response["events"].as_array().into_iter().flatten() {
                let line: Value =
                    serde_json::from_str(event["message"].as_str().unwrap_or_default()).unwrap_or_default();
                let fields = if line["fields"].is_object() { &line["fields"] } else { &line };
                let at = event["timestamp"].as_i64().and_then(|at| Timestamp::from_millisecond(at).ok());
                let at = at.map(|at| at.to_string()).unwrap_or_default();
                let code = fields["code"].as_str().unwrap_or_default();
                for id in fields["ids"].as_str().unwrap_or_default().split_ascii_whitespace() {
                    waiting.insert(id.to_owned(), (at.clone(), code.to_owned()));
                }
            }
            next = response["nextToken"].clone();
            if next.is_null() {
                break;
            }
        }
        self.waiting = waiting.len();
        for (id, (at, code)) in waiting {
            let json = json!({"waiting": id, "loggedAt": at, "errorCode": code});
            self.add(json, format!("message {id} was unsettled at {at} {code}"));
        }
        Ok(())
    }

    /// The shards of the mappings of a local stack.
    async fn read_local(&mut self, url: &str) -> Result<(), OperatorError> {
        let response = SignedCalls::local(url).get("/_dev/mappings").await?;
        for mapping in response.as_array().into_iter().flatten().filter(|mapping| mapping["function"] == "stream-relay")
        {
            self.mappings += 1;
            let name = mapping["mapping"].as_str().unwrap_or_default();
            self.not_working += usize::from(mapping["enabled"] != true);
            let state = if mapping["enabled"] == true { "enabled" } else { "disabled" };
            self.add(mapping.clone(), format!("mapping {name} is {state}"));
            for shard in mapping["shards"].as_array().into_iter().flatten() {
                let waiting = shard["waiting"].as_u64().unwrap_or_default();
                let age = shard["oldestAgeMs"].as_u64().unwrap_or_default();
                let result = shard["lastResult"].as_str().unwrap_or("none");
                self.waiting += usize::try_from(waiting).unwrap_or(usize::MAX);
                self.late |= Duration::from_millis(age) > LATE;
                let shard = shard["shard"].as_str().unwrap_or_default();
                let text = format!(
                    "shard {shard}: {waiting} records wait, the oldest for {age} ms, its last result: {result}"
                );
                let json = json!({
                    "mapping": name, "shard": shard, "waiting": waiting, "oldestAgeMs": age, "lastResult": result,
                });
                self.add(json, text);
            }
        }
        Ok(())
    }
}
