//! `daybook export`: writes the events of aggregates to a history file.
//!
//! Invariants:
//! - The lines of an aggregate stand together, and are its events up to the end of an append.
//! - An aggregate of which not all events can be read is marked in the file, so that an import leaves it out.
//! - A file without a summary is not complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::num::{NonZeroU32, NonZeroUsize};
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use daybook_admin::AdminCalls;
use daybook_decider::RecordedEvent;
use daybook_event_store::{EventStore, StoreError};
use daybook_table::AggregateKey;
use futures_util::StreamExt;
use serde_json::json;

use crate::operator::history::line::{HistorySummary, IncompleteLine};
use crate::operator::history::writer::HistoryWriter;
use crate::operator::listing::{Listing, Position};
use crate::operator::pacing::Pacer;
use crate::operator::progress::ProgressLine;
use crate::operator::selection::{AggregateName, SelectionArgs};
use crate::operator::target::{SETTINGS_TO_FIND, STACK_HELP, StackArgs};
use crate::operator::{Exit, Interrupt, OperatorContext, OperatorError, output_line};

/// Maximum events of one read.
const PAGE: usize = 1000;

/// Attempts to read an event that the metadata counts. A query during a transaction may leave out some of its rows.
const READS: usize = 20;

/// The pause between these attempts.
const BETWEEN_READS: Duration = Duration::from_millis(50);

/// Write the events of aggregates to a file, as lines of JSON that `daybook import` reads.
///
/// The lines of an aggregate stand together, in the order of its events. They end with an append that was complete when the
/// aggregate was read, even if commands are accepted meanwhile. The last line is a summary with counts and a digest, so that an
/// import notices a file that is not complete. docs/operating.md describes the lines.
///
/// The file contains events only. States and snapshots are derived from them. Outbox rows and the stored responses of
/// idempotency keys are not exported.
///
/// After Ctrl-C, the file contains the aggregates so far, and the summary describes how to export the others to another file.
/// A file that a crash ended has no summary, so no import accepts it: delete it, and export again.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct ExportArgs {
    /// The file, which must not exist, or `-` for standard output.
    pub file: String,
    /// Only this aggregate; can be repeated.
    #[arg(long = "aggregate", value_name = "TYPE/ID", conflicts_with_all = ["types", "event_types", "after"])]
    pub aggregates: Vec<AggregateName>,
    /// Which aggregates.
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// Maximum reads per second, each of one aggregate or, if that is large, of 1 MB of it.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
    /// Maximum aggregates read concurrently.
    #[arg(long, value_name = "N", default_value = "8")]
    pub concurrency: NonZeroUsize,
    /// Print what is reported as JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// Exports the aggregates.
pub(super) async fn run(args: ExportArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let store = args.stack.store(&context.environment, SETTINGS_TO_FIND).await?;
    let listing = args.selection.list(&store, &context.registry, &args.aggregates, &Position::Beginning).await?;
    let OperatorContext { out, interrupt, .. } = &mut *context;
    let (output, reports) =
        if args.is_to_stdout() { (Ok(Output::Stdout(out)), None) } else { (create(&args.file), Some(out)) };
    let history = output.and_then(HistoryWriter::begin).map_err(|error| args.cannot_write(error))?;
    let export = Export { args: &args, store: &store, history, position: Position::Beginning, reports, unreadable: 0 };
    let Exported { summary, unreadable, failure } = export.run(listing, interrupt).await?;
    if let Some(source) = failure {
        let next = summary.go_on.unwrap_or_default();
        return Err(OperatorError::Store { doing: format!("stopped early, {next}"), source });
    }
    let text = summary_text(&summary, unreadable);
    if args.is_to_stdout() {
        // Standard output has the summary of the file as its last line.
        let next = summary.go_on.as_ref().map_or(String::new(), |next| format!("; stopped early, {next}"));
        eprintln!("daybook: {text}{next}");
    } else {
        context.print_summary(args.json, &text, &summary, summary.go_on.as_deref())?;
    }
    Ok(match (summary.go_on, summary.incomplete + unreadable) {
        (Some(_), _) => Exit::Interrupted,
        (None, 0) => Exit::Clean,
        (None, _) => Exit::Findings,
    })
}

