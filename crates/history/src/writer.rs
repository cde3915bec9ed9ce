//! Writes a history file.

use std::io::{self, Write};

use daybook_decider::RecordedEvent;
use daybook_table::AggregateKey;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::line::{EventOut, FORMAT_VERSION, HeaderOut, HistorySummary, IncompleteLine, IncompleteOut, SummaryOut};

pub struct HistoryWriter<W> {
    out: W,
    hash: Sha256,
    /// The summary so far, without the hash.
    summary: HistorySummary,
}

impl<W: Write> HistoryWriter<W> {
    pub fn begin(out: W) -> io::Result<Self> {
        let mut this = Self { out, hash: Sha256::new(), summary: HistorySummary::default() };
        this.write(&HeaderOut { daybook_history: FORMAT_VERSION })?;
        Ok(this)
    }

    pub fn event(&mut self, key: &AggregateKey, event: &RecordedEvent) -> io::Result<()> {
        self.summary.events += 1;
        self.write(&EventOut::new(key, event))
    }

    /// The number of aggregates that have been written with all their events.
    pub fn aggregates(&self) -> u64 {
        self.summary.aggregates
    }

    /// Ends an aggregate with all its events.
    pub fn complete(&mut self) {
        self.summary.aggregates += 1;
    }

    /// Ends an aggregate of which not all events could be read.
    pub fn incomplete(&mut self, incomplete: &IncompleteLine) -> io::Result<()> {
        self.summary.incomplete += 1;
        self.write(&IncompleteOut { incomplete })
    }

    /// Ends the file with its summary. `go_on` describes how to export the remaining aggregates.
    pub fn finish(mut self, go_on: Option<String>) -> io::Result<(W, HistorySummary)> {
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
        self.out.write_all(text.as_bytes())
    }
}

/// The bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
