//! The database of the embedded engine, in SQLite. This is the only file that uses private tables of the engine, in three
//! ways that its public interface does not have:
//!
//! - Indexes on `_stream_records`. The engine has none: each write reads all records of a stream to find the next sequence
//!   number, and each poll reads all records to find those after its position.
//! - A trigger on `_stream_records`. The engine never deletes the records of a stream. It takes their times from the
//!   machine's clock: another clock can only be given to a database in memory to which no second connection can be opened.
//! - The times of expiry in the tables of items, for the same reason. An update by a call would be in the stream, and so
//!   would a deletion by a call, without the mark of DynamoDB's own deletions.
//!
//! The indexes and the trigger are part of the database, so the engine needs no change. The tables `_daybook_*` are the
//! local stack's own.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dynoxide::actions::list_tables::ListTablesRequest;
use dynoxide::{Database, DynoxideError};
use rusqlite::Connection;

/// How long a statement waits while the engine writes. The engine uses the same time limit.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The time for which a stream stores its records, in seconds: 24 hours, as in DynamoDB.
const RETENTION_SECONDS: u32 = 24 * 60 * 60;

/// Maximum number of the oldest records that are deleted with each new one, if they are too old. More than one, so that
/// records that became too old while the stack was not running are deleted, too.
const TRIMMED_PER_INSERT: u32 = 4;

/// The table of the positions up to which readers have settled the shards of a stream.
pub(crate) const CHECKPOINTS: &str = "CREATE TABLE IF NOT EXISTS _daybook_checkpoints (
    reader TEXT PRIMARY KEY, sequence_number TEXT NOT NULL, is_settled INTEGER NOT NULL
) WITHOUT ROWID;";

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Engine(#[from] dynoxide::DynoxideError),
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

/// Opens the file `data`, or creates it; without a file, a new database in memory. Returns the database and its name.
pub(super) fn open(data: Option<&Path>) -> Result<(Database, String), OpenError> {
    let name = data.map_or_else(memory_name, |path| path.to_string_lossy().into_owned());
    let database = Database::new(&name)?;
    // A database in memory exists as long as the engine's connection.
    extend(&connect(&name)?)?;
    Ok((database, name))
}

/// A second connection to a database that the engine has open.
pub(crate) fn connect(name: &str) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open(name)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Transactions survive the end of the process, but the last ones do not survive a loss of power. Messages are then
    // delivered again.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}

/// The name of a new database in memory, to which several connections of this process can be opened.
fn memory_name() -> String {
    static DATABASES: AtomicU64 = AtomicU64::new(0);
    format!("file:daybook-{}?mode=memory&cache=shared", DATABASES.fetch_add(1, Ordering::Relaxed))
}

/// Adds indexes for the engine's queries of a stream, and a trigger for each new record: the record gets the time of the local
/// stack, which may be ahead of the engine's, and the records are deleted that DynamoDB would have deleted.
///
/// Records that a reader with a checkpoint has not settled stay, so that their messages are still sent after the stack
/// was not running for a day.
fn extend(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE;
         CREATE INDEX IF NOT EXISTS _daybook_stream_numbers
           ON _stream_records (table_name, CAST(sequence_number AS INTEGER));
         CREATE INDEX IF NOT EXISTS _daybook_shard_numbers
           ON _stream_records (table_name, shard_id, CAST(sequence_number AS INTEGER));
         {CHECKPOINTS}
         CREATE TABLE IF NOT EXISTS _daybook_clock (
           id INTEGER PRIMARY KEY CHECK (id = 1),
           ahead_seconds INTEGER NOT NULL
         );
         INSERT OR IGNORE INTO _daybook_clock VALUES (1, 0);
         DROP TRIGGER IF EXISTS _daybook_trim;
         -- A sequence number of a checkpoint is a 1 and the engine's number with 20 digits.
         CREATE TRIGGER _daybook_trim AFTER INSERT ON _stream_records BEGIN
           UPDATE _stream_records SET created_at = created_at + (SELECT ahead_seconds FROM _daybook_clock)
           WHERE id = NEW.id;
           DELETE FROM _stream_records
           WHERE id IN (SELECT id FROM _stream_records ORDER BY id LIMIT {TRIMMED_PER_INSERT})
             AND created_at < NEW.created_at + (SELECT ahead_seconds FROM _daybook_clock) - {RETENTION_SECONDS}
             AND CAST(sequence_number AS INTEGER) < (
               SELECT COALESCE(MIN(CAST(substr(sequence_number, 2) AS INTEGER) + is_settled), 9223372036854775807)
               FROM _daybook_checkpoints
             );
         END;
         COMMIT;"
    ))
}

