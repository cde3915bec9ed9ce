//! Every change by hand of every row of an aggregate is reported.

use std::convert::Infallible;
use std::iter::once;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::{DecisionInput, Folded, Involved, Meta};
use daybook_event_store::internal::{ImportWrite, is_valid_checksum};
use daybook_event_store::{
    CommandResponse, Decide, EventStore, IdempotencyKey, LoadPolicy, PositionMove, ResponseDetail, StoreSettings,
    TransactOptions, Undecided,
};
use daybook_table::PositionItem;
use daybook_test_support::clock::{next_input, now};
use daybook_test_support::commands::deadline;
use daybook_test_support::notebook::Notebook;
use daybook_test_support::row::sealed;
use daybook_test_support::subject::Subject;
use daybook_test_support::table::{TestTable, settings};
use serde_json::{Value, json};

use super::*;
use crate::handle::AdminCalls;

/// The attributes that only some rows of a kind have, and one that no release writes.
const OPTIONAL: [(&str, AttributeValueOf); 9] = [
    (attributes::TTL, || AttributeValue::N("1893456000".to_owned())),
    (attributes::DELETED, || AttributeValue::Bool(true)),
    (attributes::SNAPSHOT_DUE, || AttributeValue::Bool(true)),
    (attributes::TRACE_HEADER, || text_value("Root=1-5759e988-bd862e3fe1be46a994272793")),
    (attributes::GSI1PK, || text_value("EVENT_TYPE#LineWritten")),
    ("appendEnd", || AttributeValue::N("9".to_owned())),
    ("messageEpoch", || AttributeValue::N("2".to_owned())),
    ("notPublished", || AttributeValue::Bool(true)),
    ("other", || text_value("x")),
];

type AttributeValueOf = fn() -> AttributeValue;

/// Why a change of a row, or of one of its attributes, need not be reported.
fn exception(sk: &str, attribute: Option<&str>, changed: Option<&AttributeValue>) -> Option<&'static str> {
    match (sk.split_once('#').unwrap(), attribute) {
        (("", "SNAPSHOT") | ("SNAPSHOT", _), None) => Some("snapshots only save calls: none must exist"),
        (("IDEMPOTENCY", _), None) => {
            Some("nothing counts stored responses: they are deleted when their TTL has passed")
        }
        (("POSITION", _), None) => Some("without it, all events are handled again, which changes nothing"),
        (("SNAPSHOT", _), Some(attributes::TTL)) => {
            Some("the checksum leaves it out; a wrong one deletes the snapshot too early or late")
        }
        (("", "METADATA"), Some(name))
            if changed.is_some()
                && ![attributes::TTL, attributes::DELETED].contains(&name)
                && !METADATA.contains(&name) =>
        {
            Some("nothing reads it; the metadata has no checksum, because appends change it without a read")
        }
        _ => None,
    }
}

const METADATA: [&str; 6] = [
    attributes::AGGREGATE_TYPE,
    attributes::AGGREGATE_ID,
    attributes::CREATED_AT,
    attributes::UPDATED_AT,
    attributes::CURRENT_SEQ_NUM,
    attributes::MESSAGE_SEQ,
];

struct Written {
    subject: Subject,
    rows: Vec<Item>,
    settings: StoreSettings,
}

impl Written {
    async fn of(table: &TestTable, subject: Subject, settings: &StoreSettings) -> Self {
        let mut rows = table.rows(&subject.key, "").await;
        rows.sort_by_key(|row| !text(row, attributes::SK).starts_with(keys::KEPT_SNAPSHOT_PREFIX));
        Self { subject, rows, settings: settings.clone() }
    }

