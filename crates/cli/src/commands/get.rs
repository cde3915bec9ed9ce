//! `daybook get`.

use std::io::Write;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use crate::operator::selection::AggregateName;
use crate::operator::stack_reads::{ReadResult, StackReads};
use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Exit, OperatorContext, OperatorError};

/// Print the state of an aggregate, current or at an earlier version.
///
/// The command reads the table with your AWS credentials and folds the events with this build's aggregate code. With `--json`, it
/// prints the body that `GET /TYPE/ID` of the API returns. The aggregate types' rules about callers do not apply: an operator
/// who can read the table can read every aggregate.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct GetArgs {
    /// The aggregate.
    #[arg(value_name = "TYPE/ID")]
    pub aggregate: AggregateName,
    /// The state after this many events. Default: the current state.
    #[arg(long, value_name = "N")]
    pub version: Option<u64>,
    /// Fold the state from the first event, without the snapshot.
    #[arg(long)]
    pub rebuild: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

#[derive(Deserialize)]
struct StateBody {
    version: u64,
    state: Value,
}

/// Prints the state.
pub(super) async fn run(args: GetArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let reads = StackReads::connect(&args.stack, &[], context).await?;
    let AggregateName(key) = &args.aggregate;
    let version = args.version.map(|version| format!("&version={version}")).unwrap_or_default();
    match reads.get(&format!("/{key}?rebuild={}{version}", args.rebuild)).await? {
        ReadResult::Missing(problem) => {
            if args.json {
                writeln!(context.out, "{}", problem.body)?;
            }
            eprintln!("{key}: {}", problem.detail);
            Ok(Exit::Findings)
        }
        ReadResult::Found(body) if args.json => {
            writeln!(context.out, "{body}")?;
            Ok(Exit::Clean)
        }
        ReadResult::Found(body) => {
            let body: StateBody =
                serde_json::from_str(&body).map_err(|error| OperatorError::Read { cause: error.to_string() })?;
            writeln!(context.out, "{key} version {}\n{:#}", body.version, body.state)?;
            Ok(Exit::Clean)
        }
    }
}
