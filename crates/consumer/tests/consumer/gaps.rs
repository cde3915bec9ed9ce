//! A message that is missing: the report names it, later messages wait, and other aggregates go on.

use daybook_test_support::log;
use serde_json::json;

use crate::journal::{Setup, first, noted};

#[tokio::test(start_paused = true)]
async fn gap_is_reported_with_what_is_missing_and_closed_by_the_message() {
    log::take("daybook_consumer");
    let setup = Setup::new(1).await;
    let (six, other) = ([1, 2, 3, 4, 5, 6].map(|number| noted("note/1", number)), noted("note/2", 1));
    assert_eq!(setup.deliver([&six[3], &six[0], &other, &six[5]]).await, [] as [usize; 0]);
    assert_eq!((setup.applied("note/1").await, setup.applied("note/2").await), (first(1), first(1)));

    let report = setup.report().await;
    let one = &report["aggregates"][0];
    assert_eq!((&report["total"], &one["aggregate"]), (&json!(1), &json!("note/1")), "{report}");
    assert_eq!(one["last"], json!({"epoch": 1, "messageSeq": 1}));
    assert_eq!(one["missing"], json!([{"epoch": 1, "from": 2, "to": 3}, {"epoch": 1, "from": 5, "to": 5}]));
    assert_eq!((&one["waiting"], one.get("failed")), (&json!(2), None));
    assert_eq!(one["command"], "daybook republish --aggregate note/1 --from 7d --yes");
    let since: jiff::Timestamp = one["since"].as_str().unwrap().parse().unwrap();
    assert!(since <= jiff::Timestamp::now());
    let lines = log::take("daybook_consumer");
    let line = lines.iter().find(|line| line["message"] == "messages are missing").unwrap();
    assert_eq!((&line["aggregate"], &line["missing"]), (&json!("note/1"), &json!("2-3, 5")));

    setup.deliver([&six[2]]).await;
    assert_eq!(setup.applied("note/1").await, first(1));
    setup.deliver([&six[1]]).await;
    assert_eq!(setup.applied("note/1").await, first(4));
    setup.deliver([&six[4]]).await;
    assert_eq!(setup.applied("note/1").await, first(6));
    assert_eq!(setup.report().await["total"], 0);
}

/// A query during a transaction may return only some of its items.
#[tokio::test(start_paused = true)]
async fn waiting_message_that_is_not_visible_yet_is_applied_when_it_is() {
    let setup = Setup::new(1).await;
    setup.deliver([&noted("note/1", 3), &noted("note/1", 1)]).await;
    let hidden = setup.database.hide("WAITING#");
    let deliver = async { setup.deliver([&noted("note/1", 2)]).await };
    let show = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        assert_eq!(setup.applied("note/1").await, first(1));
        setup.database.show(&hidden);
    };
    assert_eq!(futures_util::future::join(deliver, show).await.0, [] as [usize; 0]);
    assert_eq!(setup.applied("note/1").await, first(3));
}

#[tokio::test(start_paused = true)]
async fn more_waiting_messages_than_a_transaction_holds_are_applied_in_several() {
    let setup = Setup::new(1).await;
    let late: Vec<_> = (2..=250).map(|number| noted("note/1", number)).collect();
    for batch in late.chunks(10) {
        setup.deliver(batch).await;
    }
    setup.deliver(&late[120..130]).await;
    assert_eq!(setup.applied("note/1").await, []);
    assert_eq!(setup.report().await["aggregates"][0]["waiting"], 249);
    setup.database.take_calls();
    setup.deliver([&noted("note/1", 1)]).await;
    assert_eq!(setup.applied("note/1").await, first(250));
    let calls = setup.database.take_calls();
    let transactions: Vec<_> = calls.iter().filter(|call| call.operation == "TransactWriteItems").collect();
    let sizes: Vec<_> =
        transactions.iter().map(|call| call.request["TransactItems"].as_array().unwrap().len()).collect();
    assert!(sizes.iter().all(|&size| size <= 100) && sizes.len() < 10, "{sizes:?}");
    assert_eq!(setup.report().await["total"], 0);
}

#[tokio::test(start_paused = true)]
async fn skipped_messages_are_not_applied_when_they_arrive_late() {
    let setup = Setup::new(1).await;
    setup.deliver([&noted("note/1", 1), &noted("note/1", 4)]).await;
    let skipped = setup.request(json!({"request": "skip", "aggregate": "note/1", "through": 3})).await;
    assert_eq!(skipped, json!({"applied": 1, "failed": 0}));
    assert_eq!(setup.deliver([&noted("note/1", 2), &noted("note/1", 3)]).await, [] as [usize; 0]);
    assert_eq!(setup.applied("note/1").await, [(1, 1), (1, 4)]);
    // A position never moves back.
    setup.request(json!({"request": "skip", "aggregate": "note/1", "through": 2})).await;
    setup.deliver([&noted("note/1", 3), &noted("note/1", 5)]).await;
    assert_eq!(setup.applied("note/1").await, [(1, 1), (1, 4), (1, 5)]);
}

#[tokio::test(start_paused = true)]
async fn aggregates_that_are_older_than_the_consumer_begin_where_an_operator_lets_them() {
    let setup = Setup::new(1).await;
    setup.deliver([&noted("note/1", 8), &noted("note/1", 7), &noted("note/2", 1), &noted("note/2", 3)]).await;
    assert_eq!(setup.applied("note/1").await, []);
    let begin = |seconds: u32| setup.request(json!({"request": "begin", "waitingSeconds": seconds}));
    assert_eq!(begin(3600).await, json!({"aggregates": 0, "applied": 0}));
    // The gap of an aggregate that has begun stays.
    assert_eq!(begin(0).await, json!({"aggregates": 1, "applied": 2}));
    assert_eq!((setup.applied("note/1").await, setup.applied("note/2").await), (vec![(1, 7), (1, 8)], first(1)));
}

#[tokio::test(start_paused = true)]
async fn second_message_with_the_same_number_is_not_settled() {
    let setup = Setup::new(1).await;
    let first_message = noted("note/1", 1);
    setup.deliver([&first_message]).await;
    let mut other = first_message.clone();
    other.metadata.message_id = "another".to_owned();
    assert_eq!(setup.deliver([&other, &noted("note/1", 2)]).await, [0]);
    assert_eq!(setup.deliver([&first_message]).await, [] as [usize; 0]);
    assert_eq!(setup.applied("note/1").await, first(2));
}
