//! The stream of a table, read without HTTP. In the engine, a stream has one shard.

use dynoxide::actions::get_records::GetRecordsRequest;
use dynoxide::actions::get_shard_iterator::GetShardIteratorRequest;
use dynoxide::actions::list_streams::ListStreamsRequest;
use dynoxide::{Database, DynoxideError};
use serde_json::Value;

#[derive(Clone)]
pub struct TableStream {
    database: Database,
    pub arn: String,
    pub shard_id: String,
}

impl TableStream {
    /// The stream of a table; `None` if the table has none.
    pub(super) fn of_table(database: &Database, table: &str) -> Result<Option<Self>, DynoxideError> {
        let request = ListStreamsRequest { table_name: Some(table.to_owned()), ..ListStreamsRequest::default() };
        let stream = database.list_streams(request)?.streams.pop();
        let shard_id = dynoxide::streams::shard_id(table);
        Ok(stream.map(|stream| Self { database: database.clone(), arn: stream.stream_arn, shard_id }))
    }

    /// The shard iterator of a type such as `AFTER_SEQUENCE_NUMBER`.
    pub fn iterator(&self, iterator_type: &str, sequence_number: Option<String>) -> Result<String, DynoxideError> {
        let request = GetShardIteratorRequest {
            stream_arn: self.arn.clone(),
            shard_id: self.shard_id.clone(),
            shard_iterator_type: iterator_type.to_owned(),
            sequence_number,
        };
        Ok(self.database.get_shard_iterator(request)?.shard_iterator.unwrap_or_default())
    }

    /// The next records, in the form of `GetRecords`. Moves the iterator behind them.
    pub fn records(&self, iterator: &mut String) -> Result<Vec<Value>, DynoxideError> {
        let request = GetRecordsRequest { shard_iterator: iterator.clone(), limit: None };
        let page = self.database.get_records(request)?;
        *iterator = page.next_shard_iterator.unwrap_or_default();
        Ok(page.records.into_iter().map(|record| serde_json::to_value(record).unwrap_or_default()).collect())
    }
}