impl ExportArgs {
    fn is_to_stdout(&self) -> bool {
        self.file == "-"
    }

    fn cannot_write(&self, source: io::Error) -> OperatorError {
        if self.is_to_stdout() {
            return source.into();
        }
        OperatorError::File { doing: format!("cannot write {}", self.file), source }
    }
}

/// The target of the lines.
enum Output<'a> {
    Stdout(&'a mut Box<dyn Write + Send>),
    File(BufWriter<File>),
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::File(file) => file.flush(),
        }
    }
}

/// Creates the file.
fn create<'a>(name: &str) -> io::Result<Output<'a>> {
    let file = File::create_new(name).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::Error::other("it exists: choose another name, or delete it"),
        _ => error,
    })?;
    Ok(Output::File(BufWriter::new(file)))
}

/// An export in progress.
struct Export<'a> {
    args: &'a ExportArgs,
    store: &'a EventStore,
    history: HistoryWriter<Output<'a>>,
    position: Position,
    /// Where incomplete aggregates are reported; standard error if standard output has the history.
    reports: Option<&'a mut Box<dyn Write + Send>>,
    /// Rows of the index that cannot be read.
    unreadable: u64,
}

/// The result of an export.
struct Exported {
    summary: HistorySummary,
    unreadable: u64,
    /// Why the table could not be read to the end.
    failure: Option<StoreError>,
}

/// The first events of an aggregate, and the version up to which it is exported; or the reason why it cannot be.
type FirstPage = Result<(u64, Vec<RecordedEvent>), String>;

