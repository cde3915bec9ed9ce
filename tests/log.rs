//! What the package under test logs on a thread, hence for one test, however many run side by side. A module of the tests
//! of each package whose lines are tested.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::Once;

use serde_json::Value;

thread_local! {
    /// The lines since the thread last took them; nothing until it first does.
    static LINES: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

struct OfThread;

impl Write for OfThread {
    fn write(&mut self, some: &[u8]) -> io::Result<usize> {
        LINES.with_borrow_mut(|lines| lines.iter_mut().for_each(|lines| lines.extend_from_slice(some)));
        Ok(some.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines since this was last called on the thread. The first call only begins to listen.
pub(crate) fn take() -> Vec<Value> {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        let filter = format!("{}=info", env!("CARGO_PKG_NAME").replace('-', "_"));
        let log = tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter);
        // One for the process: the places that log remember whether anybody listens, and not on which thread.
        tracing::subscriber::set_global_default(log.with_writer(|| OfThread).finish()).unwrap();
        tracing::callsite::rebuild_interest_cache();
    });
    let written = LINES.replace(Some(Vec::new())).unwrap_or_default();
    String::from_utf8(written).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
