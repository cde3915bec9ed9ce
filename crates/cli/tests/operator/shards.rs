//! `daybook dev` with a DynamoDB whose stream shards close, as those of the service do every few hours.

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use daybook_table::OutboxItem;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::binary::DEV;
use crate::support::Setup;

const ARN: &str = "arn:aws:dynamodb:local:000000000000:table/daybook-test/stream/2026-11-20T00:00:00.000";

/// A shard. It is closed if it has a child.
struct Shard {
    id: String,
    parent: Option<String>,
    /// Whether the shard is listed only after its parent was read to the end.
    appears: bool,
    /// The number of empty pages before the page with the records.
    empty: u32,
    records: Vec<Value>,
}

/// A stream. Each page of its description contains one shard.
struct Streams {
    shards: Vec<Shard>,
    /// The shards that were read to their ends.
    ended: Mutex<Vec<String>>,
}

impl Streams {
    fn respond(&self, operation: &str, request: &Value) -> Option<Value> {
        let shard = |id: &str| self.shards.iter().find(|shard| shard.id == id);
        match operation {
            "ListStreams" => Some(json!({"Streams": [{"StreamArn": ARN, "TableName": "daybook-test"}]})),
            "DescribeStream" => {
                let ended = self.ended.lock().unwrap();
                let is_listed = |shard: &&Shard| !shard.appears || shard.parent.iter().all(|id| ended.contains(id));
                let mut listed = self.shards.iter().filter(is_listed);
                if let Some(after) = request["ExclusiveStartShardId"].as_str() {
                    listed.find(|shard| shard.id == after);
                }
                let page = listed.next();
                let of_page = |shard: &&Shard| json!({"ShardId": shard.id, "ParentShardId": shard.parent});
                let shards: Vec<_> = page.iter().map(of_page).collect();
                let next = listed.next().and(page).map(|shard| &shard.id);
                Some(json!({"StreamDescription": {"StreamArn": ARN, "Shards": shards, "LastEvaluatedShardId": next}}))
            }
            "GetShardIterator" => Some(json!({"ShardIterator": format!("{} 0", request["ShardId"].as_str()?)})),
            "GetRecords" => {
                let (id, page) = request["ShardIterator"].as_str()?.split_once(' ')?;
                let page: u32 = page.parse().ok()?;
                let shard = shard(id)?;
                let is_open = !self.shards.iter().any(|child| child.parent.as_deref() == Some(id));
                let next = (is_open || page < shard.empty).then(|| format!("{id} {}", page + 1));
                if next.is_none() {
                    self.ended.lock().unwrap().push(id.to_owned());
                }
                let records = if page == shard.empty { shard.records.as_slice() } else { &[] };
                Some(json!({"Records": records, "NextShardIterator": next}))
            }
            _ => None,
        }
    }
}

/// Responds to the calls of the stream, and to all others as if the table existed.
async fn respond(State(streams): State<Arc<Streams>>, headers: HeaderMap, body: String) -> impl IntoResponse {
    let target = headers["x-amz-target"].to_str().unwrap().rsplit_once('.').unwrap().1.to_owned();
    let response = streams.respond(&target, &serde_json::from_str(&body).unwrap());
    let (status, body) = match response {
        Some(response) => (StatusCode::OK, response),
        None => (StatusCode::BAD_REQUEST, json!({"__type": "com.amazonaws.dynamodb.v20120810#ResourceInUseException"})),
    };
    (status, [("content-type", "application/x-amz-json-1.0")], body.to_string())
}

/// The stream record of a new row.
fn record(row: &OutboxItem) -> Value {
    let image: serde_dynamo::Item = serde_dynamo::to_item(row).unwrap();
    let image = serde_json::to_value(image).unwrap();
    json!({
        "eventID": row.message_id, "eventName": "INSERT", "eventVersion": "1.1", "eventSource": "aws:dynamodb",
        "awsRegion": "local",
        "dynamodb": {
            "ApproximateCreationDateTime": Timestamp::now().as_second(),
            "Keys": {"pk": image["pk"], "sk": image["sk"]},
            "NewImage": image,
            "SequenceNumber": format!("1{:020}", row.message_seq),
            "SizeBytes": 100,
            "StreamViewType": "NEW_IMAGE",
        },
    })
}

/// A running `daybook dev`, killed when it is dropped.
struct Daybook(Child);

impl Drop for Daybook {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn child_shard_is_read_after_all_records_of_its_parent_are_sent() {
    let setup = Setup::new().await;
    let mut rows = Vec::new();
    for id in ["1", "2"] {
        setup.todo(id, 6).await;
        rows.push(setup.outbox(&format!("todo/{id}")).await);
    }
    let id = |n: usize| format!("shardId-0000000000000000000{n}-00000000");
    let shard = |n: usize, parent: Option<usize>, appears, empty, rows: &[OutboxItem]| Shard {
        id: id(n),
        parent: parent.map(id),
        appears,
        empty,
        records: rows.iter().map(record).collect(),
    };
    let shards = vec![
        shard(1, None, false, 0, &rows[0][..2]),
        // If the stack did not wait for this shard, it would send the records of its child first.
        shard(2, None, false, 10, &rows[1][..3]),
        shard(3, Some(1), true, 0, &rows[0][2..4]),
        shard(4, Some(2), false, 0, &rows[1][3..]),
        shard(5, Some(3), true, 0, &rows[0][4..]),
    ];
    let streams = Arc::new(Streams { shards, ended: Mutex::default() });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(respond).with_state(streams);
    tokio::spawn(async move { axum::serve(listener, router).await });

    let mut messages = setup.bus.subscribe();
    let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
    command.args(DEV).env_clear().envs(setup.environment()).env("AWS_ENDPOINT_URL_DYNAMODB", url);
    let _running = Daybook(command.stdout(Stdio::null()).spawn().unwrap());
    let mut sent = [Vec::new(), Vec::new()];
    while sent.iter().map(Vec::len).sum::<usize>() < 12 {
        let message = tokio::time::timeout(Duration::from_secs(60), messages.recv()).await;
        let message = message.unwrap_or_else(|_| panic!("no message is sent after {sent:?}")).unwrap();
        let detail: Value = serde_json::from_str(&message.detail).unwrap();
        let of = usize::from(message.resources == ["todo/2"]);
        sent[of].push(detail["metadata"]["messageSeq"].as_u64().unwrap());
    }
    assert_eq!(sent, [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]]);
}
