//! `daybook snapshot rebuild`.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_cli::operator::Exit;
use daybook_local_aws::dynamodb::RecordedCall;
use serde_json::{Value, json};

use crate::bench::Bench;

const REBUILD: &str = "snapshot rebuild --rate 100000 --concurrency 1";

/// To-dos with five events, where a snapshot is due every five events, and a shorter one.
async fn bench() -> Bench {
    let bench = Bench::with(&[("SNAPSHOT_EVERY", "5")]).await;
    for id in 1..=6 {
        bench.todo(&id.to_string(), 5).await;
    }
    bench.todo("short", 2).await;
    bench.wire.take_calls();
    bench
}

async fn versions(bench: &Bench, id: &str) -> Option<(String, String)> {
    let row = bench.rows(&format!("todo/{id}"), "#SNAPSHOT").await.pop()?;
    let number = |name: &str| row[name].as_n().unwrap().clone();
    Some((number("lastSeqNum"), number("stateVersion")))
}

#[tokio::test]
async fn rebuild_takes_a_snapshot_where_none_is_current() {
    let bench = bench().await;
    let current = Some(("5".to_owned(), "1".to_owned()));
    let lines = bench.daybook(REBUILD).await.expect(Exit::Clean);
    assert_eq!(lines[0], "taken todo/1 at event 5");
    assert_eq!(
        lines[6],
        "6 snapshots taken; 0 aggregates had a current one, 1 need none, 0 are too large for one, 0 cannot be read"
    );
    for id in 1..=6 {
        assert_eq!(versions(&bench, &id.to_string()).await, current);
    }
    assert_eq!(versions(&bench, "short").await, None);
    let operations = bench.operations();
    assert!(!operations.contains(&"Scan".to_owned()), "{operations:?}");

    // A snapshot of an earlier release: its state version differs.
    let mut row = bench.rows("todo/3", "#SNAPSHOT").await.remove(0);
    row.insert("stateVersion".to_owned(), AttributeValue::N("9".to_owned()));
    bench.put(row).await;
    bench.wire.take_calls();
    let lines = bench.daybook(&format!("{REBUILD} --type todo --json")).await.expect(Exit::Clean);
    assert_eq!(lines.len(), 2);
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(line, json!({"aggregate": "todo/3", "outcome": "taken", "what": "at event 5"}));
    assert_eq!(versions(&bench, "3").await, current);
    // A current snapshot costs one read: seven progress queries, one load, and the index.
    let calls = bench.wire.take_calls();
    let is_of_progress = |call: &&RecordedCall| call.request["ExpressionAttributeValues"][":last"]["S"] == "#SNAPSHOT";
    assert_eq!(calls.iter().filter(is_of_progress).count(), 7);
    assert!(calls.iter().all(|call| call.operation != "Scan"));
}