/// How far the clock is ahead, and the time of the last stream record since 1970, both in seconds.
pub(super) fn clock_and_last_record(connection: &Connection) -> Result<(u64, u64), rusqlite::Error> {
    let latest = "SELECT created_at FROM _stream_records ORDER BY id DESC LIMIT 1";
    let sql = format!("SELECT ahead_seconds, COALESCE(({latest}), 0) FROM _daybook_clock");
    connection.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// The tables whose rows expire, each with the attribute that contains the time.
pub(super) fn expiring_tables(database: &Database) -> Result<Vec<(String, String)>, DynoxideError> {
    let names = database.list_tables(ListTablesRequest::default())?.table_names;
    let tables = names.into_iter().map(|name| {
        let table = database.get_table_metadata(&name)?.filter(|table| table.ttl_enabled);
        let attribute = table.and_then(|table| table.ttl_attribute);
        Ok(attribute.map(|attribute| (name, attribute)))
    });
    tables.filter_map(Result::transpose).collect()
}

/// Replaces the times of all items that have expired by `now`, in seconds since 1970, by one that is over by every clock.
pub(super) fn expire(connection: &Connection, tables: &[(String, String)], now: u64) -> Result<(), rusqlite::Error> {
    tables.iter().try_for_each(|(name, attribute)| {
        let sql = format!(
            "UPDATE \"{name}\" SET item_json = json_set(item_json, ?1, '1')
             WHERE CAST(json_extract(item_json, ?1) AS INTEGER) < ?2"
        );
        connection.execute(&sql, (format!("$.\"{attribute}\".N"), now)).map(drop)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use rusqlite::StatementStatus;
    use serde_json::{Value, from_value, json};

    use super::*;

    /// The engine's queries of a stream: the next number, and the records after a position. The engine's version 3.2
    /// has these texts.
    const ENGINE_QUERIES: [&str; 2] = [
        "SELECT COALESCE(MAX(CAST(sequence_number AS INTEGER)), 0) + 1 FROM _stream_records WHERE table_name = 'daybook-dev'",
        "SELECT event_name, keys_json, new_image, old_image, sequence_number, created_at, user_identity, event_id
         FROM _stream_records
         WHERE table_name = 'daybook-dev' AND shard_id = 'shardId-00000001-daybook-dev'
           AND CAST(sequence_number AS INTEGER) > 1
         ORDER BY CAST(sequence_number AS INTEGER) ASC
         LIMIT 10",
    ];

    /// More steps than each of the queries takes with an index. Without an index, a query takes several steps for each
    /// record.
    const STEPS: i32 = 300;

    const DAY: u32 = 24 * 60 * 60;

    pub(in crate::dynamodb) fn create_table(database: &Database) {
        let request = json!({
            "TableName": "daybook-dev",
            "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
            "BillingMode": "PAY_PER_REQUEST",
            "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_IMAGE"},
        });
        database.create_table(from_value(request).unwrap()).unwrap();
    }

    fn put(database: &Database, items: std::ops::Range<usize>) {
        for item in items {
            let request = json!({"TableName": "daybook-dev", "Item": {"pk": {"S": item.to_string()}}});
            database.put_item(from_value(request).unwrap()).unwrap();
        }
    }

    /// The steps of SQLite's virtual machine that each of the engine's queries takes.
    fn steps(connection: &Connection) -> Vec<i32> {
        let steps_of = |query: &&str| {
            let mut statement = connection.prepare(query).unwrap();
            let mut rows = statement.query([]).unwrap();
            while rows.next().unwrap().is_some() {}
            drop(rows);
            statement.get_status(StatementStatus::VmStep)
        };
        ENGINE_QUERIES.iter().map(steps_of).collect()
    }

    fn records(connection: &Connection) -> Vec<i64> {
        let mut statement =
            connection.prepare("SELECT CAST(sequence_number AS INTEGER) FROM _stream_records ORDER BY id").unwrap();
        let numbers = statement.query_map([], |row| row.get(0)).unwrap();
        numbers.map(Result::unwrap).collect()
    }

    /// Makes all records of the stream older by `seconds`.
    fn age(connection: &Connection, seconds: u32) {
        connection.execute("UPDATE _stream_records SET created_at = created_at - ?1", [seconds]).unwrap();
    }

    #[test]
    fn queries_of_a_stream_take_no_more_steps_with_many_records() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("daybook.db").to_string_lossy().into_owned();
        let database = open(Some(Path::new(&name))).unwrap().0;
        let connection = connect(&name).unwrap();
        create_table(&database);
        put(&database, 0..2_000);
        assert_eq!(records(&connection).len(), 2_000);
        let steps = steps(&connection);
        assert!(steps.iter().all(|&steps| steps < STEPS), "{steps:?}");
    }

    #[test]
    fn database_in_memory_has_the_additions_of_a_file() {
        let (database, name) = open(None).unwrap();
        let connection = connect(&name).unwrap();
        create_table(&database);
        put(&database, 0..2_000);
        let steps = steps(&connection);
        assert!(steps.iter().all(|&steps| steps < STEPS), "{steps:?}");
    }

    #[test]
    fn databases_in_memory_are_separate() {
        let (one, other) = (open(None).unwrap().0, open(None).unwrap().0);
        create_table(&one);
        create_table(&other);
        put(&one, 0..1);
        let scan = |database: &Database| {
            let response = database.scan(from_value(json!({"TableName": "daybook-dev"})).unwrap()).unwrap();
            serde_json::to_value(response).unwrap()["Count"].clone()
        };
        assert_eq!([scan(&one), scan(&other)], [Value::from(1), Value::from(0)]);
    }

    #[test]
    fn records_older_than_a_day_are_deleted_by_later_writes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daybook.db");
        let database = open(Some(&path)).unwrap().0;
        let connection = connect(&path.to_string_lossy()).unwrap();
        create_table(&database);
        put(&database, 0..5);
        age(&connection, DAY - 60);
        put(&database, 5..6);
        assert_eq!(records(&connection).len(), 6);
        age(&connection, 120);
        let last = *records(&connection).last().unwrap();
        put(&database, 6..8);
        let kept = records(&connection);
        assert_eq!((kept.len(), kept[0]), (3, last));
        assert!(kept[2] > kept[1] && kept[1] > last, "{kept:?}");
    }

    #[test]
    fn old_records_that_a_reader_has_not_settled_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daybook.db");
        let database = open(Some(&path)).unwrap().0;
        let connection = connect(&path.to_string_lossy()).unwrap();
        create_table(&database);
        put(&database, 0..6);
        let written = records(&connection);
        let checkpoint = |reader: &str, number: i64, is_settled: bool| {
            let number = (100_000_000_000_000_000_000 + i128::from(number)).to_string();
            let sql = "INSERT OR REPLACE INTO _daybook_checkpoints VALUES (?1, ?2, ?3)";
            connection.execute(sql, rusqlite::params![reader, number, is_settled]).unwrap();
        };
        checkpoint("relay", written[2], false);
        checkpoint("snapshotter", written[5], true);
        age(&connection, 2 * DAY);
        put(&database, 6..7);
        assert_eq!(records(&connection)[..4], written[2..6]);
        checkpoint("relay", written[4], true);
        put(&database, 7..8);
        assert_eq!(records(&connection)[..1], written[5..6]);
    }
}
