//! `daybook snapshot rebuild`.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_cli::operator::Exit;
use daybook_test_support::fault_proxy::RecordedCall;
use serde_json::{Value, json};

use crate::support::Setup;

const REBUILD: &str = "snapshot rebuild --rate 100000 --concurrency 1";

/// Six to-dos with five events each, and one with two events. A snapshot is due every five events.
async fn setup() -> Setup {
    let setup = Setup::with(&[("SNAPSHOT_EVERY", "5")]).await;
    for id in 1..=6 {
        setup.todo(&id.to_string(), 5).await;
    }
    setup.todo("short", 2).await;
    setup.table.proxy.take_calls();
    setup
}

async fn versions(setup: &Setup, id: &str) -> Option<(String, String)> {
    let row = setup.rows(&format!("todo/{id}"), "#SNAPSHOT").await.pop()?;
    let number = |name: &str| row[name].as_n().unwrap().clone();
    Some((number("lastSeqNum"), number("stateVersion")))
}

#[tokio::test]
async fn rebuild_takes_a_snapshot_where_none_is_current() {
    let setup = setup().await;
    let current = Some(("5".to_owned(), "2".to_owned()));
    let lines = setup.daybook(REBUILD).await.expect(Exit::Clean);
    assert_eq!(lines[0], "taken todo/1 at event 5");
    assert_eq!(
        lines[6],
        "6 snapshots taken; 0 aggregates had a current one, 1 need none, 0 are too large for one, 0 cannot be read"
    );
    for id in 1..=6 {
        assert_eq!(versions(&setup, &id.to_string()).await, current);
    }
    assert_eq!(versions(&setup, "short").await, None);
    let operations = setup.table.operations();
    assert!(!operations.contains(&"Scan".to_owned()), "{operations:?}");

    // A snapshot of an earlier release: its state version differs.
    let mut row = setup.rows("todo/3", "#SNAPSHOT").await.remove(0);
    row.insert("stateVersion".to_owned(), AttributeValue::N("9".to_owned()));
    setup.table.put(row).await;
    setup.table.proxy.take_calls();
    let lines = setup.daybook(&format!("{REBUILD} --type todo --json")).await.expect(Exit::Clean);
    assert_eq!(lines.len(), 2);
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(line, json!({"aggregate": "todo/3", "outcome": "taken", "detail": "at event 5"}));
    assert_eq!(versions(&setup, "3").await, current);
    // A current snapshot costs one read: seven progress queries, one load, and the index.
    let calls = setup.table.proxy.take_calls();
    let is_of_progress = |call: &&RecordedCall| call.request["ExpressionAttributeValues"][":last"]["S"] == "#SNAPSHOT";
    assert_eq!(calls.iter().filter(is_of_progress).count(), 7);
    assert!(calls.iter().all(|call| call.operation != "Scan"));
}

#[tokio::test]
async fn rebuild_with_force_replaces_a_wrong_snapshot() {
    let setup = setup().await;
    setup.daybook(REBUILD).await.expect(Exit::Clean);
    let mut row = setup.rows("todo/2", "#SNAPSHOT").await.remove(0);
    let state = row["state"].as_s().unwrap().replace("2/4", "x");
    row.insert("state".to_owned(), AttributeValue::S(state));
    setup.table.put(row).await;
    let found = setup.daybook("verify todo/2").await.expect(Exit::Findings);
    assert_eq!(found[0], r#"todo/2 #SNAPSHOT differs: state/title is "x", expected "2/4""#);
    setup.daybook("snapshot rebuild --aggregate todo/2").await.expect(Exit::Clean);
    setup.daybook("verify todo/2").await.expect(Exit::Findings);
    let lines = setup.daybook("snapshot rebuild --aggregate todo/2 --force").await.expect(Exit::Clean);
    assert_eq!(lines[0], "taken todo/2 at event 5");
    setup.daybook("verify todo/2").await.expect(Exit::Clean);
}

#[tokio::test]
async fn rebuild_replaces_a_snapshot_of_a_missing_event() {
    let setup = setup().await;
    setup.daybook(REBUILD).await.expect(Exit::Clean);
    let mut row = setup.rows("todo/2", "#SNAPSHOT").await.remove(0);
    row.insert("lastSeqNum".to_owned(), AttributeValue::N("9".to_owned()));
    setup.table.put(row).await;
    assert_eq!(setup.daybook(REBUILD).await.expect(Exit::Clean)[0], "taken todo/2 at event 5");
    setup.daybook("verify").await.expect(Exit::Clean);
}

#[tokio::test]
async fn rebuild_of_a_named_aggregate_takes_a_snapshot_however_short_it_is() {
    let setup = setup().await;
    let lines = setup.daybook("snapshot rebuild --aggregate todo/short").await.expect(Exit::Clean);
    assert_eq!(lines[0], "taken todo/short at event 2");
    assert_eq!(versions(&setup, "1").await, None);
    let lines = setup.daybook("snapshot rebuild --type todo --min-events 6").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("0 snapshots taken; 1 aggregates had a current one, 6 need none"), "{lines:?}");
}

