//! `daybook dlq`.

use daybook_cli::operator::{Exit, OperatorError};
use daybook_table::OutboxItem;
use serde_json::{Value, json};

use crate::support::Setup;

/// Puts rows into the dead-letter queue as the relay does.
async fn send_to_queue(setup: &Setup, rows: &[&OutboxItem], code: &str) {
    let client = aws_sdk_sqs::Client::new(&daybook_function_runtime::aws_config_at(
        setup.queue_url().split("/0000").next().unwrap(),
    ));
    for row in rows {
        let body = json!({
            "message": row, "error": {"code": code, "text": "it was rejected"}, "attempts": 1,
            "stream": {"eventID": "e1", "sequenceNumber": "1"}, "deadLetteredAt": "2026-11-21T00:00:00Z",
        });
        client.send_message().queue_url(setup.queue_url()).message_body(body.to_string()).send().await.unwrap();
    }
}

/// Receives all messages, as another reader does, and does not put them back.
async fn receive_all(setup: &Setup) -> usize {
    let client = aws_sdk_sqs::Client::new(&daybook_function_runtime::aws_config_at(
        setup.queue_url().split("/0000").next().unwrap(),
    ));
    let call =
        client.receive_message().queue_url(setup.queue_url()).max_number_of_messages(10).visibility_timeout(3600);
    call.send().await.unwrap().messages().len()
}

async fn send_text_to_queue(setup: &Setup, text: &str) {
    let client = aws_sdk_sqs::Client::new(&daybook_function_runtime::aws_config_at(
        setup.queue_url().split("/0000").next().unwrap(),
    ));
    client.send_message().queue_url(setup.queue_url()).message_body(text).send().await.unwrap();
}

/// Dead-letter messages: three of one to-do, out of order, one of another, one of an account, and one of an unreadable record.
pub(crate) async fn setup() -> (Setup, Vec<OutboxItem>, Vec<OutboxItem>) {
    let setup = Setup::new().await;
    setup.todo("1", 3).await;
    setup.todo("2", 1).await;
    setup.command("account/1", "OpenAccount", json!({})).await;
    setup.command("account/1", "RecordTransaction", json!({"desc": "A", "amount": -1})).await;
    let first = setup.outbox("todo/1").await;
    let mut others = setup.outbox("todo/2").await;
    others.extend(setup.outbox("account/1").await);
    send_to_queue(&setup, &[&first[2], &first[0], &others[0]], "MalformedDetail").await;
    let unreadable = json!({
        "record": {"odd": true}, "error": {"code": "UnreadableRecord", "text": "NewImage"}, "attempts": 0,
        "deadLetteredAt": "2026-11-21T00:00:00Z",
    });
    send_text_to_queue(&setup, &unreadable.to_string()).await;
    send_to_queue(&setup, &[&first[1], &others[1]], "OversizedEntry").await;
    (setup, first, others)
}

/// Whether other readers can receive every message of the queue.
async fn all_are_visible(setup: &Setup) -> bool {
    let lines = setup.daybook("dlq list").await.expect(Exit::Clean);
    lines.len() - 1 == setup.bus.queued().len()
}

#[tokio::test]
async fn list_prints_each_message_and_leaves_all_in_the_queue() {
    let (setup, first, others) = setup().await;
    let lines = setup.daybook("dlq list").await.expect(Exit::Clean);
    let summary = "6 of 6 dead-letter messages listed, 1 of them unsendable; SQS counts about 6 visible and 0 that other readers have \
         received";
    assert_eq!(lines[6], summary);
    assert!(lines[0].contains(&format!(" account/1 1 accountOverdrawn {} OversizedEntry: ", others[1].message_id)));
    for (line, row) in lines[1..4].iter().zip(&first) {
        assert!(line.contains(&format!(" todo/1 {} ", row.message_seq)) && line.contains(&row.message_id), "{line}");
    }
    assert!(lines[5].ends_with("is unsendable: it contains a record that could not be read (NewImage)"), "{lines:?}");
    assert!(all_are_visible(&setup).await);

    let lines = setup.daybook("dlq list --json --type todo --error-code MalformedDetail").await.expect(Exit::Clean);
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!((&lines[0]["aggregate"], &lines[0]["messageSeq"]), (&json!("todo/1"), &json!(1)));
    assert_eq!(lines[3]["summary"]["seen"], 6);
}

