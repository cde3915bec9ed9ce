//! The function that folds new events into the rows of views.

use std::process::ExitCode;

fn main() -> ExitCode {
    daybook::projector::run(projections::projections)
}
