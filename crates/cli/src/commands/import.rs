//! `daybook import`: writes the events of a history file into the table.
//!
//! Invariants:
//! - Nothing is written before all lines of the file are checked.
//! - An aggregate in the table is always a prefix of its history, with the metadata, the index and, if they are published,
//!   the messages of an aggregate that commands have written.
//! - An aggregate that contradicts the file stays as it is, and is reported.
//!
//! In reading order: `replay`: the events as they will be stored; `aggregate`: the import of one aggregate.

mod aggregate;
mod replay;

use std::cell::Cell;
use std::io::Write;
use std::num::{NonZeroU32, NonZeroUsize};
use std::pin::pin;

use clap::Args;
use daybook_admin::ImportOptions;
use daybook_decider::Registry;
use daybook_event_store::StoreError;
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;

use self::aggregate::{FailureCause, ImportFailure, Imported, Importer};
use crate::operator::checkpoint::{Checkpoint, CheckpointArgs};
use crate::operator::history::line::IncompleteLine;
use crate::operator::history::source::{AggregateLines, HistoryError, HistoryFile, LineError, MAX_ERRORS};
use crate::operator::pacing::Pacer;
use crate::operator::progress::ProgressLine;
use crate::operator::selection::unregistered;
use crate::operator::target::{SETTINGS_TO_IMPORT, SETTINGS_TO_IMPORT_MESSAGES, STACK_HELP, StackArgs};
use crate::operator::{Exit, Interrupt, OperatorContext, OperatorError, check_shards, output_line};

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
#[command(after_long_help = STACK_HELP)]
pub struct ImportArgs {
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
    /// Where the progress is stored.
    #[command(flatten)]
    pub checkpoint: CheckpointArgs,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// The numbers of aggregates by outcome, and of new events and messages.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImportCounts {
    dry_run: bool,
    aggregates: u64,
    /// Aggregates with new events.
    imported: u64,
    /// Aggregates whose events were all in the table.
    equal: u64,
    different: u64,
    failed: u64,
    /// Aggregates that the export could not read.
    skipped: u64,
    events: u64,
    messages: u64,
}

/// The progress of an import, as its checkpoint contains it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ImportProgress {
    /// The aggregates that are done, in the order of the file.
    done: usize,
    counts: ImportCounts,
}

/// Imports the file.
pub(super) async fn run(args: ImportArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let required = if args.publish { SETTINGS_TO_IMPORT_MESSAGES } else { SETTINGS_TO_IMPORT };
    let store = args.stack.store(&context.environment, required).await?;
    let opening: Vec<_> = context.registry.iter().flat_map(|model| model.opening_events()).collect();
    check_shards(&store, &opening).await?;
    let interrupt = context.interrupt.clone();
    let file = match HistoryFile::open(&args.file, || interrupt.is_set()) {
        Ok(file) => file,
        Err(HistoryError::Interrupted) => return stopped_before_writing(&args, context),
        Err(HistoryError::Lines(errors)) => return print_wrong_lines(&args, context, errors),
        Err(HistoryError::Io(source)) => {
            return Err(OperatorError::File { doing: format!("cannot read {}", args.file), source });
        }
    };
    let options = json!({"sha256": file.sha256, "publish": args.publish, "yes": args.yes});
    let owner = args.stack.checkpoint_owner(&context.environment, &store, "import", options).await;
    let importer = Importer {
        store,
        file: &file,
        options: ImportOptions { publish: args.publish, now: Timestamp::now() },
        writes: args.yes,
        pacer: Pacer::new(args.rate, Interrupt::by(watch::channel(false).1)),
    };
    let mut errors = Vec::new();
    for aggregate in &file.aggregates {
        if interrupt.is_set() {
            return stopped_before_writing(&args, context);
        }
        errors.extend(check(&importer, &context.registry, aggregate).err());
        if errors.len() == MAX_ERRORS {
            break;
        }
    }
    if !errors.is_empty() {
        errors.sort_by_key(|error| error.line);
        return print_wrong_lines(&args, context, errors);
    }
    let (checkpoint, progress) = Checkpoint::open(&args.checkpoint, owner)?;
    let progress = progress.unwrap_or_else(|| ImportProgress {
        done: 0,
        counts: ImportCounts { dry_run: !args.yes, skipped: file.incomplete.len() as u64, ..ImportCounts::default() },
    });
    import(&args, &importer, context, checkpoint, progress).await
}

