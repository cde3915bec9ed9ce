//! `daybook import`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use aggregates::Order;
use daybook_cli::operator::{Exit, OperatorError};
use daybook_event_store::LoadOptions;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::row::Item;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Setup, key};

/// A folder for history files.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file of these lines. Returns its name.
    fn write(&self, name: &str, lines: &[Value]) -> String {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    /// Exports a whole table. Returns the name of the file.
    async fn export(&self, from: &Setup, name: &str) -> String {
        let file = self.path(name).display().to_string();
        from.daybook(&format!("export {file} --rate 100000")).await.expect(Exit::Clean);
        file
    }
}

/// A line with the members that are needed.
fn line(aggregate: &str, event_type: &str, data: Value) -> Value {
    let (name, id) = aggregate.split_once('/').unwrap();
    json!({"aggregateType": name, "aggregateId": id, "eventType": event_type, "data": data})
}

fn created(id: &str) -> Value {
    line(&format!("todo/{id}"), "TodoCreated", json!({"id": id, "title": "A", "message": ""}))
}

fn updated(id: &str, title: &str) -> Value {
    line(&format!("todo/{id}"), "TodoUpdated", json!({"title": title, "message": ""}))
}

fn with(mut line: Value, members: &Value) -> Value {
    line.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    line
}

/// Accounts, orders and to-dos: some deleted, some overdrawn, one with more events than a transaction holds.
async fn history() -> Setup {
    let setup = Setup::of::<Order>().await;
    for n in 0..20 {
        setup.todo(&n.to_string(), 1 + n % 5).await;
        let account = format!("account/{n}");
        setup.command(&account, "OpenAccount", json!({})).await;
        for amount in [700, -900, i64::MAX - 1] {
            setup.command(&account, "RecordTransaction", json!({"desc": "é\n\"", "amount": amount})).await;
        }
        setup.command(&account, "RecordTransaction", json!({"desc": "too much", "amount": i64::MIN})).await;
    }
    setup.command("todo/3", "DeleteTodo", json!({})).await;
    setup.todo("long", 230).await;
    setup
}

/// The state and version of every aggregate of `history`.
async fn states(setup: &Setup) -> Vec<(String, u64, String)> {
    let registry = aggregates::registry().unwrap();
    let mut states = Vec::new();
    let ids = (0..20).flat_map(|n| [format!("todo/{n}"), format!("account/{n}")]);
    for aggregate in ids.chain(["todo/long".to_owned()]) {
        let key = key(&aggregate);
        let model = registry.get(&key.aggregate_type).unwrap();
        let loaded = setup.store.load_with(model, &key, LoadOptions::REBUILD).await.unwrap();
        states.push((aggregate, loaded.version(), loaded.state.text().to_owned()));
    }
    states
}

/// The events of a file, without its header and summary.
fn events(file: &str) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().filter(|line| line.starts_with("{\"aggregateType\"")).map(str::to_owned).collect()
}

async fn is_verified(setup: &Setup) {
    let lines = setup.daybook("verify --rate 100000").await.expect(Exit::Clean);
    assert!(lines[0].ends_with("; nothing is wrong"), "{lines:?}");
}

fn operations(setup: &Setup, operation: &str) -> usize {
    setup.table.operations().iter().filter(|name| *name == operation).count()
}