#[tokio::test]
async fn show_prints_the_whole_message_by_either_id() {
    let (setup, first, _) = setup().await;
    let lines = setup.daybook(&format!("dlq show {}", first[1].message_id)).await.expect(Exit::Clean);
    let message: Value = serde_json::from_str(&lines.join("\n")).unwrap();
    assert_eq!(message["message"]["detail"], first[1].detail);
    assert_eq!(message["stream"]["sequenceNumber"], "1");
    // The SQS message id works too.
    let unreadable = setup.bus.queued()[3].message_id.clone();
    let lines = setup.daybook(&format!("dlq show {unreadable}")).await.expect(Exit::Clean);
    assert!(lines.join("").contains(r#""odd": true"#));
    setup.daybook("dlq show nothing").await.expect(Exit::Findings);
    assert!(all_are_visible(&setup).await);
}

#[tokio::test]
async fn redrive_without_yes_sends_and_deletes_nothing() {
    let (setup, ..) = setup().await;
    let lines = setup.daybook("dlq redrive").await.expect(Exit::Findings);
    assert!(lines[0].starts_with("unsendable ") && lines[1].starts_with("would-send account/1 1 "), "{lines:?}");
    assert_eq!(lines[6], "5 messages would be sent; this was a dry run, --yes sends them");
    assert!(setup.bus.delivered().is_empty());
    assert_eq!(setup.bus.queued().len(), 6);
    assert!(all_are_visible(&setup).await);
}

#[tokio::test]
async fn redrive_deletes_messages_that_the_bus_accepts_and_no_other() {
    let (setup, first, others) = setup().await;
    setup.fail(json!({
        "putEvents": [{"http": 500}, {"failEntries": [{"index": 0, "code": "InternalFailure"}]}],
        "entries": [{"containing": first[1].message_id, "code": "MalformedDetail"}],
    }));
    let lines = setup.daybook("dlq redrive --yes --rate 100000").await.expect(Exit::Findings);
    let rejected = format!("rejected todo/1 2 TodoUpdated {} (MalformedDetail: injected fault)", first[1].message_id);
    assert!(lines.contains(&rejected), "{lines:?}");
    assert_eq!(
        lines.last().unwrap(),
        "4 messages sent and deleted from the queue; in the queue: 1 that the bus rejects, 1 unsendable, 0 not sent"
    );
    let left: Vec<_> = setup.bus.queued().into_iter().map(|message| message.body).collect();
    assert_eq!(left.len(), 2);
    assert!(left[0].contains("UnreadableRecord") && left[1].contains(&first[1].message_id), "{left:?}");
    assert!(all_are_visible(&setup).await);

    // The same ids and bytes, in the aggregate's order.
    let sent = setup.sent();
    let of_first: Vec<_> = sent.iter().filter(|id| first.iter().any(|row| row.message_id == **id)).collect();
    assert_eq!(of_first, [&first[0].message_id, &first[2].message_id]);
    for row in [&first[0], &first[2], &others[0], &others[1]] {
        assert!(setup.bus.delivered().iter().any(|entry| entry.detail == row.detail));
    }

    // Once the bus accepts the message, it is sent and deleted.
    setup.fail(json!({}));
    setup.daybook("dlq redrive --yes --type todo").await.expect(Exit::Clean);
    assert_eq!(setup.bus.queued().len(), 1);
    assert_eq!(setup.sent().last(), Some(&first[1].message_id));
}

#[tokio::test]
async fn redrive_sends_only_the_selected_messages() {
    let (setup, first, others) = setup().await;
    setup.daybook("dlq redrive --yes --aggregate todo/1 --error-code OversizedEntry").await.expect(Exit::Clean);
    assert_eq!(setup.sent(), [first[1].message_id.clone()]);
    setup.daybook("dlq redrive --yes --message-type accountOverdrawn").await.expect(Exit::Clean);
    setup.daybook(&format!("dlq redrive --yes --id {}", others[0].message_id)).await.expect(Exit::Clean);
    assert_eq!(setup.sent(), [&first[1], &others[1], &others[0]].map(|row| row.message_id.clone()));
    assert_eq!(setup.bus.queued().len(), 3);
    assert!(all_are_visible(&setup).await);
}

#[tokio::test]
async fn redrive_sends_a_message_with_two_copies_once() {
    let (setup, first, _) = setup().await;
    send_to_queue(&setup, &[&first[1], &first[1]], "Another").await;
    let lines = setup.daybook("dlq redrive --yes --aggregate todo/1").await.expect(Exit::Clean);
    assert_eq!(lines.len(), 4);
    assert_eq!(setup.sent(), first.iter().map(|row| row.message_id.clone()).collect::<Vec<_>>());
    assert_eq!(setup.bus.queued().len(), 3);
}

#[tokio::test]
async fn redrive_reports_messages_that_sqs_does_not_delete() {
    let (setup, first, others) = setup().await;
    setup.fail(json!({"deleteMessage": [{"failEntries": [{"index": 0, "code": "InternalError"}]}]}));
    let lines = setup.daybook("dlq redrive --yes --type todo").await.expect(Exit::Findings);
    let not_deleted = format!("sent-not-deleted todo/1 1 TodoCreated {} (InternalError: ", first[0].message_id);
    assert!(lines.iter().any(|line| line.starts_with(&not_deleted)), "{lines:?}");
    assert!(
        lines
            .last()
            .unwrap()
            .starts_with("4 messages sent and deleted from the queue, except 1 that SQS did not delete")
    );
    let left: Vec<_> = setup.bus.queued().into_iter().map(|message| message.body).collect();
    assert!(left.iter().any(|body| body.contains(&first[0].message_id)), "{left:?}");
    assert!(left.iter().any(|body| body.contains(&others[1].message_id)) && left.len() == 3, "{left:?}");
}

#[tokio::test]
async fn redrive_with_access_denied_ends_and_deletes_nothing() {
    let (setup, ..) = setup().await;
    setup.fail(json!({"putEvents": [{"http": 403, "code": "AccessDeniedException", "forever": true}]}));
    let printed = setup.daybook("dlq redrive --yes").await;
    assert!(matches!(&printed.ended, Err(OperatorError::Bus { .. })), "{printed:?}");
    assert!(printed.lines.last().unwrap().ends_with("1 unsendable, 5 not sent"), "{printed:?}");
    assert_eq!(setup.bus.queued().len(), 6);
    assert!(all_are_visible(&setup).await);
}

#[tokio::test]
async fn redrive_of_a_long_queue_reads_all_messages_up_to_the_limit() {
    let setup = Setup::new().await;
    setup.todo("1", 25).await;
    let rows = setup.outbox("todo/1").await;
    send_to_queue(&setup, &rows.iter().collect::<Vec<_>>(), "X").await;
    assert_eq!(setup.daybook("dlq list").await.expect(Exit::Clean).len(), 26);
    let lines = setup.daybook("dlq list --limit 12").await.expect(Exit::Findings);
    assert_eq!(lines.len(), 13);
    assert!(lines[12].ends_with("; SQS counts about 13 more that this run did not receive"), "{lines:?}");
    setup.daybook("dlq redrive --yes --limit 12 --rate 100000").await.expect(Exit::Findings);
    assert_eq!(setup.bus.queued().len(), 13);
    setup.daybook("dlq redrive --yes --rate 100000").await.expect(Exit::Clean);
    assert!(setup.bus.queued().is_empty());
    assert_eq!(setup.sent(), rows.iter().map(|row| row.message_id.clone()).collect::<Vec<_>>());
}

#[tokio::test]
async fn redrive_with_a_closed_output_leaves_no_message_hidden_and_deletes_every_sent_message() {
    let (setup, ..) = setup().await;
    for lines in 0..=6 {
        let printed = setup.daybook_unread("dlq redrive", lines).await;
        assert_eq!(printed.expect(Exit::Unread).len(), lines);
        assert!(all_are_visible(&setup).await);
    }
    // Nothing is sent, because no sent message could be reported.
    setup.daybook_unread("dlq redrive --yes", 0).await.expect(Exit::Unread);
    assert_eq!((setup.sent().len(), setup.bus.queued().len()), (0, 6));
    assert!(all_are_visible(&setup).await);
    // Messages that were sent before the output was closed are deleted from the queue.
    setup.daybook_unread("dlq redrive --yes --rate 100000", 2).await.expect(Exit::Unread);
    assert_eq!((setup.sent().len(), setup.bus.queued().len()), (5, 1));
    assert!(all_are_visible(&setup).await);
}

#[tokio::test]
async fn redrive_counts_messages_that_other_readers_have() {
    let (setup, ..) = setup().await;
    assert_eq!(receive_all(&setup).await, 6);
    let lines = setup.daybook("dlq redrive").await.expect(Exit::Findings);
    let expected = "0 messages would be sent; about 6 more are hidden because another reader received them; this was a dry run, --yes sends them";
    assert_eq!(lines, [expected]);
    let lines = setup.daybook("dlq redrive --yes").await.expect(Exit::Findings);
    assert!(
        lines[0].ends_with("0 not sent; about 6 more are hidden because another reader received them"),
        "{lines:?}"
    );
    let lines = setup.daybook("dlq redrive --yes --json").await.expect(Exit::Findings);
    let summary = serde_json::from_str::<Value>(&lines[0]).unwrap()["summary"].clone();
    assert_eq!((&summary["hidden"], &summary["notReceived"]), (&json!(6), &json!(0)));
    let lines = setup.daybook("dlq list").await.expect(Exit::Findings);
    assert!(lines[0].ends_with("; about 6 more are hidden because another reader received them"), "{lines:?}");
}

#[tokio::test]
async fn queue_that_rejects_a_call_is_reported_in_one_line() {
    let (setup, ..) = setup().await;
    let failure = json!({"http": 403, "code": "AccessDeniedException", "forever": true});
    setup.fail(json!({"receiveMessage": [failure]}));
    for command in ["list", "show 1", "redrive"] {
        let error = setup.daybook(&format!("dlq {command}")).await.ended.unwrap_err();
        let text = daybook_function_runtime::with_causes(&error);
        assert!(
            text.starts_with("cannot receive messages from the queue: ") && text.contains("AccessDenied"),
            "{text}"
        );
        // The error does not contain the whole response with its headers.
        assert!(!text.contains("StatusCode") && !text.contains('\n'), "{text}");
    }
}

#[tokio::test]
async fn redrive_to_a_bus_that_does_not_exist_sends_and_deletes_nothing() {
    let (setup, ..) = setup().await;
    let printed = setup.daybook("EVENT_BUS_NAME=nope dlq redrive --yes").await;
    assert_eq!(printed.lines, [""; 0]);
    let error = printed.ended.unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.exit_code()),
        (
            "the event bus \"nope\" does not exist, and EventBridge would drop every message to it: create the bus, or correct \
             EVENT_BUS_NAME; nothing was sent",
            3
        )
    );
    assert_eq!((setup.bus.put_events_calls().len(), setup.bus.queued().len()), (0, 6));
    assert!(all_are_visible(&setup).await);
}

