//! Verification of rows with checksums, and of rows of releases without them.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_event_store::admin::{Finding, Verified};
use daybook_table::{attributes, keys};
use daybook_test_support::table::TestTable;

use crate::verify::{expect, lines, n, notebook, s, verify};

/// The warnings without the aggregate.
fn warnings(verified: &Verified) -> Vec<String> {
    let line = |warning: &Finding| warning.to_string().split_once(' ').unwrap().1.to_owned();
    verified.warnings.iter().map(line).collect()
}

/// Nothing but the checksums shows these changes.
#[tokio::test]
async fn changed_events_and_messages_are_reported_by_their_checksums() {
    let changed = "changed: it is not as it was written: its checksum does not match";
    let event = keys::event_sk(1);
    let line = format!("{event} {changed}");
    expect(&event, [("data", s(r#"{"text":"a","note":1}"#))], &[&line]).await;
    expect(&event, [("meta", AttributeValue::M([("actor".to_owned(), s("eve"))].into()))], &[&line]).await;
    expect(&event, [(attributes::SNAPSHOT_DUE, AttributeValue::Bool(true))], &[&line]).await;
    let message = keys::outbox_sk(4, 0);
    let line = format!("{message} {changed}");
    expect(&message, [("messageType", s("LineWhispered"))], &[&line]).await;
    expect(&message, [("ttl", n(7))], &[&line]).await;
    expect(&message, [(attributes::TRACE_HEADER, s("Root=1-5759e988-bd862e3fe1be46a994272793"))], &[&line]).await;

    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    let detail = table.row(&notebook.key, &message).await.unwrap()["detail"].as_s().unwrap().clone();
    let forged = detail.replace(r#""data":0"#, r#""data":9"#);
    assert_ne!(forged, detail);
    table.tamper(&notebook.key, &message, [("detail", s(&forged))]).await;
    let verified = verify(&store, &notebook).await;
    assert_eq!((lines(&verified), warnings(&verified)), (vec![line], vec![]));
    // A message that another program wrote.
    let mut row = table.row(&notebook.key, &message).await.unwrap();
    row.remove(attributes::CHECKSUM);
    table.put(row).await;
    let verified = verify(&store, &notebook).await;
    let line = format!("{message} changed: it is not as it was written: it has no checksum, and its event has one");
    assert_eq!((lines(&verified), warnings(&verified)), (vec![line], vec![]));
}

/// The code cannot tell a changed row without a checksum from one of a release that published something else.
#[tokio::test]
async fn message_that_this_release_does_not_publish_is_a_warning_if_nothing_shows_a_change() {
    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    for mut row in table.rows(&notebook.key, "").await {
        row.remove(attributes::CHECKSUM);
        table.put(row).await;
    }
    let verified = verify(&store, &notebook).await;
    assert_eq!((lines(&verified), warnings(&verified)), (vec![], vec![]));
    let sk = keys::outbox_sk(4, 0);
    let row = table.row(&notebook.key, &sk).await.unwrap();
    let detail = row["detail"].as_s().unwrap().replace(r#""data":0"#, r#""data":{"mark":0}"#);
    let rest = "is not what this release publishes for event 4; another release may have written the row";
    for (name, value, attribute) in
        [("detail", s(&detail), "detail/data"), ("messageType", s("LineWhispered"), "messageType")]
    {
        table.tamper(&notebook.key, &sk, [(name, value)]).await;
        let verified = verify(&store, &notebook).await;
        assert_eq!(lines(&verified), [""; 0]);
        assert_eq!(warnings(&verified), [format!("{sk} differs-from-code: {attribute} {rest}")]);
        table.put(row.clone()).await;
    }
    table.tamper(&notebook.key, &sk, [("ttl", n(7))]).await;
    let found = lines(&verify(&store, &notebook).await);
    let expected = "differs: ttl is 7, expected 2 to 365 whole days after occurredAt, in seconds since 1970";
    assert_eq!(found, [format!("{sk} {expected}")]);
}