#[tokio::test]
async fn rebuild_replaces_a_snapshot_that_is_far_behind() {
    let setup = setup().await;
    setup.daybook(REBUILD).await.expect(Exit::Clean);
    let update = |n: usize| ("UpdateTodo", json!({"title": format!("later/{n}"), "message": ""}));
    let later: Vec<_> = (0..20).map(update).collect();
    for (id, events) in [("1", 20), ("2", 20), ("3", 4)] {
        setup.commands(&format!("todo/{id}"), &later[..events]).await;
    }
    let named = setup.daybook("snapshot rebuild --aggregate todo/2").await.expect(Exit::Clean);
    assert_eq!(named[0], "taken todo/2 at event 25");
    let walk = setup.daybook(REBUILD).await.expect(Exit::Clean);
    assert_eq!(walk[0], "taken todo/1 at event 25");
    assert!(walk[1].starts_with("1 snapshots taken; 5 aggregates had a current one, 1 need none"), "{walk:?}");
    // Its next snapshot is not due yet, but the operator names the aggregate.
    let named = setup.daybook("snapshot rebuild --aggregate todo/3").await.expect(Exit::Clean);
    assert_eq!(named[0], "taken todo/3 at event 9");
    setup.daybook("verify").await.expect(Exit::Clean);

    setup.table.proxy.take_calls();
    let again = setup.daybook("snapshot rebuild --aggregate todo/3").await.expect(Exit::Clean);
    assert!(again[0].starts_with("0 snapshots taken; 1 aggregates had a current one"), "{again:?}");
    assert_eq!(setup.table.operations(), ["Query"]);
}

#[tokio::test]
async fn rebuild_continues_where_it_was_interrupted() {
    let setup = setup().await;
    let mut taken = Vec::new();
    let mut line = REBUILD.to_owned();
    let mut runs = 0;
    loop {
        runs += 1;
        let mut printed = setup.daybook_until(&line, 2).await;
        let summary = printed.lines.pop().unwrap();
        taken.extend(printed.lines);
        let Some((_, cursor)) = summary.split_once("go on with --after ") else { break };
        assert!(matches!(printed.ended, Ok(Exit::Interrupted)));
        line = format!("{REBUILD} --after {cursor}");
    }
    assert_eq!(runs, 4);
    assert_eq!(taken, (1..=6).map(|id| format!("taken todo/{id} at event 5")).collect::<Vec<_>>());
    // No aggregate was read twice.
    let puts = setup.table.operations().into_iter().filter(|operation| operation == "PutItem").count();
    assert_eq!(puts, 6);
    // Without the cursor, the command skips current snapshots.
    let lines = setup.daybook(REBUILD).await.expect(Exit::Clean);
    assert!(lines[0].starts_with("0 snapshots taken; 6 aggregates had a current one"), "{lines:?}");
}

#[tokio::test]
async fn rebuild_reports_an_unreadable_aggregate_and_continues() {
    let setup = setup().await;
    let mut row = setup.rows("todo/2", "EVENT#000000000003").await.remove(0);
    row.insert("data".to_owned(), AttributeValue::S("{".to_owned()));
    setup.table.put(row).await;
    let lines = setup.daybook(REBUILD).await.expect(Exit::Findings);
    assert!(lines[1].starts_with("failed todo/2: "), "{lines:?}");
    assert!(lines[6].starts_with("5 snapshots taken") && lines[6].ends_with("1 cannot be read"), "{lines:?}");
}

#[tokio::test]
async fn rebuild_reports_an_unreadable_row_of_the_index_and_continues() {
    let setup = setup().await;
    setup.stray_row("TodoCreated").await;
    let lines = setup.daybook(REBUILD).await.expect(Exit::Findings);
    assert_eq!(lines[0], "failed STRAY: ROW: its keys are not those of an event");
    assert!(lines[7].starts_with("6 snapshots taken") && lines[7].ends_with("1 cannot be read"), "{lines:?}");
}

#[tokio::test]
async fn rebuild_of_a_named_aggregate_without_events_reports_it_missing() {
    let setup = setup().await;
    for force in ["", " --force"] {
        let lines =
            setup.daybook(&format!("snapshot rebuild --aggregate todo/nope{force}")).await.expect(Exit::Findings);
        assert_eq!(lines[0], "missing todo/nope: it has no events");
        assert!(lines[1].ends_with("0 cannot be read, 1 have no events"), "{lines:?}");
    }
    // Its metadata is lost; its events still exist.
    setup.delete("todo/1", "#METADATA").await;
    let lines = setup.daybook("snapshot rebuild --aggregate todo/1").await.expect(Exit::Clean);
    assert_eq!(lines[0], "taken todo/1 at event 5");
}

#[tokio::test]
async fn rebuild_of_an_aggregate_with_lost_events_reports_a_failure() {
    let setup = setup().await;
    setup.todo("one", 1).await;
    setup.delete("todo/one", "EVENT#000000000001").await;
    for force in ["", " --force"] {
        let lines =
            setup.daybook(&format!("snapshot rebuild --aggregate todo/one{force}")).await.expect(Exit::Findings);
        assert_eq!(lines[0], "failed todo/one: event 1 is missing; the last event in the metadata is 1");
    }
    // The events before the lost one can be read, and get a snapshot.
    setup.todo("two", 2).await;
    setup.commands("todo/two", &[("UpdateTodo", json!({"title": "Lost", "message": ""}))]).await;
    setup.delete("todo/two", "EVENT#000000000003").await;
    let lines = setup.daybook("snapshot rebuild --aggregate todo/two").await.expect(Exit::Findings);
    assert_eq!(lines[0], "failed todo/two: event 3 is missing; the last event in the metadata is 3");
}