#[tokio::test]
async fn redrive_with_a_failed_bus_check_sends_nothing_unless_the_check_is_not_permitted() {
    let (setup, ..) = setup().await;
    setup.fail(json!({"describeEventBus": [{"code": "ThrottlingException"}]}));
    let error = setup.daybook("dlq redrive --yes").await.ended.unwrap_err();
    assert!(error.to_string().starts_with("cannot check that the event bus exists: ThrottlingException"), "{error}");
    assert_eq!((setup.sent().len(), setup.bus.queued().len()), (0, 6));

    setup.fail(json!({"describeEventBus": [{"http": 403, "code": "AccessDeniedException"}]}));
    setup.daybook("dlq redrive --yes --rate 100000").await.expect(Exit::Findings);
    assert_eq!((setup.sent().len(), setup.bus.queued().len()), (5, 1));
}

#[tokio::test]
async fn queue_that_does_not_exist_is_reported() {
    let setup = Setup::new().await;
    for command in ["list", "redrive", "redrive --yes"] {
        let error = setup.daybook(&format!("DLQ_URL={}x dlq {command}", setup.queue_url())).await.ended.unwrap_err();
        assert!(error.to_string().contains("QueueDoesNotExist: The specified queue does not exist."), "{error}");
    }
}

/// Dead-letter messages of one to-do, in the queue.
async fn long_queue(messages: usize) -> (Setup, Vec<OutboxItem>) {
    let setup = Setup::new().await;
    setup.todo("1", messages).await;
    let rows = setup.outbox("todo/1").await;
    send_to_queue(&setup, &rows.iter().collect::<Vec<_>>(), "X").await;
    (setup, rows)
}

