//! Verification of the checksums of rows.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_admin::{Finding, Verified};
use daybook_table::{attributes, keys};
use daybook_test_support::row::sealed;
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
    let changed = "changed: it is not as it was written: it has no checksum that matches";
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
    let line = format!("{message} {changed}");
    assert_eq!((lines(&verified), warnings(&verified)), (vec![line], vec![]));
}

/// The row is as it was written, by a release that published something else.
#[tokio::test]
async fn message_with_a_valid_checksum_that_this_release_does_not_publish_is_a_warning() {
    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    let sk = keys::outbox_sk(4, 0);
    let row = table.row(&notebook.key, &sk).await.unwrap();
    let detail = row["detail"].as_s().unwrap().replace(r#""data":0"#, r#""data":{"mark":0}"#);
    let rest = "is not what this release publishes for event 4; another release may have written the row";
    for (name, value, attribute) in
        [("detail", s(&detail), "detail/data"), ("messageType", s("LineWhispered"), "messageType")]
    {
        let mut other = row.clone();
        other.insert(name.to_owned(), value);
        table.put(sealed(other)).await;
        let verified = verify(&store, &notebook).await;
        assert_eq!(lines(&verified), [""; 0]);
        assert_eq!(warnings(&verified), [format!("{sk} differs-from-code: {attribute} {rest}")]);
    }
}
