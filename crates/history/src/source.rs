//! Reads a history file.
//!
//! The whole file is read once before anything of it is used: its lines, its summary and its digest are checked, and the
//! position of each aggregate's lines is remembered. The lines themselves are read again when they are needed, so the
//! memory does not grow with the events of a file whose aggregates stay together.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::slice;

use daybook_table::AggregateKey;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::line::{EventLine, HistorySummary, IncompleteLine, Line, hex};

/// Maximum bytes of a line: an item of the table holds 400 KB, and the text of a line may be longer by escapes.
const MAX_LINE: u64 = 4 * 1024 * 1024;

pub const MAX_ERRORS: usize = 100;

#[derive(Debug)]
pub struct HistoryFile {
    path: PathBuf,
    /// The copy of standard input, deleted at the end.
    _copy: Option<NamedTempFile>,
    /// The aggregates, in the order of their first lines.
    pub aggregates: Vec<AggregateLines>,
    pub incomplete: Vec<IncompleteLine>,
    /// How to export the remaining aggregates, if the export stopped early.
    pub go_on: Option<String>,
}

#[derive(Debug)]
pub struct AggregateLines {
    pub key: AggregateKey,
    pub events: u64,
    runs: Vec<LineRun>,
}

impl AggregateLines {
    pub fn first_line(&self) -> u64 {
        self.runs.first().map_or(0, |run| run.first_line)
    }
}

#[derive(Debug)]
struct LineRun {
    offset: u64,
    first_line: u64,
    lines: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct LineError {
    pub line: u64,
    /// What is wrong, and what to do.
    pub reason: String,
}

#[derive(Debug)]
pub enum HistoryError {
    Io(io::Error),
    Lines(Vec<LineError>),
    Interrupted,
}

impl From<io::Error> for HistoryError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl HistoryFile {
    /// Reads a file, or standard input for `-`, until `stop` returns true.
    pub fn open(name: &str, stop: impl Fn() -> bool) -> Result<Self, HistoryError> {
        if name == "-" {
            return Self::copy(io::stdin().lock(), stop);
        }
        let file = File::open(name)?;
        if !file.metadata()?.is_file() {
            return Self::copy(file, stop);
        }
        let index = Index::read(&mut BufReader::new(file), &mut io::sink(), stop)?;
        index.finish(PathBuf::from(name), None)
    }

    /// Reads an input that can be read only once.
    fn copy(input: impl Read, stop: impl Fn() -> bool) -> Result<Self, HistoryError> {
        let mut copy = NamedTempFile::new()?;
        let mut writing = io::BufWriter::new(&mut copy);
        let index = Index::read(&mut BufReader::new(input), &mut writing, stop)?;
        writing.flush()?;
        drop(writing);
        index.finish(copy.path().to_owned(), Some(copy))
    }

    /// The events of an aggregate, each with the number of its line.
    pub fn lines<'a>(&self, aggregate: &'a AggregateLines) -> io::Result<EventLines<'a>> {
        let file = BufReader::new(File::open(&self.path)?);
        Ok(EventLines { file, key: &aggregate.key, runs: aggregate.runs.iter(), line: 0, left: 0 })
    }
}

pub struct EventLines<'a> {
    file: BufReader<File>,
    key: &'a AggregateKey,
    runs: slice::Iter<'a, LineRun>,
    line: u64,
    /// The lines that are left of the run.
    left: u64,
}

impl Iterator for EventLines<'_> {
    type Item = Result<(u64, EventLine), LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut offset = None;
        if self.left == 0 {
            let run = self.runs.next()?;
            (self.line, self.left, offset) = (run.first_line, run.lines, Some(run.offset));
        }
        let line = self.line;
        self.line += 1;
        self.left -= 1;
        let read = self.read(offset).and_then(|event| {
            let event = event.filter(|event| event.key == *self.key);
            event.ok_or_else(|| io::Error::other("the file has changed since the import began; begin again"))
        });
        Some(read.map(|event| (line, event)).map_err(|error| LineError { line, reason: error.to_string() }))
    }
}

impl EventLines<'_> {
    fn read(&mut self, offset: Option<u64>) -> io::Result<Option<EventLine>> {
        if let Some(offset) = offset {
            self.file.seek(SeekFrom::Start(offset))?;
        }
        let mut text = String::new();
        self.file.by_ref().take(MAX_LINE).read_line(&mut text)?;
        Ok(match Line::parse(&text) {
            Ok(Line::Event(event)) => Some(*event),
            Ok(Line::Header | Line::Incomplete(_) | Line::Summary(_)) | Err(_) => None,
        })
    }
}