#[tokio::test]
async fn rebuild_with_force_replaces_a_wrong_snapshot() {
    let bench = bench().await;
    bench.daybook(REBUILD).await.expect(Exit::Clean);
    let mut row = bench.rows("todo/2", "#SNAPSHOT").await.remove(0);
    let state = row["state"].as_s().unwrap().replace("2/4", "x");
    row.insert("state".to_owned(), AttributeValue::S(state));
    bench.put(row).await;
    let found = bench.daybook("verify todo/2").await.expect(Exit::Findings);
    assert_eq!(found[0], r#"todo/2 #SNAPSHOT differs: state/title is "x", expected "2/4""#);
    bench.daybook("snapshot rebuild --aggregate todo/2").await.expect(Exit::Clean);
    bench.daybook("verify todo/2").await.expect(Exit::Findings);
    let lines = bench.daybook("snapshot rebuild --aggregate todo/2 --force").await.expect(Exit::Clean);
    assert_eq!(lines[0], "taken todo/2 at event 5");
    bench.daybook("verify todo/2").await.expect(Exit::Clean);
}

#[tokio::test]
async fn rebuild_with_force_corrects_a_wrong_older_snapshot() {
    let mut bench = Bench::with(&[("SNAPSHOT_EVERY", "5")]).await;
    bench.settings.push(("SNAPSHOT_KEEP", "3".to_owned()));
    bench.todo("1", 5).await;
    bench.daybook("snapshot rebuild --aggregate todo/1").await.expect(Exit::Clean);
    let update = |n: usize| ("UpdateTodo", json!({"title": format!("later/{n}"), "message": ""}));
    bench.commands("todo/1", &(6..=11).map(update).collect::<Vec<_>>()).await;
    bench.daybook("snapshot rebuild --aggregate todo/1").await.expect(Exit::Clean);
    let mut row = bench.rows("todo/1", "SNAPSHOT#000000000005").await.remove(0);
    let state = row["state"].as_s().unwrap().replace("1/4", "x");
    row.insert("state".to_owned(), AttributeValue::S(state));
    row.insert("ttl".to_owned(), AttributeValue::N("4000000000".to_owned()));
    bench.put(row).await;
    let found = bench.daybook("verify todo/1").await.expect(Exit::Findings);
    assert_eq!(found[0], r#"todo/1 SNAPSHOT#000000000005 differs: state/title is "x", expected "1/4""#);

    let lines = bench.daybook("snapshot rebuild --aggregate todo/1 --force").await.expect(Exit::Clean);
    assert_eq!(lines[0], "taken todo/1 at event 11");
    let verified = bench.daybook("verify todo/1").await.expect(Exit::Clean);
    assert!(verified[0].contains(" 3 snapshots "), "{verified:?}");
    let kept = bench.rows("todo/1", "SNAPSHOT#000000000005").await.remove(0);
    assert_eq!(kept["ttl"].as_n().unwrap(), "4000000000");
}

#[tokio::test]
async fn rebuild_replaces_a_snapshot_of_a_missing_event() {
    let bench = bench().await;
    bench.daybook(REBUILD).await.expect(Exit::Clean);
    let mut row = bench.rows("todo/2", "#SNAPSHOT").await.remove(0);
    row.insert("lastSeqNum".to_owned(), AttributeValue::N("9".to_owned()));
    bench.put(row).await;
    assert_eq!(bench.daybook(REBUILD).await.expect(Exit::Clean)[0], "taken todo/2 at event 5");
    bench.daybook("verify").await.expect(Exit::Clean);
}

#[tokio::test]
async fn rebuild_of_a_named_aggregate_takes_a_snapshot_however_short_it_is() {
    let bench = bench().await;
    let lines = bench.daybook("snapshot rebuild --aggregate todo/short").await.expect(Exit::Clean);
    assert_eq!(lines[0], "taken todo/short at event 2");
    assert_eq!(versions(&bench, "1").await, None);
    let lines = bench.daybook("snapshot rebuild --type todo --min-events 6").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("0 snapshots taken; 1 aggregates had a current one, 6 need none"), "{lines:?}");
}

#[tokio::test]
async fn rebuild_replaces_a_snapshot_that_is_far_behind() {
    let bench = bench().await;
    bench.daybook(REBUILD).await.expect(Exit::Clean);
    let update = |n: usize| ("UpdateTodo", json!({"title": format!("later/{n}"), "message": ""}));
    let later: Vec<_> = (0..20).map(update).collect();
    for (id, events) in [("1", 20), ("2", 20), ("3", 4)] {
        bench.commands(&format!("todo/{id}"), &later[..events]).await;
    }
    let named = bench.daybook("snapshot rebuild --aggregate todo/2").await.expect(Exit::Clean);
    assert_eq!(named[0], "taken todo/2 at event 25");
    let walk = bench.daybook(REBUILD).await.expect(Exit::Clean);
    assert_eq!(walk[0], "taken todo/1 at event 25");
    assert!(walk[1].starts_with("1 snapshots taken; 5 aggregates had a current one, 1 need none"), "{walk:?}");
    // Its next snapshot is not due yet, but the operator names the aggregate.
    let named = bench.daybook("snapshot rebuild --aggregate todo/3").await.expect(Exit::Clean);
    assert_eq!(named[0], "taken todo/3 at event 9");
    bench.daybook("verify").await.expect(Exit::Clean);

    bench.wire.take_calls();
    let again = bench.daybook("snapshot rebuild --aggregate todo/3").await.expect(Exit::Clean);
    assert!(again[0].starts_with("0 snapshots taken; 1 aggregates had a current one"), "{again:?}");
    assert_eq!(bench.operations(), ["Query"]);
}

#[tokio::test]
async fn rebuild_continues_where_it_was_interrupted() {
    let bench = bench().await;
    let mut taken = Vec::new();
    let mut line = REBUILD.to_owned();
    let mut runs = 0;
    loop {
        runs += 1;
        let mut printed = bench.daybook_until(&line, 2).await;
        let summary = printed.lines.pop().unwrap();
        taken.extend(printed.lines);
        let Some((_, cursor)) = summary.split_once("go on with --after ") else { break };
        assert!(matches!(printed.ended, Ok(Exit::Interrupted)));
        line = format!("{REBUILD} --after {cursor}");
    }
    assert_eq!(runs, 4);
    assert_eq!(taken, (1..=6).map(|id| format!("taken todo/{id} at event 5")).collect::<Vec<_>>());
    // No aggregate was read twice.
    let puts = bench.operations().into_iter().filter(|operation| operation == "PutItem").count();
    assert_eq!(puts, 6);
    // Without the cursor, the command skips current snapshots.
    let lines = bench.daybook(REBUILD).await.expect(Exit::Clean);
    assert!(lines[0].starts_with("0 snapshots taken; 6 aggregates had a current one"), "{lines:?}");
}

#[tokio::test]
async fn rebuild_reports_an_unreadable_aggregate_and_continues() {
    let bench = bench().await;
    let mut row = bench.rows("todo/2", "EVENT#000000000003").await.remove(0);
    row.insert("data".to_owned(), AttributeValue::S("{".to_owned()));
    bench.put(row).await;
    let lines = bench.daybook(REBUILD).await.expect(Exit::Findings);
    assert!(lines[1].starts_with("failed todo/2: "), "{lines:?}");
    assert!(lines[6].starts_with("5 snapshots taken") && lines[6].ends_with("1 cannot be read"), "{lines:?}");
}

#[tokio::test]
async fn rebuild_of_a_named_aggregate_without_events_reports_it_missing() {
    let bench = bench().await;
    for force in ["", " --force"] {
        let lines =
            bench.daybook(&format!("snapshot rebuild --aggregate todo/nope{force}")).await.expect(Exit::Findings);
        assert_eq!(lines[0], "missing todo/nope: it has no events");
        assert!(lines[1].ends_with("0 cannot be read, 1 have no events"), "{lines:?}");
    }
    // Its metadata is lost; its events still exist.
    bench.delete("todo/1", "#METADATA").await;
    let lines = bench.daybook("snapshot rebuild --aggregate todo/1").await.expect(Exit::Clean);
    assert_eq!(lines[0], "taken todo/1 at event 5");
}

#[tokio::test]
async fn rebuild_of_an_aggregate_with_lost_events_reports_a_failure() {
    let bench = bench().await;
    bench.todo("one", 1).await;
    bench.delete("todo/one", "EVENT#000000000001").await;
    for force in ["", " --force"] {
        let lines =
            bench.daybook(&format!("snapshot rebuild --aggregate todo/one{force}")).await.expect(Exit::Findings);
        assert_eq!(lines[0], "failed todo/one: event 1 is missing; the last event in the metadata is 1");
    }
}
