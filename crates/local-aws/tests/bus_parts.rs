//! Parts of the entries of the bus, in memory and in a file.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::Range;
use std::path::Path;

use daybook_local_aws::clock::LocalClock;
use daybook_local_aws::messaging::{Bus, Delivered, EntryKey, Server};
use daybook_local_aws::state::StackState;
use serde_json::json;

const ALL: Range<usize> = 1..usize::MAX;

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

/// The positions in a part, and the number of all that match.
fn part(
    bus: &Bus,
    positions: &Range<usize>,
    limit: usize,
    key: Option<EntryKey<'_>>,
    matches: Option<&dyn Fn(&Delivered) -> bool>,
) -> (Vec<usize>, usize) {
    let part = bus.delivered_part(positions, limit, key.as_ref(), matches);
    (part.entries.into_iter().map(|(position, _)| position).collect(), part.matching)
}

#[tokio::test]
async fn part_has_the_last_entries_that_have_the_key_and_match() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("daybook.db");
    for data in [None, Some(data.as_path())] {
        let (bus, server) = bus(data).await;
        put(&server, 1..11).await;
        assert_eq!(part(&bus, &ALL, 3, None, None), (vec![8, 9, 10], 10));
        // Entries that arrive after the first call are found, too.
        put(&server, 11..21).await;
        assert_eq!(part(&bus, &ALL, 2, None, None), (vec![19, 20], 20));
        assert_eq!(part(&bus, &(5..8), 9, None, None), (vec![5, 6, 7], 3));
        assert_eq!(part(&bus, &(21..usize::MAX), 9, None, None), (vec![], 0));
        let resource = || Some(EntryKey::Resource("todo/1"));
        assert_eq!(part(&bus, &ALL, 2, resource(), None), (vec![16, 19], 7));
        assert_eq!(part(&bus, &(1..16), 2, resource(), None), (vec![10, 13], 5));
        assert_eq!(part(&bus, &ALL, 9, Some(EntryKey::Correlation("c0")), None), (vec![5, 10, 15, 20], 4));
        assert_eq!(part(&bus, &ALL, 9, Some(EntryKey::MessageIds(vec!["m7", "m3", "none"])), None), (vec![3, 7], 2));
        let is_even = |entry: &Delivered| entry.detail.contains("0}") || entry.detail.contains("4}");
        assert_eq!(part(&bus, &ALL, 2, None, Some(&is_even)), (vec![14, 20], 4));
        assert_eq!(part(&bus, &ALL, 9, resource(), Some(&is_even)), (vec![4, 10], 2));
    }
}

#[tokio::test]
async fn part_in_a_file_is_read_without_the_other_entries() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("daybook.db");
    let (bus, server) = bus(Some(&data)).await;
    put(&server, 1..40).await;
    assert_eq!(part(&bus, &ALL, 1, None, None), (vec![39], 39));
    // From now on, another entry than these cannot be read.
    let file = rusqlite::Connection::open(&data).unwrap();
    let damaged = "UPDATE _daybook_bus SET entry = json_set(entry, '$.source', NULL) WHERE entry NOT LIKE '%m7_\"%' AND entry NOT LIKE '%m39%'";
    assert_eq!(file.execute(damaged, []).unwrap(), 37);
    assert_eq!(part(&bus, &ALL, 1, None, None), (vec![39], 39));
    assert_eq!(part(&bus, &ALL, 5, Some(EntryKey::MessageIds(vec!["m7"])), None), (vec![7], 1));
    assert_eq!(part(&bus, &(39..usize::MAX), 20, None, None), (vec![39], 1));
    assert_eq!(bus.delivered().len(), 0);
}
