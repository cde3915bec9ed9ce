//! The import of an aggregate whose events exist already, in another table or another system: compares the events that are in the
//! table with those of the file, writes the others, and reads everything back.
//!
//! Unlike an append, an import writes events with times and ids of the past, so a reader of a feed who has passed these
//! ids does not see them.
//!
//! `replay`: the events as they will be stored. `batch`: the transactions.

mod batch;
mod replay;

use std::collections::{BTreeSet, VecDeque};

use daybook_decider::personal::referring;
use daybook_decider::record::timestamp;
use daybook_decider::{AggregatePanic, Claim, Json, Model, RecordedEvent};
use daybook_event_store::internal::ImportWrite;
use daybook_event_store::{AppendError, EventStore, StoreError};
use daybook_function_runtime::{shortened, with_causes};
use daybook_history::line::EventLine;
use daybook_history::source::{AggregateLines, HistoryFile, LineError};
use daybook_table::{AggregateKey, keys};
use jiff::Timestamp;

pub use self::batch::ImportBatch;
use self::replay::Replay;
use crate::correct::Derived;
use crate::handle::AdminCalls;

const SHOWN: usize = 80;

pub struct Importer<'a, T> {
    pub store: EventStore,
    pub file: &'a HistoryFile,
    pub options: ImportWrite,
    pub writes: bool,
    /// Is called before each transaction, to limit their rate.
    pub turn: T,
}

/// What became of an aggregate. The export could not read a skipped one. `in_table` is the number of its events that are known
/// to be in the table.
#[derive(Debug)]
pub enum ImportOutcome {
    Done(Imported),
    Skipped { reason: String },
    Failed { in_table: u64, failure: ImportFailure },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The events that were in the table before.
    pub known: u64,
    /// The events that were written, or would be.
    pub new: u64,
    pub messages: u64,
}

#[derive(Debug)]
pub enum ImportFailure {
    /// The aggregate in the table is another one, and stays as it is.
    Different(String),
    /// A line cannot be imported, the stored data cannot be read, or the table does not have what was written.
    Failed(String),
    /// The table cannot be used at all.
    Table(StoreError),
}

impl From<LineError> for ImportFailure {
    fn from(error: LineError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<StoreError> for ImportFailure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { .. } | StoreError::InvalidRequest { .. } => Self::Table(error),
            error => Self::Failed(with_causes(&error)),
        }
    }
}

impl From<AppendError> for ImportFailure {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Store(error) => error.into(),
            AppendError::Conflict { actual } => {
                Self::Different(format!("another writer has appended to it, it is at version {actual} now"))
            }
            AppendError::NotWritten(source) | AppendError::Unknown(source) => {
                Self::Table(StoreError::Unavailable { doing: "write events", source })
            }
            error => Self::Failed(with_causes(&error)),
        }
    }
}

/// What the state declared after any of the events: rows of all of it may be in the table, and have to be corrected.
#[derive(Default)]
struct Declared {
    /// Such as `email:ann@example.com`, although the customer has changed the address since.
    claims: BTreeSet<Claim>,
    deadlines: bool,
}

