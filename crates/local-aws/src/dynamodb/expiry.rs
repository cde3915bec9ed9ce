//! Moves the clock of a database forward, and deletes the rows that have expired by then.
//!
//! The engine reads the machine's clock when it writes a record of a stream and when it deletes expired rows. So the database
//! stores how far the local stack is ahead: a trigger corrects the times of new records. Expired rows get a `ttl` that is
//! over by the machine's clock too, which no record shows; the engine then deletes them as DynamoDB does.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant, UNIX_EPOCH};

use dynoxide::Database;
use rusqlite::{Connection, ErrorCode};

use crate::clock::{Ahead, LocalClock, MoveError};
use crate::dynamodb::engine::{BUSY_TIMEOUT, clock_and_last_record, connect, expire, expiring_tables};

/// The pause before a statement is repeated.
const PAUSE: Duration = Duration::from_millis(1);

/// The clock of a database. Clones share it.
#[derive(Clone)]
pub struct TableClock {
    pub(super) database: Database,
    /// The name of the database, for further connections.
    pub(super) name: String,
    clock: LocalClock,
    /// Held during a move.
    moving: Arc<Mutex<()>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    #[error(transparent)]
    Move(#[from] MoveError),
    #[error("expired rows cannot be deleted")]
    Engine(#[from] dynoxide::DynoxideError),
    #[error("the database cannot be changed")]
    Sqlite(#[from] rusqlite::Error),
}

impl fmt::Debug for TableClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableClock").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl TableClock {
    /// The clock of an open database, as far ahead as it was when the database was closed, and not before its last record. If
    /// it was closed during a move, the move is completed.
    pub(super) fn of(database: Database, name: String) -> Result<Self, ForwardError> {
        let connection = connect(&name)?;
        let (seconds, latest) = clock_and_last_record(&connection)?;
        let clock = (Ahead { seconds }, UNIX_EPOCH + Duration::from_secs(latest)).into();
        let clock = Self { database, name, clock, moving: Arc::default() };
        if seconds > 0 {
            clock.delete_expired(&connection)?;
        }
        Ok(clock)
    }

    /// The clock for all other parts of the stack.
    pub fn clock(&self) -> &LocalClock {
        &self.clock
    }

    /// Moves the clock forward, and deletes the rows that have expired. Blocks the thread.
    pub fn forward(&self, by: Ahead) -> Result<(), ForwardError> {
        let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = self.clock.ahead().moved(by)?;
        let connection = connect(&self.name)?;
        repeated(|| connection.execute("UPDATE _daybook_clock SET ahead_seconds = ?1", [ahead.seconds]))?;
        self.clock.advance_to(ahead);
        self.delete_expired(&connection)
    }

    fn delete_expired(&self, connection: &Connection) -> Result<(), ForwardError> {
        let now = self.clock.since_1970().as_secs();
        let tables = expiring_tables(&self.database)?;
        repeated(|| expire(connection, &tables, now))?;
        self.database.sweep_ttl()?;
        Ok(())
    }
}

/// Repeats a statement while the engine uses the tables: for a database in memory, SQLite does not wait by itself.
fn repeated<T>(run: impl Fn() -> Result<T, rusqlite::Error>) -> Result<T, rusqlite::Error> {
    let give_up = Instant::now() + BUSY_TIMEOUT;
    loop {
        let result = run();
        let is_locked =
            result.as_ref().is_err_and(|error| error.sqlite_error_code() == Some(ErrorCode::DatabaseLocked));
        if !is_locked || Instant::now() >= give_up {
            return result;
        }
        sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json, to_value};

    use super::*;
    use crate::dynamodb::engine::open;

    /// A table whose rows expire.
    fn create_table(database: &Database) {
        crate::dynamodb::engine::tests::create_table(database);
        let ttl =
            json!({"TableName": "daybook-dev", "TimeToLiveSpecification": {"Enabled": true, "AttributeName": "ttl"}});
        database.update_time_to_live(from_value(ttl).unwrap()).unwrap();
    }

    /// Puts a row that expires this many seconds after the machine's time, or never.
    fn put(database: &Database, pk: &str, expires_in: Option<u64>) {
        let mut item = json!({"pk": {"S": pk}, "data": {"S": "\"é\""}});
        if let Some(seconds) = expires_in {
            item["ttl"] = json!({"N": (LocalClock::default().since_1970().as_secs() + seconds).to_string()});
        }
        let request = json!({"TableName": "daybook-dev", "Item": item});
        database.put_item(from_value(request).unwrap()).unwrap();
    }

    fn rows(database: &Database) -> Vec<String> {
        let found = to_value(database.scan(from_value(json!({"TableName": "daybook-dev"})).unwrap()).unwrap()).unwrap();
        let rows = found["Items"].as_array().unwrap();
        let mut rows: Vec<_> = rows.iter().map(|row| row["pk"]["S"].as_str().unwrap().to_owned()).collect();
        rows.sort();
        rows
    }

    fn records(database: &Database) -> Vec<Value> {
        let streams = to_value(database.list_streams(from_value(json!({})).unwrap()).unwrap()).unwrap();
        let arn = &streams["Streams"][0]["StreamArn"];
        let described = from_value(json!({"StreamArn": arn})).unwrap();
        let stream = to_value(database.describe_stream(described).unwrap()).unwrap();
        let shard = &stream["StreamDescription"]["Shards"][0]["ShardId"];
        let start = json!({"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"});
        let iterator = to_value(database.get_shard_iterator(from_value(start).unwrap()).unwrap()).unwrap();
        let read = from_value(json!({"ShardIterator": iterator["ShardIterator"]})).unwrap();
        to_value(database.get_records(read).unwrap()).unwrap()["Records"].as_array().unwrap().clone()
    }

    #[test]
    fn expired_rows_are_deleted_as_by_dynamodb() {
        let (database, name) = open(None).unwrap();
        let clock = TableClock::of(database.clone(), name).unwrap();
        create_table(&database);
        put(&database, "hour", Some(60 * 60));
        put(&database, "month", Some(30 * 24 * 60 * 60));
        put(&database, "stays", None);
        clock.forward("30m".parse().unwrap()).unwrap();
        assert_eq!(rows(&database), ["hour", "month", "stays"]);
        clock.forward("1h".parse().unwrap()).unwrap();
        assert_eq!(rows(&database), ["month", "stays"]);

        let records = records(&database);
        let names: Vec<_> = records.iter().map(|record| record["eventName"].as_str().unwrap()).collect();
        assert_eq!(names, ["INSERT", "INSERT", "INSERT", "REMOVE"]);
        let by_dynamodb = json!({"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"});
        let identity = records[3]["userIdentity"].as_object().unwrap();
        let identity: Value =
            identity.iter().map(|(name, value)| (name[..1].to_uppercase() + &name[1..], value.clone())).collect();
        assert_eq!((identity, records[3]["dynamodb"]["Keys"].clone()), (by_dynamodb, json!({"pk": {"S": "hour"}})));
        let created = |index: usize| records[index]["dynamodb"]["ApproximateCreationDateTime"].as_f64().unwrap();
        assert!(created(3) - created(2) >= 1.5 * 60.0 * 60.0, "{records:?}");
    }

    #[test]
    fn database_in_use_can_be_moved() {
        let (database, name) = open(None).unwrap();
        let clock = TableClock::of(database.clone(), name).unwrap();
        create_table(&database);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..3_000).for_each(|number| put(&database, &number.to_string(), None)));
            while !writer.is_finished() {
                clock.forward("1s".parse().unwrap()).unwrap();
            }
        });
        assert_eq!(rows(&database).len(), 3_000);
    }

    #[test]
    fn database_file_stores_how_far_ahead_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daybook.db");
        let (database, name) = open(Some(&path)).unwrap();
        let clock = TableClock::of(database, name).unwrap();
        clock.forward("14d".parse().unwrap()).unwrap();
        clock.forward("2h".parse().unwrap()).unwrap();
        assert!(matches!(clock.forward("36500d".parse().unwrap()), Err(ForwardError::Move(_))));
        drop(clock);
        let (database, name) = open(Some(&path)).unwrap();
        assert_eq!(TableClock::of(database, name).unwrap().clock().ahead().to_string(), "14d 2h");
    }

    #[test]
    fn clock_of_a_database_file_goes_on_after_its_last_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daybook.db");
        let (database, name) = open(Some(&path)).unwrap();
        create_table(&database);
        put(&database, "1", None);
        // The machine's clock is set back.
        connect(&name).unwrap().execute("UPDATE _stream_records SET created_at = created_at + 3600", []).unwrap();
        drop(database);
        let before = LocalClock::default().since_1970();
        let (database, name) = open(Some(&path)).unwrap();
        let ahead = TableClock::of(database, name).unwrap().clock().since_1970().saturating_sub(before);
        assert!(ahead > Duration::from_mins(59), "{ahead:?}");
    }

    #[test]
    fn move_that_a_stop_interrupted_is_completed_when_the_file_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daybook.db");
        let (database, name) = open(Some(&path)).unwrap();
        create_table(&database);
        put(&database, "hour", Some(60 * 60));
        put(&database, "month", Some(30 * 24 * 60 * 60));
        // The stop was after the first step of the move.
        connect(&name).unwrap().execute("UPDATE _daybook_clock SET ahead_seconds = 86400", []).unwrap();
        drop(database);

        let (database, name) = open(Some(&path)).unwrap();
        TableClock::of(database.clone(), name).unwrap();
        assert_eq!(rows(&database), ["month"]);
    }
}
