//! Verification: an undamaged aggregate has no findings, and every damage is reported.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_admin::{AdminCalls, Finding, Verified};
use daybook_decider::DecisionInput;
use daybook_event_store::{EventStore, StoreSettings};
use daybook_table::{attributes, keys};
use daybook_test_support::clock::{next_input, now};
use daybook_test_support::notebook::Notebook;
use daybook_test_support::row::{Item, sealed, text};
use daybook_test_support::table::{TestTable, settings};
use daybook_test_support::visit::Visit;
use jiff::SignedDuration;
use serde_json::json;

use daybook_test_support::subject::Subject;

/// A notebook of five events in three appends, with four messages, a latest snapshot and a kept one of event 3.
pub(crate) async fn notebook(table: &TestTable) -> (EventStore, Subject) {
    let store = table.store();
    let notebook = Subject::of::<Notebook>("1");
    notebook.command(&store, "Start", json!({"lines": ["a", "!!b", "c"]})).await;
    store.take_snapshot(notebook.model(), &notebook.key, now()).await.unwrap();
    // As a release with another state version leaves it.
    let mut kept = table.row(&notebook.key, keys::SNAPSHOT).await.unwrap();
    kept.extend([("sk".to_owned(), s(&keys::kept_snapshot_sk(3))), ("ttl".to_owned(), n(4_000_000_000))]);
    table.put(sealed(kept)).await;
    notebook.command(&store, "Write", json!({"lines": ["!d"]})).await;
    notebook.command(&store, "Write", json!({"lines": ["!e"]})).await;
    store.take_snapshot(notebook.model(), &notebook.key, now()).await.unwrap();
    (store, notebook)
}

pub(crate) async fn verify(store: &EventStore, subject: &Subject) -> Verified {
    store.admin().verify(subject.model(), &subject.key, now()).await.unwrap()
}

/// The findings without the aggregate.
pub(crate) fn lines(verified: &Verified) -> Vec<String> {
    let line = |finding: &Finding| finding.to_string().split_once(' ').unwrap().1.to_owned();
    verified.findings.iter().map(line).collect()
}

pub(crate) fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

pub(crate) fn n(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

#[tokio::test]
async fn verify_of_an_intact_aggregate_finds_nothing_and_takes_two_queries() {
    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    table.proxy.take_calls();
    let verified = verify(&store, &notebook).await;
    assert_eq!(table.operations(), ["Query", "Query"]);
    let expected =
        Verified { rows: 12, events: 5, messages: 4, snapshots: 2, outdated: 0, findings: vec![], warnings: vec![] };
    assert_eq!(verified, expected);

    let todo = Subject::shipped("todo", "1");
    assert_eq!(verify(&store, &todo).await, Verified::default());
    todo.command(&store, "CreateTodo", json!({"title": "A", "message": ""})).await;
    todo.command(&store, "DeleteTodo", json!({})).await;
    assert_eq!(lines(&verify(&store, &todo).await), [""; 0]);
}

#[tokio::test]
async fn verify_of_a_snapshot_with_a_personal_value_that_was_never_set_finds_nothing() {
    let table = TestTable::new().await;
    let (store, visit) = (table.store(), Subject::of::<Visit>("1"));
    visit.command(&store, "Visit", json!({"customer": "7", "host": "Ann"})).await;
    store.take_snapshot(visit.model(), &visit.key, now()).await.unwrap();
    assert_eq!(lines(&verify(&store, &visit).await), [""; 0]);
}

#[tokio::test]
async fn verify_of_a_stream_of_many_pages_finds_nothing() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = daybook_test_support::subject::large_ledger(&store, "1", 8).await;
    table.proxy.take_calls();
    let verified = verify(&store, &account).await;
    assert_eq!((verified.events, lines(&verified)), (8, vec![]));
    assert!(table.operations().len() > 3);
}

#[tokio::test]
async fn outbox_row_that_may_have_expired_is_not_reported_missing() {
    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    table.delete(&notebook.key, &keys::outbox_sk(2, 0)).await;
    assert_eq!(
        lines(&verify(&store, &notebook).await),
        ["OUTBOX#000000000002#0 missing: message 1 is missing, and its row cannot have expired yet"]
    );
    let later = now() + SignedDuration::from_hours(49);
    assert_eq!(lines(&store.admin().verify(notebook.model(), &notebook.key, later).await.unwrap()), [""; 0]);
}

