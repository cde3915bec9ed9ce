//! Small projects, each also with a bug that the simulation must find.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod box_office;
mod doors;
mod errors;
mod fulfilments;
mod greetings;
mod holds;
mod refunds;
mod switches;

use daybook_simulation::Simulation;

/// Expects that one of 1,000 seeds fails, and that the text has these parts in this order. Returns the text.
#[track_caller]
fn find(simulation: &Simulation, expected: &[&str]) -> String {
    let report = simulation.first_failure(1_000).unwrap();
    let mut rest = report.as_str();
    for part in expected {
        rest = rest.split_once(part).unwrap_or_else(|| panic!("{part:?} is not where it is expected in\n{report}")).1;
    }
    report
}
