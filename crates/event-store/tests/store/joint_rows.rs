//! The rows of a transaction over several aggregates: how many fit, and their marks.

use daybook_event_store::limits::TooLarge;
use daybook_event_store::{StoreSettings, TransactError};
use daybook_table::keys;
use daybook_test_support::row::Item;
use daybook_test_support::table::{TestTable, settings};
use serde_json::{Value, json};

use crate::joint::{done, key, make, send, sends, to, total};

#[tokio::test]
async fn transaction_of_all_parts_has_at_most_one_hundred_items() {
    let table = TestTable::new().await;
    let store = table.store();
    make(&store, &["a", "b", "c", "d", "e"], 0).await;
    let add = |looks: &[&str]| {
        vec![to("a", json!({"add": vec![1; 24]})), to("b", json!({"add": vec![1; 24], "look": looks}))]
    };
    done(&send(&store, add(&["c", "d"])).await);
    table.proxy.take_calls();
    let sent = send(&store, add(&["c", "d", "e"])).await;
    assert!(
        matches!(&sent, Err(TransactError::TooLarge { limit: TooLarge::Items { items: 101 }, of: None })),
        "{sent:?}"
    );
    // The aggregate is named that has the row, or whose rows are more than fit; it is not that of a request for one alone.
    let (one, long) = (json!({"add": [1]}), json!({"add": [1], "length": 410_000}));
    let with_sent = |plan: &Value, sent: Value| {
        let mut plan = plan.clone();
        plan["send"] = json!([["b", {"command": "Do", "data": sent}]]);
        vec![to("a", plan)]
    };
    for (commands, expected) in [
        (vec![to("a", one.clone()), to("b", long.clone())], Some("b")),
        (vec![to("a", long.clone()), to("b", one.clone())], Some("a")),
        ([add(&[]), vec![to("c", one.clone())]].concat(), Some("c")),
        (with_sent(&one, long.clone()), Some("b")),
        (with_sent(&long, one), None),
    ] {
        let sent = send(&store, commands).await;
        let Err(TransactError::TooLarge { of, .. }) = &sent else { panic!("{sent:?}") };
        assert_eq!(of.as_ref().map(|of| &*of.id), expected);
    }
    // Each was a call, which only checked that the states are current.
    let calls = table.proxy.take_calls();
    let mut items = calls.iter().flat_map(|call| call.request["TransactItems"].as_array().unwrap());
    assert!(calls.len() == 6 && items.all(|item| item["ConditionCheck"].is_object()), "{calls:?}");
    assert_eq!((total(&table, "a").await, total(&table, "b").await), (24, 24));
}

#[tokio::test]
async fn rows_of_a_sent_command_have_the_end_of_its_append_and_a_due_snapshot() {
    let table = TestTable::with(StoreSettings { snapshot_every: 3, ..settings() }).await;
    let store = table.store();
    make(&store, &["a", "b"], 0).await;
    done(&send(&store, vec![to("a", sends(["b"], &json!({"add": [1, 1]})))]).await);
    let rows = table.rows(&key("b"), keys::EVENT_PREFIX).await;
    let end = |row: &Item| row.get("appendEnd").map(|end| end.as_n().unwrap().clone());
    let marks: Vec<_> = rows.iter().map(|row| (end(row), row.contains_key("snapshotDue"))).collect();
    let end = |end: &str| Some(end.to_owned());
    assert_eq!(marks, [(end("2"), false), (None, false), (end("4"), true), (None, false)]);
}