#[tokio::test]
async fn imported_aggregates_have_every_state_event_and_time_of_the_source() {
    let (from, to, files) = (history().await, Setup::of::<Order>().await, Files::new());
    let file = files.export(&from, "all").await;
    let import = format!("import {file} --no-publish --rate 100000");

    let dry = to.daybook(&import).await.expect(Exit::Clean);
    assert!(dry.contains(&"would be imported todo/4: 5 events".to_owned()), "{dry:?}");
    assert!(dry.last().unwrap().starts_with("dry run: would import 41 aggregates with 391 events"), "{dry:?}");
    assert!(to.rows("todo/4", "").await.is_empty());

    let lines = to.daybook(&format!("{import} --yes")).await.expect(Exit::Clean);
    assert_eq!(lines.len(), 42);
    let summary = "imported and verified 41 aggregates with 391 events and 0 messages not published; 0 were in the table \
                   already, 0 are different there, 0 failed, 0 were not exported";
    assert_eq!(lines[41], summary);
    is_verified(&to).await;
    assert_eq!(states(&to).await, states(&from).await);
    assert_eq!(events(&files.export(&to, "again").await), events(&file));
    assert!(to.outbox("todo/4").await.is_empty());

    // A repeated import finds all equal, and writes nothing.
    to.table.proxy.take_calls();
    let lines = to.daybook(&format!("{import} --yes")).await.expect(Exit::Clean);
    assert!(lines[0].contains("imported and verified 0 aggregates with 0 events"), "{lines:?}");
    assert!(lines[0].contains("41 were in the table already"), "{lines:?}");
    assert_eq!(operations(&to, "TransactWriteItems"), 0);

    // Later commands continue the numbers, and a repeated import accepts them.
    to.command("account/7", "RecordTransaction", json!({"desc": "later", "amount": -1})).await;
    to.command("todo/long", "UpdateTodo", json!({"title": "later", "message": ""})).await;
    is_verified(&to).await;
    let numbers: Vec<_> = to.outbox("todo/long").await.iter().map(|row| (row.seq_num, row.message_seq)).collect();
    assert_eq!(numbers, [(231, 231)]);
    to.daybook(&format!("{import} --yes")).await.expect(Exit::Clean);
}

#[tokio::test]
async fn import_that_publishes_writes_the_outbox_rows_of_the_source() {
    let (from, to, files) = (history().await, Setup::of::<Order>().await, Files::new());
    let file = files.export(&from, "all").await;
    let lines = to.daybook(&format!("import {file} --publish --yes --rate 100000")).await.expect(Exit::Clean);
    assert!(lines.last().unwrap().contains(" messages to publish;"), "{lines:?}");
    is_verified(&to).await;
    let rows = async |setup: &Setup, aggregate: &str| {
        let without = |mut row: Item| {
            row.retain(|name, _| !["ttl", "sum"].contains(&name.as_str()));
            row
        };
        setup.rows(aggregate, "OUTBOX#").await.into_iter().map(without).collect::<Vec<_>>()
    };
    for aggregate in ["todo/3", "todo/long", "account/7"] {
        let expected = rows(&from, aggregate).await;
        assert!(!expected.is_empty());
        assert_eq!(rows(&to, aggregate).await, expected, "{aggregate}");
    }

    // The rest of an aggregate is not imported with the other choice.
    let first = files.write("first", &[created("x")]);
    to.daybook(&format!("import {first} --publish --yes")).await.expect(Exit::Clean);
    let both = files.write("both", &[created("x"), updated("x", "B")]);
    let lines = to.daybook(&format!("import {both} --no-publish --yes")).await.expect(Exit::Findings);
    assert!(lines[0].starts_with("different todo/x: "), "{lines:?}");
    assert!(
        lines[0].contains("continue with --publish; 0 of its 2 events are in the table as they are in the file"),
        "{lines:?}"
    );
    to.daybook(&format!("import {both} --publish --yes")).await.expect(Exit::Clean);
}

#[tokio::test]
async fn choice_whether_to_publish_is_required() {
    let setup = Setup::new().await;
    let refused = |line: &str| {
        let words: Vec<_> = std::iter::once("daybook").chain(line.split(' ')).collect();
        <daybook_cli::commands::DaybookArgs as clap::Parser>::try_parse_from(words).is_err()
    };
    assert!(refused("import -"));
    assert!(refused("import - --publish --no-publish"));
    assert!(!refused("import - --publish"));
    let ended = setup.daybook("import /no/such/file --publish").await.ended.unwrap_err();
    assert!(daybook_function_runtime::with_causes(&ended).contains("/no/such/file"), "{ended}");
    assert_eq!(ended.exit_code(), 3);
}

