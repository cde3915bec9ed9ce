//! The table's stream, read as Lambda's pollers do: each shard from its beginning or the stored checkpoint, in the
//! order of its records, and only after its parent was processed to the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_dynamodbstreams::Client;
use aws_sdk_dynamodbstreams::operation::get_shard_iterator::GetShardIteratorError;
use aws_sdk_dynamodbstreams::types::{OperationType, Record as StreamRecord, ShardIteratorType, StreamViewType};
use daybook_event_source_mapping::{Position, Record};
use daybook_function_runtime::with_causes;
use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use crate::error::DevError;
use crate::termination::StopSignal;

/// The pause between reads at the end of a shard. Lambda polls four times a second.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The pause after an error, and before the shards are listed again if one has ended and its child is not listed yet.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The shards of a stream, each with its parent.
type Shards = BTreeMap<String, Option<String>>;

#[derive(Clone, Debug)]
pub(crate) struct TableStream {
    client: Client,
    pub(crate) arn: String,
}

impl TableStream {
    pub(crate) async fn of_table(client: Client, table_name: &str) -> Result<Self, DevError> {
        let streams = client.list_streams().table_name(table_name).send().await.map_err(DevError::stream)?;
        let arn = streams.streams.unwrap_or_default().into_iter().find_map(|stream| stream.stream_arn);
        let stream = Self { client, arn: arn.ok_or_else(|| DevError::stream("the table has no stream"))? };
        // Reports missing permissions at the start.
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

    /// Processes each shard, a parent before its children, until the stack stops. Then waits until `process` has ended
    /// for each shard.
    pub(crate) async fn follow<F: Future<Output = ()> + Send + 'static>(
        &self,
        stop: &StopSignal,
        process: impl Fn(String) -> F,
    ) {
        let (mut begun, mut processed) = (BTreeSet::new(), BTreeSet::new());
        let mut processing = JoinSet::new();
        loop {
            let (ready, pause): (Vec<_>, _) = match self.shards().await {
                Ok(shards) => {
                    let has_child = |shard: &String| shards.values().flatten().any(|parent| parent == shard);
                    let is_ready = |parent: &Option<String>| {
                        // A parent that is not listed is older than the stream's records.
                        parent.as_ref().is_none_or(|parent| processed.contains(parent) || !shards.contains_key(parent))
                    };
                    let awaits_child = processed.iter().any(|shard| shards.contains_key(shard) && !has_child(shard));
                    let ready = shards.iter().filter(|(shard, parent)| !begun.contains(*shard) && is_ready(parent));
                    let pause = if awaits_child { RETRY_PAUSE } else { Duration::MAX };
                    (ready.map(|(shard, _)| shard.clone()).collect(), pause)
                }
                Err(error) => {
                    tracing::warn!(error = with_causes(&error), "cannot list the stream's shards, will retry");
                    (Vec::new(), RETRY_PAUSE)
                }
            };
            for shard in ready {
                begun.insert(shard.clone());
                processing.spawn(process(shard.clone()).map(|()| shard));
            }
            tokio::select! {
                biased;
                () = stop.wait() => break,
                Some(ended) = processing.join_next() => match ended {
                    Ok(shard) => {
                        tracing::info!(shard, "a shard of the stream has ended");
                        processed.insert(shard);
                    }
                    Err(error) => tracing::error!(%error, "a reader of a stream shard failed; the shard is no longer read"),
                },
                () = tokio::time::sleep(pause) => {}
            }
        }
        while processing.join_next().await.is_some() {}
    }

    /// Sends the records of a shard from a position on, until the end of the shard or until the receiver is dropped.
    /// After an error, it continues after the last record that it sent.
    pub(crate) async fn read(&self, shard: &str, mut position: Position, records: Sender<Record>) {
        while let Err(error) = self.read_from(shard, &mut position, &records).await {
            tracing::warn!(error = with_causes(&error), "cannot read the shard, will go on after the last record");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    async fn read_from(&self, shard: &str, position: &mut Position, records: &Sender<Record>) -> Result<(), DevError> {
        let (kind, number) = match &*position {
            Position::Start => (ShardIteratorType::TrimHorizon, None),
            Position::At(number) => (ShardIteratorType::AtSequenceNumber, Some(number.to_string())),
            Position::After(number) => (ShardIteratorType::AfterSequenceNumber, Some(number.to_string())),
        };
        let start = self.client.get_shard_iterator().stream_arn(&self.arn).shard_id(shard);
        let start = start.shard_iterator_type(kind).set_sequence_number(number).send().await;
        let start = start.map_err(|error| {
            if error.as_service_error().is_some_and(GetShardIteratorError::is_trimmed_data_access_exception) {
                // The stream has deleted the record at this position and begins with a later one.
                *position = Position::Start;
            }
            DevError::stream(error)
        })?;
        let mut iterator = start.shard_iterator;
        while let Some(at) = iterator {
            let page = self.client.get_records().shard_iterator(at).send().await.map_err(DevError::stream)?;
            let found = page.records.unwrap_or_default();
            let caught_up = found.is_empty();
            for record in found {
                let record = Record::from_stream(json_of(record)?, &self.arn).map_err(DevError::stream)?;
                let number = record.sequence_number().clone();
                if records.send(record).await.is_err() {
                    return Ok(());
                }
                *position = Position::After(number);
            }
            iterator = page.next_shard_iterator;
            if caught_up {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }
}

/// The record as the JSON of a `GetRecords` response, which the SDK has parsed.
fn json_of(record: StreamRecord) -> Result<Value, DevError> {
    let change = record.dynamodb.ok_or_else(|| DevError::stream("a record contains no change"))?;
    let item = |item: serde_dynamo::Item| serde_json::to_value(item).map_err(DevError::stream);
    let mut json = json!({
        "eventID": record.event_id,
        "eventName": record.event_name.as_ref().map(OperationType::as_str),
        "eventVersion": record.event_version,
        "eventSource": record.event_source,
        "awsRegion": record.aws_region,
        "dynamodb": {
            "ApproximateCreationDateTime": change.approximate_creation_date_time.map(|at| at.as_secs_f64()),
            "Keys": change.keys.map(|keys| item(keys.into())).transpose()?,
            "SequenceNumber": change.sequence_number,
            "SizeBytes": change.size_bytes,
            "StreamViewType": change.stream_view_type.as_ref().map(StreamViewType::as_str),
        },
    });
    if let Some(image) = change.new_image {
        json["dynamodb"]["NewImage"] = item(image.into())?;
    }
    if let Some(identity) = record.user_identity {
        json["userIdentity"] = json!({"PrincipalId": identity.principal_id, "Type": identity.r#type});
    }
    Ok(json)
}
