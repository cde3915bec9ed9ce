//! Your read models. Each projection has one file, always in the same order: row, change, followed aggregate types.
//!
//! The three projections that ship are examples to read first. [`orders_by_day`] is the smallest. [`orders_by_status`]
//! moves an order from one row to another. [`account_balances`] has a row for each account, and one that all accounts
//! change.
//!
//! To add a projection, write `src/<name>.rs` and add a line to [`projections`].

pub mod account_balances;
pub mod orders_by_day;
pub mod orders_by_status;

pub use account_balances::AccountBalances;
use daybook::projection::{ProjectionRegistrationError, Projections};
pub use orders_by_day::OrdersByDay;
pub use orders_by_status::OrdersByStatus;

/// Registers the projections that the functions serve.
///
/// # Errors
///
/// When a projection cannot be registered as it is, or contradicts another one. The test below then fails before you
/// deploy.
pub fn projections() -> Result<Projections, ProjectionRegistrationError> {
    Projections::new().with::<AccountBalances>()?.with::<OrdersByDay>()?.with::<OrdersByStatus>()
}

#[cfg(test)]
mod tests {
    #[test]
    fn registry_with_all_projections_is_valid() {
        super::projections().unwrap();
    }
}
