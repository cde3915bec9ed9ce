//! The function that sends aggregates the commands of their deadlines that are due.

use std::process::ExitCode;

fn main() -> ExitCode {
    daybook::reactor::run(aggregates::registry)
}