#[tokio::test]
async fn history_of_another_system_gets_numbers_ids_and_times() {
    let (setup, other, files) = (Setup::new().await, Setup::new().await, Files::new());
    let at = |time: &str| json!({ "occurredAt": time });
    // In the order of time, so the lines of an aggregate stand apart.
    let file = files.write(
        "history",
        &[
            with(created("a"), &at("2019-05-01T10:00:00Z")),
            with(created("b"), &at("2019-05-01T12:00:00.123456+02:00")),
            with(updated("a", "B"), &at("2019-05-01T10:00:00Z")),
            with(updated("a", "C"), &json!({"meta": {"actor": "ann"}})),
            with(updated("b", "D"), &at("2019-05-02T10:00:00Z")),
            created("c"),
        ],
    );
    let import = format!("import {file} --no-publish --yes");
    setup.daybook(&import).await.expect(Exit::Clean);
    is_verified(&setup).await;
    let exported = async |setup: &Setup, name: &str| {
        let lines = events(&files.export(setup, name).await);
        lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    };
    let events = exported(&setup, "1").await;
    let facts = |id: &str| {
        let of = events.iter().filter(|event| event["aggregateId"] == id);
        of.map(|event| (event["seqNum"].clone(), event["occurredAt"].clone(), event["messageSeq"].clone()))
            .collect::<Vec<_>>()
    };
    let first = json!("2019-05-01T10:00:00.000Z");
    assert_eq!(facts("a"), [(1, &first), (2, &first), (3, &first)].map(|(n, at)| (json!(n), at.clone(), json!(0))));
    assert_eq!(facts("b")[0].1, "2019-05-01T10:00:00.123Z");

    // The same file leads to the same ids, as far as it has times.
    other.daybook(&import).await.expect(Exit::Clean);
    let (ours, theirs) = (&events[..5], &exported(&other, "2").await[..5]);
    assert!(ours.iter().all(|event| event["aggregateId"] != "c"), "{ours:?}");
    assert_eq!(ours, theirs);
    // Repeated, everything is equal, also the event that got its time at import.
    let lines = setup.daybook(&import).await.expect(Exit::Clean);
    assert!(lines[0].contains("; 3 were in the table already"), "{lines:?}");

    // The first message of a later command is number 1, and the list of the type has the aggregates.
    setup.command("todo/a", "UpdateTodo", json!({"title": "later", "message": ""})).await;
    let outbox = setup.outbox("todo/a").await;
    assert_eq!((outbox.len(), outbox[0].message_seq, outbox[0].seq_num), (1, 1, 4));
    is_verified(&setup).await;
}

#[tokio::test]
async fn old_versions_of_events_stay_as_they_are() {
    let (setup, files) = (Setup::of::<Order>().await, Files::new());
    let old = json!({"id": "1", "customerId": "ann", "productId": "coffee", "quantity": 2, "total": 4500});
    let version = |version: u32| json!({ "eventVersion": version });
    let lines = [
        with(line("order/1", "OrderPlaced", old.clone()), &version(1)),
        with(line("order/1", "OrderDispatched", json!({"amount": 4500, "trackingNumber": "T"})), &version(1)),
    ];
    let file = files.write("old", &lines);
    setup.daybook(&format!("import {file} --publish --yes")).await.expect(Exit::Clean);
    is_verified(&setup).await;
    let rows = setup.rows("order/1", "EVENT#").await;
    assert_eq!(rows[0]["eventVersion"].as_n().unwrap(), "1");
    assert_eq!(serde_json::from_str::<Value>(rows[0]["data"].as_s().unwrap()).unwrap(), old);
    // One stored event that is read as two publishes the messages of both.
    let names: Vec<_> = setup.outbox("order/1").await.into_iter().map(|row| row.message_type).collect();
    assert_eq!(names, ["OrderPlaced", "PaymentProcessed", "OrderShipped"]);

    // An event that this code cannot read: nothing of the file is written.
    let newer = with(line("order/2", "OrderPlaced", old), &version(9));
    let file = files.write("newer", &[created("1"), newer]);
    let lines = setup.daybook(&format!("import {file} --no-publish --yes")).await.expect(Exit::Findings);
    assert!(
        lines[0].starts_with("line 2: event 1 (OrderPlaced version 9): this code does not know that form"),
        "{lines:?}"
    );
    assert!(setup.rows("todo/1", "").await.is_empty());
}

