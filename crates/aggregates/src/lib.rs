//! Your code: one file an aggregate, each in the same order: state, commands, events, messages, then the rules.
//!
//! The three that ship are examples to read first: [`mod@todo`] is the smallest, [`account`] has rules, recorded rejections
//! and messages of its own, [`order`] has a life cycle, and events that have changed over the years.
//!
//! To add one, write `src/<name>.rs` and add a line to [`registry`]. Before it is deployed, pin what it stores: an example
//! of each of its events in `golden/<type>.json`. `docs/evolving-events.md`
//! explains how to change what has been deployed.

pub mod account;
pub mod order;
pub mod todo;

pub use account::Account;
use daybook_decider::{RegistrationError, Registry};
pub use order::Order;
pub use todo::Todo;

/// The aggregates that the suite serves.
///
/// # Errors
///
/// When one of them does not fit with the others or with itself; the test below fails before you deploy.
pub fn registry() -> Result<Registry, RegistrationError> {
    let registry = Registry::new().with::<Account>()?.with::<Order>()?.with::<Todo>()?;
    Ok(registry)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_aggregate_can_be_registered() {
        super::registry().unwrap();
    }
}
