//! Writes the events of aggregates to a history file.
//!
//! Invariants:
//! - The lines of an aggregate stand together, and are its events up to the end of an append.
//! - An aggregate of which not all events can be read is marked in the file, so that an import leaves it out.
//! - A file without a summary is not complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use daybook_admin::AdminCalls;
use daybook_decider::{Model, RecordedEvent};
use daybook_event_store::{EventStore, StoreError};
use daybook_table::AggregateKey;

use crate::error::OperatorError;
use crate::history::line::{HistorySummary, HistoryWriter, IncompleteLine};
use crate::pacing::Pacer;
use crate::selection::ListedAggregate;
use crate::stack::{SETTINGS_TO_FIND, Stack};
use crate::walk::{WalkFinding, WalkOptions, Walked};

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
    report: impl FnMut(WalkFinding) -> io::Result<()>,
) -> Result<Exported, OperatorError> {
    // The file contains personal values as they are stored.
    let store = stack.store(SETTINGS_TO_FIND).await?.sealed();
    let walk = options.walk(stack, &store, false).await?;
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
    let pacer = || Pacer::new(options.rate, stack.interrupt.clone());
    // Two: while later pages are read, the visits make no progress, and one of them may wait for its turn.
    let (of_visits, of_pages) = (pacer(), pacer());
    let mut export = Export { store: &store, name, history, pacer: of_pages, report };
    let visit = async |aggregate: &ListedAggregate, _: Option<&dyn Model>| {
        let Some(key) = aggregate.key.as_ref().filter(|_| aggregate.unreadable.is_none()) else {
            return Some(Ok(None));
        };
        of_visits.turn().await?;
        Some(first_page(&store, key).await.map(Some))
    };
    let write = async |unreadable: &mut u64, aggregate: &ListedAggregate, first: Option<FirstPage>| {
        match (&aggregate.key, &aggregate.unreadable, first) {
            (Some(key), None, Some(first)) => export.write_aggregate(key, first).await?,
            (_, Some(row), _) => {
                *unreadable += 1;
                export.report("unreadable", format!("{} {}", aggregate.name, row.sk), row.reason.clone())?;
            }
            _ => {}
        }
        Ok(())
    };
    let (Walked { counts: unreadable, how_to_go_on }, failure) = walk.run_until_failure(visit, write).await?;
    let next = how_to_go_on.map(|next| format!("{next}, with another FILE"));
    let summary = export.history.finish(next).map_err(cannot_write)?;
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

/// The first events of an aggregate, and the version up to which it is exported; or the reason why it cannot be.
type FirstPage = Result<(u64, Vec<RecordedEvent>), String>;

struct Export<'a, 'o, R> {
    store: &'a EventStore,
    name: Option<&'a str>,
    history: HistoryWriter<&'o mut (dyn Write + Send)>,
    pacer: Pacer,
    report: R,
}

impl<R: FnMut(WalkFinding) -> io::Result<()>> Export<'_, '_, R> {
    /// Writes all events of an aggregate. Only the first page of several aggregates is read concurrently, so the memory does
    /// not depend on the number of events.
    async fn write_aggregate(&mut self, key: &AggregateKey, first: FirstPage) -> Result<(), OperatorError> {
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
            self.pacer.turn().await;
            events = match self.store.admin().events_up_to(key, written, version).await {
                Ok(Ok(events)) => events,
                Ok(Err(reason)) => return self.write_incomplete(key, reason),
                Err(error) => {
                    self.write_incomplete(key, "the export stopped within it".to_owned())?;
                    return Err(OperatorError::store("cannot read the table")(error));
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
        (self.report)(WalkFinding { kind, name, reason })
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
    Ok(store.admin().events_up_to(key, 0, version).await?.map(|events| (version, events)))
}