#[tokio::test]
async fn list_and_redrive_see_all_messages_although_some_responses_are_empty() {
    let (setup, rows) = long_queue(60).await;
    let empty = json!({"body": "{}"});
    let faults = json!({"receiveMessage": [{}, {}, {}, {}, empty, empty, empty, empty, {}, empty]});
    setup.fail(faults.clone());
    let lines = setup.daybook("dlq list").await.expect(Exit::Clean);
    assert_eq!(lines.len(), 61);
    assert!(lines[60].starts_with("60 of 60 dead-letter messages listed"), "{}", lines[60]);
    setup.fail(faults);
    setup.daybook("dlq redrive --yes --rate 100000").await.expect(Exit::Clean);
    assert!(setup.bus.queued().is_empty());
    assert_eq!(setup.sent(), rows.iter().map(|row| row.message_id.clone()).collect::<Vec<_>>());
}

#[tokio::test]
async fn list_and_redrive_that_do_not_receive_all_messages_report_it_with_status_1() {
    let (setup, _) = long_queue(60).await;
    let partly = json!({"receiveMessage": [{}, {}, {}, {}, {"body": "{}", "forever": true}]});
    setup.fail(partly.clone());
    let lines = setup.daybook("dlq list").await.expect(Exit::Findings);
    assert!(lines[40].starts_with("40 of 40 dead-letter messages listed"), "{}", lines[40]);
    assert!(lines[40].ends_with("; SQS counts about 20 more that this run did not receive"), "{}", lines[40]);
    setup.fail(partly.clone());
    setup.daybook("dlq stats").await.expect(Exit::Findings);
    setup.fail(partly.clone());
    setup.daybook("dlq redrive").await.expect(Exit::Findings);
    setup.fail(partly);
    let lines = setup.daybook("dlq redrive --yes --rate 100000 --json").await.expect(Exit::Findings);
    let summary: Value = serde_json::from_str(&lines[40]).unwrap();
    assert_eq!((&summary["summary"]["sent"], &summary["summary"]["notReceived"]), (&json!(40), &json!(20)));
    setup.fail(json!({}));
    setup.daybook("dlq redrive --yes --rate 100000").await.expect(Exit::Clean);
    assert!(setup.bus.queued().is_empty());
}

