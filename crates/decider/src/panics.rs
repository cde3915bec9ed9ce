//! The boundary around an aggregate's own code: a panic there becomes an error, so that it fails one call and not the
//! whole process.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// A panic in an aggregate's code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{method} of {aggregate_type} panicked at {location}: {message}")]
pub struct AggregatePanic {
    /// The type of the aggregate.
    pub aggregate_type: &'static str,
    /// The method of [`Aggregate`](crate::Aggregate), or the conversion that was in progress.
    pub method: &'static str,
    /// The text of the panic.
    pub message: String,
    /// File, line and column.
    pub location: String,
}

/// The method of code that serde calls.
pub(crate) const CONVERSION: &str = "a conversion from or to JSON";

thread_local! {
    /// The method that is in progress; `None` outside an aggregate's code.
    static METHOD: Cell<Option<&'static str>> = const { Cell::new(None) };
    /// The place of the last panic within an aggregate's code. Only a panic hook gets to know it.
    static LOCATION: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Calls code that calls an aggregate's. `call` must own or discard everything that it changes, because a panic may leave
/// that half changed.
pub(crate) fn catch<T>(aggregate_type: &'static str, call: impl FnOnce() -> T) -> Result<T, AggregatePanic> {
    record_locations();
    let outer = METHOD.replace(Some(CONVERSION));
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    let method = METHOD.replace(outer).unwrap_or(CONVERSION);
    result.map_err(|payload| AggregatePanic {
        aggregate_type,
        method,
        message: message(payload.as_ref()),
        location: LOCATION.take(),
    })
}

/// Calls one method of an aggregate, whose name a panic within it then has.
pub(crate) fn calling<T>(method: &'static str, call: impl FnOnce() -> T) -> T {
    let outer = METHOD.replace(Some(method));
    let result = call();
    METHOD.set(outer);
    result
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a text").to_owned()
}

/// Adds a panic hook that records the places of panics in an aggregate's code instead of printing them. All other panics
/// go to the hook before it.
fn record_locations() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let other = panic::take_hook();
        panic::set_hook(Box::new(move |info| match METHOD.get() {
            Some(_) => LOCATION.set(info.location().map(ToString::to_string).unwrap_or_default()),
            None => other(info),
        }));
    });
}
