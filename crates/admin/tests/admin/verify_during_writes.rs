//! Verification of an aggregate that is written meanwhile.

use std::pin::pin;

use daybook_table::keys;
use daybook_test_support::fault_proxy::RecordedCall;
use daybook_test_support::notebook::Notebook;
use daybook_test_support::row::text;
use daybook_test_support::table::TestTable;
use serde_json::json;

use crate::verify::{lines, notebook, verify};
use daybook_test_support::subject::Subject;

#[tokio::test(flavor = "multi_thread")]
async fn verify_of_a_stream_that_is_written_meanwhile_finds_nothing() {
    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    let writer = table.store();
    let key = notebook.key.clone();
    let writing = tokio::spawn(async move {
        let notebook = Subject::of::<Notebook>(&key.id);
        for _ in 0..100 {
            notebook.command(&writer, "Write", json!({"lines": ["!more", "still more"]})).await;
        }
    });
    let mut runs = 0;
    while !writing.is_finished() || runs == 0 {
        assert_eq!(lines(&verify(&store, &notebook).await), [""; 0]);
        runs += 1;
    }
    writing.await.unwrap();
    assert_eq!(verify(&store, &notebook).await.events, 205);
}

/// Whether these are the calls of one read of an aggregate.
fn is_one_read(calls: &[RecordedCall]) -> bool {
    calls.len() == 2
}

/// A query returns some rows of a transaction and not others, and all of them a moment later.
#[tokio::test]
async fn rows_that_appear_a_moment_later_are_not_reported_missing() {
    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    let late = table.row(&notebook.key, &keys::event_sk(5)).await.unwrap();
    table.delete(&notebook.key, &keys::event_sk(5)).await;
    table.proxy.take_calls();
    let mut verified = pin!(verify(&store, &notebook));
    table.proxy.hold(&mut verified, is_one_read).await;
    table.put(late).await;
    assert_eq!(lines(&verified.await), [""; 0]);
}

/// A stream that no read returns completely: each read misses something else.
#[tokio::test]
async fn row_that_only_one_read_misses_is_not_reported_missing() {
    let table = TestTable::new().await;
    let (store, notebook) = notebook(&table).await;
    let mut late = Vec::new();
    for sk in [keys::event_sk(5), keys::outbox_sk(4, 0), keys::outbox_sk(2, 0)] {
        late.push(table.row(&notebook.key, &sk).await.unwrap());
    }
    table.delete(&notebook.key, text(&late[0], "sk")).await;
    table.proxy.take_calls();
    let mut verified = pin!(verify(&store, &notebook));
    for read in 0..2 {
        table.proxy.hold(&mut verified, is_one_read).await;
        table.delete(&notebook.key, text(&late[read + 1], "sk")).await;
        table.put(late[read].clone()).await;
    }
    assert_eq!(lines(&verified.await), [""; 0]);
    assert_eq!(lines(&verify(&store, &notebook).await).len(), 1);
}
