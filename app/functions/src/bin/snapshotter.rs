//! The function that takes the snapshots of aggregates with many events.

use std::process::ExitCode;

fn main() -> ExitCode {
    daybook::snapshotter::run(aggregates::registry)
}
