//! `daybook deploy` deploys the stack of this project, and shows its first message. `daybook check-deployment` checks that AWS
//! behaves as the code expects.

use std::io;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use daybook_deployment_check::{
    Check, CheckResult, FirstMessage, NOT_SEEN, StackDeployment, check_deployment, checks, first_message,
};
use serde::Serialize;
use serde_json::json;

use crate::operator::output::Output;
use crate::operator::{Ended, Exit, Session};

/// Build this project, deploy it, and show its first message.
///
/// It runs `sam build` and `sam deploy` with the settings of samconfig.toml, and with a `Release` that it computes from the
/// code and the parameters, so that both take effect. Then it sends a command of the deployment canary to the command handler,
/// waits for its message on the bus, and prints what the stack lacks, such as somebody who gets its alarms. To see the message,
/// it creates a rule and a queue, and deletes them. Consumers whose rules match every message of the stack get it too.
///
/// Exit status: 0 the message was seen; 1 the rule or the queue could not be deleted; 2 a wrong option or setting, or no region
/// or credentials; 3 the deployment failed, or AWS did not allow or complete a call.
#[derive(Clone, Debug, Args)]
pub struct DeployArgs {
    /// Environment in samconfig.toml, such as prod.
    #[arg(long, value_name = "ENV", default_value = "default")]
    config_env: String,
    /// Maximum seconds to wait for the message.
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    timeout: u64,
}

pub(super) async fn deploy(args: DeployArgs, Session { mut stack, mut out }: Session<'_>) -> Ended {
    let deployment = StackDeployment::connect(Path::new("."), &args.config_env, &stack.environment).await?;
    let deployed = deployment.deploy().await?;
    let (name, url) = (&deployment.stack_name, deployed.output("ApiUrl"));
    out.print_text(&format!("deployed {name}: {url}"))?;
    stack.environment = deployed.settings_over(&deployment.environment);
    let (limit, handler) = (Duration::from_secs(args.timeout), deployed.output("CommandHandlerName"));
    let FirstMessage { message, after, left_over } = first_message(&stack, handler, limit).await?;
    out.print_text(&format!("message on the bus, {} ms after its command: {message}", after.as_millis()))?;
    left_over.iter().try_for_each(|text| out.print_text(&format!("left-over {text}")))?;
    for gap in deployment.gaps(&stack, &deployed).await? {
        out.print_text(&format!("missing {gap}"))?;
    }
    Ok(Exit::of(false, left_over.is_empty()))
}

/// Check in your own account that AWS behaves as this code relies on.
///
/// The checks write rows of the reserved aggregate type `__check` into the table, send messages of these rows through the
/// relay, and create a rule and a queue to see them. They delete all of it at the end. The dead-letter check raises the alarm
/// `dead-letter-messages`. Consumers whose rules match every message of the stack also get those of the checks.
///
/// Without `--yes`, the command only lists the checks and the permissions that they need. Against the local stack, it checks
/// what the local stack models.
#[derive(Clone, Debug, Args)]
pub struct CheckDeploymentArgs {
    /// Only this check; can be repeated. Default: all.
    #[arg(value_name = "CHECK")]
    checks: Vec<String>,
    /// Leave this check out; can be repeated.
    #[arg(long, value_name = "CHECK")]
    skip: Vec<String>,
    /// Write to the table and the bus; without this option, the command only lists the checks.
    #[arg(long)]
    yes: bool,
    /// Maximum seconds that a check waits for a message.
    #[arg(long, value_name = "SECONDS", default_value = "120")]
    timeout: u64,
}

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

pub(super) async fn check(args: CheckDeploymentArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let selected = checks(&args.checks, &args.skip)?;
    let mut counts = CheckCounts { dry_run: !args.yes, ..CheckCounts::default() };
    if !args.yes {
        for check in &selected {
            let Check { name, relies_on, documented, permissions, .. } = check;
            let needs = permissions.join(", ");
            let text = format!("would-check {name}: {relies_on}; documented: {documented}; needs {needs}");
            out.print(json!(check), text)?;
        }
        print_not_seen(&mut out)?;
        let text = format!("{} checks would run; nothing was written, run it again with --yes", selected.len());
        return out.finish(&text, &counts, None, true);
    }
    let timeout = Duration::from_secs(args.timeout);
    let left_over = check_deployment(&stack, &selected, timeout, |check, result| {
        counts.add(result);
        print_result(&mut out, check, result)
    });
    let left_over = left_over.await?;
    counts.left_over = left_over.len();
    for text in left_over {
        out.print(json!({"leftOver": text}), format!("left-over {text}"))?;
    }
    print_not_seen(&mut out)?;
    let interrupted = stack.interrupt.is_cancelled().then_some("run it again: what was created is deleted");
    out.print_summary(&counts.text(), &counts, interrupted)?;
    Ok(match counts {
        _ if interrupted.is_some() => Exit::Interrupted,
        CheckCounts { different: 0, left_over: 0, not_checked: 0, .. } => Exit::Clean,
        CheckCounts { different: 0, left_over: 0, .. } => Exit::Incomplete,
        _ => Exit::Findings,
    })
}

fn print_result(out: &mut Output<'_>, check: &Check, result: &CheckResult) -> io::Result<()> {
    let Check { name, relies_on, documented, .. } = check;
    let mut json = json!(result);
    (json["check"], json["reliesOn"], json["documented"]) = (json!(name), json!(relies_on), json!(documented));
    let text = match result {
        CheckResult::AsExpected { seen } => format!("as-expected {name}: {seen}"),
        CheckResult::Differs { expected, seen } => format!(
            "differs {name}: expected {expected}; seen {seen}; the code relies on: {relies_on}; documented: {documented}"
        ),
        CheckResult::NotChecked { detail } => format!("not-checked {name}: {detail}"),
        CheckResult::NotModelled { detail } => format!("not-modelled {name}: {detail}"),
    };
    out.print(json, text)
}

fn print_not_seen(out: &mut Output<'_>) -> io::Result<()> {
    NOT_SEEN.iter().try_for_each(|what| out.print(json!({ "notSeen": what }), format!("not-seen {what}")))
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
        format!(
            "{as_expected} checks as expected, {different} different, {not_checked} could not be checked, {not_modelled} not modelled \
             by the local stack; {left_over} things could not be deleted"
        )
    }
}
