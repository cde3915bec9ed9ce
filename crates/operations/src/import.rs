//! Writes the events of a history file into the table.
//!
//! Invariants:
//! - Nothing is written before all lines of the file are checked.
//! - An aggregate in the table is always a prefix of its history, with the metadata, the index and, if they are published,
//!   the messages of an aggregate that commands have written.
//! - An aggregate that contradicts the file stays as it is, and is reported.

use std::cell::Cell;
use std::io;
use std::num::{NonZeroU32, NonZeroUsize};
use std::pin::pin;

use clap::Args;
pub use daybook_admin::{ImportFailure, ImportOutcome, Imported};
use daybook_admin::{ImportWrite, Importer};
use daybook_table::AggregateKey;
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use serde::Serialize;

use crate::error::OperatorError;
use crate::history::source::{HistoryError, HistoryFile, LineError, MAX_ERRORS};
use crate::pacing::{Interrupt, Pacer};
use crate::selection::{check_shards, unregistered};
use crate::stack::{SETTINGS_TO_IMPORT, SETTINGS_TO_IMPORT_MESSAGES, Stack};

/// Write the events of a history file into the table, with their numbers, times, ids and data.
///
/// FILE is a file of `daybook export`, or the history of another system as lines of JSON; `-` is standard input. A line needs
/// aggregateType, aggregateId, eventType and data: {"aggregateType":"todo","aggregateId":"1","eventType":"TodoCreated",
/// "data":{…},"occurredAt":"2026-11-21T10:00:00.123Z"}. docs/operating.md describes all members.
///
/// A dry run by default: it checks the file and compares it with the table. `--yes` writes the events. Nothing is written if a
/// line is wrong or if the code cannot read an event. An aggregate that contradicts the file is reported and left as it
/// is. Afterwards every event is read back and compared, and the rows are checked as by `daybook verify`.
///
/// A run that was ended, even by a crash, can be repeated: it compares the events that are in the table and writes the
/// others. The stream functions see imported events: snapshots are taken, and messages are sent with `--publish`. Readers
/// of feeds who are past the times of the events do not see them.
#[derive(Clone, Debug, Args)]
pub struct ImportOptions {
    /// The file, or `-` for standard input.
    pub file: String,
    /// Publish the messages of the events, as if the events had just been appended.
    #[arg(long, required_unless_present = "no_publish", conflicts_with = "no_publish")]
    pub publish: bool,
    /// Publish no messages: consumers have received them already, or must not receive them.
    #[arg(long)]
    pub no_publish: bool,
    /// Write the events; without this option, the command is a dry run.
    #[arg(long)]
    pub yes: bool,
    /// Maximum transactions per second, each of up to 100 rows and 4 MB.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
    /// Maximum aggregates processed concurrently.
    #[arg(long, value_name = "N", default_value = "8")]
    pub concurrency: NonZeroUsize,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportCounts {
    pub dry_run: bool,
    pub aggregates: u64,
    pub imported: u64,
    /// Aggregates whose events were all in the table.
    pub equal: u64,
    pub different: u64,
    pub failed: u64,
    /// Aggregates that the export could not read.
    pub skipped: u64,
    pub events: u64,
    pub messages: u64,
}

#[derive(Debug)]
pub enum ImportEnd {
    /// Lines of the file are wrong, and nothing was written.
    WrongLines(Vec<LineError>),
    /// It was interrupted before anything was written.
    NothingWritten,
    /// With how to go on if it was interrupted, and how to export what the file does not contain if its export stopped early.
    Done { counts: ImportCounts, how_to_go_on: Option<&'static str>, file_goes_on: Option<String> },
}

/// Imports the file, and reports what happened to each aggregate, with the number of its events in the file.
pub async fn import(
    stack: &Stack,
    options: &ImportOptions,
    report: impl FnMut(&AggregateKey, u64, &ImportOutcome) -> io::Result<()>,
) -> Result<ImportEnd, OperatorError> {
    let required = if options.publish { SETTINGS_TO_IMPORT_MESSAGES } else { SETTINGS_TO_IMPORT };
    let store = stack.store(required).await?;
    check_shards(&store, &stack.first_events()).await?;
    let file = match HistoryFile::open(&options.file, || stack.interrupt.is_cancelled()) {
        Ok(file) => file,
        Err(HistoryError::Interrupted) => return Ok(ImportEnd::NothingWritten),
        Err(HistoryError::Lines(errors)) => return Ok(ImportEnd::WrongLines(errors)),
        Err(HistoryError::Io(source)) => {
            return Err(OperatorError::File { doing: format!("cannot read {}", options.file), source });
        }
    };
    // Ctrl-C does not end it: an aggregate that has begun is finished.
    let pacer = Pacer::new(options.rate, Interrupt::new());
    let importer = Importer {
        store,
        file: &file,
        options: ImportWrite { publish: options.publish, now: Timestamp::now() },
        writes: options.yes,
        turn: async || {
            pacer.turn().await;
        },
    };
    let mut errors = Vec::new();
    for aggregate in &file.aggregates {
        if stack.interrupt.is_cancelled() {
            return Ok(ImportEnd::NothingWritten);
        }
        let name = &aggregate.key.aggregate_type;
        let checked = match stack.registry.get(name) {
            Some(model) => importer.check(model, aggregate).await,
            None => Err(LineError { line: aggregate.first_line(), reason: unregistered(&stack.registry, name) }),
        };
        errors.extend(checked.err());
        if errors.len() == MAX_ERRORS {
            break;
        }
    }
    if !errors.is_empty() {
        errors.sort_by_key(|error| error.line);
        return Ok(ImportEnd::WrongLines(errors));
    }
    import_file(stack, options, &importer, report).await
}

async fn import_file(
    stack: &Stack,
    options: &ImportOptions,
    importer: &Importer<'_, impl AsyncFn()>,
    mut report: impl FnMut(&AggregateKey, u64, &ImportOutcome) -> io::Result<()>,
) -> Result<ImportEnd, OperatorError> {
    let HistoryFile { aggregates, incomplete, go_on, .. } = importer.file;
    for skipped in incomplete {
        report(&skipped.key(), 0, &ImportOutcome::Skipped { reason: skipped.reason.clone() })?;
    }
    let Stack { registry, interrupt, .. } = stack;
    let table_failed = Cell::new(false);
    let visits = stream::iter(aggregates).map(async |aggregate| {
        // Those that have begun are finished, so that no aggregate stays half written without a report.
        let model =
            registry.get(&aggregate.key.aggregate_type).filter(|_| !interrupt.is_cancelled() && !table_failed.get())?;
        let outcome = importer.import(model, aggregate).await;
        let failed = matches!(outcome, ImportOutcome::Failed { failure: ImportFailure::Table(_), .. });
        table_failed.set(table_failed.get() || failed);
        Some((aggregate, outcome))
    });
    let mut visits = pin!(visits.buffered(options.concurrency.get()));
    let skipped = incomplete.len() as u64;
    let mut counts = ImportCounts { dry_run: !options.yes, skipped, ..ImportCounts::default() };
    let (mut is_left, mut failure) = (false, None);
    while let Some(visit) = visits.next().await {
        let Some((aggregate, outcome)) = visit else {
            is_left = true;
            continue;
        };
        report(&aggregate.key, aggregate.events, &outcome)?;
        counts.add(&outcome);
        let (done, all) = (counts.aggregates, aggregates.len());
        (stack.progress)(Some(done as f64 / all as f64), format!("{done} of {all} aggregates"));
        if let ImportOutcome::Failed { failure: ImportFailure::Table(source), .. } = outcome {
            failure.get_or_insert(source);
        }
    }
    let next = "run it again: it compares what is in the table and writes the rest";
    match failure {
        Some(error) => Err(OperatorError::store(&format!("stopped early, {next}"))(error)),
        None => Ok(ImportEnd::Done { counts, how_to_go_on: is_left.then_some(next), file_goes_on: go_on.clone() }),
    }
}

impl ImportCounts {
    fn add(&mut self, outcome: &ImportOutcome) {
        self.aggregates += 1;
        match outcome {
            ImportOutcome::Done(imported) => {
                self.events += imported.new;
                self.messages += imported.messages;
                *(if imported.new > 0 { &mut self.imported } else { &mut self.equal }) += 1;
            }
            ImportOutcome::Failed { failure: ImportFailure::Different(_), .. } => self.different += 1,
            ImportOutcome::Failed { .. } => self.failed += 1,
            ImportOutcome::Skipped { .. } => {}
        }
    }
}
