//! The `daybook` command: the local stack and the operator commands, over your aggregates and projections.

use std::process::ExitCode;

use daybook_cli::Project;

fn main() -> ExitCode {
    let project = Project::new(aggregates::registry, projections::projections);
    daybook_cli::main(project)
}
