//! Captured log lines of the current thread. Each test has its own thread, so these are the lines of one test, even if
//! several run concurrently.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::Once;

use serde_json::Value;
use tracing::Level;

thread_local! {
    /// The lines since the thread last took them; `None` until it first takes them.
    static LINES: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

struct ThreadLines;

impl Write for ThreadLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.with_borrow_mut(|lines| lines.iter_mut().for_each(|lines| lines.extend_from_slice(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines of a crate, from `INFO` up, since this was last called on the thread. The first call only starts the capture.
/// `target` is the crate's name as Rust spells it: `daybook_event_store`.
pub fn take(target: &str) -> Vec<Value> {
    let mut lines = take_all();
    lines.retain(|line| line["target"].as_str().unwrap().split("::").next() == Some(target));
    lines
}

/// The lines of all crates, like [`take`].
pub fn take_all() -> Vec<Value> {
    static CAPTURE: Once = Once::new();
    CAPTURE.call_once(|| {
        let log = tracing_subscriber::fmt().json().flatten_event(true).with_max_level(Level::INFO);
        // One subscriber for the whole process: a call site caches for all threads whether a subscriber is interested.
        tracing::subscriber::set_global_default(log.with_writer(|| ThreadLines).finish()).unwrap();
        tracing::callsite::rebuild_interest_cache();
    });
    let written = LINES.replace(Some(Vec::new())).unwrap_or_default();
    let written = String::from_utf8(written).unwrap();
    written.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
