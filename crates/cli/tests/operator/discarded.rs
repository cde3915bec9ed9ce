//! `daybook discarded`.

use daybook_cli::operator::{Exit, OperatorError};
use daybook_local_aws::bucket::Bucket;
use daybook_local_aws::messaging::Server;
use daybook_local_aws::state::StackState;
use daybook_table::OutboxItem;
use daybook_test_support::stream_record;
use serde_json::{Value, json};

use crate::support::Setup;

/// A stack whose bucket has these objects, by key.
async fn stack(objects: Vec<(&str, Value)>) -> (Setup, Bucket, Server) {
    let mut setup = Setup::new().await;
    let (bucket, server) = fill(&mut setup, objects).await;
    (setup, bucket, server)
}

async fn fill(setup: &mut Setup, objects: Vec<(&str, Value)>) -> (Bucket, Server) {
    let objects = objects.into_iter().map(|(key, object)| (format!("aws/lambda/{key}"), object.to_string()));
    let bucket = Bucket::new("records", objects, StackState::in_memory().unwrap()).unwrap();
    let server = Server::start(bucket.router()).await.unwrap();
    setup.settings.push(("AWS_ENDPOINT_URL_S3", server.url().to_owned()));
    setup.settings.push(("DISCARDED_RECORDS_BUCKET", "records".to_owned()));
    (bucket, server)
}

/// An object as Lambda writes it, whose first record has the sequence number `start`.
fn object(function: &str, start: u64, records: &[Value]) -> Value {
    let payload = json!({ "Records": records }).to_string();
    json!({
        "requestContext": {
            "requestId": "r", "functionArn": format!("arn:aws:lambda:eu-central-1:1:function:{function}:live"),
            "condition": "RecordAgeExceeded", "approximateInvokeCount": 9,
        },
        "version": "1.0", "timestamp": "2026-11-21T08:00:00.000Z",
        "DDBStreamBatchInfo": {
            "shardId": "shardId-1", "startSequenceNumber": start.to_string(), "endSequenceNumber": "9999",
            "approximateArrivalOfFirstRecord": "2026-11-20T08:00:00Z",
            "approximateArrivalOfLastRecord": "2026-11-20T08:01:00Z", "batchSize": records.len(), "streamArn": "arn",
        },
        "payload": payload,
    })
}

/// A stack with two to-dos, whose messages are in three objects. The names of the objects are not in the order of the stream.
async fn discarded() -> (Setup, Bucket, Server, Vec<OutboxItem>) {
    let mut setup = Setup::new().await;
    setup.todo("1", 3).await;
    setup.todo("2", 1).await;
    let mut records = Vec::new();
    for (aggregate, first) in [("todo/1", 8), ("todo/2", 50)] {
        let rows = setup.rows(aggregate, "OUTBOX#").await;
        records.extend((first..).zip(&rows).map(|(number, row)| stream_record::inserted(number, row)));
    }
    let objects = vec![
        ("m/s/b", object("relay", 8, &records[..1])),
        // A record may be in a batch twice.
        ("m/s/a", object("relay", 10, &[records[2].clone(), records[2].clone(), records[3].clone()])),
        ("m/s/c", object("relay", 9, &records[1..2])),
    ];
    let mut rows = setup.outbox("todo/1").await;
    rows.extend(setup.outbox("todo/2").await);
    let (bucket, server) = fill(&mut setup, objects).await;
    (setup, bucket, server, rows)
}

#[tokio::test]
async fn list_prints_each_object_with_its_function_and_messages() {
    let (setup, _bucket, _server, _rows) = discarded().await;
    let lines = setup.daybook("discarded list").await.expect(Exit::Clean);
    assert_eq!(
        lines[0],
        "aws/lambda/m/s/a relay RecordAgeExceeded: 3 records of 2026-11-20T08:00:00Z to 2026-11-20T08:01:00Z; messages: todo/1 1, \
         todo/2 1"
    );
    assert_eq!(lines[3], "3 objects with 4 messages, 0 unreadable");
    let lines = setup.daybook("discarded list --json").await.expect(Exit::Clean);
    let first: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(first["aggregates"], json!({"todo/1": 1, "todo/2": 1}));
    assert_eq!((&first["function"], &first["condition"]), (&json!("relay"), &json!("RecordAgeExceeded")));
}

#[tokio::test]
async fn redrive_without_yes_sends_and_deletes_nothing() {
    let (setup, bucket, _server, rows) = discarded().await;
    let lines = setup.daybook("discarded redrive").await.expect(Exit::Clean);
    assert_eq!(lines[0], format!("would-send todo/1 1 TodoCreated {}", rows[0].message_id));
    assert!(lines[4].starts_with("4 messages would be sent, 0 objects cannot be sent whole"), "{lines:?}");
    assert_eq!((setup.sent().len(), bucket.keys().len()), (0, 3));
}