/// Why an export ends early.
enum Stop {
    Interrupted,
    Table(StoreError),
    Output(io::Error),
    /// The reports cannot be written.
    Operator(OperatorError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Table(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Export<'_> {
    async fn run(mut self, listing: Listing<'_>, interrupt: &Interrupt) -> Result<Exported, OperatorError> {
        let line = match listing {
            Listing::Indexed(_) => ProgressLine::of_fraction(),
            Listing::Named(_) | Listing::Scanned(_) => ProgressLine::spinner(),
        };
        let args = self.args;
        let ended = self.write_all(listing, interrupt, &line).await;
        drop(line);
        let failure = match ended {
            Ok(()) | Err(Stop::Interrupted) => None,
            Err(Stop::Table(error)) => Some(error),
            Err(Stop::Output(error)) => return Err(args.cannot_write(error)),
            Err(Stop::Operator(error)) => return Err(error),
        };
        let unreadable = self.unreadable;
        let is_early = failure.is_some() || interrupt.is_set();
        let summary = self.finish(is_early)?;
        Ok(Exported { summary, unreadable, failure })
    }

    async fn write_all(
        &mut self,
        listing: Listing<'_>,
        interrupt: &Interrupt,
        line: &ProgressLine,
    ) -> Result<(), Stop> {
        let (store, pacer) = (self.store, Pacer::new(self.args.rate, interrupt.clone()));
        let visits = listing.aggregates(interrupt).map(async |listed| {
            let aggregate = listed?;
            let Some(key) = aggregate.key.as_ref().filter(|_| aggregate.unreadable.is_none()) else {
                return Ok::<_, Stop>((aggregate, None));
            };
            pacer.turn().await.ok_or(Stop::Interrupted)?;
            let first = first_page(store, key).await?;
            Ok((aggregate, Some(first)))
        });
        let mut visits = pin!(visits.buffered(self.args.concurrency.get()));
        // A pacer of its own: while later pages are read, the visits make no progress, and one of them may wait for its turn.
        let following = Pacer::new(self.args.rate, interrupt.clone());
        while let Some(visit) = visits.next().await {
            let (aggregate, first) = visit?;
            line.set_fraction(
                aggregate.fraction,
                format!("{} aggregates, at {}", self.history.aggregates(), aggregate.name),
            );
            match (&aggregate.key, &aggregate.unreadable, first) {
                (Some(key), None, Some(first)) => self.write_aggregate(key, first, &following).await?,
                (_, Some(row), _) => {
                    self.unreadable += 1;
                    self.report("unreadable", &format!("{} {}", aggregate.name, row.sk), &row.reason)?;
                }
                _ => {}
            }
            self.position.advance(&aggregate);
        }
        Ok(())
    }

    /// Writes all events of an aggregate. Only the first page of several aggregates is read concurrently, so the memory does
    /// not depend on the number of events.
    async fn write_aggregate(&mut self, key: &AggregateKey, first: FirstPage, pacer: &Pacer) -> Result<(), Stop> {
        let (version, mut events) = match first {
            Ok(first) => first,
            Err(reason) => return self.write_incomplete(key, reason),
        };
        loop {
            events.iter().try_for_each(|event| self.history.event(key, event))?;
            let written = events.last().map_or(0, |event| event.seq_num);
            if written >= version {
                break;
            }
            // After Ctrl-C, the aggregate is finished at once.
            pacer.turn().await;
            events = match page(self.store, key, written, version).await {
                Ok(Ok(events)) => events,
                Ok(Err(reason)) => return self.write_incomplete(key, reason),
                Err(error) => {
                    self.write_incomplete(key, "the export stopped within it".to_owned())?;
                    return Err(error.into());
                }
            };
        }
        self.history.complete();
        Ok(())
    }

    fn write_incomplete(&mut self, key: &AggregateKey, reason: String) -> Result<(), Stop> {
        self.report("incomplete", &key.to_string(), &reason)?;
        let (aggregate_type, aggregate_id) = (key.aggregate_type.clone(), key.id.clone());
        Ok(self.history.incomplete(&IncompleteLine { aggregate_type, aggregate_id, reason })?)
    }

    fn report(&mut self, outcome: &str, name: &str, what: &str) -> Result<(), Stop> {
        let json = json!({"aggregate": name, "outcome": outcome, "what": what});
        let text = output_line(self.args.json, json, format!("{outcome} {name}: {what}"));
        match &mut self.reports {
            Some(out) => writeln!(out, "{text}").map_err(|error| Stop::Operator(error.into())),
            None => {
                eprintln!("daybook: {text}");
                Ok(())
            }
        }
    }

    /// Ends the file with its summary.
    fn finish(self, is_early: bool) -> Result<HistorySummary, OperatorError> {
        let args = self.args;
        let next = is_early.then(|| format!("{}, with another FILE", self.position.how_to_go_on()));
        let finished = self.history.finish(next).and_then(|(out, summary)| {
            if let Output::File(file) = &out {
                file.get_ref().sync_all()?;
            }
            Ok(summary)
        });
        finished.map_err(|error| args.cannot_write(error))
    }
}

async fn first_page(store: &EventStore, key: &AggregateKey) -> Result<FirstPage, StoreError> {
    // The metadata is at the end of an append whose rows are all committed.
    let metadata = match store.admin().metadata(key).await {
        Ok(Some(metadata)) => metadata,
        Ok(None) => return Ok(Err("it has no metadata".to_owned())),
        Err(error @ StoreError::Corrupt { .. }) => return Ok(Err(daybook_function_runtime::with_causes(&error))),
        Err(error) => return Err(error),
    };
    let version = metadata.current_seq_num;
    Ok(page(store, key, 0, version).await?.map(|events| (version, events)))
}

/// The next events of an aggregate after number `after`, up to `version`: a maximum of 1 MB. The inner error is the reason why
/// they cannot be read.
async fn page(
    store: &EventStore,
    key: &AggregateKey,
    after: u64,
    version: u64,
) -> Result<Result<Vec<RecordedEvent>, String>, StoreError> {
    let left = usize::try_from(version - after).unwrap_or(PAGE).min(PAGE);
    for _ in 0..READS {
        let page = store.events(key, after, left).await?;
        if let Some(row) = page.unreadable.first() {
            return Ok(Err(format!("its row {} cannot be read: {}", row.sk, row.reason)));
        }
        if !page.items.is_empty() {
            return Ok(Ok(page.items));
        }
        tokio::time::sleep(BETWEEN_READS).await;
    }
    Ok(Err(format!("event {} is missing, its metadata counts {version}", after + 1)))
}

fn summary_text(summary: &HistorySummary, unreadable: u64) -> String {
    let HistorySummary { aggregates, events, incomplete, .. } = summary;
    let rows = if unreadable > 0 { format!(", {unreadable} rows of the index cannot be read") } else { String::new() };
    format!("exported {aggregates} aggregates and {events} events; {incomplete} aggregates could not be exported{rows}")
}
