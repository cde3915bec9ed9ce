//! `daybook check-deployment`: tests in the user's account what this code relies on in AWS.
//!
//! Invariant: all rows that the checks write belong to aggregates of the type `__check`, which no aggregate can be
//! registered under; everything that the checks create is deleted at the end, and its names are printed if that fails.
//!
//! In reading order:
//! - `check`, `result`: a check and its result. `checks`: all checks, by subject, and the assumptions that none of them covers.
//! - `deployment`: the stack that is checked, and what the checks have created. `aws_calls`: calls to AWS as JSON.
//!   `observer`: a rule and a queue, with which the checks see the messages on the bus.

mod aws_calls;
mod check;
mod checks;
mod deployment;
mod observer;
mod result;

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use self::check::Check;
use self::checks::NOT_SEEN;
use self::deployment::Deployment;
use self::result::CheckResult;
use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// Check in your own account that AWS behaves as this code relies on.
///
/// The checks write rows of the reserved aggregate type `__check` into the table, send messages of these rows through the
/// relay, and create a rule and a queue to see them. They delete all of it at the end. The dead-letter check raises the alarm
/// `dead-letter-messages`. Consumers whose rules match every message of the stack also get those of the checks.
///
/// Without `--yes`, the command only lists the checks and the permissions that they need. Against the local stack, it checks
/// what the local stack models.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct CheckDeploymentArgs {
    /// Only this check; can be repeated. Default: all.
    #[arg(value_name = "CHECK")]
    pub checks: Vec<String>,
    /// Leave this check out; can be repeated.
    #[arg(long, value_name = "CHECK")]
    pub skip: Vec<String>,
    /// Write to the table and the bus; without this option, the command only lists the checks.
    #[arg(long)]
    pub yes: bool,
    /// Maximum seconds that a check waits for a message.
    #[arg(long, value_name = "SECONDS", default_value = "120")]
    pub timeout: u64,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// The number of checks by result.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckCounts {
    dry_run: bool,
    as_expected: usize,
    different: usize,
    not_checked: usize,
    not_modelled: usize,
    /// What the checks have created and could not delete.
    left_over: usize,
}

/// Runs the checks, and prints the result of each.
pub(super) async fn run(args: CheckDeploymentArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let selected = selected(&args)?;
    let mut counts = CheckCounts { dry_run: !args.yes, ..CheckCounts::default() };
    if !args.yes {
        for check in &selected {
            writeln!(context.out, "{}", check.plan_line(args.json))?;
        }
        print_not_seen(args.json, &mut context.out)?;
        let text = format!("{} checks would run; nothing was written, run it again with --yes", selected.len());
        context.print_summary(args.json, &text, &counts, None)?;
        return Ok(Exit::Clean);
    }
    let timeout = Duration::from_secs(args.timeout);
    let mut deployment = Deployment::connect(&args.stack, timeout, &context.environment).await?;
    let mut printed = Ok(());
    for check in selected {
        if context.interrupt.is_set() || printed.is_err() {
            break;
        }
        // Ctrl-C ends a check that waits, but not the deletion of what it has created.
        let result = tokio::select! {
            result = (check.run)(&mut deployment) => result.unwrap_or_else(|error| deployment.not_checked(&error)),
            () = context.interrupt.wait() => break,
        };
        counts.add(&result);
        printed = writeln!(context.out, "{}", check.result_line(&result, args.json));
    }
    let left_over = deployment.clean_up().await;
    printed?;
    counts.left_over = left_over.len();
    for text in left_over {
        let line = output_line(args.json, json!({"leftOver": text}), format!("left-over {text}"));
        writeln!(context.out, "{line}")?;
    }
    print_not_seen(args.json, &mut context.out)?;
    let interrupted = context.interrupt.is_set().then_some("run it again: what was created is deleted");
    context.print_summary(args.json, &counts.text(), &counts, interrupted)?;
    Ok(match counts {
        _ if interrupted.is_some() => Exit::Interrupted,
        CheckCounts { different: 0, left_over: 0, not_checked: 0, .. } => Exit::Clean,
        CheckCounts { different: 0, left_over: 0, .. } => Exit::Incomplete,
        _ => Exit::Findings,
    })
}

/// The checks that the arguments select.
fn selected(args: &CheckDeploymentArgs) -> Result<Vec<Check>, OperatorError> {
    let all = checks::all();
    let names: Vec<_> = all.iter().map(|check| check.name).collect();
    if let Some(unknown) = args.checks.iter().chain(&args.skip).find(|name| !names.contains(&name.as_str())) {
        return Err(OperatorError::Usage(format!("{unknown:?} is no check; the checks are {}", names.join(", "))));
    }
    let is_selected = |check: &Check| {
        let is_in = |names: &[String]| names.iter().any(|name| name == check.name);
        (args.checks.is_empty() || is_in(&args.checks)) && !is_in(&args.skip)
    };
    Ok(all.into_iter().filter(is_selected).collect())
}

fn print_not_seen(as_json: bool, out: &mut dyn Write) -> io::Result<()> {
    for what in NOT_SEEN {
        writeln!(out, "{}", output_line(as_json, json!({"notSeen": what}), format!("not-seen {what}")))?;
    }
    Ok(())
}

impl CheckCounts {
    fn add(&mut self, result: &CheckResult) {
        *match result {
            CheckResult::AsExpected { .. } => &mut self.as_expected,
            CheckResult::Differs { .. } => &mut self.different,
            CheckResult::NotChecked { .. } => &mut self.not_checked,
            CheckResult::NotModelled { .. } => &mut self.not_modelled,
        } += 1;
    }

    fn text(&self) -> String {
        let Self { as_expected, different, not_checked, not_modelled, left_over, .. } = self;
        let left_over =
            if *left_over > 0 { format!("; {left_over} things could not be deleted") } else { String::new() };
        let not_modelled =
            if *not_modelled > 0 { format!(", {not_modelled} not modelled by the local stack") } else { String::new() };
        format!(
            "{as_expected} checks as expected, {different} different, {not_checked} could not be checked{not_modelled}{left_over}"
        )
    }
}
