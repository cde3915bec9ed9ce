//! `daybook export`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use daybook_cli::operator::{Exit, OperatorError};
use daybook_table::keys;
use daybook_test_support::fault_proxy::{InjectedFault, RecordedCall};
use serde_json::{Value, json};

use crate::support::Setup;

fn read(file: &Path) -> Vec<Value> {
    fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The lines of events, as `TYPE/ID#NUMBER`.
fn events(lines: &[Value]) -> Vec<String> {
    let events = lines.iter().filter(|line| line["seqNum"].is_u64());
    events
        .map(|line| {
            let [name, id] = ["aggregateType", "aggregateId"].map(|member| line[member].as_str().unwrap());
            format!("{name}/{id}#{}", line["seqNum"])
        })
        .collect()
}

#[tokio::test]
async fn exported_file_has_a_header_the_events_of_each_aggregate_and_a_summary() {
    let setup = Setup::new().await;
    setup.todo("1", 2).await;
    setup.command("account/1", "OpenAccount", json!({})).await;
    setup.command("account/1", "RecordTransaction", json!({"desc": "A", "amount": -1})).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all");
    let printed = setup.daybook(&format!("export {}", file.display())).await.expect(Exit::Clean);
    assert_eq!(printed, ["exported 2 aggregates and 4 events; 0 aggregates could not be exported"]);
    let lines = read(&file);
    assert_eq!(lines[0], json!({"daybookHistory": 1}));
    assert_eq!(events(&lines), ["account/1#1", "account/1#2", "todo/1#1", "todo/1#2"]);
    let row = &setup.rows("account/1", "EVENT#000000000002").await[0];
    let text = |name: &str| row[name].as_s().unwrap().as_str();
    let expected = json!({
        "aggregateType": "account", "aggregateId": "1", "seqNum": 2, "eventId": text("eventId"),
        "eventType": "TransactionAccepted", "eventVersion": 1, "data": {"desc": "A", "amount": -1},
        "meta": lines[2]["meta"], "occurredAt": text("occurredAt"), "messageSeq": 1,
    });
    assert_eq!(lines[2], expected);
    let summary = &lines[5]["summary"];
    assert_eq!((&summary["aggregates"], &summary["events"]), (&json!(2), &json!(4)));

    let ended = setup.daybook(&format!("export {}", file.display())).await.ended.unwrap_err();
    let error = daybook_function_runtime::with_causes(&ended);
    assert!(error.contains("it exists: choose another name, or delete it"), "{error}");
    assert_eq!(ended.exit_code(), 3);

    // Standard output gets the same lines.
    let printed = setup.daybook("export -").await.expect(Exit::Clean);
    assert_eq!(printed.join("\n") + "\n", fs::read_to_string(&file).unwrap());
    let printed = setup.daybook("export - --type todo --json").await.expect(Exit::Clean);
    assert_eq!(printed.len(), 4);
    let printed = setup.daybook("export - --aggregate account/1").await.expect(Exit::Clean);
    assert_eq!(printed.len(), 4);
}

#[tokio::test]
async fn aggregate_that_cannot_be_read_is_marked_and_the_others_are_exported() {
    let setup = Setup::new().await;
    for id in ["1", "2", "3", "4"] {
        setup.todo(id, 3).await;
    }
    setup.delete("todo/2", "EVENT#000000000002").await;
    setup.delete("todo/3", keys::METADATA).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all");
    let printed = setup.daybook(&format!("export {}", file.display())).await.expect(Exit::Findings);
    assert_eq!(
        printed,
        [
            "incomplete todo/2: event 2 is missing, its metadata counts 3",
            "incomplete todo/3: it has no metadata",
            "exported 2 aggregates and 7 events; 2 aggregates could not be exported",
        ]
    );
    let to = Setup::new().await;
    let printed = to.daybook(&format!("import {} --no-publish --yes", file.display())).await.expect(Exit::Findings);
    assert_eq!(printed[0], "skipped todo/2: the export could not read it: event 2 is missing, its metadata counts 3");
    assert_eq!(printed[2..4], ["imported todo/1: 3 events", "imported todo/4: 3 events"]);
    assert!(to.rows("todo/2", "").await.is_empty());
}

#[tokio::test]
async fn aggregate_of_many_pages_is_exported_in_order() {
    let setup = Setup::new().await;
    setup.todo("1", 120).await;
    setup.todo("2", 3).await;
    for items in [7, 50, 1] {
        setup.table.proxy.fail_next("Query", InjectedFault::ShortPage { items });
    }
    let printed = setup.daybook("export - --concurrency 1 --type todo").await.expect(Exit::Clean);
    let lines: Vec<Value> = printed.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected: Vec<_> =
        (1..=120).map(|n| format!("todo/1#{n}")).chain((1..=3).map(|n| format!("todo/2#{n}"))).collect();
    assert_eq!(events(&lines), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregate_that_is_written_meanwhile_is_exported_up_to_the_end_of_an_append() {
    let setup = Setup::new().await;
    setup.todo("1", 3).await;
    let update = |n: usize| ("UpdateTodo", json!({"title": n.to_string(), "message": ""}));
    let write = async {
        for n in 0..30 {
            setup.commands("todo/1", &[update(3 * n), update(3 * n + 1), update(3 * n + 2)]).await;
        }
    };
    let export = async {
        let mut seen = Vec::new();
        for _ in 0..15 {
            let printed = setup.daybook("export -").await.expect(Exit::Clean);
            seen.push(printed.len() - 2);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        seen
    };
    let ((), seen) = tokio::join!(write, export);
    assert!(seen.iter().all(|events| events % 3 == 0), "{seen:?}");
}

#[tokio::test]
async fn interrupted_export_ends_its_file_and_continues_in_another_one() {
    let (setup, to) = (Setup::new().await, Setup::new().await);
    let folder = tempfile::tempdir().unwrap();
    for id in 1..=6 {
        setup.todo(&id.to_string(), 2).await;
    }
    let mut line = "export - --concurrency 1".to_owned();
    let mut parts = 0;
    loop {
        // The header and one event.
        let printed = setup.daybook_until(&line, 2).await;
        let part = folder.path().join(parts.to_string());
        fs::write(&part, printed.lines.join("\n")).unwrap();
        parts += 1;
        let imported = to.daybook(&format!("import {} --no-publish --yes", part.display())).await.expect(Exit::Clean);
        let summary: Value = serde_json::from_str(printed.lines.last().unwrap()).unwrap();
        let Some(next) = summary["summary"]["goOn"].as_str() else { break };
        assert!(matches!(printed.ended, Ok(Exit::Interrupted)));
        assert!(imported.last().unwrap().contains("the file has only a part"), "{imported:?}");
        let cursor = next.strip_prefix("go on with --after ").unwrap().strip_suffix(", with another FILE").unwrap();
        line = format!("export - --concurrency 1 --after {cursor}");
    }
    assert!(parts > 2, "{parts}");
    let lines = to.daybook("verify").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("verified 6 aggregates: 12 events"), "{lines:?}");
}

#[tokio::test]
async fn export_that_stops_within_an_aggregate_marks_it_and_describes_how_to_export_it() {
    let (setup, to) = (Setup::new().await, Setup::new().await);
    setup.todo("1", 5).await;
    let folder = tempfile::tempdir().unwrap();
    let [file, rest] = ["all", "rest"].map(|name| folder.path().join(name));
    let line = format!("export {} --type todo", file.display());
    let mut run = Box::pin(setup.daybook(&line));
    let reads_metadata = |calls: &[RecordedCall]| calls.iter().any(|call| call.operation == "GetItem");
    setup.table.proxy.hold(&mut run, reads_metadata).await;
    // The first page of the events, and the second one.
    setup.table.proxy.fail_next("Query", InjectedFault::ShortPage { items: 2 });
    setup.table.proxy.fail_next("Query", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
    let error = run.await.ended.unwrap_err();
    assert!(matches!(error, OperatorError::Store { .. }), "{error}");
    assert!(error.to_string().ends_with("run it again, with another FILE"), "{error}");
    let lines = read(&file);
    assert_eq!(lines.iter().filter(|line| line["incomplete"].is_object()).count(), 1);
    assert!(lines.last().unwrap()["summary"]["goOn"].is_string(), "{lines:?}");
    to.daybook(&format!("import {} --no-publish --yes", file.display())).await.expect(Exit::Findings);
    assert!(to.rows("todo/1", "").await.is_empty());

    setup.daybook(&format!("export {} --type todo", rest.display())).await.expect(Exit::Clean);
    to.daybook(&format!("import {} --no-publish --yes", rest.display())).await.expect(Exit::Clean);
    assert_eq!(to.rows("todo/1", "EVENT#").await.len(), 5);
}

#[tokio::test]
async fn import_rejects_the_file_of_a_crashed_export() {
    let (setup, to) = (Setup::new().await, Setup::new().await);
    for id in 1..=5 {
        setup.todo(&id.to_string(), 2).await;
    }
    setup.delete("todo/3", keys::METADATA).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all");
    // The report about that aggregate is the last thing that the process does.
    setup.daybook_crashed(&format!("export {} --concurrency 1", file.display()), 1).await;
    assert!(file.exists());
    let printed = to.daybook(&format!("import {} --no-publish --yes", file.display())).await.expect(Exit::Findings);
    assert!(printed.iter().any(|line| line.contains("so it is truncated: export it again")), "{printed:?}");
    assert!(to.rows("todo/1", "").await.is_empty());
}
