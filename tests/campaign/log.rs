//! The log of a schedule.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::clock::Clock;

/// Violations, the number of occurrences of each kind, and, on request, a line for everything that happened.
#[derive(Debug)]
pub(crate) struct Log {
    clock: Clock,
    verbose: bool,
    state: Mutex<LogContents>,
}

/// The content of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogContents {
    /// Broken guarantees.
    pub(crate) violations: Vec<String>,
    /// The number of occurrences of each kind.
    pub(crate) counts: BTreeMap<String, u64>,
    /// A line for everything that happened; empty unless requested.
    pub(crate) lines: Vec<String>,
}

impl LogContents {
    /// Adds what happened afterwards.
    pub(crate) fn append(&mut self, later: Self) {
        self.violations.extend(later.violations);
        self.lines.extend(later.lines);
        for (kind, times) in later.counts {
            *self.counts.entry(kind).or_default() += times;
        }
    }
}

impl Log {
    pub(crate) fn new(clock: Clock, verbose: bool) -> Self {
        Self { clock, verbose, state: Mutex::default() }
    }

    /// Adds a line.
    pub(crate) fn line(&self, line: impl FnOnce() -> String) {
        if self.verbose {
            let line = format!("{:>10.3} {}", self.clock.passed().as_secs_f64(), line());
            self.state.lock().unwrap().lines.push(line);
        }
    }

    /// Counts an occurrence of this kind.
    pub(crate) fn count(&self, kind: &str) {
        self.count_times(kind, 1);
    }

    /// Counts this number of occurrences. A kind that occurs zero times does not occur.
    pub(crate) fn count_times(&self, kind: &str, times: u64) {
        if times == 0 {
            return;
        }
        let mut state = self.state.lock().unwrap();
        match state.counts.get_mut(kind) {
            Some(count) => *count += times,
            None => drop(state.counts.insert(kind.to_owned(), times)),
        }
    }

    /// Reports a broken guarantee.
    pub(crate) fn violation(&self, what: impl Into<String>) {
        let what = what.into();
        self.line(|| format!("VIOLATION {what}"));
        self.state.lock().unwrap().violations.push(what);
    }

    /// Reports a [`violation`](Self::violation) unless a condition holds.
    pub(crate) fn expect(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violation(what());
        }
    }

    pub(crate) fn contents(&self) -> LogContents {
        self.state.lock().unwrap().clone()
    }
}

#[test]
fn kind_without_occurrences_is_not_counted() {
    crate::clock::in_virtual_time(async {
        let log = Log::new(Clock::start(), false);
        log.count_times("never", 0);
        log.count_times("twice", 2);
        assert_eq!(log.contents().counts, BTreeMap::from([("twice".to_owned(), 2)]));
    });
}
