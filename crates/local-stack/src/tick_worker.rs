//! The schedule of the reactor: invokes it each minute, and after each move of the clock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::functions::Function;

const TICK: &str = r#"{"tick":true}"#;
const EACH: Duration = Duration::from_mins(1);

/// Invokes the reactor once a minute and whenever `moved` is notified, after a move of the clock, until the stack stops. A failed
/// invocation is not retried: its error is logged, and the next tick does its work.
pub(crate) async fn run(reactor: Function, timeout: Duration, moved: Arc<Notify>, stop: CancellationToken) {
    loop {
        tokio::select! {
            _ = reactor.invoke(TICK.to_owned(), timeout, None) => {}
            () = stop.cancelled() => return,
        }
        tokio::select! {
            () = sleep(EACH) => {}
            () = moved.notified() => {}
            () = stop.cancelled() => return,
        }
    }
}
