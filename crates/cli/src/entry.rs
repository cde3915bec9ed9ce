//! The entry of the `daybook` command.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use daybook_local_stack::Project;
use tokio::runtime::Runtime;

use crate::commands::DaybookArgs;
use crate::logs;

/// How long the end of the process waits for connections and files to be closed.
const CLOSING: Duration = Duration::from_millis(500);

/// Runs the command that the command line names, on the aggregates and the projections of this project.
pub fn main(project: Project) -> ExitCode {
    let args = DaybookArgs::parse();
    let exporter = logs::start(args.collector()).map_err(|error| error.to_string());
    let started = exporter.and_then(|exporter| Ok((exporter, Runtime::new().map_err(|error| error.to_string())?)));
    let (exporter, runtime) = match started {
        Ok(started) => started,
        Err(error) => {
            eprintln!("daybook: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let exit = match runtime.block_on(logs::run_exporting(exporter, args.run(project))) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("daybook: {}", daybook_function_runtime::with_causes(&error));
            error.exit_code()
        }
    };
    // Ends connections whose clients never finish, and then closes the data file.
    runtime.shutdown_timeout(CLOSING);
    exit
}
