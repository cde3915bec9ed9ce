//! The `daybook` command.

use std::process::ExitCode;

use daybook_cli::Project;

fn main() -> ExitCode {
    daybook_cli::main(Project { aggregates: aggregates::registry, projections: projections::projections })
}
