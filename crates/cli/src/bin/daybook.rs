//! The `daybook` command without aggregates, for `cargo install`: it creates and upgrades projects. The binary of a project has
//! the aggregates of the project.

use std::process::ExitCode;

use daybook_cli::Project;
use daybook_decider::Registry;
use daybook_projection::Projections;

fn main() -> ExitCode {
    let project = Project::new(|| Ok(Registry::new()), || Ok(Projections::new()));
    daybook_cli::main(project)
}
