//! Local DynamoDB: the embedded engine behind an endpoint.

mod engine;
mod expiry;

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use dynoxide::actions::get_records::GetRecordsRequest;
use dynoxide::actions::get_shard_iterator::GetShardIteratorRequest;
use dynoxide::actions::list_streams::ListStreamsRequest;
use dynoxide::{Database, DynoxideError, server};
use rusqlite::Connection;
use serde_json::{Value, from_value, json};
use tokio::net::TcpListener;

use crate::server::Server;

pub use engine::OpenError;
pub(crate) use engine::{CHECKPOINTS, connect};
pub use expiry::{ForwardError, TableClock};

/// A running engine. It stops when it is dropped.
#[derive(Debug)]
pub struct LocalDynamoDb {
    server: Server,
    clock: TableClock,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot open the data file")]
    Data(#[from] OpenError),
    #[error("cannot complete a move of the clock")]
    Clock(#[from] ForwardError),
    #[error("cannot listen: {0}")]
    Listen(#[from] io::Error),
}

impl LocalDynamoDb {
    /// Serves at `listener`, from the file `data` or from memory.
    pub fn start(data: Option<&Path>, listener: TcpListener) -> Result<Self, StartError> {
        let (database, name) = engine::open(data)?;
        let clock = TableClock::of(database.clone(), name)?;
        let server =
            Server::spawn(listener, |listener, stopped| server::serve_with_shutdown(listener, database, stopped))?;
        Ok(Self { server, clock })
    }

    /// Serves from memory, on a free port of 127.0.0.1.
    pub async fn in_memory() -> Result<Self, StartError> {
        Self::start(None, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?)
    }

    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// The clock of its streams and of the expiry of its rows.
    pub fn clock(&self) -> &TableClock {
        &self.clock
    }

    /// The stream of a table; `None` if the table has none.
    pub fn stream(&self, table: &str) -> Result<Option<TableStream>, DynoxideError> {
        TableStream::of_table(&self.clock, table)
    }

    /// Creates a table whose key is one text, unless it exists.
    pub fn create_table(&self, name: &str, key: &str) -> Result<(), DynoxideError> {
        let request = json!({
            "TableName": name,
            "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"}],
            "BillingMode": "PAY_PER_REQUEST",
        });
        let request = from_value(request).map_err(|error| DynoxideError::ValidationException(error.to_string()))?;
        match self.clock.database.create_table(request) {
            Ok(_) | Err(DynoxideError::ResourceInUseException(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Stops after all received requests have a response, but after `grace` at the latest.
    pub async fn stop(self, grace: Duration) {
        self.server.stop(grace).await;
    }
}

/// The stream of a table, read without HTTP. In the engine, a stream has one shard.
#[derive(Clone)]
pub struct TableStream {
    table: TableClock,
    pub arn: String,
    pub shard_id: String,
}

/// Reads a stream from a position on.
pub struct StreamReader {
    database: Database,
    connection: Connection,
    iterator: String,
    /// The version of the database at a read that found no record.
    empty_at: Option<i64>,
}

impl TableStream {
    fn of_table(clock: &TableClock, table: &str) -> Result<Option<Self>, DynoxideError> {
        let request = ListStreamsRequest { table_name: Some(table.to_owned()), ..ListStreamsRequest::default() };
        let stream = clock.database.list_streams(request)?.streams.pop();
        let shard_id = dynoxide::streams::shard_id(table);
        Ok(stream.map(|stream| Self { table: clock.clone(), arn: stream.stream_arn, shard_id }))
    }

    /// A reader from a shard iterator of a type such as `AFTER_SEQUENCE_NUMBER` on.
    pub fn reader(&self, iterator_type: &str, sequence_number: Option<String>) -> Result<StreamReader, OpenError> {
        let request = GetShardIteratorRequest {
            stream_arn: self.arn.clone(),
            shard_id: self.shard_id.clone(),
            shard_iterator_type: iterator_type.to_owned(),
            sequence_number,
        };
        let database = self.table.database.clone();
        let iterator = database.get_shard_iterator(request)?.shard_iterator.unwrap_or_default();
        Ok(StreamReader { database, connection: connect(&self.table.name)?, iterator, empty_at: None })
    }
}

impl StreamReader {
    /// The next records, in the form of `GetRecords`. After a read that found none, the stream is read again when something was
    /// written, which takes far less time to find out.
    pub fn records(&mut self) -> Result<Vec<Value>, DynoxideError> {
        let version = self.connection.query_row("PRAGMA data_version", [], |row| row.get(0)).ok();
        if version.is_some() && version == self.empty_at {
            return Ok(Vec::new());
        }
        let page =
            self.database.get_records(GetRecordsRequest { shard_iterator: self.iterator.clone(), limit: None })?;
        self.iterator = page.next_shard_iterator.unwrap_or_default();
        self.empty_at = version.filter(|_| page.records.is_empty());
        Ok(page.records.into_iter().map(|record| serde_json::to_value(record).unwrap_or_default()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_finds_each_record_that_is_written_after_an_empty_read() {
        let folder = tempfile::tempdir().unwrap();
        for data in [None, Some(folder.path().join("daybook.db"))] {
            let (database, name) = engine::open(data.as_deref()).unwrap();
            let clock = TableClock::of(database.clone(), name).unwrap();
            engine::tests::create_table(&database);
            let stream = TableStream::of_table(&clock, "daybook-dev").unwrap().unwrap();
            let mut readers = [(); 2].map(|()| stream.reader("TRIM_HORIZON", None).unwrap());
            for number in 0..20 {
                assert!(readers.iter_mut().all(|reader| reader.records().unwrap().is_empty()));
                let item = json!({"TableName": "daybook-dev", "Item": {"pk": {"S": number.to_string()}}});
                database.put_item(from_value(item).unwrap()).unwrap();
                for reader in &mut readers {
                    let records = reader.records().unwrap();
                    let keys: Vec<_> = records.iter().map(|record| &record["dynamodb"]["Keys"]["pk"]["S"]).collect();
                    assert_eq!(keys, [&json!(number.to_string())]);
                }
            }
            // While nothing is written, a read does not ask the stream, so it does not notice that its iterator is wrong.
            let [reader, _] = &mut readers;
            assert!(reader.records().unwrap().is_empty());
            "wrong".clone_into(&mut reader.iterator);
            assert!(reader.records().unwrap().is_empty());
            let item = json!({"TableName": "daybook-dev", "Item": {"pk": {"S": "last"}}});
            database.put_item(from_value(item).unwrap()).unwrap();
            assert!(reader.records().is_err());
        }
    }
}