#[tokio::test]
async fn lost_last_event_is_found_by_the_metadata_and_by_its_append() {
    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    for seq_num in [4, 5] {
        table.delete(&notebook.key, &keys::event_sk(seq_num)).await;
    }
    let found = lines(&verify(&store, &notebook).await);
    assert!(found.contains(&"EVENT#000000000004 missing: events 4 to 5 are missing".to_owned()), "{found:?}");
    for sk in [keys::METADATA.to_owned(), keys::event_sk(3)] {
        table.delete(&notebook.key, &sk).await;
    }
    let found = lines(&verify(&store, &notebook).await);
    assert!(found.contains(&"#METADATA missing: there is no metadata".to_owned()), "{found:?}");
    assert!(found.contains(&"EVENT#000000000003 missing: event 3 is missing".to_owned()), "{found:?}");
}

/// Each attribute of the snapshot is replaced or removed.
#[tokio::test]
async fn rebuild_replaces_a_changed_snapshot() {
    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    let row = table.row(&notebook.key, keys::SNAPSHOT).await.unwrap();
    for (name, value) in row.iter().filter(|(name, _)| !["pk", "sk"].contains(&name.as_str())) {
        let other = match value {
            AttributeValue::N(number) => n(number.parse::<u64>().unwrap() + 7),
            AttributeValue::S(text) => s(&format!("{text} ")),
            _ => AttributeValue::Bool(true),
        };
        for other in [Some(other), None] {
            let mut changed = row.clone();
            changed.remove(name);
            changed.extend(other.map(|other| (name.clone(), other)));
            table.put(changed).await;
            store.rebuild_snapshot(notebook.model(), &notebook.key, now()).await.unwrap();
            assert_eq!(lines(&verify(&store, &notebook).await), [""; 0], "{name}");
        }
    }
}

/// Changes one row, and expects these findings and no other.
pub(crate) async fn expect<const N: usize>(sk: &str, changes: [(&str, AttributeValue); N], expected: &[&str]) {
    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    table.tamper(&notebook.key, sk, changes).await;
    let found = lines(&verify(&store, &notebook).await);
    // Ids and times differ every time.
    let alike = |(found, expected): (&String, &&str)| expected.split('*').all(|part| found.contains(part));
    assert!(found.len() == expected.len() && found.iter().zip(expected).all(alike), "{sk}: {found:#?}");
}

#[tokio::test]
async fn metadata_that_differs_from_the_last_event_is_reported() {
    let sk = keys::METADATA;
    let ends = "according to the metadata, the stream ends at event 3";
    expect(
        sk,
        [(attributes::CURRENT_SEQ_NUM, n(3)), (attributes::MESSAGE_SEQ, n(2))],
        &[
            "#METADATA differs: updatedAt is 2030*, expected 2030*",
            &format!("EVENT#000000000004 beyond-metadata: {ends}"),
            &format!("EVENT#000000000005 beyond-metadata: {ends}"),
        ],
    )
    .await;
    let missing = "EVENT#000000000006 missing: events 6 to 7 are missing";
    expect(sk, [(attributes::CURRENT_SEQ_NUM, n(7))], &[missing]).await;
    let messages = "#METADATA differs: messageSeq is 3, expected 4";
    expect(sk, [(attributes::MESSAGE_SEQ, n(3))], &[messages]).await;
    let deleted = "#METADATA differs: deleted is true, expected false";
    expect(sk, [(attributes::DELETED, AttributeValue::Bool(true))], &[deleted]).await;
    expect(sk, [(attributes::AGGREGATE_ID, s("2"))], &["#METADATA differs: aggregateId is 2, expected 1"]).await;
    expect(sk, [(attributes::CREATED_AT, s("x"))], &["#METADATA differs: createdAt is x, expected 2030"]).await;
    expect(sk, [(attributes::CURRENT_SEQ_NUM, s("5"))], &["#METADATA unreadable: it cannot be read: "]).await;
}

