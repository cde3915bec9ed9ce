//! Parts of the entries of the bus, in memory and in a file.

use std::ops::Range;
use std::path::Path;

use daybook_local_aws::clock::LocalClock;
use daybook_local_aws::messaging::{Bus, MessageQuery, Server};
use daybook_local_aws::state::StackState;
use serde_json::json;

/// Puts entries with these numbers. The number is in the message id; the others of its metadata repeat.
async fn put(server: &Server, numbers: Range<usize>) {
    for number in numbers {
        let metadata = json!({"messageId": format!("m{number}"), "correlationId": format!("c{}", number % 5)});
        let entry = json!({
            "EventBusName": "main", "Source": "daybook", "DetailType": "T", "Resources": [format!("todo/{}", number % 3)],
            "Detail": json!({"metadata": metadata, "data": {"n": number}}).to_string(),
        });
        let call = reqwest::Client::new().post(server.url()).header("x-amz-target", "AWSEvents.PutEvents");
        let response = call.body(json!({"Entries": [entry]}).to_string()).send().await.unwrap();
        assert!(response.status().is_success());
    }
}

async fn bus(data: Option<&Path>) -> (Bus, Server) {
    let bus = match data {
        None => Bus::in_memory(),
        Some(data) => Bus::new(StackState::open(data).unwrap(), LocalClock::default()).unwrap(),
    };
    bus.create_event_bus("main");
    let server = Server::start(bus.router()).await.unwrap();
    (bus, server)
}

/// The positions in a part of up to this number of messages, and the number of all that match.
fn part(bus: &Bus, limit: usize, query: MessageQuery) -> (Vec<usize>, usize) {
    let part = bus.messages(&MessageQuery { limit: Some(limit), ..query });
    (part.messages.into_iter().map(|message| message.position).collect(), part.matching)
}

fn all() -> MessageQuery {
    MessageQuery::default()
}

fn with_ids(ids: &[&str]) -> MessageQuery {
    MessageQuery { ids: Some(ids.iter().map(|id| (*id).to_owned()).collect()), ..all() }
}

#[tokio::test]
async fn part_has_the_last_entries_that_have_the_key_and_match() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("daybook.db");
    for data in [None, Some(data.as_path())] {
        let (bus, server) = bus(data).await;
        put(&server, 1..11).await;
        assert_eq!(part(&bus, 3, all()), (vec![8, 9, 10], 10));
        // Entries that arrive after the first call are found, too.
        put(&server, 11..21).await;
        assert_eq!(part(&bus, 2, all()), (vec![19, 20], 20));
        assert_eq!(part(&bus, 9, MessageQuery { after: Some(4), before: Some(8), ..all() }), (vec![5, 6, 7], 3));
        assert_eq!(part(&bus, 9, MessageQuery { after: Some(20), ..all() }), (vec![], 0));
        let todo = || MessageQuery { aggregate: Some("todo/1".to_owned()), ..all() };
        assert_eq!(part(&bus, 2, todo()), (vec![16, 19], 7));
        assert_eq!(part(&bus, 2, MessageQuery { before: Some(16), ..todo() }), (vec![10, 13], 5));
        let correlation = MessageQuery { correlation: Some("c0".to_owned()), ..all() };
        assert_eq!(part(&bus, 9, correlation), (vec![5, 10, 15, 20], 4));
        assert_eq!(part(&bus, 9, with_ids(&["m7", "m3", "none"])), (vec![3, 7], 2));
        let ends_with_4 = |query| MessageQuery { containing: Some("4}".to_owned()), ..query };
        assert_eq!(part(&bus, 1, ends_with_4(all())), (vec![14], 2));
        assert_eq!(part(&bus, 9, ends_with_4(todo())), (vec![4], 1));
    }
}

#[tokio::test]
async fn part_in_a_file_is_read_without_the_other_entries() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("daybook.db");
    let (bus, server) = bus(Some(&data)).await;
    put(&server, 1..40).await;
    assert_eq!(part(&bus, 1, all()), (vec![39], 39));
    // From now on, another entry than these cannot be read.
    let file = rusqlite::Connection::open(&data).unwrap();
    let damaged = "UPDATE _daybook_bus SET entry = json_set(entry, '$.source', NULL) WHERE entry NOT LIKE '%m7_\"%' AND entry NOT LIKE '%m39%'";
    assert_eq!(file.execute(damaged, []).unwrap(), 37);
    assert_eq!(part(&bus, 1, all()), (vec![39], 39));
    assert_eq!(part(&bus, 5, with_ids(&["m7"])), (vec![7], 1));
    assert_eq!(part(&bus, 20, MessageQuery { after: Some(38), ..all() }), (vec![39], 1));
    assert_eq!(bus.delivered().len(), 0);
}
