//! `daybook verify`.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_cli::operator::{Exit, OperatorError};
use serde_json::{Value, json};

use crate::support::Setup;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::row::Item;

/// Two to-dos and an account.
async fn setup() -> Setup {
    let setup = Setup::new().await;
    setup.todo("1", 3).await;
    setup.todo("2", 2).await;
    setup.command("account/1", "OpenAccount", json!({})).await;
    setup.command("account/1", "RecordTransaction", json!({"desc": "A", "amount": -1})).await;
    setup.table.proxy.take_calls();
    setup
}

#[tokio::test]
async fn verify_of_a_clean_table_reads_all_aggregates_by_queries() {
    let setup = setup().await;
    let lines = setup.daybook("verify --rate 100000").await.expect(Exit::Clean);
    assert_eq!(
        lines,
        ["verified 3 aggregates: 7 events, 6 messages, 0 snapshots and 0 of another state version; nothing is wrong"]
    );
    let operations = setup.table.operations();
    assert!(operations.iter().all(|operation| operation == "Query"), "{operations:?}");

    let lines = setup.daybook("verify --type todo --json").await.expect(Exit::Clean);
    assert_eq!(serde_json::from_str::<Value>(&lines[0]).unwrap()["summary"]["aggregates"], 2);
    setup.table.proxy.take_calls();
    let lines = setup.daybook("verify todo/2").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("verified 1 aggregates: 2 events, 2 messages"), "{lines:?}");
    assert_eq!(setup.table.operations(), ["Query", "Query"]);
}

#[tokio::test]
async fn verify_prints_each_finding_in_a_line() {
    let setup = setup().await;
    // Like a stack of this machine, the table of the test has the address of a loopback interface.
    setup.delete("todo/2", "OUTBOX#000000000002#0").await;
    let lines = setup.daybook("verify todo/2").await.expect(Exit::Findings);
    assert!(lines[0].ends_with("expired yet, unless the clock of the local stack was moved"), "{lines:?}");
    let setup = self::setup().await;
    setup.delete("todo/1", "EVENT#000000000003").await;
    setup.delete("todo/1", "OUTBOX#000000000003#0").await;
    let expected = "todo/1 EVENT#000000000003 missing: event 3 is missing";
    let lines = setup.daybook("verify").await.expect(Exit::Findings);
    assert_eq!(lines[0], expected);
    assert!(lines[1].ends_with("; 1 findings in 1 aggregates"), "{lines:?}");
    assert_eq!(setup.daybook("verify todo/1").await.expect(Exit::Findings)[0], expected);
    setup.daybook("verify todo/2 account/1").await.expect(Exit::Clean);

    let lines = setup.daybook("verify --json").await.expect(Exit::Findings);
    let finding: Value = serde_json::from_str(&lines[0]).unwrap();
    let expected = json!({
        "aggregate": "todo/1", "item": "EVENT#000000000003", "kind": "missing", "detail": "event 3 is missing",
    });
    assert_eq!(finding, expected);
}

#[tokio::test]
async fn scan_finds_an_aggregate_without_its_first_event() {
    let setup = setup().await;
    setup.delete("todo/1", "EVENT#000000000001").await;
    let row = [("pk", "AGGREGATE#ghost#1"), ("sk", "#METADATA")];
    let row: Item = row.map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_owned()))).into();
    setup.table.put(row).await;
    assert!(setup.daybook("verify").await.expect(Exit::Clean)[0].starts_with("verified 2 aggregates"));

    let lines = setup.daybook("verify --scan").await.expect(Exit::Findings);
    assert!(lines.contains(&"todo/1 EVENT#000000000001 missing: event 1 is missing".to_owned()), "{lines:?}");
    assert!(lines.contains(&"ghost/1 * unregistered: no aggregate of this type is registered".to_owned()));
    assert!(lines.last().unwrap().starts_with("verified 4 aggregates"), "{lines:?}");
}

