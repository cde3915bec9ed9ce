//! All checks, by subject, in the order in which they run. The alarms come first: the dead-letter check raises one.

mod alarms;
mod bus;
mod delivery;
mod mappings;
mod table;
mod transactions;

use super::check::Check;

/// All checks.
pub(super) fn all() -> Vec<Check> {
    let groups = [alarms::checks(), mappings::checks(), transactions::checks(), table::checks(), bus::checks()];
    groups.into_iter().flatten().chain(delivery::checks()).collect()
}
