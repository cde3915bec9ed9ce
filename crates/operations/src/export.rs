//! Writes the events of aggregates to a history file.
//!
//! Invariants:
//! - The lines of an aggregate stand together, and are its events up to the end of an append.
//! - An aggregate of which not all events can be read is marked in the file, so that an import leaves it out.
//! - A file without a summary is not complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::pin::pin;
use std::time::Duration;

use daybook_admin::AdminCalls;
use daybook_decider::RecordedEvent;
use daybook_event_store::{EventStore, StoreError};
use daybook_table::AggregateKey;
use futures_util::StreamExt;

use crate::error::OperatorError;
use crate::history::line::{HistorySummary, HistoryWriter, IncompleteLine};
use crate::listing::{Listing, Position};
use crate::pacing::Pacer;
use crate::stack::{SETTINGS_TO_FIND, Stack};
use crate::walk::{Finding, WalkOptions};

const PAGE: usize = 1000;

/// Attempts to read an event that the metadata counts. A query during a transaction may leave out some of its rows.
const READS: usize = 20;

const BETWEEN_READS: Duration = Duration::from_millis(50);

const UNREADABLE: &str = "cannot read the table";

pub enum HistoryTarget<'a> {
    Writer(&'a mut (dyn Write + Send)),
    /// A file of this name, which must not exist.
    File(&'a str),
}

#[derive(Debug)]
pub struct Exported {
    pub summary: HistorySummary,
    pub unreadable: u64,
}

/// Exports the selected aggregates, and reports those that are incomplete and rows of the index that are unreadable. The summary
/// describes how to go on if the export was interrupted.
pub async fn export(
    stack: &Stack,
    options: &WalkOptions,
    target: HistoryTarget<'_>,
    report: impl FnMut(Finding) -> io::Result<()>,
) -> Result<Exported, OperatorError> {
    // The file contains personal values as they are stored.
    let store = stack.store(SETTINGS_TO_FIND).await?.sealed();
    let listing = options.selection.list(&store, &stack.registry, &Position::Beginning)?;
    options.selection.check(&store, &stack.registry).await?;
    let mut file;
    let (name, out): (_, &mut (dyn Write + Send)) = match target {
        HistoryTarget::Writer(out) => (None, out),
        HistoryTarget::File(name) => {
            file = BufWriter::new(create(name).map_err(|source| cannot_write(Some(name), source))?);
            (Some(name), &mut file)
        }
    };
    let cannot_write = |source| cannot_write(name, source);
    let history = HistoryWriter::begin(out).map_err(cannot_write)?;
    let position = Position::Beginning;
    let mut export = Export { stack, options, store: &store, name, history, position, report, unreadable: 0 };
    let failure = match export.write_all(listing).await {
        Ok(()) => None,
        Err(OperatorError::Store { source, .. }) => Some(source),
        Err(error) => return Err(error),
    };
    let Export { history, position, unreadable, .. } = export;
    let is_early = failure.is_some() || stack.interrupt.is_cancelled();
    let next = is_early.then(|| format!("{}, with another FILE", position.how_to_go_on()));
    let summary = history.finish(next).map_err(cannot_write)?;
    if let Some(name) = name {
        // All of it is written; a power failure must not lose it.
        File::options().append(true).open(name).and_then(|file| file.sync_all()).map_err(cannot_write)?;
    }
    if let Some(source) = failure {
        return Err(OperatorError::store(&format!("stopped early, {}", summary.go_on.unwrap_or_default()))(source));
    }
    Ok(Exported { summary, unreadable })
}

fn create(name: &str) -> io::Result<File> {
    File::create_new(name).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::Error::other("it exists: choose another name, or delete it"),
        _ => error,
    })
}

fn cannot_write(name: Option<&str>, source: io::Error) -> OperatorError {
    match name {
        None => OperatorError::Output(source),
        Some(name) => OperatorError::File { doing: format!("cannot write {name}"), source },
    }
}

struct Export<'a, 'o, R> {
    stack: &'a Stack,
    options: &'a WalkOptions,
    store: &'a EventStore,
    name: Option<&'a str>,
    history: HistoryWriter<&'o mut (dyn Write + Send)>,
    position: Position,
    report: R,
    unreadable: u64,
}

/// The first events of an aggregate, and the version up to which it is exported; or the reason why it cannot be.
type FirstPage = Result<(u64, Vec<RecordedEvent>), String>;

impl<R: FnMut(Finding) -> io::Result<()>> Export<'_, '_, R> {
    async fn write_all(&mut self, listing: Listing<'_>) -> Result<(), OperatorError> {
        let (store, rate, interrupt) = (self.store, self.options.rate, &self.stack.interrupt);
        let pacer = Pacer::new(rate, interrupt.clone());
        let unavailable = OperatorError::store(UNREADABLE);
        let visits = listing.aggregates(interrupt).map(async |listed| {
            let aggregate = listed?;
            let Some(key) = aggregate.key.as_ref().filter(|_| aggregate.unreadable.is_none()) else {
                return Ok(Some((aggregate, None)));
            };
            if pacer.turn().await.is_none() {
                return Ok(None);
            }
            let first = first_page(store, key).await?;
            Ok::<_, StoreError>(Some((aggregate, Some(first))))
        });
        let mut visits = pin!(visits.buffered(self.options.concurrency.get()));
        // A pacer of its own: while later pages are read, the visits make no progress, and one of them may wait for its turn.
        let following = Pacer::new(rate, interrupt.clone());
        while let Some(visit) = visits.next().await {
            let Some((aggregate, first)) = visit.map_err(&unavailable)? else { break };
            let doing = format!("{} aggregates, at {}", self.history.aggregates(), aggregate.name);
            (self.stack.progress)(aggregate.fraction, doing);
            match (&aggregate.key, &aggregate.unreadable, first) {
                (Some(key), None, Some(first)) => self.write_aggregate(key, first, &following).await?,
                (_, Some(row), _) => {
                    self.unreadable += 1;
                    self.report("unreadable", format!("{} {}", aggregate.name, row.sk), row.reason.clone())?;
                }
                _ => {}
            }
            self.position.advance(&aggregate);
        }
        Ok(())
    }

    /// Writes all events of an aggregate. Only the first page of several aggregates is read concurrently, so the memory does
    /// not depend on the number of events.
    async fn write_aggregate(
        &mut self,
        key: &AggregateKey,
        first: FirstPage,
        pacer: &Pacer,
    ) -> Result<(), OperatorError> {
        let (version, mut events) = match first {
            Ok(first) => first,
            Err(reason) => return self.write_incomplete(key, reason),
        };
        loop {
            let written = events.iter().try_for_each(|event| self.history.event(key, event));
            written.map_err(|error| cannot_write(self.name, error))?;
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
                    return Err(OperatorError::store(UNREADABLE)(error));
                }
            };
        }
        self.history.complete();
        Ok(())
    }

    fn write_incomplete(&mut self, key: &AggregateKey, reason: String) -> Result<(), OperatorError> {
        self.report("incomplete", key.to_string(), reason.clone())?;
        let (aggregate_type, aggregate_id) = (key.aggregate_type.clone(), key.id.clone());
        let written = self.history.incomplete(&IncompleteLine { aggregate_type, aggregate_id, reason });
        written.map_err(|error| cannot_write(self.name, error))
    }

    fn report(&mut self, kind: &'static str, name: String, reason: String) -> io::Result<()> {
        (self.report)(Finding { kind, name, reason })
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
pub(crate) async fn page(
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