    fn verify<'a>(&self, rows: impl Iterator<Item = &'a Item>) -> Vec<Finding> {
        let StoreSettings { event_type_shards, epoch, .. } = self.settings;
        let mut read = Rows::new(self.subject.model(), &self.subject.key, event_type_shards, epoch, now());
        rows.for_each(|row| read.read(row.clone(), is_valid_checksum(row)));
        let version = read.metadata.as_ref().map(|metadata| metadata.current_seq_num);
        if let Some(version) = version.filter(|version| read.events.last() > *version) {
            read.events.version_after = Some(version);
        }
        read.finish().findings
    }

    /// The findings after row `at` was replaced or deleted.
    fn verify_changed(&self, at: usize, changed: Option<&Item>) -> Vec<Finding> {
        self.verify(self.rows[..at].iter().chain(changed).chain(&self.rows[at + 1..]))
    }
}

/// A request with an idempotency key, whose response has this body.
struct Keyed<'a> {
    subject: &'a Subject,
    commands: Vec<(&'static str, Value)>,
    input: DecisionInput,
    body: String,
}

impl Decide for Keyed<'_> {
    type Error = Infallible;

    fn decide(&self, before: &Folded, _: &Involved) -> Result<daybook_decider::Decisions, Undecided<Infallible>> {
        Ok(self.subject.decide_under(&self.input, before, &self.commands).into())
    }

    fn respond(
        &self,
        _: &Folded,
        decisions: &daybook_decider::Decisions,
        _: ResponseDetail,
    ) -> Result<CommandResponse, Infallible> {
        let decided = &decisions.own;
        let (version, body) = (decided.after.version(), self.body.clone());
        Ok(CommandResponse { status: 200, version, state_version: 1, body })
    }
}

