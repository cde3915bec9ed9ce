//! The number of calls: aggregates share transactions up to DynamoDB's limits.

use serde_json::{Value, json};

use crate::setup::Setup;

#[tokio::test]
async fn aggregates_share_a_transaction() {
    let setup = Setup::new(projections::projections().unwrap()).await;
    let mut keys = Vec::new();
    for id in 0..20 {
        keys.push(setup.account(&id.to_string(), &[100, 10]).await);
    }
    setup.table.proxy.take_calls();
    let projected = setup.project("account-balances", &keys).await;
    assert_eq!((projected.events, projected.transactions, projected.retries), (60, 1, 0));
    let operations = setup.table.operations();
    let count = |name: &str| operations.iter().filter(|operation| *operation == name).count();
    // Positions and rows, the events of each aggregate, and everything in one transaction.
    assert_eq!((count("BatchGetItem"), count("Query"), count("TransactWriteItems")), (2, 20, 1), "{operations:?}");
    assert_eq!(setup.rows("account-balances").await["total"], json!({"accounts": 20, "balance": 2200}));

    // Repeated messages cost reads only.
    let projected = setup.project("account-balances", &keys).await;
    assert_eq!((projected.events, projected.transactions), (0, 0));
    assert!(setup.table.operations().iter().all(|operation| operation != "TransactWriteItems"));
}

#[tokio::test]
async fn aggregates_that_change_the_same_part_of_a_row_share_transactions() {
    let setup = Setup::new(projections::projections().unwrap()).await;
    let mut keys = Vec::new();
    for id in 0..90 {
        keys.push(setup.account(&id.to_string(), &[]).await);
    }
    setup.table.proxy.take_calls();
    let projected = setup.project("account-balances", &keys).await;
    assert_eq!((projected.events, projected.transactions), (90, 2));
    let calls = setup.table.proxy.take_calls();
    let items = calls.iter().flat_map(|call| call.request["TransactItems"].as_array().cloned().unwrap_or_default());
    let parts: Vec<Value> =
        items.map(|item| item["Put"]["Item"].clone()).filter(|item| item["sk"]["S"] == "total").collect();
    // The total has eight parts. One of them is changed by aggregates of both transactions.
    assert!((8..=9).contains(&parts.len()), "{parts:?}");
    assert_eq!(setup.rows("account-balances").await["total"], json!({"accounts": 90, "balance": 0}));
}

#[tokio::test]
async fn more_rows_than_a_transaction_holds_take_several() {
    let setup = Setup::new(projections::projections().unwrap()).await;
    let mut keys = Vec::new();
    for id in 0..120 {
        keys.push(setup.account(&id.to_string(), &[1]).await);
    }
    let projected = setup.project("account-balances", &keys).await;
    assert_eq!((projected.events, projected.unfinished.len()), (240, 0));
    // Each aggregate has a row and a position, and at most eight parts of the total share each transaction.
    assert_eq!(projected.transactions, 3);
    assert_eq!(setup.rows("account-balances").await["total"], json!({"accounts": 120, "balance": 120}));
}

#[tokio::test]
async fn long_stream_is_folded_page_by_page() {
    let setup = Setup::new(projections::projections().unwrap()).await;
    let key = setup.account("a", &[]).await;
    for _ in 0..6 {
        let commands: Vec<_> = (0..49).map(|_| ("RecordTransaction", json!({"desc": "", "amount": 1}))).collect();
        setup.execute(&key, &commands).await;
    }
    let projected = setup.project("account-balances", std::slice::from_ref(&key)).await;
    assert_eq!((projected.events, projected.transactions), (295, 2));
    assert_eq!(setup.rows("account-balances").await["account:a"], json!({"accounts": 1, "balance": 294}));
}
