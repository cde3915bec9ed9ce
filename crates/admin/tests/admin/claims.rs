//! Corrections of claims that an earlier release did not have.

use daybook_admin::{AdminCalls, Derived};
use daybook_event_store::StoreError;
use daybook_test_support::badge::Badge;
use daybook_test_support::subject::Subject;
use daybook_test_support::table::TestTable;
use serde_json::json;

/// A badge with these numbers as values, of a release without claims.
async fn unclaimed(table: &TestTable, id: &str, values: u32) -> Subject {
    let values: Vec<_> = (0..values).map(|value| format!("{id}-{value}")).collect();
    Subject::of::<Badge<false>>(id).command(&table.store(), "Give", json!({ "values": values })).await;
    Subject::of::<Badge>(id)
}

#[tokio::test]
async fn claims_are_taken_as_far_as_a_transaction_can_hold_them() {
    let table = TestTable::new().await;
    let (most, too_many) = (unclaimed(&table, "1", 98).await, unclaimed(&table, "2", 100).await);
    let store = table.store();
    let corrected = store.admin().correct(most.model(), &most.key, Derived::Claims(&[]), true).await.unwrap();
    assert_eq!(corrected.claims.taken.len(), 98);
    table.proxy.take_calls();
    let error = store.admin().correct(too_many.model(), &too_many.key, Derived::Claims(&[]), true).await.unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { item, .. } if item == "the claims of badge/2"), "{error:?}");
    // It is not repeated, as it is beside other writers.
    assert!(!table.operations().contains(&"TransactWriteItems".to_owned()));
}