/// The result of the first reading, in progress.
#[derive(Default)]
struct Index {
    aggregates: Vec<AggregateLines>,
    positions: HashMap<AggregateKey, usize>,
    incomplete: Vec<IncompleteLine>,
    events: u64,
    has_header: bool,
    summary: Option<HistorySummary>,
    hash: Sha256,
    errors: Vec<LineError>,
    /// The bytes and the lines that have been read.
    offset: u64,
    line: u64,
    /// The aggregate of the line before, if it was an event.
    last: Option<usize>,
}

impl Index {
    fn read(input: &mut impl BufRead, copy: &mut impl Write, stop: impl Fn() -> bool) -> Result<Self, HistoryError> {
        let mut this = Self::default();
        let mut bytes = Vec::new();
        while input.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes)? > 0 {
            if stop() {
                return Err(HistoryError::Interrupted);
            }
            copy.write_all(&bytes)?;
            this.line += 1;
            this.add(&bytes);
            if this.errors.len() >= MAX_ERRORS {
                break;
            }
            this.offset += bytes.len() as u64;
            bytes.clear();
        }
        if this.has_header && this.summary.is_none() && this.errors.len() < MAX_ERRORS {
            this.error("the file ends here without a summary, so it is truncated: export it again");
        }
        Ok(this)
    }

    fn add(&mut self, bytes: &[u8]) {
        let text = match str::from_utf8(bytes) {
            _ if bytes.len() as u64 == MAX_LINE => return self.error(format!("it is longer than {MAX_LINE} bytes")),
            Ok(text) => text,
            Err(error) => return self.error(format!("it is not UTF-8: {error}")),
        };
        let last = self.last.take();
        if text.trim().is_empty() {
            self.hash.update(bytes);
            return;
        }
        match Line::parse(text) {
            Err(reason) => self.error(reason),
            Ok(_) if self.summary.is_some() => self.error("it follows the summary, which is the last line of a file"),
            Ok(Line::Header) if self.line == 1 => self.has_header = true,
            Ok(Line::Header) => self.error("another file begins here: import the files one after the other"),
            Ok(Line::Event(event)) => self.event(*event, last),
            Ok(Line::Incomplete(incomplete)) => self.incomplete.push(incomplete),
            Ok(Line::Summary(summary)) => return self.summary(summary),
        }
        self.hash.update(bytes);
    }

    fn event(&mut self, event: EventLine, last: Option<usize>) {
        self.events += 1;
        let position = *self.positions.entry(event.key.clone()).or_insert(self.aggregates.len());
        if position == self.aggregates.len() {
            self.aggregates.push(AggregateLines { key: event.key, events: 0, runs: Vec::new() });
        }
        let aggregate = &mut self.aggregates[position];
        aggregate.events += 1;
        match aggregate.runs.last_mut().filter(|_| last == Some(position)) {
            Some(run) => run.lines += 1,
            None => aggregate.runs.push(LineRun { offset: self.offset, first_line: self.line, lines: 1 }),
        }
        self.last = Some(position);
    }

    fn summary(&mut self, summary: HistorySummary) {
        let found = (self.events, self.incomplete.len() as u64);
        let expected = (summary.events, summary.incomplete);
        let sha256 = hex(&self.hash.clone().finalize());
        if found != expected {
            let ((events, incomplete), (of_events, of_incomplete)) = (found, expected);
            self.error(format!(
                "the summary counts {of_events} events and {of_incomplete} incomplete aggregates, the file has {events} and \
                 {incomplete}: export it again"
            ));
        } else if sha256 != summary.sha256 {
            let expected = &summary.sha256;
            self.error(format!(
                "the file was changed after its export (SHA-256 {sha256}, expected {expected}): export it again"
            ));
        }
        self.summary = Some(summary);
    }

    fn error(&mut self, reason: impl Into<String>) {
        self.errors.push(LineError { line: self.line, reason: reason.into() });
    }

    fn finish(mut self, path: PathBuf, copy: Option<NamedTempFile>) -> Result<HistoryFile, HistoryError> {
        if !self.errors.is_empty() {
            return Err(HistoryError::Lines(self.errors));
        }
        let incomplete: HashSet<_> = self.incomplete.iter().map(IncompleteLine::key).collect();
        self.aggregates.retain(|aggregate| !incomplete.contains(&aggregate.key));
        Ok(HistoryFile {
            path,
            _copy: copy,
            aggregates: self.aggregates,
            incomplete: self.incomplete,
            go_on: self.summary.and_then(|summary| summary.go_on),
        })
    }
}
