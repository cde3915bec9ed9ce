//! `daybook dev`: runs the local stack until Ctrl-C. `daybook dev-functions`: runs its functions.

use std::io::{self, Write};
use std::sync::mpsc;
use std::time::Duration;

use clap::Args;
use daybook_local_aws::clock::Ahead;
use daybook_local_stack::termination::TerminationSignals;
use daybook_local_stack::{DevArgs, DevError, LocalStack, Project, RestartArgs, RuleOption, rule_warnings, serve};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::operator::Exit;
use crate::operator::local::Findable;

/// How long the reader of the output may take for the last lines after the stack has stopped.
const OUTPUT_GRACE: Duration = Duration::from_millis(200);

/// The stack, and whether its functions are replaced after a change of their sources.
#[derive(Clone, Debug, Args)]
pub(super) struct DevCommandArgs {
    #[command(flatten)]
    pub(super) stack: DevArgs,
    #[command(flatten)]
    restart: RestartArgs,
}

/// The functions of a running stack, which gives them their settings on standard input.
#[derive(Clone, Debug, Args)]
pub(super) struct DevFunctionsArgs {
    /// OpenTelemetry collector that gets the traces.
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub(super) otlp: Option<String>,
}

/// Runs the stack until Ctrl-C or SIGTERM, or until the reader of the output closes it.
pub(super) async fn run(args: DevCommandArgs, project: Project) -> Result<Exit, DevError> {
    let registry = (project.aggregates)()?;
    if registry.iter().next().is_none() {
        return Err(DevError::NoAggregates);
    }
    let rules = args.stack.rules.clone();
    let mut signals = TerminationSignals::listen().map_err(DevError::Signals)?;
    let start = async {
        let restarts = args.restart.restarts(args.stack.otlp.clone())?;
        LocalStack::start_with(args.stack, project, restarts).await
    };
    let mut stack = tokio::select! {
        () = signals.next() => return Ok(Exit::Clean),
        started = start => started?,
    };
    let findable = Findable::start(stack.api_url()).unwrap_or_else(|error| {
        eprintln!("daybook: operator commands will not find this stack by themselves: {error}");
        None
    });
    // A thread writes: a reader that is slow, or does not read, does not keep the stack from running and from stopping.
    let (lines, printed) = mpsc::channel::<String>();
    let mut writing = spawn_blocking(move || printed.iter().try_for_each(|line| writeln!(io::stdout(), "{line}")));
    // Fails after the output has failed, which ends the loop.
    let print = |line: String| drop(lines.send(line));
    print(greeting(&stack, &rules));
    for warning in rule_warnings(&rules, &registry) {
        print(format!("  Warning   --rule {warning}"));
    }
    let written = loop {
        tokio::select! {
            () = signals.next() => break Ok(()),
            written = &mut writing => break written.unwrap_or(Ok(())),
            Some(message) = stack.next_message() => {
                print(format!("{} {} {}", message.detail_type, message.resources.join(" "), message.detail));
            }
        }
    };
    drop(findable);
    stack.stop().await;
    drop(lines);
    if !writing.is_finished() {
        drop(timeout(OUTPUT_GRACE, writing).await);
    }
    Ok(Exit::of_output(written)?)
}

pub(super) async fn run_functions(project: Project) -> Result<Exit, DevError> {
    serve(project).await?;
    Ok(Exit::Clean)
}

/// Where the stack's servers are, and the queues and the tables of its rules.
fn greeting(stack: &LocalStack, rules: &[RuleOption]) -> String {
    let mut lines = vec![
        "Daybook is running. Ctrl-C stops it.".to_owned(),
        format!("  API       {}", stack.api_url()),
        format!("  Console   {}", stack.console_url()),
        format!("  DynamoDB  {}  (table {})", stack.dynamodb_url(), stack.table_name()),
    ];
    let bus = stack.bus_url();
    lines.push(format!("  Bus, DLQ  {bus}  (received messages: {}/_dev/bus and /_dev/dlq)", stack.api_url()));
    for rule in rules {
        lines.push(format!("  Rule      {}", rule.text));
        if let Some(queue) = rule.queue_name() {
            lines.push(format!("            queue {bus}/000000000000/{queue}"));
        }
        if let Some(table) = rule.table_name() {
            lines.push(if rule.starts_a_program() {
                format!("            table {table}, which the function finds in TABLE_NAME")
            } else {
                format!("            table {table}; set TABLE_NAME to it where the function runs")
            });
        }
    }
    let ahead = stack.clock().ahead();
    if ahead > Ahead::default() {
        lines.push(format!("  Clock     {ahead} ahead of the machine's"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};
    use daybook_decider::Registry;
    use daybook_projection::Projections;

    use super::*;

    #[tokio::test]
    async fn stack_without_aggregates_does_not_start() {
        let matches = DevCommandArgs::augment_args(Command::new("dev")).get_matches_from(["dev"]);
        let args = DevCommandArgs::from_arg_matches(&matches).unwrap();
        let project = Project::new(|| Ok(Registry::new()), || Ok(Projections::new()));
        let error = run(args, project).await.unwrap_err();
        assert!(matches!(error, DevError::NoAggregates), "{error}");
        assert!(
            error
                .to_string()
                .ends_with("run `cargo run` in the folder of your project, or create one with `daybook new`")
        );
    }
}
