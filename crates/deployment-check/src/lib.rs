//! Deploys a project, and tests in the user's account what this code relies on in AWS.
//!
//! Invariant: all rows that the checks write belong to aggregates of the type `__check`, which no aggregate can be
//! registered under; the checks delete at the end what they have created, and return the names of what they could not delete.
//!
//! In reading order:
//! - `check`: a check and its result. `checks`: all checks, by subject, and the assumptions that none of them covers.
//! - `deployment`: the stack that is checked, and what the checks have created, also a rule and a queue, with which they see the
//!   messages on the bus. `aws_calls`: calls to AWS as JSON.
//! - `deploy`: what `daybook deploy` does, and what it shows then, a command and its message.

mod aws_calls;
mod check;
mod checks;
mod deploy;
mod deployment;

use std::io;
use std::time::Duration;

use daybook_operations::{OperatorError, Stack};

pub use self::check::{Check, CheckResult};
pub use self::checks::NOT_SEEN;
pub use self::deploy::{FirstMessage, StackDeployment, first_message};
use self::deployment::Deployment;

/// The checks of these names, or all, without those to skip.
pub fn checks(only: &[String], skip: &[String]) -> Result<Vec<Check>, OperatorError> {
    let all = checks::all();
    let names: Vec<_> = all.iter().map(|check| check.name).collect();
    if let Some(unknown) = only.iter().chain(skip).find(|name| !names.contains(&name.as_str())) {
        return Err(OperatorError::Usage(format!("{unknown:?} is no check; the checks are {}", names.join(", "))));
    }
    let is_in = |names: &[String], check: &Check| names.iter().any(|name| name == check.name);
    Ok(all.into_iter().filter(|check| (only.is_empty() || is_in(only, check)) && !is_in(skip, check)).collect())
}

/// Runs the checks until the operator interrupts them, and reports the result of each. Returns what they have created and could
/// not delete.
pub async fn check_deployment(
    stack: &Stack,
    checks: &[Check],
    timeout: Duration,
    mut report: impl FnMut(&Check, &CheckResult) -> io::Result<()>,
) -> Result<Vec<String>, OperatorError> {
    let mut deployment = Deployment::connect(stack, timeout).await?;
    let mut reported = Ok(());
    for check in checks {
        if stack.interrupt.is_cancelled() || reported.is_err() {
            break;
        }
        // An interrupt ends a check that waits, but not the deletion of what it has created.
        let Some(result) = stack.interrupt.run_until_cancelled((check.run)(&mut deployment)).await else { break };
        let result = result.unwrap_or_else(|error| CheckResult::not_checked(&error, deployment.stack.is_local()));
        reported = report(check, &result);
    }
    let left_over = deployment.clean_up().await;
    reported?;
    Ok(left_over)
}
