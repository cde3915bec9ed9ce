//! `daybook deploy`: deploys the stack of this project, and shows its first message.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use daybook_deployment_check::{FirstMessage, StackDeployment, first_message};

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

pub(super) async fn run(args: DeployArgs, Session { mut stack, mut out }: Session<'_>) -> Ended {
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
