//! The check of a setting against the table: whether the index partitions that a command reads are all that there are.

use daybook_admin::{AdminCalls, IndexPartition};
use daybook_event_store::{EventStore, StoreError};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::error::OperatorError;

const CONCURRENCY: usize = 100;

/// Checks that no index partition beyond `EVENT_TYPE_SHARDS` contains events of these types. With a value that is too low, a
/// command would miss them, and report that all is well.
///
/// It makes one query for one row of each possible partition, up to the maximum of the setting. It cannot see events that
/// the index does not contain yet, within seconds of their append, and events of other types. A value that is too high is
/// no error: the command then also reads partitions that are empty.
pub async fn check_shards(store: &EventStore, event_types: &[&str]) -> Result<(), OperatorError> {
    let beyond = store.admin().index_partitions_beyond(event_types);
    let found: Vec<(u32, IndexPartition)> = stream::iter(beyond)
        .map(async |(shard, partition)| {
            let is_used = store.admin().has_events(&partition).await?;
            Ok::<_, StoreError>(is_used.then_some((shard, partition)))
        })
        .buffer_unordered(CONCURRENCY)
        .try_filter_map(async |used| Ok(used))
        .try_collect()
        .await
        .map_err(|source| OperatorError::Store {
            doing: "cannot check EVENT_TYPE_SHARDS against the index".to_owned(),
            source,
        })?;
    let Some((shard, partition)) = found.into_iter().max_by_key(|(shard, _)| *shard) else { return Ok(()) };
    let (given, least) = (store.settings().event_type_shards, shard + 1);
    Err(OperatorError::Usage(format!(
        "EVENT_TYPE_SHARDS is {given}, but the table's index has events in the partition {partition}, so the functions write \
         with {least} or more: set EVENT_TYPE_SHARDS, or --event-type-shards, to the value of the functions, which the \
         stack's output OperatorEnvironment contains"
    )))
}