fn check(importer: &Importer<'_>, registry: &Registry, aggregate: &AggregateLines) -> Result<(), LineError> {
    let name = &aggregate.key.aggregate_type;
    let model = registry
        .get(name)
        .ok_or_else(|| LineError { line: aggregate.first_line(), reason: unregistered(registry, name) })?;
    importer.check(model, aggregate)
}

/// Prints the wrong lines of the file.
fn print_wrong_lines(
    args: &ImportArgs,
    context: &mut OperatorContext,
    errors: Vec<LineError>,
) -> Result<Exit, OperatorError> {
    for LineError { line, reason } in &errors {
        let json = json!({"line": line, "outcome": "wrong", "what": reason});
        writeln!(context.out, "{}", output_line(args.json, json, format!("line {line}: {reason}")))?;
    }
    let (wrong, file) = (errors.len(), &args.file);
    let more = if wrong == MAX_ERRORS { " or more" } else { "" };
    let counts = json!({"dryRun": !args.yes, "wrongLines": wrong});
    let text = format!("{wrong}{more} lines of {file} are wrong; nothing was written");
    context.print_summary(args.json, &text, &counts, None)?;
    Ok(Exit::Findings)
}

fn stopped_before_writing(args: &ImportArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let counts = ImportCounts { dry_run: !args.yes, ..ImportCounts::default() };
    context.print_summary(args.json, "nothing was written", &counts, Some("run it again"))?;
    Ok(Exit::Interrupted)
}

/// Imports the aggregates that are not done, and prints the summary.
async fn import(
    args: &ImportArgs,
    importer: &Importer<'_>,
    context: &mut OperatorContext,
    mut checkpoint: Checkpoint,
    mut progress: ImportProgress,
) -> Result<Exit, OperatorError> {
    let file = importer.file;
    for skipped in &file.incomplete {
        writeln!(context.out, "{}", skipped_line(skipped, args.json))?;
    }
    let (counts, left) = import_each(args, importer, context, &mut checkpoint, &mut progress).await?;
    let Some(left) = left else {
        checkpoint.finish()?;
        context.print_summary(args.json, &counts.text(file, args), &counts, None)?;
        return Ok(if counts.is_clean() { Exit::Clean } else { Exit::Findings });
    };
    checkpoint.write_now(&progress)?;
    let again = "run it again: it compares what is in the table and writes the rest";
    let next = checkpoint.how_to_go_on(again.to_owned());
    match left {
        Left::TableFailed(source) => Err(OperatorError::Store { doing: format!("stopped early, {next}"), source }),
        Left::Interrupted => {
            context.print_summary(args.json, &counts.text(file, args), &counts, Some(&next))?;
            Ok(Exit::Interrupted)
        }
    }
}

/// Why aggregates are left.
enum Left {
    Interrupted,
    TableFailed(StoreError),
}

impl Left {
    fn is_of_table(&self) -> bool {
        matches!(self, Self::TableFailed(_))
    }
}

/// Imports the aggregates that are not done. `progress` is that up to the first aggregate that is left; the returned counts
/// include later ones.
async fn import_each(
    args: &ImportArgs,
    importer: &Importer<'_>,
    context: &mut OperatorContext,
    checkpoint: &mut Checkpoint,
    progress: &mut ImportProgress,
) -> Result<(ImportCounts, Option<Left>), OperatorError> {
    let OperatorContext { registry, out, interrupt, .. } = context;
    let aggregates = &importer.file.aggregates;
    let line = ProgressLine::of_count(aggregates.len());
    line.advance(progress.done);
    let table_failed = Cell::new(false);
    let visits = stream::iter(aggregates.iter().skip(progress.done)).map(async |aggregate| {
        // Those that have begun are finished, so that no aggregate stays half written without a report.
        let model =
            registry.get(&aggregate.key.aggregate_type).filter(|_| !interrupt.is_set() && !table_failed.get())?;
        let outcome = ImportOutcome::of(importer.import(model, aggregate).await);
        table_failed.set(table_failed.get() || matches!(outcome, ImportOutcome::TableFailed { .. }));
        Some((aggregate, outcome))
    });
    let mut visits = pin!(visits.buffered(args.concurrency.get()));
    let mut counts = progress.counts.clone();
    let mut left = None;
    while let Some(visit) = visits.next().await {
        let Some((aggregate, outcome)) = visit else {
            left = left.or(Some(Left::Interrupted));
            continue;
        };
        let printed = outcome.line(aggregate, args);
        line.suspend(|| printed.into_iter().try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush()))?;
        line.advance(1);
        counts.add(&outcome);
        match outcome {
            ImportOutcome::TableFailed { source, .. } => {
                left = Some(left.filter(Left::is_of_table).unwrap_or(Left::TableFailed(source)));
            }
            _ if left.is_none() => {
                progress.done += 1;
                progress.counts = counts.clone();
                checkpoint.write(progress)?;
            }
            _ => {}
        }
    }
    Ok((counts, left))
}

