//! The table's stream, read as Lambda's pollers do: every shard from its beginning, records in order.

use std::time::Duration;

use aws_sdk_dynamodbstreams::Client;
use aws_sdk_dynamodbstreams::types::{OperationType, Record as StreamRecord, ShardIteratorType, StreamViewType};
use event_source_mapping::Record;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use super::stack::DevError;

/// How long a reader that has caught up waits before it looks again. Lambda polls four times a second.
const IDLE: Duration = Duration::from_millis(50);

/// How long a reader waits after a fault.
const AFTER_FAULT: Duration = Duration::from_secs(1);

/// A stream and its shards.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) arn: String,
    pub(super) shards: Vec<String>,
}

/// The stream of a table.
pub(super) async fn of_table(client: &Client, table_name: &str) -> Result<Stream, DevError> {
    let streams = client.list_streams().table_name(table_name).send().await.map_err(DevError::stream)?;
    let arn = streams.streams.unwrap_or_default().into_iter().find_map(|stream| stream.stream_arn);
    let arn = arn.ok_or_else(|| DevError::stream("the table has none"))?;
    let described = client.describe_stream().stream_arn(&arn).send().await.map_err(DevError::stream)?;
    let shards = described.stream_description.and_then(|stream| stream.shards).unwrap_or_default();
    Ok(Stream { arn, shards: shards.into_iter().filter_map(|shard| shard.shard_id).collect() })
}

/// Sends the records of a shard, from the oldest on, until nobody takes them any more. After a fault it starts over, so
/// records may come twice.
pub(super) async fn follow(client: &Client, arn: &str, shard: &str, records: &Sender<Record>) {
    while let Err(error) = read_on(client, arn, shard, records).await {
        tracing::warn!(error = startup::in_full(&error), "the stream is read from its beginning again");
        tokio::time::sleep(AFTER_FAULT).await;
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