impl<T: AsyncFn()> Importer<'_, T> {
    /// Checks that all events of an aggregate can be imported into an empty table. Only sealed values need a call, for their keys.
    pub async fn check(&self, model: &dyn Model, lines: &AggregateLines) -> Result<(), LineError> {
        let first = lines.first_line();
        let of_line = |line: u64, reason: String| LineError { line, reason };
        let mut replay = Replay::new(model, &lines.key, self.options, self.store.settings().epoch);
        let mut batch = self.store.admin().import(model, &lines.key, 0, self.options);
        for line in self.file.lines(lines).map_err(|error| of_line(first, error.to_string()))? {
            let (number, mut line) = line?;
            let wrong = |reason| of_line(number, reason);
            self.open(&lines.key, &mut line).await.map_err(|error| wrong(with_causes(&error)))?;
            let (event, messages) = replay.event(line, None).map_err(wrong)?;
            // A check needs the sizes of each event only.
            batch.pass(replay.folded().version());
            batch.add(&event, &messages).map_err(|error| wrong(with_causes(&error)))?;
            replay.fold(&event, &messages).map_err(wrong)?;
        }
        Ok(())
    }

    pub async fn import(&self, model: &dyn Model, lines: &AggregateLines) -> ImportOutcome {
        let mut in_table = 0;
        let mut declared = Declared::default();
        let imported = match self.pass(model, lines, self.writes, &mut in_table, &mut declared).await {
            Ok(imported) if self.writes => {
                self.verify(model, lines, imported.new > 0, declared).await.map(|()| imported)
            }
            imported => imported,
        };
        imported.map_or_else(|failure| ImportOutcome::Failed { in_table, failure }, ImportOutcome::Done)
    }

    /// Corrects the claims and the deadlines, reads the aggregate back, and checks its rows. They are corrected after all events
    /// are written, because earlier states may have values that another aggregate has now, and deadlines that are long over.
    async fn verify(
        &self,
        model: &dyn Model,
        lines: &AggregateLines,
        read_back: bool,
        declared: Declared,
    ) -> Result<(), ImportFailure> {
        if !declared.claims.is_empty() {
            let claims: Vec<_> = declared.claims.into_iter().collect();
            let claims = self.store.admin().stored_claims(&claims).await?;
            self.store.admin().correct(model, &lines.key, Derived::Claims(&claims), true).await?;
        }
        if declared.deadlines {
            let rows = Derived::Deadlines { sends: self.options.publish };
            self.store.admin().correct(model, &lines.key, rows, true).await?;
        }
        if read_back {
            let Imported { known, new, .. } = self.pass(model, lines, false, &mut 0, &mut Declared::default()).await?;
            if new > 0 {
                let end = known + new;
                return Err(ImportFailure::Failed(format!("events {} to {end} are not in the table", known + 1)));
            }
        }
        let verified = self.store.admin().verify(model, &lines.key, Timestamp::now()).await?;
        match verified.findings.as_slice() {
            [] => Ok(()),
            [finding, ..] => {
                let findings = verified.findings.len();
                Err(ImportFailure::Failed(format!("daybook verify has {findings} findings: {finding}")))
            }
        }
    }

    /// Compares the events with those in the table, and writes the others if `writes`. `in_table` is set to the number of
    /// events that are in the table, `declared` to what its states declared: an earlier import may have ended between the
    /// events and their claims and deadlines.
    async fn pass(
        &self,
        model: &dyn Model,
        lines: &AggregateLines,
        writes: bool,
        in_table: &mut u64,
        declared: &mut Declared,
    ) -> Result<Imported, ImportFailure> {
        let key = &lines.key;
        let metadata = self.store.admin().metadata(key).await?;
        let version = metadata.map_or(0, |metadata| metadata.current_seq_num);
        let mut stored =
            StoredEvents { store: &self.store, key, last: version.min(lines.events), page: VecDeque::new(), read: 0 };
        let mut replay = Replay::new(model, key, self.options, self.store.settings().epoch);
        let mut batch = self.store.admin().import(model, key, version, self.options);
        let mut imported = Imported::default();
        let opened = self.file.lines(lines);
        let opened = opened.map_err(|error| LineError { line: lines.first_line(), reason: error.to_string() })?;
        for line in opened {
            let (number, mut line) = line?;
            let wrong = |reason| LineError { line: number, reason };
            self.open(key, &mut line).await?;
            let known = stored.next().await?;
            let (event, messages) = replay.event(line, known.as_ref()).map_err(wrong)?;
            match known {
                Some(known) => {
                    if let Some(reason) = difference(&known, &event) {
                        // The same event, counted differently: the other choice is the cause.
                        let RecordedEvent { message_seq, message_epoch, .. } = known;
                        if known == (RecordedEvent { message_seq, message_epoch, ..event.clone() }) {
                            self.check_publication(key, event.seq_num).await?;
                        }
                        return Err(ImportFailure::Different(format!(
                            "event {}: {reason} (line {number})",
                            event.seq_num
                        )));
                    }
                    imported.known += 1;
                    *in_table = imported.known;
                }
                None => {
                    if imported.new == 0 {
                        self.check_publication(key, version).await?;
                    }
                    imported.new += 1;
                    imported.messages += messages.len() as u64;
                    if writes && !batch.add(&event, &messages)? {
                        self.send(&mut batch, &replay, in_table).await?;
                        batch.add(&event, &messages)?;
                    }
                }
            }
            replay.fold(&event, &messages).map_err(wrong)?;
            let panicked = |panic: AggregatePanic| wrong(panic.to_string());
            declared.claims.extend(model.claims(replay.folded()).map_err(panicked)?);
            declared.deadlines |= !model.deadlines(replay.folded()).map_err(panicked)?.is_empty();
        }
        if !batch.is_empty() {
            self.send(&mut batch, &replay, in_table).await?;
        }
        Ok(imported)
    }

    /// Opens the personal values of a line, which are sealed again when it is written.
    async fn open(&self, key: &AggregateKey, line: &mut EventLine) -> Result<(), StoreError> {
        self.store.sealing().open([(keys::pk(key), &mut line.data)].into_iter()).await
    }

    async fn send(
        &self,
        batch: &mut ImportBatch<'_>,
        replay: &Replay<'_>,
        in_table: &mut u64,
    ) -> Result<(), ImportFailure> {
        (self.turn)().await;
        batch.send(replay.folded()).await?;
        *in_table = batch.before();
        Ok(())
    }

    /// Checks that an event of the table was imported with the same choice.
    async fn check_publication(&self, key: &AggregateKey, seq_num: u64) -> Result<(), ImportFailure> {
        if seq_num == 0 || self.store.admin().is_published(key, seq_num).await? == self.options.publish {
            return Ok(());
        }
        let (were, other) = if self.options.publish { ("were not", "--no-publish") } else { ("were", "--publish") };
        Err(ImportFailure::Different(format!(
            "the messages of its event {seq_num} {were} published: continue with {other}"
        )))
    }
}

