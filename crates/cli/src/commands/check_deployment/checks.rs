//! All checks, by subject, in the order in which they run. The alarms come first: the dead-letter check raises one.

mod alarms;
mod bus;
mod delivery;
mod mappings;
mod table;
mod table_settings;
mod transactions;

use super::check::Check;

/// All checks.
pub(super) fn all() -> Vec<Check> {
    let groups = [
        alarms::checks(),
        mappings::checks(),
        table_settings::checks(),
        transactions::checks(),
        table::checks(),
        bus::checks(),
        delivery::checks(),
    ];
    groups.into_iter().flatten().collect()
}
