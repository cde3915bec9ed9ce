//! The state of the local stack besides the table, in the file of the table or in memory: the entries of the bus, the positions
//! of the stream's readers, and journals of the arrivals in the queues and at the on-failure destination.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::dynamodb::{CHECKPOINTS, connect};

/// The state of a stack. Clones share it.
#[derive(Clone, Debug)]
pub struct StackState {
    /// `None` after it was closed.
    connection: Arc<Mutex<Option<Connection>>>,
    /// A number that is higher than that of each earlier session that has added entries to a journal.
    pub(crate) session: u32,
}

/// A journal, by its name: entries are added and never changed or deleted.
#[derive(Clone, Copy, Debug)]
pub struct Journal(&'static str);

impl Journal {
    /// The messages that a queue accepted.
    pub const QUEUE: Self = Self("queue");
    /// The ids of messages that were deleted from their queue.
    pub const DELETED_MESSAGES: Self = Self("deleted-messages");
    /// The records that event source mappings discarded.
    pub const DISCARDED: Self = Self("discarded");
    /// The keys of objects that were deleted from a bucket.
    pub const DELETED_OBJECTS: Self = Self("deleted-objects");
    /// The key of KMS, once it was used.
    pub const KMS_KEY: Self = Self("kms-key");
}

/// The position up to which a reader has settled a shard of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The sequence number of a record. All records before it are settled.
    pub sequence_number: String,
    /// Whether this record is settled, too.
    pub is_settled: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum DataFileError {
    #[error("the data file is closed")]
    Closed,
    #[error("cannot use the data file")]
    Sqlite(#[from] rusqlite::Error),
    #[error("cannot read an entry of the data file")]
    Json(#[from] serde_json::Error),
}

/// Which entries of the bus. Positions are counted from 1.
pub(crate) struct BusQuery {
    /// The first position, and the one after the last.
    pub(crate) positions: Range<usize>,
    /// A column of the entries, and the values of which they have one, as a JSON array.
    pub(crate) key: Option<(&'static str, String)>,
}

impl BusQuery {
    /// The end of a statement, whose first parameters are the positions and the values. With a key, SQLite uses the index of
    /// its column: the signs keep it from that of the positions.
    fn sql(&self) -> String {
        match &self.key {
            None => "FROM _daybook_bus WHERE position >= ?1 AND position < ?2 AND ?3 = ''".to_owned(),
            Some((column, _)) => format!(
                "FROM _daybook_bus WHERE {column} IN (SELECT value FROM json_each(?3)) AND +position >= ?1 AND +position < ?2"
            ),
        }
    }

    fn parameters(&self) -> (i64, i64, &str) {
        let [start, end] = [self.positions.start, self.positions.end].map(|at| i64::try_from(at).unwrap_or(i64::MAX));
        (start, end, self.key.as_ref().map_or("", |(_, values)| values))
    }
}

impl StackState {
    /// Opens the state in the file of a running [`LocalDynamoDb`](crate::dynamodb::LocalDynamoDb).
    pub fn open(data: &Path) -> Result<Self, DataFileError> {
        Self::of(connect(&data.to_string_lossy())?)
    }

    /// A state that ends with its last clone.
    pub fn in_memory() -> Result<Self, DataFileError> {
        Self::of(Connection::open_in_memory()?)
    }

    fn of(connection: Connection) -> Result<Self, DataFileError> {
        // The columns find entries without reading the others. Only messages of Daybook have all of them.
        connection.execute_batch(&format!(
            "{CHECKPOINTS}
             CREATE TABLE IF NOT EXISTS _daybook_journal (
               id INTEGER PRIMARY KEY AUTOINCREMENT,
               journal TEXT NOT NULL,
               entry TEXT NOT NULL
             );
             CREATE INDEX IF NOT EXISTS _daybook_journals ON _daybook_journal (journal, id);
             CREATE TABLE IF NOT EXISTS _daybook_bus (
               position INTEGER PRIMARY KEY,
               entry TEXT NOT NULL,
               resource TEXT AS (json_extract(entry, '$.resources[0]')),
               message_id TEXT AS (json_extract(json_extract(entry, '$.detail'), '$.metadata.messageId')),
               correlation_id TEXT AS (json_extract(json_extract(entry, '$.detail'), '$.metadata.correlationId'))
             );
             CREATE INDEX IF NOT EXISTS _daybook_resources ON _daybook_bus (resource);
             CREATE INDEX IF NOT EXISTS _daybook_message_ids ON _daybook_bus (message_id);
             CREATE INDEX IF NOT EXISTS _daybook_correlation_ids ON _daybook_bus (correlation_id);"
        ))?;
        let last = "SELECT (SELECT COALESCE(MAX(id), 0) FROM _daybook_journal)
                         + (SELECT COALESCE(MAX(position), 0) FROM _daybook_bus)";
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

    /// Adds an entry to a journal. Once this has returned, a killed process does not lose an entry in a file.
    pub fn append(&self, journal: Journal, entry: &impl Serialize) -> Result<(), DataFileError> {
        let sql = "INSERT INTO _daybook_journal (journal, entry) VALUES (?1, ?2)";
        let entry = serde_json::to_string(entry)?;
        self.with_connection(|connection| connection.prepare_cached(sql)?.execute((journal.0, entry)).map(drop))
    }

    /// The entries of a journal, in the order in which they were added.
    pub fn entries<T: DeserializeOwned>(&self, journal: Journal) -> Result<Vec<T>, DataFileError> {
        let sql = "SELECT entry FROM _daybook_journal WHERE journal = ?1 ORDER BY id";
        let texts: Vec<String> = self.with_connection(|connection| {
            connection.prepare_cached(sql)?.query_map([journal.0], |row| row.get(0))?.collect()
        })?;
        texts.iter().map(|text| Ok(serde_json::from_str(text)?)).collect()
    }

    pub(crate) fn append_to_bus(&self, entry: &impl Serialize) -> Result<(), DataFileError> {
        let entry = serde_json::to_string(entry)?;
        let sql = "INSERT INTO _daybook_bus (entry) VALUES (?1)";
        self.with_connection(|connection| connection.prepare_cached(sql)?.execute([entry]).map(drop))
    }

    /// The position of the last entry of the bus; 0 before the first.
    pub(crate) fn last_of_bus(&self) -> Result<usize, DataFileError> {
        let sql = "SELECT COALESCE(MAX(position), 0) FROM _daybook_bus";
        self.with_connection(|connection| connection.prepare_cached(sql)?.query_row([], |row| row.get(0)))
    }

    pub(crate) fn count_of_bus(&self, query: &BusQuery) -> Result<usize, DataFileError> {
        let sql = format!("SELECT COUNT(*) {}", query.sql());
        self.with_connection(|connection| {
            connection.prepare_cached(&sql)?.query_row(query.parameters(), |row| row.get(0))
        })
    }

    /// The last `limit` entries of the bus, each with its position, in order of arrival.
    pub(crate) fn entries_of_bus<T: DeserializeOwned>(
        &self,
        query: &BusQuery,
        limit: usize,
    ) -> Result<Vec<(usize, T)>, DataFileError> {
        let sql = format!("SELECT position, entry {} ORDER BY position DESC LIMIT ?4", query.sql());
        let (first, end, values) = query.parameters();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows: Vec<(usize, String)> = self.with_connection(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            statement.query_map((first, end, values, limit), |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })?;
        rows.into_iter().rev().map(|(position, text)| Ok((position, serde_json::from_str(&text)?))).collect()
    }

    pub fn checkpoint(&self, reader: &str) -> Result<Option<Checkpoint>, DataFileError> {
        let sql = "SELECT sequence_number, is_settled FROM _daybook_checkpoints WHERE reader = ?1";
        let checkpoint = |row: &Row<'_>| Ok(Checkpoint { sequence_number: row.get(0)?, is_settled: row.get(1)? });
        self.with_connection(|connection| connection.query_row(sql, [reader], checkpoint).optional())
    }

    pub fn save_checkpoint(&self, reader: &str, checkpoint: &Checkpoint) -> Result<(), DataFileError> {
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
    pub fn retain_checkpoints(&self, readers: &[String]) -> Result<(), DataFileError> {
        let sql = "DELETE FROM _daybook_checkpoints WHERE reader NOT IN (SELECT value FROM json_each(?1))";
        let readers = serde_json::to_string(readers)?;
        self.with_connection(|connection| connection.execute(sql, [readers]).map(drop))
    }

    fn with_connection<T>(
        &self,
        call: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, DataFileError> {
        Ok(call(self.lock().as_ref().ok_or(DataFileError::Closed)?)?)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