struct StoredEvents<'a> {
    store: &'a EventStore,
    key: &'a AggregateKey,
    last: u64,
    page: VecDeque<RecordedEvent>,
    read: u64,
}

impl StoredEvents<'_> {
    async fn next(&mut self) -> Result<Option<RecordedEvent>, ImportFailure> {
        if self.read == self.last {
            return Ok(None);
        }
        if self.page.is_empty() {
            let page = self.store.admin().events_up_to(self.key, self.read, self.last).await?;
            self.page = page.map_err(ImportFailure::Different)?.into();
        }
        let event = self.page.pop_front();
        self.read = event.as_ref().map_or(self.read, |event| event.seq_num);
        Ok(event)
    }
}

fn difference(stored: &RecordedEvent, event: &RecordedEvent) -> Option<String> {
    let facts = |event: &RecordedEvent| {
        [
            ("eventId", event.event_id.to_string()),
            ("eventType", event.event_type.clone()),
            ("eventVersion", event.event_version.to_string()),
            ("occurredAt", timestamp(event.occurred_at)),
            ("messageSeq", event.message_seq.to_string()),
            ("data", event.data.text().to_owned()),
            ("meta", format!("{:?}", event.meta)),
        ]
    };
    let (found, expected) = (facts(stored), facts(event));
    let different = found.iter().zip(&expected).find(|(found, expected)| found != expected);
    different.map(|((name, found), (_, expected))| {
        // What is personal is not printed.
        let printed =
            |value: &String| Json::parse(value.clone()).map_or(value.clone(), |json| referring(json).text().to_owned());
        let [found, expected] = [found, expected].map(|value| shortened(&printed(value), SHOWN));
        format!("{name} in the table is {found}, in the file {expected}")
    })
}
