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

/// The method that is reported for code that serde calls.
const CONVERSION: &str = "a conversion from or to JSON";

thread_local! {
    /// The method that is in progress; `None` outside an aggregate's code.
    static METHOD: Cell<Option<&'static str>> = const { Cell::new(None) };
    /// The place of the last panic within an aggregate's code. Only a panic hook receives it.
    static LOCATION: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `call`, which calls an aggregate's code, and returns a panic in it as an error. `call` must own or discard
/// everything that it changes, because a panic may leave it half changed.
pub fn catch<T>(aggregate_type: &'static str, call: impl FnOnce() -> T) -> Result<T, AggregatePanic> {
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

/// Calls one method of an aggregate. A panic within it is reported with the name of the method.
pub fn calling<T>(method: &'static str, call: impl FnOnce() -> T) -> T {
    let outer = METHOD.replace(Some(method));
    let result = call();
    METHOD.set(outer);
    result
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a text").to_owned()
}

/// Adds a panic hook that records the places of panics in an aggregate's code instead of printing them. It passes all
/// other panics to the hook that was there before.
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
