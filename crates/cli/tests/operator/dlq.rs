//! `daybook dlq`.

use daybook_cli::operator::{Exit, OperatorError};
use daybook_table::OutboxItem;
use serde_json::{Value, json};

use crate::bench::Bench;

/// Parks rows as the relay does.
async fn park(bench: &Bench, rows: &[&OutboxItem], code: &str) {
    let client = aws_sdk_sqs::Client::new(&daybook_function_runtime::aws_config_at(
        bench.queue_url().split("/0000").next().unwrap(),
    ));
    for row in rows {
        let letter = json!({
            "message": row, "error": {"code": code, "text": "it was refused"}, "attempts": 1,
            "stream": {"eventID": "e1", "sequenceNumber": "1"}, "parkedAt": "2026-11-21T00:00:00Z",
        });
        client.send_message().queue_url(bench.queue_url()).message_body(letter.to_string()).send().await.unwrap();
    }
}

/// Receives all that there is, as another reader does, and keeps it.
async fn take(bench: &Bench) -> usize {
    let client = aws_sdk_sqs::Client::new(&daybook_function_runtime::aws_config_at(
        bench.queue_url().split("/0000").next().unwrap(),
    ));
    let call =
        client.receive_message().queue_url(bench.queue_url()).max_number_of_messages(10).visibility_timeout(3600);
    call.send().await.unwrap().messages().len()
}

async fn park_text(bench: &Bench, text: &str) {
    let client = aws_sdk_sqs::Client::new(&daybook_function_runtime::aws_config_at(
        bench.queue_url().split("/0000").next().unwrap(),
    ));
    client.send_message().queue_url(bench.queue_url()).message_body(text).send().await.unwrap();
}