#[tokio::test]
async fn list_of_a_queue_with_too_many_received_messages_reports_what_it_did_not_see() {
    let (setup, _) = long_queue(15).await;
    setup.fail(json!({"receiveMessage": [{}, {"code": "OverLimit"}, {"code": "OverLimit"}, {"code": "OverLimit"}]}));
    let lines = setup.daybook("dlq list").await.expect(Exit::Findings);
    assert!(lines[10].ends_with("; SQS counts about 5 more that this run did not receive"), "{lines:?}");
    assert_eq!(setup.daybook("dlq list").await.expect(Exit::Clean).len(), 16);
}

#[tokio::test]
async fn read_that_ends_early_leaves_no_message_hidden() {
    let setup = Setup::new().await;
    for n in 0..60 {
        send_text_to_queue(&setup, &format!("not from the relay {n}")).await;
    }
    let lines = setup.daybook_until("dlq show --unreadable", 1).await.expect(Exit::Interrupted);
    assert_eq!(lines.len(), 40);
    assert_eq!(setup.daybook("dlq list").await.expect(Exit::Clean).len(), 61);
    // The output is closed while messages are received.
    setup.daybook_unread("dlq show --unreadable", 1).await.expect(Exit::Unread);
    assert_eq!(setup.daybook("dlq list").await.expect(Exit::Clean).len(), 61);
    // A call fails while messages are received.
    setup.fail(json!({"receiveMessage": [{}, {"http": 403, "code": "AccessDeniedException", "forever": true}]}));
    assert!(matches!(setup.daybook("dlq list").await.ended, Err(OperatorError::Queue { .. })));
    setup.fail(json!({}));
    assert_eq!(setup.daybook("dlq list").await.expect(Exit::Clean).len(), 61);
}