#[tokio::test]
async fn redrive_sends_the_messages_of_all_objects_in_the_order_of_the_stream_and_deletes_the_objects() {
    let (setup, bucket, _server, rows) = discarded().await;
    setup.fail(json!({"putEvents": [{"http": 500}]}));
    let lines = setup.daybook("discarded redrive --yes --rate 100000").await.expect(Exit::Clean);
    assert!(lines.last().unwrap().starts_with("4 messages sent, 3 objects deleted; "), "{lines:?}");
    let sent = setup.sent();
    let of_first: Vec<_> = sent.iter().filter(|id| rows[..3].iter().any(|row| row.message_id == **id)).collect();
    assert_eq!(of_first, rows[..3].iter().map(|row| &row.message_id).collect::<Vec<_>>());
    for row in &rows {
        assert!(setup.bus.delivered().iter().any(|entry| entry.detail == row.detail));
    }
    assert!(bucket.keys().is_empty());
    assert_eq!(setup.daybook("discarded list").await.expect(Exit::Clean).len(), 1);
}

#[tokio::test]
async fn redrive_deletes_no_object_with_a_rejected_message_and_none_with_keep() {
    let (setup, bucket, _server, rows) = discarded().await;
    setup.daybook("discarded redrive --yes --keep --rate 100000").await.expect(Exit::Clean);
    assert_eq!((setup.sent().len(), bucket.keys().len()), (4, 3));

    setup.fail(json!({"entries": [{"containing": rows[1].message_id, "code": "MalformedDetail"}]}));
    let lines = setup.daybook("discarded redrive --yes --rate 100000").await.expect(Exit::Findings);
    let rejected = format!("rejected todo/1 2 TodoUpdated {} (MalformedDetail: injected fault)", rows[1].message_id);
    assert!(lines.contains(&rejected), "{lines:?}");
    assert_eq!(bucket.keys(), ["aws/lambda/m/s/c"]);
    setup.fail(json!({}));
    setup.daybook("discarded redrive --yes --object aws/lambda/m/s/c").await.expect(Exit::Clean);
    assert!(bucket.keys().is_empty());
}

#[tokio::test]
async fn redrive_with_a_bus_that_accepts_nothing_or_does_not_exist_deletes_nothing() {
    let (setup, bucket, _server, _rows) = discarded().await;
    let printed = setup.daybook("EVENT_BUS_NAME=nope discarded redrive --yes").await;
    assert!(matches!(&printed.ended, Err(OperatorError::NoSuchBus(_))), "{printed:?}");
    setup.fail(json!({"putEvents": [{"http": 403, "code": "AccessDeniedException", "forever": true}]}));
    let printed = setup.daybook("discarded redrive --yes").await;
    assert!(matches!(&printed.ended, Err(OperatorError::Bus { .. })), "{printed:?}");
    assert!(printed.lines.last().unwrap().contains("1 not sent"), "{printed:?}");
    assert_eq!((setup.sent().len(), bucket.keys().len()), (0, 3));
}

#[tokio::test]
async fn objects_that_cannot_be_sent_whole_stay_and_the_reason_is_printed() {
    let setup = Setup::new().await;
    setup.todo("1", 1).await;
    let record = stream_record::inserted(5, &setup.rows("todo/1", "OUTBOX#").await[0]);
    let mut odd = record.clone();
    odd["dynamodb"]["NewImage"]["messageSeq"] = json!({"N": "three"});
    let mut only_metadata = object("relay", 7, &[]);
    only_metadata.as_object_mut().unwrap().remove("payload");
    let event = json!({"eventName": "INSERT", "dynamodb": {"Keys": {"sk": {"S": "EVENT#000000000001"}}, "SequenceNumber": "1"}});
    let mut setup = setup;
    let (bucket, _server) = fill(
        &mut setup,
        vec![
            ("1", object("relay", 5, &[record, odd])),
            ("2", only_metadata),
            ("3", object("snapshotter", 8, &[event])),
            ("4", json!("something else")),
        ],
    )
    .await;
    let lines = setup.daybook("discarded list").await.expect(Exit::Findings);
    assert!(lines[0].contains("messages: todo/1 1; 1 of its records cannot be read: NewImage: "), "{lines:?}");
    assert!(lines[3].starts_with("aws/lambda/4 is unreadable: not an invocation record"), "{lines:?}");
    let lines = setup.daybook("discarded redrive --yes --rate 100000").await.expect(Exit::Findings);
    let republish = lines.iter().find(|line| line.starts_with("left aws/lambda/2: it contains no records")).unwrap();
    assert!(republish.contains("daybook republish, from a few minutes before 2026-11-20T08:00:00Z"), "{republish}");
    assert!(lines.iter().any(|line| line.starts_with("without-messages aws/lambda/3: ")), "{lines:?}");
    assert!(lines.last().unwrap().contains("3 objects that cannot be sent whole, 1 without messages"), "{lines:?}");
    assert_eq!((setup.sent().len(), bucket.keys().len()), (1, 4));
}