#[tokio::test]
async fn wrong_lines_are_reported_with_their_numbers_and_nothing_is_written() {
    let (setup, files) = (Setup::new().await, Files::new());
    let good = created("1");
    let large = "x".repeat(410_000);
    let at = |time: &str| json!({ "occurredAt": time });
    for (lines, expected) in [
        (vec![good.clone(), json!({"aggregateType": "todo"})], "line 2: aggregateId is missing"),
        (vec![good.clone(), line("ghost/1", "E", json!({}))], "line 2: the aggregate type \"ghost\" is not registered"),
        (vec![good.clone(), updated("2", "B")], "line 2: the first event is \"TodoUpdated\""),
        (
            vec![good.clone(), line("todo/1", "TodoArchived", json!({}))],
            "line 2: eventType \"TodoArchived\" is not an event",
        ),
        (vec![good.clone(), line("todo/1", "TodoUpdated", json!({}))], "line 2: event 2 (TodoUpdated version 1): "),
        (vec![good.clone(), with(updated("1", "B"), &json!({"seqNum": 3}))], "line 2: seqNum is 3, expected 2"),
        (vec![good.clone(), updated("1", &large)], "line 2: an event or a message would take"),
        (
            vec![with(good.clone(), &at("2999-01-01T00:00:00Z"))],
            "line 1: occurredAt 2999-01-01T00:00:00.000Z is in the future",
        ),
        (vec![with(good.clone(), &at("1969-01-01T00:00:00Z"))], "line 1: occurredAt is before 1970"),
        (
            vec![with(good.clone(), &at("2019-01-02T00:00:00Z")), with(updated("1", "B"), &at("2019-01-01T00:00:00Z"))],
            "line 2: occurredAt 2019-01-01T00:00:00.000Z is before that of the event before it",
        ),
        (
            vec![with(
                good.clone(),
                &json!({"eventId": "01M7XZT6Q0G6DHYB4P1612VGXF", "occurredAt": "2019-01-01T00:00:00Z"}),
            )],
            "line 1: occurredAt is 2019-01-01T00:00:00.000Z, but the time in eventId",
        ),
        (
            vec![with(good.clone(), &json!({"messageSeq": 2}))],
            "line 1: messageSeq is 2, so the event published 2 messages",
        ),
    ] {
        let file = files.write("wrong", &lines);
        let printed = setup.daybook(&format!("import {file} --publish --yes")).await.expect(Exit::Findings);
        assert!(printed[0].starts_with(expected), "{printed:?}");
        assert_eq!(printed[1], format!("1 lines of {file} are wrong; nothing was written"));
    }
    assert!(setup.rows("todo/1", "").await.is_empty());

    // A file that is not complete.
    let from = Setup::new().await;
    from.todo("1", 3).await;
    let file = files.export(&from, "all").await;
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.lines().take(3).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let printed = setup.daybook(&format!("import {file} --no-publish --yes --json")).await.expect(Exit::Findings);
    assert!(printed[0].contains("truncated") && printed[1].contains("\"wrongLines\":1"), "{printed:?}");
    assert!(setup.rows("todo/1", "").await.is_empty());
}

#[tokio::test]
async fn different_aggregate_is_named_and_stays_as_it_is() {
    let (from, to, files) = (Setup::new().await, Setup::new().await, Files::new());
    for id in ["1", "2", "3"] {
        from.todo(id, 3).await;
    }
    to.todo("2", 1).await;
    let before = to.rows("todo/2", "").await;
    let file = files.export(&from, "all").await;
    let lines = to.daybook(&format!("import {file} --no-publish --yes")).await.expect(Exit::Findings);
    assert_eq!(lines[0], "imported todo/1: 3 events");
    assert!(lines[1].starts_with("different todo/2: event 1: eventId in the table is "), "{lines:?}");
    assert!(lines[1].ends_with("(line 5); 0 of its 3 events are in the table as they are in the file"), "{lines:?}");
    assert_eq!(lines[2], "imported todo/3: 3 events");
    assert!(lines[3].contains("1 are different there"), "{lines:?}");
    assert_eq!(to.rows("todo/2", "").await, before);
}

