//! `daybook get`.

use clap::Args;
use daybook_operations::reads::{ReadResult, StackReads};
use daybook_operations::selection::AggregateName;
use serde::Deserialize;
use serde_json::Value;

use crate::operator::{Exit, OperatorError, Session};

/// Print the state of an aggregate, current or at an earlier version.
///
/// The command reads the table with your AWS credentials and folds the events with this build's aggregate code. With `--json`, it
/// prints the body that `GET /TYPE/ID` of the API returns. The aggregate types' rules about callers do not apply: an operator
/// who can read the table can read every aggregate.
#[derive(Clone, Debug, Args)]
pub struct GetArgs {
    /// The aggregate.
    #[arg(value_name = "TYPE/ID")]
    aggregate: AggregateName,
    /// The state after this many events. Default: the current state.
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// Fold the state from the first event, without the snapshot.
    #[arg(long)]
    rebuild: bool,
}

#[derive(Deserialize)]
struct StateBody {
    version: u64,
    state: Value,
}

pub(super) async fn run(args: GetArgs, Session { stack, mut out }: Session<'_>) -> Result<Exit, OperatorError> {
    let reads = StackReads::connect(&stack, &[]).await?;
    let AggregateName(key) = &args.aggregate;
    let version = args.version.map(|version| format!("&version={version}")).unwrap_or_default();
    match reads.get(&format!("/{key}?rebuild={}{version}", args.rebuild)).await? {
        ReadResult::Missing(problem) => {
            if out.as_json {
                out.print_text(&problem.body)?;
            }
            eprintln!("{key}: {}", problem.detail);
            Ok(Exit::Findings)
        }
        ReadResult::Found(body) => {
            if out.as_json {
                out.print_text(&body)?;
                return Ok(Exit::Clean);
            }
            let body: StateBody =
                serde_json::from_str(&body).map_err(|error| OperatorError::Read { cause: error.to_string() })?;
            out.print_text(&format!("{key} version {}\n{:#}", body.version, body.state))?;
            Ok(Exit::Clean)
        }
    }
}