/// With read models or processes, the relay's mapping also receives changes of metadata.
#[tokio::test]
async fn redrive_sends_changed_aggregates_to_the_projector_and_the_reactor_before_it_deletes_the_object() {
    let mut setup = Setup::new().await;
    setup.todo("1", 3).await;
    let mut changed = stream_record::inserted(6, &setup.rows("todo/1", "#METADATA").await[0]);
    changed["eventName"] = "MODIFY".into();
    let message = stream_record::inserted(5, &setup.rows("todo/1", "OUTBOX#").await[0]);
    let (bucket, _server) = fill(
        &mut setup,
        vec![("1", object("relay", 5, &[message, changed.clone()])), ("2", object("relay", 6, &[changed]))],
    )
    .await;
    let lines = setup.daybook("discarded list").await.expect(Exit::Clean);
    assert!(lines[0].ends_with("messages: todo/1 1; changed aggregates: 1"), "{lines:?}");

    let lines = setup.daybook("discarded redrive --yes").await.expect(Exit::Findings);
    let set = "CHANGES_QUEUE_URL, and REACTOR and REACTIONS_QUEUE_URL with processes";
    let reason = format!("it contains 1 changed aggregates: set {set}");
    assert_eq!(lines[0], format!("left aws/lambda/1: {reason}"));
    assert_eq!((setup.sent().len(), bucket.keys().len()), (1, 2));

    setup.bus.create_work_queue("changes");
    setup.settings.push(("CHANGES_QUEUE_URL", setup.changes_url()));
    let lines = setup.daybook("discarded redrive").await.expect(Exit::Clean);
    assert!(lines.last().unwrap().contains("; 2 changed aggregates would be sent to their queues;"), "{lines:?}");
    setup.fail(json!({"sendMessage": [{"http": 403, "code": "AccessDenied", "forever": true}]}));
    assert_eq!(setup.daybook("discarded redrive --yes").await.ended.unwrap_err().exit_code(), 3);
    assert_eq!((setup.bus.queued().len(), bucket.keys().len()), (0, 2));
    setup.fail(json!({}));
    setup.bus.create_work_queue("reactions");
    setup.settings.push(("REACTIONS_QUEUE_URL", setup.queue_url().replace("/dlq", "/reactions")));
    setup.settings.push(("REACTOR", "processes".to_owned()));
    let lines = setup.daybook("discarded redrive --yes").await.expect(Exit::Clean);
    assert!(lines.last().unwrap().ends_with("; 2 changed aggregates sent to their queues"), "{lines:?}");
    let queued: Vec<_> = setup.bus.queued().into_iter().map(|message| message.body).collect();
    assert_eq!(queued, [r#"{"changed":[["todo","1",3]]}"#; 4]);
    assert!(bucket.keys().is_empty());
}

#[tokio::test]
async fn list_reads_all_pages_of_the_bucket() {
    let keys: Vec<_> = (0..1001).map(|n| format!("m/s & t/{n:04}")).collect();
    let (setup, _bucket, _server) =
        stack(keys.iter().map(|key| (key.as_str(), object("snapshotter", 1, &[]))).collect()).await;
    let lines = setup.daybook("discarded list").await.expect(Exit::Clean);
    assert_eq!(lines[1001], "1001 objects with 0 messages, 0 unreadable");
    assert!(lines[1000].starts_with("aws/lambda/m/s & t/1000 "), "{}", lines[1000]);
}

#[tokio::test]
async fn bucket_that_does_not_exist_is_reported() {
    let (setup, _bucket, _server, _rows) = discarded().await;
    for command in ["list", "redrive", "redrive --yes"] {
        let error =
            setup.daybook(&format!("DISCARDED_RECORDS_BUCKET=nope discarded {command}")).await.ended.unwrap_err();
        assert!(error.to_string().contains("NoSuchBucket") && error.exit_code() == 3, "{error}");
    }
}