#[tokio::test]
async fn gaps_and_unreadable_events_are_reported() {
    let sk = keys::event_sk(4);
    let sk = sk.as_str();
    expect(sk, [("data", s("{"))], &["EVENT#000000000004 unreadable: *data cannot be \"{\""]).await;
    let reason = "EVENT#000000000004 unreadable: *LineErased version 1*this code does not know";
    expect(sk, [("eventType", s("LineErased"))], &["EVENT#000000000004 differs: gsi1pk is", reason]).await;
    // The other events can be read, and are not reported.
    expect(sk, [("data", s(r#"{"text": 1}"#))], &["EVENT#000000000004 unreadable: *invalid type: integer"]).await;
    expect(sk, [("seqNum", n(5))], &["EVENT#000000000004 unreadable: *seqNum cannot be \"5\""]).await;
    let falls = "EVENT#000000000004 differs: messageSeq is 1, expected 2 to 101";
    let more = "OUTBOX#000000000004#0 unannounced: event 4 announced 0 messages, this is its index 0";
    let next = "OUTBOX#000000000005#0 differs: messageSeq is 4, expected 2";
    let others = "OUTBOX#000000000005#1 missing: message 3";
    let last = "OUTBOX#000000000005#2 missing: message 4";
    expect(sk, [(attributes::MESSAGE_SEQ, n(1))], &[falls, more, next, others, last]).await;

    let many = "EVENT#000000000004 differs: messageSeq is 1000000000000, expected 2 to 101: an append holds no more";
    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    table.tamper(&notebook.key, sk, [(attributes::MESSAGE_SEQ, n(1_000_000_000_000))]).await;
    assert_eq!(lines(&verify(&store, &notebook).await)[0], many);

    let torn = "EVENT#000000000004 torn-append: it ends its append at event 3";
    expect(sk, [("appendEnd", n(3))], &[torn]).await;
    let changed = "EVENT#000000000004 changed: ";
    let torn = "EVENT#000000000005 torn-append: *append at event 6, it ends the append itself";
    expect(sk, [("appendEnd", n(6))], &[changed, torn]).await;
    let changed = "EVENT#000000000005 changed: it is not as it was written: it has no checksum that matches";
    let missing = "EVENT#000000000006 missing: event 6 is missing";
    expect(&keys::event_sk(5), [("appendEnd", n(6))], &[changed, missing]).await;
}

#[tokio::test]
async fn repeated_ids_and_wrong_index_keys_are_reported() {
    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    let first = table.row(&notebook.key, &keys::event_sk(1)).await.unwrap();
    table.tamper(&notebook.key, &keys::event_sk(4), [("eventId", first["eventId"].clone())]).await;
    let id = text(&first, "eventId");
    let found = lines(&verify(&store, &notebook).await);
    assert!(
        found.contains(&format!("EVENT#000000000004 repeated: eventId {id} belongs to EVENT#000000000001 already"))
    );
    assert!(found.iter().any(|line| line.contains("OUTBOX#000000000004#0 differs: detail/metadata/eventId is")));

    let sk = keys::event_sk(1);
    let expected = "differs: gsi1pk is EVENT_TYPE#LineWritten#3, expected EVENT_TYPE#LineWritten";
    expect(&sk, [(attributes::GSI1PK, s("EVENT_TYPE#LineWritten#3"))], &[expected]).await;
}

#[tokio::test]
async fn event_of_a_shard_that_the_feed_does_not_read_is_reported() {
    let table = TestTable::new().await;
    let sharded = |event_type_shards| table.store_with(StoreSettings { event_type_shards, ..settings() });
    let todo = Subject::shipped("todo", "1");
    todo.command(&sharded(1), "CreateTodo", json!({"title": "A", "message": ""})).await;
    todo.command(&sharded(64), "UpdateTodo", json!({"title": "B", "message": ""})).await;
    assert_eq!(lines(&verify(&sharded(64), &todo).await), [""; 0]);
    let found = lines(&verify(&sharded(2), &todo).await);
    assert!(found[0].starts_with("EVENT#000000000002 differs: gsi1pk is EVENT_TYPE#TodoUpdated#"), "{found:?}");
}

#[tokio::test]
async fn messages_that_differ_from_their_events_are_reported() {
    let sk = "OUTBOX#000000000004#0";
    let differs = |attribute: &str, rest: &str| format!("{sk} differs: {attribute} is {rest}");
    expect(sk, [(attributes::MESSAGE_SEQ, n(5))], &[&differs("messageSeq", "5, expected 3")]).await;
    expect(sk, [("detail", s("{"))], &["OUTBOX#000000000004#0 unreadable: *detail: EOF"]).await;
    expect(sk, [("detail", s("{}"))], &["OUTBOX#000000000004#0 unreadable: *the detail has no metadata"]).await;
    expect(sk, [("ttl", s("soon"))], &["OUTBOX#000000000004#0 unreadable: "]).await;

    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    let row = table.row(&notebook.key, sk).await.unwrap();
    for other in ["OUTBOX#000000000004#1", "OUTBOX#000000000009#0", "OUTBOX#4#0"] {
        let mut copy: Item = row.clone();
        copy.insert("sk".to_owned(), s(other));
        table.put(copy).await;
    }
    let found: BTreeSet<_> = lines(&verify(&store, &notebook).await).into_iter().collect();
    for expected in [
        "OUTBOX#000000000004#1 unannounced: event 4 announced 1 messages, this is its index 1",
        "OUTBOX#000000000009#0 unannounced: there is no event 9",
        "OUTBOX#4#0 unreadable: it cannot be read: its sort key is not a message's",
    ] {
        assert!(found.contains(expected), "{found:#?}");
    }
    let repeated = "repeated: messageId * belongs to OUTBOX#000000000004#0 already";
    let repeated: Vec<_> = repeated.split('*').collect();
    assert_eq!(found.iter().filter(|line| repeated.iter().all(|part| line.contains(part))).count(), 2);
}

#[tokio::test]
async fn epoch_that_falls_or_is_above_the_setting_is_reported() {
    let table = TestTable::new().await;
    let todo = Subject::shipped("todo", "1");
    let with_epoch = |epoch| table.store_with(StoreSettings { epoch, ..settings() });
    let append = async |epoch, command: &str| {
        let store = with_epoch(epoch);
        let (before, input) = (todo.load(&store).await.folded, DecisionInput { epoch, ..next_input() });
        let data = json!({"title": "A", "message": before.version().to_string()});
        todo.command_under(&input, &store, command, data).await;
    };
    for (epoch, command) in [(1, "CreateTodo"), (2, "UpdateTodo"), (2, "UpdateTodo")] {
        append(epoch, command).await;
    }
    // Messages from before a restore have a lower epoch.
    for epoch in [2, 3] {
        assert_eq!(lines(&verify(&with_epoch(epoch), &todo).await), [""; 0]);
    }
    let differs =
        |seq_num, rest: &str| format!("{} differs: detail/metadata/epoch is {rest}", keys::outbox_sk(seq_num, 0));
    let above = "2, expected at most 1, the setting EPOCH";
    assert_eq!(lines(&verify(&with_epoch(1), &todo).await), [differs(2, above), differs(3, above)]);
    // The function was deployed with the epoch from before the restore: consumers ignore its messages.
    append(1, "UpdateTodo").await;
    let fallen = differs(4, "1, expected at least 2, the epoch of an earlier message");
    assert_eq!(lines(&verify(&with_epoch(2), &todo).await), [fallen]);
}

/// The repair of docs/restore.md for a table that was restored with only some rows of an append.
#[tokio::test]
async fn aggregate_cut_after_its_last_complete_append_has_no_findings_and_continues() {
    let table = TestTable::new().await;
    let (_, notebook) = notebook(&table).await;
    let store = table.store();
    table.delete(&notebook.key, &keys::event_sk(4)).await;
    let found = lines(&verify(&store, &notebook).await);
    assert!(found.contains(&format!("{} missing: event 4 is missing", keys::event_sk(4))), "{found:?}");

    for sk in [keys::event_sk(5), keys::outbox_sk(4, 0), keys::outbox_sk(5, 0)] {
        table.delete(&notebook.key, &sk).await;
    }
    let last = table.row(&notebook.key, &keys::event_sk(3)).await.unwrap();
    assert!(!last.contains_key("appendEnd"));
    let attributes = [
        ("currentSeqNum", n(3)),
        ("messageSeq", last["messageSeq"].clone()),
        ("updatedAt", last["occurredAt"].clone()),
    ];
    table.tamper(&notebook.key, keys::METADATA, attributes).await;
    store.rebuild_snapshot(notebook.model(), &notebook.key, now()).await.unwrap();
    assert_eq!(lines(&verify(&store, &notebook).await), [""; 0]);
    let after = notebook.command(&store, "Write", json!({"lines": ["!again"]})).await;
    assert_eq!(after.version(), 4);
    assert_eq!(lines(&verify(&store, &notebook).await), [""; 0]);
}

#[tokio::test]
async fn snapshots_that_differ_from_the_fold_are_reported() {
    for (sk, message_seq) in [(keys::SNAPSHOT.to_owned(), 4), (keys::kept_snapshot_sk(3), 2)] {
        let differs = |attribute: &str, rest: &str| format!("{sk} differs: {attribute} is {rest}");
        let state = s(r#"{"lines": ["a", "!!x", "c", "!d", "!e"]}"#);
        let line = differs("state/lines/1", r#""!!x", expected "!!b""#);
        expect(&sk, [("state", state)], &[&line]).await;
        let line = differs("messageSeq", &format!("9, expected {message_seq}"));
        expect(&sk, [(attributes::MESSAGE_SEQ, n(9))], &[&line]).await;
        expect(&sk, [("state", s("{"))], &[&format!("{sk} unreadable: ")]).await;
        expect(&sk, [("state", s("{}"))], &[&format!("{sk} unreadable: it cannot be read: state: missing field")])
            .await;
        expect(&sk, [(attributes::LAST_SEQ_NUM, s("3"))], &[&format!("{sk} unreadable: ")]).await;
        // A snapshot of another state version is not compared with the events.
        expect(&sk, [(attributes::STATE_VERSION, n(9))], &[&format!("{sk} changed: ")]).await;
    }
    let line = "#SNAPSHOT differs: lastSeqNum is 6, expected 1 to 5, the last event";
    expect(keys::SNAPSHOT, [(attributes::LAST_SEQ_NUM, n(6))], &[line]).await;
    let messages = "SNAPSHOT#000000000003 differs: messageSeq is 2, expected 3";
    let state = "SNAPSHOT#000000000003 differs: state/lines/3 is missing, expected \"!d\"";
    expect(&keys::kept_snapshot_sk(3), [(attributes::LAST_SEQ_NUM, n(4))], &[messages, state]).await;
}

#[tokio::test]
async fn snapshot_without_events_is_reported() {
    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    let mut row = table.row(&notebook.key, keys::SNAPSHOT).await.unwrap();
    let alone = Subject::of::<Notebook>("2");
    row.insert("pk".to_owned(), s(&keys::pk(&alone.key)));
    table.put(row).await;
    assert_eq!(
        lines(&verify(&store, &alone).await),
        [
            "#METADATA missing: there is no metadata",
            "#SNAPSHOT differs: lastSeqNum is 5, expected no snapshot: there are no events"
        ]
    );
}

#[tokio::test]
async fn snapshot_of_another_state_version_is_counted_and_not_reported() {
    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    let evolved = Subject::of::<Notebook<2>>("1");
    let verified = store.admin().verify(evolved.model(), &notebook.key, now()).await.unwrap();
    assert_eq!((verified.snapshots, verified.outdated, lines(&verified)), (0, 2, vec![]));
}

#[tokio::test]
async fn row_of_an_unknown_kind_is_reported() {
    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    for sk in ["EVENT#6", "EVENTS", "IDEMPOTENCY#anything"] {
        let row = [("pk".to_owned(), s(&keys::pk(&notebook.key))), ("sk".to_owned(), s(sk))];
        table.put(row.into_iter().collect()).await;
    }
    assert_eq!(
        lines(&verify(&store, &notebook).await),
        [
            "EVENT#6 unreadable: it cannot be read: its sort key is not an event's",
            "EVENTS unknown-row: this code writes no row with such a sort key",
            "IDEMPOTENCY#anything changed: it is not as it was written: it has no checksum that matches"
        ]
    );
}