/// Three letters of one to-do, in another order, one of another, one of an account, and one of a record that cannot be read.
async fn bench() -> (Bench, Vec<OutboxItem>, Vec<OutboxItem>) {
    let bench = Bench::new().await;
    bench.todo("1", 3).await;
    bench.todo("2", 1).await;
    bench.command("account/1", "OpenAccount", json!({})).await;
    bench.command("account/1", "RecordTransaction", json!({"desc": "A", "amount": -1})).await;
    let first = bench.outbox("todo/1").await;
    let mut others = bench.outbox("todo/2").await;
    others.extend(bench.outbox("account/1").await);
    park(&bench, &[&first[2], &first[0], &others[0]], "MalformedDetail").await;
    park_text(&bench, r#"{"record":{"odd":true},"error":{"code":"UnreadableRecord","text":"NewImage"},"attempts":0}"#)
        .await;
    park(&bench, &[&first[1], &others[1]], "OversizedEntry").await;
    (bench, first, others)
}

/// Whether everything in the queue can be received by others.
async fn all_is_shown(bench: &Bench) -> bool {
    let lines = bench.daybook("dlq list").await.expect(Exit::Clean);
    lines.len() - 1 == bench.bus.queued().len()
}

#[tokio::test]
async fn a_list_tells_each_letter_and_leaves_them_all() {
    let (bench, first, others) = bench().await;
    let lines = bench.daybook("dlq list").await.expect(Exit::Clean);
    let summary =
        "6 letters of 6 seen, 1 of them no whole messages; SQS counts about 6 waiting and 0 that other readers have";
    assert_eq!(lines[6], summary);
    assert!(lines[0].contains(&format!(" account/1 1 accountOverdrawn {} OversizedEntry: ", others[1].message_id)));
    for (line, row) in lines[1..4].iter().zip(&first) {
        assert!(line.contains(&format!(" todo/1 {} ", row.message_seq)) && line.contains(&row.message_id), "{line}");
    }
    assert!(
        lines[5].ends_with("is no whole message: it holds a record that could not be read (NewImage)"),
        "{lines:?}"
    );
    assert!(all_is_shown(&bench).await);

    let lines = bench.daybook("dlq list --json --type todo --error-code MalformedDetail").await.expect(Exit::Clean);
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!((&lines[0]["aggregate"], &lines[0]["messageSeq"]), (&json!("todo/1"), &json!(1)));
    assert_eq!(lines[3]["summary"]["seen"], 6);
}

#[tokio::test]
async fn a_letter_is_shown_whole() {
    let (bench, first, _) = bench().await;
    let lines = bench.daybook(&format!("dlq show {}", first[1].message_id)).await.expect(Exit::Clean);
    let letter: Value = serde_json::from_str(&lines.join("\n")).unwrap();
    assert_eq!(letter["message"]["detail"], first[1].detail);
    assert_eq!(letter["stream"]["sequenceNumber"], "1");
    // By SQS's own id too.
    let unreadable = bench.bus.queued()[3].message_id.clone();
    let lines = bench.daybook(&format!("dlq show {unreadable}")).await.expect(Exit::Clean);
    assert!(lines.join("").contains(r#""odd": true"#));
    bench.daybook("dlq show nothing").await.expect(Exit::Findings);
    assert!(all_is_shown(&bench).await);
}

#[tokio::test]
async fn nothing_is_done_without_a_yes() {
    let (bench, ..) = bench().await;
    let lines = bench.daybook("dlq redrive").await.expect(Exit::Findings);
    assert!(lines[0].starts_with("left ") && lines[1].starts_with("would-send account/1 1 "), "{lines:?}");
    assert_eq!(lines[6], "5 messages would be sent; nothing was done, --yes does it");
    assert!(bench.bus.delivered().is_empty());
    assert_eq!(bench.bus.queued().len(), 6);
    assert!(all_is_shown(&bench).await);
}

#[tokio::test]
async fn what_the_bus_takes_is_deleted_and_everything_else_stays() {
    let (bench, first, others) = bench().await;
    bench.fail(json!({
        "putEvents": [{"http": 500}, {"failEntries": [{"index": 0, "code": "InternalFailure"}]}],
        "entries": [{"containing": first[1].message_id, "code": "MalformedDetail"}],
    }));
    let lines = bench.daybook("dlq redrive --yes --rate 100000").await.expect(Exit::Findings);
    let refused =
        format!("refused todo/1 2 TodoUpdated {} (MalformedDetail: a fault was asked for)", first[1].message_id);
    assert!(lines.contains(&refused), "{lines:?}");
    assert_eq!(
        lines.last().unwrap(),
        "4 messages sent and deleted from the queue; left there: 1 that the bus refuses, 1 no whole messages, 0 not sent"
    );
    let left: Vec<_> = bench.bus.queued().into_iter().map(|letter| letter.body).collect();
    assert_eq!(left.len(), 2);
    assert!(left[0].contains("UnreadableRecord") && left[1].contains(&first[1].message_id), "{left:?}");
    assert!(all_is_shown(&bench).await);

    // The same ids and bytes, in the aggregate's order.
    let sent = bench.sent();
    let of_first: Vec<_> = sent.iter().filter(|id| first.iter().any(|row| row.message_id == **id)).collect();
    assert_eq!(of_first, [&first[0].message_id, &first[2].message_id]);
    for row in [&first[0], &first[2], &others[0], &others[1]] {
        assert!(bench.bus.delivered().iter().any(|entry| entry.detail == row.detail));
    }

    // Once the bus takes it, it goes.
    bench.fail(json!({}));
    bench.daybook("dlq redrive --yes --type todo").await.expect(Exit::Clean);
    assert_eq!(bench.bus.queued().len(), 1);
    assert_eq!(bench.sent().last(), Some(&first[1].message_id));
}

#[tokio::test]
async fn letters_can_be_chosen() {
    let (bench, first, others) = bench().await;
    bench.daybook("dlq redrive --yes --aggregate todo/1 --error-code OversizedEntry").await.expect(Exit::Clean);
    assert_eq!(bench.sent(), [first[1].message_id.clone()]);
    bench.daybook("dlq redrive --yes --message-type accountOverdrawn").await.expect(Exit::Clean);
    bench.daybook(&format!("dlq redrive --yes --id {}", others[0].message_id)).await.expect(Exit::Clean);
    assert_eq!(bench.sent(), [&first[1], &others[1], &others[0]].map(|row| row.message_id.clone()));
    assert_eq!(bench.bus.queued().len(), 3);
    assert!(all_is_shown(&bench).await);
}

#[tokio::test]
async fn a_message_that_was_parked_twice_goes_once() {
    let (bench, first, _) = bench().await;
    park(&bench, &[&first[1], &first[1]], "Another").await;
    let lines = bench.daybook("dlq redrive --yes --aggregate todo/1").await.expect(Exit::Clean);
    assert_eq!(lines.len(), 4);
    assert_eq!(bench.sent(), first.iter().map(|row| row.message_id.clone()).collect::<Vec<_>>());
    assert_eq!(bench.bus.queued().len(), 3);
}

#[tokio::test]
async fn what_sqs_does_not_delete_is_named_and_goes_again() {
    let (bench, first, others) = bench().await;
    bench.fail(json!({"deleteMessage": [{"failEntries": [{"index": 0, "code": "InternalError"}]}]}));
    let lines = bench.daybook("dlq redrive --yes --type todo").await.expect(Exit::Findings);
    let kept = format!("sent-and-kept todo/1 1 TodoCreated {} (InternalError: ", first[0].message_id);
    assert!(lines.iter().any(|line| line.starts_with(&kept)), "{lines:?}");
    assert!(lines.last().unwrap().starts_with("4 messages sent and deleted from the queue but for 1 letters"));
    let left: Vec<_> = bench.bus.queued().into_iter().map(|letter| letter.body).collect();
    assert!(left.iter().any(|body| body.contains(&first[0].message_id)), "{left:?}");
    assert!(left.iter().any(|body| body.contains(&others[1].message_id)) && left.len() == 3, "{left:?}");
}

#[tokio::test]
async fn a_deployment_at_fault_ends_it_and_deletes_nothing() {
    let (bench, ..) = bench().await;
    bench.fail(json!({"putEvents": [{"http": 403, "code": "AccessDeniedException", "forever": true}]}));
    let printed = bench.daybook("dlq redrive --yes").await;
    assert!(matches!(&printed.ended, Err(OperatorError::Bus { .. })), "{printed:?}");
    assert!(printed.lines.last().unwrap().ends_with("1 no whole messages, 5 not sent"), "{printed:?}");
    assert_eq!(bench.bus.queued().len(), 6);
    assert!(all_is_shown(&bench).await);
}

#[tokio::test]
async fn many_letters_are_all_looked_at_unless_there_is_a_limit() {
    let bench = Bench::new().await;
    bench.todo("1", 25).await;
    let rows = bench.outbox("todo/1").await;
    park(&bench, &rows.iter().collect::<Vec<_>>(), "X").await;
    assert_eq!(bench.daybook("dlq list").await.expect(Exit::Clean).len(), 26);
    assert_eq!(bench.daybook("dlq list --limit 12").await.expect(Exit::Clean).len(), 13);
    bench.daybook("dlq redrive --yes --limit 12 --rate 100000").await.expect(Exit::Clean);
    assert_eq!(bench.bus.queued().len(), 13);
    bench.daybook("dlq redrive --yes --rate 100000").await.expect(Exit::Clean);
    assert!(bench.bus.queued().is_empty());
    assert_eq!(bench.sent(), rows.iter().map(|row| row.message_id.clone()).collect::<Vec<_>>());
}

#[tokio::test]
async fn whoever_stops_reading_leaves_no_letter_hidden_or_sent_and_kept() {
    let (bench, ..) = bench().await;
    for lines in 0..=6 {
        let printed = bench.daybook_unread("dlq redrive", lines).await;
        assert_eq!(printed.expect(Exit::Unread).len(), lines);
        assert!(all_is_shown(&bench).await);
    }
    // Nobody would know of what is sent.
    bench.daybook_unread("dlq redrive --yes", 0).await.expect(Exit::Unread);
    assert_eq!((bench.sent().len(), bench.bus.queued().len()), (0, 6));
    assert!(all_is_shown(&bench).await);
    // What is sent already is not in the queue any more.
    bench.daybook_unread("dlq redrive --yes --rate 100000", 2).await.expect(Exit::Unread);
    assert_eq!((bench.sent().len(), bench.bus.queued().len()), (5, 1));
    assert!(all_is_shown(&bench).await);
}

#[tokio::test]
async fn what_is_hidden_from_a_look_is_counted() {
    let (bench, ..) = bench().await;
    assert_eq!(take(&bench).await, 6);
    let lines = bench.daybook("dlq redrive").await.expect(Exit::Clean);
    let expected = "0 messages would be sent; about 6 more are hidden from this look; nothing was done, --yes does it";
    assert_eq!(lines, [expected]);
    let lines = bench.daybook("dlq redrive --yes").await.expect(Exit::Clean);
    assert!(lines[0].ends_with("0 not sent; about 6 more are hidden from this look"), "{lines:?}");
    let lines = bench.daybook("dlq redrive --yes --json").await.expect(Exit::Clean);
    assert_eq!(serde_json::from_str::<Value>(&lines[0]).unwrap()["summary"]["hidden"], 6);
}

#[tokio::test]
async fn a_queue_that_refuses_says_so_in_a_line() {
    let (bench, ..) = bench().await;
    let refusal = json!({"http": 403, "code": "AccessDeniedException", "forever": true});
    bench.fail(json!({"receiveMessage": [refusal]}));
    for verb in ["list", "show 1", "redrive"] {
        let error = bench.daybook(&format!("dlq {verb}")).await.ended.unwrap_err();
        let text = daybook_function_runtime::with_causes(&error);
        assert!(text.starts_with("the queue does not give its messages: ") && text.contains("AccessDenied"), "{text}");
        // Not the whole answer with its headers.
        assert!(!text.contains("StatusCode") && !text.contains('\n'), "{text}");
    }
}
