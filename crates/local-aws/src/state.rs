//! The state of the local stack that survives a restart, in the same file as the table: the positions of the stream's
//! readers, and journals of the arrivals on the bus, in the queues, and at the on-failure destination.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::dynamodb::connect;

/// The state in a data file. Clones share it.
#[derive(Clone, Debug)]
pub struct StateFile {
    /// `None` after it was closed.
    connection: Arc<Mutex<Option<Connection>>>,
    session: u32,
}

/// A journal: entries are added and never changed or deleted.
#[derive(Clone, Copy, Debug)]
pub enum Journal {
    /// The entries that the bus accepted.
    Bus,
    /// The messages that a queue accepted.
    Queue,
    /// The ids of messages that were deleted from their queue.
    DeletedMessages,
    /// The records that event source mappings discarded.
    Discarded,
    /// The keys of objects that were deleted from a bucket.
    DeletedObjects,
}

/// The position up to which a reader has settled a shard of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The sequence number of a record. All records before it are settled.
    pub sequence_number: String,
    /// Whether this record is settled, too.
    pub is_settled: bool,
}

/// Why the state cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("the data file is closed")]
    Closed,
    #[error("cannot use the data file")]
    Sqlite(#[from] rusqlite::Error),
    #[error("cannot read an entry of the data file")]
    Json(#[from] serde_json::Error),
}

impl StateFile {
    /// Opens the state in the file of a running [`LocalDynamoDb`](crate::dynamodb::LocalDynamoDb).
    pub fn open(data: &Path) -> Result<Self, StateError> {
        let connection = connect(&data.to_string_lossy())?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS _daybook_journal (
               id INTEGER PRIMARY KEY AUTOINCREMENT,
               journal TEXT NOT NULL,
               entry TEXT NOT NULL
             );
             CREATE INDEX IF NOT EXISTS _daybook_journals ON _daybook_journal (journal, id);",
        )?;
        let last = "SELECT COALESCE(MAX(id), 0) FROM _daybook_journal";
        let session = connection.query_row(last, [], |row| row.get(0))?;
        Ok(Self { connection: Arc::new(Mutex::new(Some(connection))), session })
    }

    /// Closes the file. Later calls fail, also those of clones.
    ///
    /// SQLite merges its write-ahead log into the file when the last connection is closed, but not when two are closed
    /// at the same time. So this connection must be closed before the engine's.
    pub fn close(&self) {
        drop(self.lock().take());
    }

    /// A number that is higher than that of each earlier session that has added entries to a journal.
    pub(crate) fn session(&self) -> u32 {
        self.session
    }

    /// Adds an entry to a journal. Once this has returned, a killed process does not lose the entry.
    pub fn append(&self, journal: Journal, entry: &impl Serialize) -> Result<(), StateError> {
        self.append_numbered(journal, entry).map(drop)
    }

    /// Does the same, and returns the number of the entry in the file.
    pub(crate) fn append_numbered(&self, journal: Journal, entry: &impl Serialize) -> Result<i64, StateError> {
        let sql = "INSERT INTO _daybook_journal (journal, entry) VALUES (?1, ?2)";
        let entry = serde_json::to_string(entry)?;
        self.with_connection(|connection| connection.prepare_cached(sql)?.insert((journal.name(), entry)))
    }

    /// The entries of a journal, in the order in which they were added.
    pub fn entries<T: DeserializeOwned>(&self, journal: Journal) -> Result<Vec<T>, StateError> {
        Ok(self.numbered_entries(journal)?.into_iter().map(|(_, entry)| entry).collect())
    }

    /// The entries of a journal with their numbers in the file, in the order in which they were added.
    pub(crate) fn numbered_entries<T: DeserializeOwned>(&self, journal: Journal) -> Result<Vec<(i64, T)>, StateError> {
        let sql = "SELECT id, entry FROM _daybook_journal WHERE journal = ?1 ORDER BY id";
        let texts: Vec<(i64, String)> = self.with_connection(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_map([journal.name()], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })?;
        texts.iter().map(|(number, text)| Ok((*number, serde_json::from_str(text)?))).collect()
    }

    /// The entry with this number in the file.
    pub(crate) fn entry<T: DeserializeOwned>(&self, number: i64) -> Result<T, StateError> {
        let sql = "SELECT entry FROM _daybook_journal WHERE id = ?1";
        let text: String =
            self.with_connection(|connection| connection.prepare_cached(sql)?.query_row([number], |row| row.get(0)))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// The checkpoint of a reader; `None` if it has none yet.
    pub fn checkpoint(&self, reader: &str) -> Result<Option<Checkpoint>, StateError> {
        let sql = "SELECT sequence_number, is_settled FROM _daybook_checkpoints WHERE reader = ?1";
        let checkpoint = |row: &Row<'_>| Ok(Checkpoint { sequence_number: row.get(0)?, is_settled: row.get(1)? });
        self.with_connection(|connection| connection.query_row(sql, [reader], checkpoint).optional())
    }

    pub fn save_checkpoint(&self, reader: &str, checkpoint: &Checkpoint) -> Result<(), StateError> {
        let Checkpoint { sequence_number, is_settled } = checkpoint;
        let sql =
            "INSERT OR REPLACE INTO _daybook_checkpoints (reader, sequence_number, is_settled) VALUES (?1, ?2, ?3)";
        self.with_connection(|connection| {
            connection.prepare_cached(sql)?.execute((reader, sequence_number, is_settled))
        })?;
        Ok(())
    }

    /// Removes the checkpoints of all other readers: otherwise, the stream would never delete the records that these
    /// have not settled.
    pub fn retain_checkpoints(&self, is_reader: impl Fn(&str) -> bool) -> Result<(), StateError> {
        self.with_connection(|connection| {
            let mut statement = connection.prepare("SELECT reader FROM _daybook_checkpoints")?;
            let readers: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
            for reader in readers.iter().filter(|reader| !is_reader(reader)) {
                connection.execute("DELETE FROM _daybook_checkpoints WHERE reader = ?1", [reader])?;
            }
            Ok(())
        })
    }

    fn with_connection<T>(
        &self,
        call: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, StateError> {
        Ok(call(self.lock().as_ref().ok_or(StateError::Closed)?)?)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal {
    /// Its name in the file.
    fn name(self) -> &'static str {
        match self {
            Self::Bus => "bus",
            Self::Queue => "queue",
            Self::DeletedMessages => "deleted-messages",
            Self::Discarded => "discarded",
            Self::DeletedObjects => "deleted-objects",
        }
    }
}
