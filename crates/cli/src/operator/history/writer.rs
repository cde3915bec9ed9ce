//! Writes a history file.

use std::io::{self, Write};

use daybook_decider::RecordedEvent;
use daybook_table::AggregateKey;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::line::{EventOut, FORMAT_VERSION, HeaderOut, HistorySummary, IncompleteLine, IncompleteOut, SummaryOut};

/// A file in progress.
pub(crate) struct HistoryWriter<W> {
    out: W,
    hash: Sha256,
    /// The summary so far, without the hash.
    summary: HistorySummary,
    bytes: u64,
}

impl<W: Write> HistoryWriter<W> {
    /// Begins a file.
    pub(crate) fn begin(out: W) -> io::Result<Self> {
        let mut this = Self { out, hash: Sha256::new(), summary: HistorySummary::default(), bytes: 0 };
        this.write(&HeaderOut { daybook_history: FORMAT_VERSION })?;
        Ok(this)
    }

    /// Continues a file of which `written` exists, with this summary so far.
    pub(crate) fn resume(out: W, mut written: impl io::Read, summary: HistorySummary) -> io::Result<Self> {
        let mut this = Self { out, hash: Sha256::new(), summary, bytes: 0 };
        let mut some = vec![0; 64 * 1024];
        loop {
            let read = written.read(&mut some)?;
            if read == 0 {
                return Ok(this);
            }
            this.hash.update(&some[..read]);
            this.bytes += read as u64;
        }
    }

    /// Writes an event.
    pub(crate) fn event(&mut self, key: &AggregateKey, event: &RecordedEvent) -> io::Result<()> {
        self.summary.events += 1;
        self.write(&EventOut::new(key, event))
    }

    /// The number of aggregates that have been written with all their events.
    pub(crate) fn aggregates(&self) -> u64 {
        self.summary.aggregates
    }

    /// Ends an aggregate with all its events.
    pub(crate) fn complete(&mut self) {
        self.summary.aggregates += 1;
    }

    /// Ends an aggregate of which not all events could be read.
    pub(crate) fn incomplete(&mut self, incomplete: &IncompleteLine) -> io::Result<()> {
        self.summary.incomplete += 1;
        self.write(&IncompleteOut { incomplete })
    }

    /// Passes all lines on. Returns the number of their bytes, with the summary so far.
    pub(crate) fn flush(&mut self) -> io::Result<(u64, HistorySummary)> {
        self.out.flush()?;
        Ok((self.bytes, self.summary.clone()))
    }

    /// Ends the file with its summary. `go_on` describes how to export the remaining aggregates.
    pub(crate) fn finish(mut self, go_on: Option<String>) -> io::Result<(W, HistorySummary)> {
        let sha256 = hex(&self.hash.clone().finalize());
        let summary = HistorySummary { sha256, go_on, ..self.summary.clone() };
        self.write(&SummaryOut { summary: &summary })?;
        self.out.flush()?;
        Ok((self.out, summary))
    }

    fn write(&mut self, line: &impl Serialize) -> io::Result<()> {
        // Within stored JSON, a line break can only be insignificant white space.
        let mut text = serde_json::to_string(line)?.replace(['\n', '\r'], " ");
        text.push('\n');
        self.hash.update(text.as_bytes());
        self.bytes += text.len() as u64;
        self.out.write_all(text.as_bytes())
    }
}

/// The bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