#[tokio::test]
async fn verify_reports_an_unreadable_row_of_the_index_and_checks_the_others() {
    let setup = setup().await;
    setup.stray_row("TodoCreated").await;
    for line in ["verify", "verify --type todo"] {
        let lines = setup.daybook(line).await.expect(Exit::Findings);
        assert_eq!(lines[0], "STRAY ROW unreadable: its keys are not those of an event");
        assert!(lines[1].ends_with("; 1 findings in 1 aggregates"), "{lines:?}");
    }
    let lines = setup.daybook("verify --json").await.expect(Exit::Findings);
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["aggregate"], &lines[0]["kind"]), (&json!("STRAY"), &json!("unreadable")));
    assert_eq!((&lines[1]["summary"]["events"], &lines[1]["summary"]["findings"]), (&json!(7), &json!(1)));
}

/// A page of the scan ends within the rows of an aggregate.
#[tokio::test]
async fn scan_with_short_pages_verifies_each_aggregate_once() {
    let setup = setup().await;
    for _ in 0..60 {
        setup.table.proxy.fail_next("Scan", InjectedFault::ShortPage { items: 1 });
    }
    let lines = setup.daybook("verify --scan").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("verified 3 aggregates: 7 events"), "{lines:?}");
}

#[tokio::test]
async fn scan_of_an_empty_table_finds_nothing() {
    let lines = Setup::new().await.daybook("verify --scan").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("verified 0 aggregates"), "{lines:?}");
}

#[tokio::test]
async fn verify_of_an_unknown_aggregate_type_or_cursor_reports_it() {
    let setup = setup().await;
    let lines = setup.daybook("verify todo/3").await.expect(Exit::Findings);
    assert_eq!(lines[0], "todo/3 * missing: it does not exist");
    let ended = setup.daybook("verify ghost/1").await.ended;
    assert!(
        matches!(&ended, Err(OperatorError::Usage(text)) if text.contains("registered types: ") && text.contains("todo"))
    );
    let ended = setup.daybook("verify --after OrderPlaced#7/01M7XZT6Q0G6DHYB4P1612VGXF").await.ended;
    assert!(matches!(ended, Err(OperatorError::Usage(_))));
}

#[tokio::test]
async fn interrupted_verify_prints_the_cursor_that_continues_it() {
    let setup = Setup::with(&[("EVENT_TYPE_SHARDS", "2")]).await;
    for id in 1..=6 {
        setup.todo(&id.to_string(), 1).await;
        setup.delete(&format!("todo/{id}"), "OUTBOX#000000000001#0").await;
    }
    let all = setup.daybook("verify --rate 100000").await.expect(Exit::Findings);
    let mut found = Vec::new();
    let mut line = "verify --rate 100000 --concurrency 1".to_owned();
    loop {
        let mut printed = setup.daybook_until(&line, 2).await;
        let summary = printed.lines.pop().unwrap();
        found.extend(printed.lines);
        match summary.split_once("go on with --after ") {
            Some((_, cursor)) => {
                assert!(matches!(printed.ended, Ok(Exit::Interrupted)));
                line = format!("verify --rate 100000 --concurrency 1 --after {cursor}");
            }
            None => break,
        }
    }
    assert_eq!(found, all[..all.len() - 1]);
}

#[tokio::test]
async fn verify_of_a_table_without_permission_ends_with_status_3() {
    let setup = setup().await;
    for _ in 0..4 {
        setup.table.proxy.fail_next(
            "Query",
            daybook_test_support::fault_proxy::InjectedFault::Refuse { status: 400, code: "AccessDeniedException" },
        );
    }
    let printed = setup.daybook("verify").await;
    let error = printed.ended.unwrap_err();
    assert_eq!(error.exit_code(), 3);
    assert!(
        daybook_function_runtime::with_causes(&error).contains("AccessDenied"),
        "{}",
        daybook_function_runtime::with_causes(&error)
    );
}
