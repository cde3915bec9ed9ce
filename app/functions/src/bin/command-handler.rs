//! The function behind the HTTP API: commands, and reads of states, events and views.

use std::process::ExitCode;

fn main() -> ExitCode {
    daybook::command_handler::run(aggregates::registry, projections::projections)
}
