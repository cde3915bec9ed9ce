//! The schedule of the reactor: invokes it each minute, and after each move of the clock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::functions::Function;

const TICK: &str = r#"{"tick":true}"#;
const EACH: Duration = Duration::from_mins(1);

pub(crate) struct TickWorker {
    pub(crate) reactor: Function,
    pub(crate) timeout: Duration,
    /// Is notified when the clock was moved.
    pub(crate) moved: Arc<Notify>,
    pub(crate) stop: CancellationToken,
}

impl TickWorker {
    /// Invokes the reactor until the stack stops. The function logs why an invocation has failed; the next one does the same.
    pub(crate) async fn run(self) {
        loop {
            tokio::select! {
                _ = self.reactor.invoke(TICK.to_owned(), self.timeout, None) => {}
                () = self.stop.cancelled() => return,
            }
            tokio::select! {
                () = sleep(EACH) => {}
                () = self.moved.notified() => {}
                () = self.stop.cancelled() => return,
            }
        }
    }
}