#[tokio::test]
async fn import_that_ended_within_an_aggregate_names_it_and_continues() {
    let (from, to, files) = (Setup::new().await, Setup::new().await, Files::new());
    from.todo("1", 230).await;
    let file = files.export(&from, "all").await;
    // The first transaction has been written when the run ends.
    let first = files.path("first");
    fs::write(&first, events(&file)[..99].join("\n")).unwrap();
    let first = first.display();
    to.daybook(&format!("import {first} --no-publish --yes")).await.expect(Exit::Clean);
    to.table
        .proxy
        .fail_next("TransactWriteItems", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
    let printed = to.daybook(&format!("import {file} --no-publish --yes")).await;
    let error = printed.ended.unwrap_err();
    assert!(matches!(error, OperatorError::Store { .. }), "{error}");
    assert!(error.to_string().starts_with("stopped early, run it again: it compares"), "{error}");
    assert!(printed.lines[0].starts_with("failed todo/1: "), "{:?}", printed.lines);
    assert!(
        printed.lines[0].ends_with("; 99 of its 230 events are in the table as they are in the file"),
        "{:?}",
        printed.lines
    );
    is_verified(&to).await;

    let lines = to.daybook(&format!("import {file} --no-publish --yes")).await.expect(Exit::Clean);
    assert_eq!(lines[0], "continued todo/1: 131 events after 99");
    is_verified(&to).await;
    assert_eq!(events(&files.export(&to, "again").await), events(&file));
}

#[tokio::test]
async fn interrupted_import_finishes_its_aggregates_and_the_next_one_compares_them() {
    let (from, to, files) = (Setup::new().await, Setup::new().await, Files::new());
    for id in 0..6 {
        from.todo(&id.to_string(), 2).await;
    }
    let file = files.export(&from, "all").await;
    let line = format!("import {file} --no-publish --yes --concurrency 1");
    let printed = to.daybook_until(&line, 2).await;
    assert!(matches!(printed.ended, Ok(Exit::Interrupted)));
    assert!(printed.lines[2].contains("; stopped early, run it again: it compares"), "{:?}", printed.lines);
    let lines = to.daybook(&line).await.expect(Exit::Clean);
    let summary = lines.last().unwrap();
    assert!(summary.starts_with("imported and verified 4 aggregates with 8 events"), "{lines:?}");
    assert!(summary.contains("; 2 were in the table already"), "{lines:?}");
    is_verified(&to).await;
}

/// Starts the binary, and kills it as soon as it has reported an aggregate. Others are in progress then.
fn kill_midway(setup: &Setup, file: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
    command.arg("import").arg(file).args(["--no-publish", "--yes", "--rate", "20"]);
    let mut running = command.env_clear().envs(setup.environment()).stdout(Stdio::piped()).spawn().unwrap();
    let first = BufReader::new(running.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(!first.starts_with("imported and verified"), "{first}");
    running.kill().unwrap();
    running.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn import_that_is_killed_five_times_ends_equal() {
    let (from, to, files) = (history().await, Setup::of::<Order>().await, Files::new());
    let file = files.export(&from, "all").await;
    for _ in 0..5 {
        tokio::task::block_in_place(|| kill_midway(&to, Path::new(&file)));
        // Whatever is in the table is readable and complete up to some event.
        is_verified(&to).await;
    }
    to.daybook(&format!("import {file} --no-publish --yes --rate 100000")).await.expect(Exit::Clean);
    is_verified(&to).await;
    assert_eq!(states(&to).await, states(&from).await);
    let mut ours = events(&files.export(&to, "again").await);
    let mut theirs = events(&file);
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs);
}

#[tokio::test]
async fn example_of_existing_history_in_the_documents_can_be_imported() {
    let (setup, files) = (Setup::new().await, Files::new());
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating.md")).unwrap();
    let (_, section) = page.split_once("### Bring existing history in").unwrap();
    let example = section.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    fs::write(files.path("history"), example).unwrap();
    let import = format!("import {} --no-publish --yes", files.path("history").display());
    let lines = setup.daybook(&import).await.expect(Exit::Clean);
    assert_eq!(lines[..2], ["imported account/7: 2 events", "imported account/8: 1 events"]);
    is_verified(&setup).await;
}
