//! The table's stream, read as Lambda's pollers do: every shard from its beginning, records in order, and a shard only once
//! the one that it follows on is done with.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_dynamodbstreams::Client;
use aws_sdk_dynamodbstreams::types::{OperationType, Record as StreamRecord, ShardIteratorType, StreamViewType};
use daybook_event_source_mapping::Record;
use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use super::stack::DevError;

/// How long a reader that has caught up waits before it looks again. Lambda polls four times a second.
const IDLE: Duration = Duration::from_millis(50);

/// How long a reader waits after a fault.
const AFTER_FAULT: Duration = Duration::from_secs(1);

/// How long what follows on a shard is waited for before the shards are listed again.
const NO_CHILD: Duration = Duration::from_secs(1);

/// The shards of a stream, each with the one that it follows on.
type Shards = BTreeMap<String, Option<String>>;

/// The stream of a table.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    client: Client,
    pub(super) arn: String,
}

impl Stream {
    /// That of a table.
    pub(super) async fn of_table(client: Client, table_name: &str) -> Result<Self, DevError> {
        let streams = client.list_streams().table_name(table_name).send().await.map_err(DevError::stream)?;
        let arn = streams.streams.unwrap_or_default().into_iter().find_map(|stream| stream.stream_arn);
        let stream = Self { client, arn: arn.ok_or_else(|| DevError::stream("the table has none"))? };
        // Who may not list them learns it here.
        stream.shards().await?;
        Ok(stream)
    }

    async fn shards(&self) -> Result<Shards, DevError> {
        let mut shards = Shards::new();
        let mut after = None;
        loop {
            let page = self.client.describe_stream().stream_arn(&self.arn).set_exclusive_start_shard_id(after);
            let page = page.send().await.map_err(DevError::stream)?.stream_description;
            let Some(page) = page else { return Ok(shards) };
            let found = page.shards.unwrap_or_default().into_iter();
            shards.extend(found.filter_map(|shard| Some((shard.shard_id?, shard.parent_shard_id))));
            after = page.last_evaluated_shard_id;
            if after.is_none() {
                return Ok(shards);
            }
        }
    }

    /// Has each shard worked off: those that are there, then those that follow on them. For ever, since a table that takes
    /// writes always has an open shard.
    pub(super) async fn follow<F>(&self, work_off: impl Fn(String) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (mut begun, mut done) = (BTreeSet::new(), BTreeSet::new());
        let mut working = JoinSet::new();
        loop {
            let (ready, wait) = match self.shards().await {
                Ok(shards) => {
                    let follows = |parent: &String| shards.values().flatten().any(|of| of == parent);
                    let is_ready = |parent: &Option<String>| {
                        // One that is not listed is older than the stream remembers.
                        parent.as_ref().is_none_or(|parent| done.contains(parent) || !shards.contains_key(parent))
                    };
                    let wait = done.iter().any(|shard| shards.contains_key(shard) && !follows(shard));
                    let ready = shards.iter().filter(|(shard, parent)| !begun.contains(*shard) && is_ready(parent));
                    (ready.map(|(shard, _)| shard.clone()).collect(), wait.then_some(NO_CHILD))
                }
                Err(error) => {
                    tracing::warn!(
                        error = daybook_function_runtime::with_causes(&error),
                        "the stream's shards are listed again"
                    );
                    (Vec::new(), Some(AFTER_FAULT))
                }
            };
            for shard in ready {
                begun.insert(shard.clone());
                working.spawn(work_off(shard.clone()).map(|()| shard));
            }
            let again = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(ended) = working.join_next() => match ended {
                    Ok(shard) => {
                        tracing::info!(shard, "a shard of the stream has ended");
                        done.insert(shard);
                    }
                    Err(error) => tracing::error!(%error, "a shard of the stream is not read any more"),
                },
                () = again => {}
            }
        }
    }

    /// Sends the records of a shard, from the oldest on, until its end or until nobody takes them any more. After a fault it
    /// starts over, so records may come twice.
    pub(super) async fn read(&self, shard: &str, records: Sender<Record>) {
        while let Err(error) = read_on(&self.client, &self.arn, shard, &records).await {
            tracing::warn!(
                error = daybook_function_runtime::with_causes(&error),
                "the stream is read from its beginning again"
            );
            tokio::time::sleep(AFTER_FAULT).await;
        }
    }
}

async fn read_on(client: &Client, arn: &str, shard: &str, records: &Sender<Record>) -> Result<(), DevError> {
    let start = client
        .get_shard_iterator()
        .stream_arn(arn)
        .shard_id(shard)
        .shard_iterator_type(ShardIteratorType::TrimHorizon)
        .send()
        .await
        .map_err(DevError::stream)?;
    let mut iterator = start.shard_iterator;
    while let Some(at) = iterator {
        let page = client.get_records().shard_iterator(at).send().await.map_err(DevError::stream)?;
        let found = page.records.unwrap_or_default();
        let caught_up = found.is_empty();
        for record in found {
            let record = Record::from_stream(json_of(record)?, arn).map_err(DevError::stream)?;
            if records.send(record).await.is_err() {
                return Ok(());
            }
        }
        iterator = page.next_shard_iterator;
        if caught_up {
            tokio::time::sleep(IDLE).await;
        }
    }
    Ok(())
}

/// The record as `GetRecords` has it on the wire, which the SDK has taken apart.
fn json_of(record: StreamRecord) -> Result<Value, DevError> {
    let change = record.dynamodb.ok_or_else(|| DevError::stream("a record tells no change"))?;
    let item = |item: Option<_>| -> Result<Value, DevError> {
        item.map(|item: serde_dynamo::Item| serde_json::to_value(item).map_err(DevError::stream))
            .unwrap_or(Ok(Value::Null))
    };
    let mut json = json!({
        "eventID": record.event_id,
        "eventName": record.event_name.as_ref().map(OperationType::as_str),
        "eventVersion": record.event_version,
        "eventSource": record.event_source,
        "awsRegion": record.aws_region,
        "dynamodb": {
            "ApproximateCreationDateTime": change.approximate_creation_date_time.map(|at| at.as_secs_f64()),
            "Keys": item(change.keys.map(Into::into))?,
            "SequenceNumber": change.sequence_number,
            "SizeBytes": change.size_bytes,
            "StreamViewType": change.stream_view_type.as_ref().map(StreamViewType::as_str),
        },
    });
    if let Some(image) = change.new_image {
        json["dynamodb"]["NewImage"] = item(Some(image.into()))?;
    }
    if let Some(identity) = record.user_identity {
        json["userIdentity"] = json!({"PrincipalId": identity.principal_id, "Type": identity.r#type});
    }
    Ok(json)
}