#[tokio::test]
async fn unreadable_messages_can_be_selected() {
    let (setup, ..) = setup().await;
    send_text_to_queue(&setup, "hello").await;
    let lines = setup.daybook("dlq list --unreadable").await.expect(Exit::Clean);
    assert!(lines[2].starts_with("2 of 7 dead-letter messages listed, 2 of them unsendable"), "{lines:?}");
    let lines = setup.daybook("dlq show --unreadable").await.expect(Exit::Clean);
    assert!(lines.contains(&"hello".to_owned()) && lines.join("").contains(r#""odd": true"#), "{lines:?}");
    let lines = setup.daybook("dlq delete --unreadable --yes").await.expect(Exit::Clean);
    assert_eq!(lines[2], "2 messages deleted, 0 that SQS did not delete; 0 ids not found");
    assert_eq!(setup.bus.queued().len(), 5);
    assert!(all_are_visible(&setup).await);
}

#[tokio::test]
async fn delete_without_yes_deletes_nothing_and_with_yes_only_the_selected_messages() {
    let (setup, first, others) = setup().await;
    let ids = format!("{} {}", first[0].message_id, setup.bus.queued()[3].message_id);
    let lines = setup.daybook(&format!("dlq delete {ids}")).await.expect(Exit::Clean);
    assert!(lines[0].starts_with("would-delete ") && lines[0].contains(" todo/1 1 "), "{lines:?}");
    assert!(lines[1].ends_with("is unsendable: it contains a record that could not be read (NewImage)"), "{lines:?}");
    let summary = "2 messages would be deleted; this was a dry run, --yes deletes them; 0 ids not found";
    assert_eq!(lines[2], summary);
    assert!(setup.bus.queued().len() == 6 && all_are_visible(&setup).await);

    let lines = setup.daybook(&format!("dlq delete {ids} nothing --yes")).await.expect(Exit::Findings);
    assert!(lines[..2].iter().all(|line| line.starts_with("deleted ")), "{lines:?}");
    assert_eq!(lines[2], "2 messages deleted, 0 that SQS did not delete; 1 ids not found");
    let left: Vec<_> = setup.bus.queued().into_iter().map(|message| message.body).collect();
    assert_eq!(left.len(), 4);
    for row in [&first[1], &first[2], &others[0], &others[1]] {
        assert!(left.iter().any(|body| body.contains(&row.message_id)), "{left:?}");
    }
    assert!(all_are_visible(&setup).await);

    // A message that SQS does not delete is reported.
    setup.fail(json!({"deleteMessage": [{"failEntries": [{"index": 0, "code": "InternalError"}]}]}));
    let lines = setup.daybook("dlq delete --type todo --yes --json").await.expect(Exit::Findings);
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let outcomes: Vec<_> = lines.iter().filter_map(|line| line["outcome"].as_str()).collect();
    assert_eq!(outcomes, ["not-deleted", "deleted", "deleted"]);
    assert_eq!(lines[3]["summary"]["dryRun"], false);
}

#[tokio::test]
async fn delete_without_a_selection_is_a_usage_error() {
    let (setup, ..) = setup().await;
    let error = setup.daybook("dlq delete --yes").await.ended.unwrap_err();
    assert!(error.to_string().starts_with("no messages are selected") && error.exit_code() == 2, "{error}");
    assert_eq!(setup.bus.queued().len(), 6);
}

#[tokio::test]
async fn delete_that_does_not_receive_all_messages_reports_it_unless_each_id_was_found() {
    let (setup, rows) = long_queue(60).await;
    let partly = json!({"receiveMessage": [{}, {}, {}, {}, {"body": "{}", "forever": true}]});
    setup.fail(partly.clone());
    setup.daybook(&format!("dlq delete {} --yes", rows[0].message_id)).await.expect(Exit::Clean);
    setup.fail(partly);
    setup.daybook("dlq delete --type todo --yes").await.expect(Exit::Findings);
    assert_eq!(setup.bus.queued().len(), 19);
}

#[tokio::test]
async fn export_writes_each_selected_message_with_body_and_attributes_to_a_new_file() {
    let (setup, first, _) = setup().await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let exported = |name: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(path(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let lines = setup.daybook(&format!("dlq export {}", path("all"))).await.expect(Exit::Clean);
    assert_eq!(lines, [format!("6 of 6 dead-letter messages exported to {}", path("all"))]);
    let (all, queued) = (exported("all"), setup.bus.queued());
    assert_eq!(all.len(), 6);
    for message in &queued {
        let line = all.iter().find(|line| line["id"] == message.message_id).unwrap();
        assert_eq!(line["body"], message.body);
        assert!(line["attributes"]["SentTimestamp"].is_string() && line["messageAttributes"].is_object(), "{line}");
    }
    let error = setup.daybook(&format!("dlq export {}", path("all"))).await.ended.unwrap_err();
    assert_eq!((error.to_string(), error.exit_code()), (format!("cannot write the file {}", path("all")), 3));

    let some = format!("dlq export {} --aggregate todo/1 --json", path("some"));
    let lines = setup.daybook(&some).await.expect(Exit::Clean);
    assert_eq!(serde_json::from_str::<Value>(&lines[0]).unwrap()["summary"]["messages"], 3);
    assert!(exported("some").iter().all(|line| line["body"].as_str().unwrap().contains(&first[0].pk)));
    setup.daybook(&format!("dlq export {} --unreadable", path("unreadable"))).await.expect(Exit::Clean);
    assert_eq!(exported("unreadable").len(), 1);
    assert!(all_are_visible(&setup).await);
}

#[tokio::test]
async fn stats_count_messages_by_error_type_and_age() {
    let (setup, ..) = setup().await;
    let lines = setup.daybook("dlq stats").await.expect(Exit::Clean);
    let counts = [
        "error MalformedDetail 3",
        "error OversizedEntry 2",
        "error unsendable 1",
        "aggregate-type account 1",
        "aggregate-type todo 4",
        "aggregate-type unsendable 1",
        "message-type TodoCreated 2",
        "message-type TodoUpdated 2",
        "message-type accountOverdrawn 1",
        "message-type unsendable 1",
        "age under-1h 6",
    ];
    assert_eq!(lines[..11], counts);
    assert!(lines[11].starts_with("6 of 6 dead-letter messages counted, the oldest of 20"), "{lines:?}");
    let lines = setup.daybook("dlq stats --json --type account").await.expect(Exit::Clean);
    let first: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(first, json!({"by": "error", "value": "OversizedEntry", "messages": 1}));
    assert!(all_are_visible(&setup).await);
}
