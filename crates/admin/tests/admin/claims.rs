//! Corrections of claims that an earlier release did not have.

use daybook_admin::{AdminCalls, Derived};
use daybook_decider::Claim;
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

#[tokio::test]
async fn correction_beside_a_writer_is_that_of_the_state_and_the_claims_after_it() {
    // The writer changes the aggregate itself, or only takes a value of it.
    for (id, command, values, taken, elsewhere) in [
        ("1", "GiveAgain", ["1-1", "new"], ["1-1"], None),
        ("2", "Give", ["1-1", "new"], ["1-0"], Some("1-1 of badge/2".to_owned())),
    ] {
        let table = TestTable::new().await;
        let (badge, store) = (unclaimed(&table, "1", 2).await, table.store());
        table.proxy.take_calls();
        let admin = store.admin();
        let mut correcting = Box::pin(admin.correct(badge.model(), &badge.key, Derived::Claims(&[]), true));
        table.proxy.hold(&mut correcting, |calls| calls.iter().any(|call| call.operation == "BatchGetItem")).await;
        Subject::of::<Badge>(id).command(&table.direct_store(), command, json!({ "values": values })).await;
        let corrected = correcting.await.unwrap().claims;
        assert_eq!(corrected.taken.iter().map(Claim::value).collect::<Vec<_>>(), taken);
        let others: Vec<_> =
            corrected.elsewhere.iter().map(|(claim, of)| format!("{} of {of}", claim.value())).collect();
        assert_eq!(others, Vec::from_iter(elsewhere));
    }
}