async fn write(store: &EventStore, subject: &Subject, key: &str, commands: &[(&'static str, Value)], body: String) {
    let meta = Meta {
        actor: Some("ann".to_owned()),
        trace_header: Some("Root=1-5759e988-bd862e3fe1be46a994272793".to_owned()),
        ..Meta::default()
    };
    let input = DecisionInput { meta, epoch: store.settings().epoch, ..next_input() };
    let request = Keyed { subject, commands: commands.to_vec(), input, body };
    let options = TransactOptions {
        policy: LoadPolicy::Incremental,
        creates: false,
        expected_version: None,
        idempotency: Some(IdempotencyKey { key, digest: &"0a".repeat(32), ttl: Duration::from_hours(24) }),
        deadline: deadline(),
    };
    store.transact(subject.model(), &subject.key, &request, &options).await.unwrap();
}

/// A notebook with two epochs, a snapshot of two events before the latest, and stored responses.
async fn notebook(table: &TestTable, id: &str, mark: &str, event_type_shards: u32) -> Written {
    let first = StoreSettings { snapshot_every: 2, event_type_shards, ..settings() };
    let subject = Subject::of::<Notebook>(id);
    let lines = |lines: &[&str]| json!({ "lines": lines });
    let store = table.store_with(first.clone());
    write(&store, &subject, "start", &[("Start", lines(&["a", &format!("!!{mark}"), "c"]))], "{}".to_owned()).await;
    store.take_snapshot(subject.model(), &subject.key, now()).await.unwrap();
    // As a release with another state version leaves it.
    let mut kept = table.row(&subject.key, keys::SNAPSHOT).await.unwrap();
    kept.insert(attributes::SK.to_owned(), text_value(&keys::kept_snapshot_sk(3)));
    kept.insert(attributes::TTL.to_owned(), AttributeValue::N("1893456000".to_owned()));
    table.put(sealed(kept)).await;
    let later = StoreSettings { epoch: 2, ..first };
    let store = table.store_with(later.clone());
    write(&store, &subject, "next", &[("Write", lines(&["!d"]))], mark.repeat(3)).await;
    write(&store, &subject, "last", &[("Write", lines(&["e", "!f"]))], "{}".to_owned()).await;
    store.take_snapshot(subject.model(), &subject.key, now()).await.unwrap();
    Written::of(table, subject, &later).await
}

/// A to-do that was deleted, and whose last event a process cannot handle.
async fn deleted(table: &TestTable) -> Written {
    let (store, todo) = (table.store(), Subject::shipped("todo", "1"));
    todo.command(&store, "CreateTodo", json!({"title": "A", "message": ""})).await;
    todo.command(&store, "DeleteTodo", json!({})).await;
    let mut position = store.position(&todo.key, "reminder").await.unwrap();
    assert!(store.move_position(&mut position, PositionMove::Suspend(PositionItem::ALL, 1, "a bug")).await.unwrap());
    Written::of(table, todo, &settings()).await
}

/// A to-do whose first events were imported.
async fn imported(from: &TestTable, publish: bool) -> Written {
    let to = TestTable::new().await;
    let (source, target, todo) = (from.store(), to.store(), Subject::shipped("todo", "2"));
    if todo.load(&source).await.version() == 0 {
        todo.command(&source, "CreateTodo", json!({"title": "A", "message": ""})).await;
        todo.command(&source, "UpdateTodo", json!({"title": "B", "message": ""})).await;
    }
    let mut after = todo.unborn();
    let mut batch = target.admin().import(todo.model(), &todo.key, 0, ImportWrite { publish, now: now() });
    for event in source.events(&todo.key, 0, 100).await.unwrap().items {
        let messages = todo.model().announced(&after, &todo.key.id, &event, 1).unwrap();
        assert!(batch.add(&event, if publish { &messages } else { &[] }).unwrap());
        after = todo.model().fold(after, &[event]).unwrap();
    }
    batch.send(&after).await.unwrap();
    todo.command(&target, "UpdateTodo", json!({"title": "C", "message": ""})).await;
    Written::of(&to, todo, &settings()).await
}

fn text_value(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

/// Other values of an attribute: `None` if it is removed.
fn changes(value: &AttributeValue) -> Vec<Option<AttributeValue>> {
    fn at_three_places<T: Clone>(values: &[T], change: impl Fn(&T) -> T) -> Vec<Vec<T>> {
        let mut places = vec![0, values.len() / 2, values.len().saturating_sub(1)];
        places.dedup();
        let changed = places.into_iter().filter(|at| *at < values.len()).map(|at| {
            let mut changed = values.to_vec();
            changed[at] = change(&changed[at]);
            changed
        });
        changed.chain(once([values, values].concat()).filter(|_| !values.is_empty())).collect()
    }
    let nested = |value: &AttributeValue, wrap: &dyn Fn(Option<AttributeValue>) -> AttributeValue| -> Vec<_> {
        changes(value).into_iter().map(wrap).collect()
    };
    let mut others = match value {
        AttributeValue::N(number) => {
            let number: i64 = number.parse().unwrap();
            vec![AttributeValue::N((number + 1).to_string()), AttributeValue::N((number - 1).to_string())]
        }
        AttributeValue::S(text) => {
            let letters: Vec<_> = text.chars().collect();
            let changed = at_three_places(&letters, |letter| if *letter == '0' { '1' } else { '0' });
            changed.into_iter().map(|letters| AttributeValue::S(letters.into_iter().collect())).collect()
        }
        AttributeValue::B(bytes) => {
            let changed = at_three_places(bytes.as_ref(), |byte| byte ^ 1);
            changed.into_iter().map(|bytes| AttributeValue::B(Blob::new(bytes))).collect()
        }
        AttributeValue::Bool(flag) => vec![AttributeValue::Bool(!flag)],
        AttributeValue::M(members) => {
            let with = |name: &str, value: Option<AttributeValue>| {
                let mut members = members.clone();
                members.remove(name);
                members.extend(value.map(|value| (name.to_owned(), value)));
                AttributeValue::M(members)
            };
            let each = members.iter().flat_map(|(name, value)| nested(value, &|value| with(name, value)));
            each.chain(once(with("added", Some(AttributeValue::Null(true))))).collect()
        }
        other => panic!("no row has an attribute like {other:?}"),
    };
    others.push(AttributeValue::Null(true));
    others.into_iter().map(Some).chain(once(None)).collect()
}

fn expect_each_change_to_be_reported(written: &Written, at_least: usize) {
    assert_eq!(written.verify(written.rows.iter()), []);
    let (mut made, mut missed) = (0, Vec::new());
    for (at, row) in written.rows.iter().enumerate() {
        let sk = text(row, attributes::SK);
        let mut check = |attribute: Option<&str>, value: Option<&AttributeValue>, changed: Option<&Item>| {
            made += 1;
            let found = written.verify_changed(at, changed);
            // If the version in the metadata is wrong, the finding is at the events that are missing, or beyond it.
            let is_version = sk == keys::METADATA && attribute == Some(attributes::CURRENT_SEQ_NUM);
            let is_reported = found.iter().any(|finding| finding.item == sk || is_version);
            if !is_reported && exception(sk, attribute, value).is_none() {
                missed.push(format!("{sk} {attribute:?} {value:.200?}: {found:?}"));
            }
        };
        check(None, None, None);
        let keys = [attributes::PK, attributes::SK];
        for (name, value) in row.iter().filter(|(name, _)| !keys.contains(&name.as_str())) {
            for value in changes(value) {
                let mut changed = row.clone();
                changed.remove(name);
                changed.extend(value.clone().map(|value| (name.clone(), value)));
                check(Some(name), value.as_ref(), Some(&changed));
            }
        }
        for (name, value) in OPTIONAL.iter().filter(|(name, _)| !row.contains_key(*name)) {
            let mut changed = row.clone();
            changed.insert((*name).to_owned(), value());
            check(Some(name), Some(&value()), Some(&changed));
        }
    }
    assert!(made >= at_least, "{made} changes");
    assert!(missed.is_empty(), "{} of {made} changes are not reported:\n{}", missed.len(), missed.join("\n"));
}

#[tokio::test]
async fn each_change_of_a_notebook_is_reported() {
    expect_each_change_to_be_reported(&notebook(&TestTable::new().await, "1", "b", 1).await, 700);
}

/// Its snapshots and a stored response are compressed, and its events are in several index partitions.
#[tokio::test]
async fn each_change_of_a_large_notebook_is_reported() {
    expect_each_change_to_be_reported(&notebook(&TestTable::new().await, "1", &"x".repeat(8200), 8).await, 700);
}

#[tokio::test]
async fn each_change_of_a_deleted_or_imported_aggregate_is_reported() {
    let table = TestTable::new().await;
    for written in [deleted(&table).await, imported(&table, true).await, imported(&table, false).await] {
        expect_each_change_to_be_reported(&written, 150);
    }
}

#[tokio::test]
async fn position_after_the_last_event_is_reported() {
    let table = TestTable::new().await;
    let todo = deleted(&table).await.subject;
    let store = table.store();
    let mut position = store.position(&todo.key, "reminder").await.unwrap();
    for (to, expected) in [(2, None), (3, Some("seqNum is 3, expected at most 2, the last event".to_owned()))] {
        assert!(store.move_position(&mut position, PositionMove::To(to)).await.unwrap());
        let verified = store.admin().verify(todo.model(), &todo.key, now()).await.unwrap();
        assert_eq!(verified.findings.first().map(|finding| finding.discrepancy.to_string()), expected);
    }
}

#[tokio::test]
async fn stored_responses_of_an_aggregate_that_does_not_exist_are_no_finding() {
    let table = TestTable::new().await;
    let (store, subject) = (table.store(), Subject::of::<Notebook>("1"));
    write(&store, &subject, "start", &[("Start", json!({"lines": ["a"]}))], "{}".to_owned()).await;
    for prefix in ["EVENT#", "OUTBOX#", keys::METADATA] {
        for row in table.rows(&subject.key, prefix).await {
            table.delete(&subject.key, row[attributes::SK].as_s().unwrap()).await;
        }
        let verified = store.admin().verify(subject.model(), &subject.key, now()).await.unwrap();
        assert_eq!(verified.findings.is_empty(), prefix == keys::METADATA, "{prefix}: {:?}", verified.findings);
    }
    assert_eq!(table.rows(&subject.key, keys::IDEMPOTENCY_PREFIX).await.len(), 1);
}
