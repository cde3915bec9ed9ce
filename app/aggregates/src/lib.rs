//! Your code: one file for each aggregate, always in the same order: state, commands, events, messages, rules.
//!
//! The aggregates that ship are examples to read first. [`mod@todo`] is the smallest. [`account`] has rules, recorded
//! rejections and messages of its own. [`order`] has a life cycle, and events whose stored form has changed. [`customer`] has a
//! unique value. [`reservation`] expires at a time. [`subscription`] decides over several aggregates: [`course`] and [`student`].
//! [`fulfilment`] is a process: it leads an order to its [`payment`] and its [`shipment`].
//!
//! To add an aggregate, write `src/<name>.rs`, add a line to [`registry`], and run `GOLDEN=write cargo test -p aggregates golden_files`,
//! which adds examples of its events and states to `golden`: a test then protects their stored form. `docs/evolving-events.md`
//! describes how to change an aggregate that is in use.

pub mod account;
pub mod course;
pub mod customer;
pub mod fulfilment;
pub mod order;
pub mod payment;
pub mod reservation;
pub mod shipment;
pub mod student;
pub mod subscription;
pub mod todo;

pub use account::Account;
pub use course::Course;
pub use customer::Customer;
use daybook::{RegistrationError, Registry};
pub use fulfilment::Fulfilment;
pub use order::Order;
pub use payment::Payment;
pub use reservation::Reservation;
pub use shipment::Shipment;
pub use student::Student;
pub use subscription::Subscription;
pub use todo::Todo;

/// Registers the aggregates that the functions serve.
///
/// # Errors
///
/// Returns an error if an aggregate contradicts itself or another one; the test below fails before you deploy.
pub fn registry() -> Result<Registry, RegistrationError> {
    let registry = Registry::new().with::<Account>()?.with::<Customer>()?.with::<Order>()?.with::<Todo>()?;
    let registry = registry.with::<Reservation>()?.with::<Course>()?.with::<Student>()?.with::<Subscription>()?;
    let registry = registry.with::<Payment>()?.with::<Shipment>()?.with::<Fulfilment>()?;
    Ok(registry)
}

#[cfg(test)]
mod tests {
    #[test]
    fn registry_with_all_aggregates_is_valid() {
        super::registry().unwrap();
    }
}