/// What happened to an aggregate.
#[derive(Debug)]
enum ImportOutcome {
    Done(Imported),
    /// The aggregate in the table is another one, and stays as it is.
    Different {
        in_table: u64,
        reason: String,
    },
    Failed {
        in_table: u64,
        reason: String,
    },
    /// The table cannot be used.
    TableFailed {
        in_table: u64,
        source: StoreError,
    },
}

impl ImportOutcome {
    fn of(imported: Result<Imported, ImportFailure>) -> Self {
        let ImportFailure { in_table, cause } = match imported {
            Ok(imported) => return Self::Done(imported),
            Err(failure) => failure,
        };
        match cause.of_table() {
            Ok(source) => Self::TableFailed { in_table, source },
            Err(FailureCause::Different(reason)) => Self::Different { in_table, reason },
            Err(cause) => Self::Failed { in_table, reason: daybook_function_runtime::with_causes(&cause) },
        }
    }

    /// The line that reports the outcome; `None` if there was nothing to do.
    fn line(&self, AggregateLines { key, events, .. }: &AggregateLines, args: &ImportArgs) -> Option<String> {
        let of_all =
            |in_table: u64| format!("{in_table} of its {events} events are in the table as they are in the file");
        let (outcome, what) = match self {
            Self::Done(Imported { new: 0, .. }) => return None,
            Self::Done(Imported { new, known: 0, .. }) => ("imported", format!("{new} events")),
            Self::Done(Imported { new, known, .. }) => ("continued", format!("{new} events after {known}")),
            Self::Different { in_table, reason } => ("different", format!("{reason}; {}", of_all(*in_table))),
            Self::Failed { in_table, reason } => ("failed", format!("{reason}; {}", of_all(*in_table))),
            Self::TableFailed { in_table, source } => {
                ("failed", format!("{}; {}", daybook_function_runtime::with_causes(source), of_all(*in_table)))
            }
        };
        let text = match self {
            Self::Done(_) if !args.yes => format!("would be {outcome} {key}: {what}"),
            _ => format!("{outcome} {key}: {what}"),
        };
        let json = json!({"aggregate": key.to_string(), "outcome": outcome, "what": what});
        Some(output_line(args.json, json, text))
    }
}

fn skipped_line(skipped: &IncompleteLine, as_json: bool) -> String {
    let (key, what) = (skipped.key(), format!("the export could not read it: {}", skipped.reason));
    let json = json!({"aggregate": key.to_string(), "outcome": "skipped", "what": what});
    output_line(as_json, json, format!("skipped {key}: {what}"))
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
            ImportOutcome::Different { .. } => self.different += 1,
            ImportOutcome::Failed { .. } | ImportOutcome::TableFailed { .. } => self.failed += 1,
        }
    }

    fn is_clean(&self) -> bool {
        self.different + self.failed + self.skipped == 0
    }

    fn text(&self, file: &HistoryFile, args: &ImportArgs) -> String {
        let Self { imported, equal, different, failed, skipped, events, messages, .. } = self;
        let verb = if args.yes { "imported and verified" } else { "dry run: would import" };
        let published = if args.publish { "to publish" } else { "not published" };
        let part = file.go_on.as_ref().map_or(String::new(), |next| {
            format!("; the file has only a part, because its export stopped early: {next}")
        });
        format!(
            "{verb} {imported} aggregates with {events} events and {messages} messages {published}; {equal} were in the table \
             already, {different} are different there, {failed} failed, {skipped} were not exported{part}"
        )
    }
}
