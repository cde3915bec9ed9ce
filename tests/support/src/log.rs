//! Captured log lines of the current thread. Each test has its own thread, so these are the lines of one test, even if
//! several run concurrently.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::sync::Once;

use serde_json::Value;
use tracing::Level;
use tracing::subscriber::Interest;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;

thread_local! {
    /// The lines since the thread last took them; `None` until it first takes them.
    static LINES: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    /// Whether the lines of `DEBUG` of this workspace are captured too, and its spans.
    static IS_EVERYTHING: Cell<bool> = const { Cell::new(false) };
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
    install();
    let written = LINES.replace(Some(Vec::new())).unwrap_or_default();
    let written = String::from_utf8(written).unwrap();
    let mut lines: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in lines.iter_mut().filter_map(Value::as_object_mut) {
        line.retain(|name, _| name != "span" && name != "spans");
    }
    lines
}

/// Installs the capture in this process. Until a thread takes its lines, it captures none.
pub fn install() {
    static CAPTURE: Once = Once::new();
    CAPTURE.call_once(|| {
        let log = tracing_subscriber::fmt().json().flatten_event(true).with_max_level(Level::DEBUG);
        let log = log.with_span_events(FmtSpan::CLOSE).with_writer(|| ThreadLines).finish();
        let of_thread = dynamic_filter_fn(|metadata, _| {
            (*metadata.level() <= Level::INFO || IS_EVERYTHING.get()) && LINES.with_borrow(Option::is_some)
        });
        let log = log.with(of_thread.with_callsite_filter(|metadata| {
            let is_written = *metadata.level() <= Level::INFO || metadata.target().starts_with("daybook");
            if is_written { Interest::sometimes() } else { Interest::never() }
        }));
        // One subscriber for the whole process: a call site caches for all threads whether a subscriber is interested.
        tracing::subscriber::set_global_default(log).unwrap();
        tracing::callsite::rebuild_interest_cache();
    });
}

/// Begins a capture of all lines, also those of `DEBUG` of this workspace, and of its spans with their fields.
pub fn capture_everything() {
    take_all();
    IS_EVERYTHING.set(true);
}

/// The text since [`capture_everything`]. The capture ends.
pub fn take_everything() -> String {
    IS_EVERYTHING.set(false);
    String::from_utf8(LINES.take().unwrap_or_default()).unwrap()
}
