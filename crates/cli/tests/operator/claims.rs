//! `daybook claims rebuild`, and claims in `daybook verify` and `daybook import`.

use aggregates::Customer;
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_cli::operator::Exit;
use daybook_decider::Claim;
use daybook_table::{AggregateKey, ClaimItem, keys};
use daybook_test_support::row::sealed;
use daybook_test_support::table::TABLE;
use serde_json::json;

use crate::support::Setup;

/// The claim of an address, as it is stored: with a hash.
async fn claim(setup: &Setup, email: &str) -> Claim {
    let claim = Claim::new("personal-email", email);
    setup.store.sealing().stored_claim(&claim).await.unwrap()
}

async fn register(setup: &Setup, id: &str, email: &str) {
    setup.command(&format!("customer/{id}"), "RegisterCustomer", json!({"email": email, "name": "A"})).await;
}

/// Deletes a claim, as if the aggregate had been written by a release without it.
async fn forget(setup: &Setup, email: &str) {
    let delete = setup.table.raw.delete_item().table_name(TABLE);
    let delete = delete.key("pk", AttributeValue::S(keys::claim_pk(&claim(setup, email).await)));
    delete.key("sk", AttributeValue::S(keys::CLAIM.to_owned())).send().await.unwrap();
}

/// Puts a claim that the state of the aggregate does not have.
async fn give(setup: &Setup, id: &str, email: &str) {
    let row = ClaimItem::new(&claim(setup, email).await, &AggregateKey::new("customer", id));
    setup.table.put(sealed(serde_dynamo::to_item(row).unwrap())).await;
}

async fn holder(setup: &Setup, email: &str) -> Option<String> {
    setup.store.claim(&claim(setup, email).await).await.unwrap().map(|row| row.aggregate_id)
}

#[tokio::test]
async fn rebuild_takes_missing_claims_releases_stale_ones_and_reports_collisions() {
    let setup = Setup::of::<Customer>().await;
    register(&setup, "1", "a@example.com").await;
    forget(&setup, "a@example.com").await;
    register(&setup, "2", "A@example.com").await;
    register(&setup, "3", "c@example.com").await;
    forget(&setup, "c@example.com").await;
    give(&setup, "1", "c@example.com").await;

    let lines = setup.daybook("verify --type customer").await.expect(Exit::Findings);
    let (of_a, of_c) = (claim(&setup, "a@example.com").await, claim(&setup, "c@example.com").await);
    let (row_of_a, row_of_c) = (keys::claim_pk(&of_a), keys::claim_pk(&of_c));
    let expected = [
        format!("customer/1 {row_of_a} claim: the aggregate does not have it, customer/2 does"),
        format!("customer/3 {row_of_c} claim: the aggregate does not have it, customer/1 does"),
    ];
    assert_eq!(lines[..2], expected);
    let lines = setup.daybook("verify --scan").await.expect(Exit::Findings);
    let stale = format!("{row_of_c} #CLAIM claim: customer/1 has it, and not in its state");
    assert!(lines.contains(&stale), "{lines:?}");
    assert!(lines[3].starts_with("verified 3 aggregates: 3 events"), "{lines:?}");

    let lines = setup.daybook("claims rebuild customer").await.expect(Exit::Findings);
    assert!(lines[0].contains(&format!("would be released: {of_c}")), "{lines:?}");
    assert_eq!(holder(&setup, "c@example.com").await.as_deref(), Some("1"));
    let lines = setup.daybook("claims rebuild customer --yes").await.expect(Exit::Findings);
    let expected = [
        format!("{row_of_c}: released: {of_c}"),
        format!("customer/1: customer/2 has {of_a}"),
        format!("customer/3: taken: {of_c}"),
        "1 claims released, 1 taken; other aggregates have 1, 0 aggregates cannot be read".to_owned(),
    ];
    assert_eq!(lines, expected);
    assert_eq!(holder(&setup, "c@example.com").await.as_deref(), Some("3"));

    // A row that no append has written.
    let of_e = claim(&setup, "e@example.com").await;
    let row = ClaimItem::new(&of_e, &AggregateKey::new("customer", "1"));
    setup.table.put(serde_dynamo::to_item(row).unwrap()).await;
    let lines = setup.daybook("verify --scan").await.expect(Exit::Findings);
    let changed = format!("{} #CLAIM changed: it is not as it was written", keys::claim_pk(&of_e));
    assert!(lines.iter().any(|line| line.starts_with(&changed)), "{lines:?}");

    // The collision is resolved.
    setup.command("customer/1", "ChangeEmail", json!({"email": "d@example.com"})).await;
    let lines = setup.daybook("claims rebuild customer --yes").await.expect(Exit::Clean);
    assert_eq!(
        lines.last().unwrap(),
        "1 claims released, 0 taken; other aggregates have 0, 0 aggregates cannot be read"
    );
    setup.daybook("verify --scan").await.expect(Exit::Clean);
    setup.daybook("claims rebuild todo").await.expect(Exit::Clean);
}

#[tokio::test]
async fn import_takes_the_claims_of_the_last_state_alone() {
    let from = Setup::of::<Customer>().await;
    register(&from, "1", "a@example.com").await;
    from.command("customer/1", "ChangeEmail", json!({"email": "b@example.com"})).await;
    register(&from, "2", "a@example.com").await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("before").display().to_string();
    from.daybook(&format!("export {path}")).await.expect(Exit::Clean);

    let to = Setup::of::<Customer>().await;
    to.copy_keys(&from).await;
    to.daybook(&format!("import {path} --no-publish --yes")).await.expect(Exit::Clean);
    for (email, id) in [("a@example.com", "2"), ("b@example.com", "1")] {
        assert_eq!(holder(&to, email).await.as_deref(), Some(id), "{email}");
    }
    to.daybook("verify --scan").await.expect(Exit::Clean);

    // Events that follow those in the table release its claims.
    from.command("customer/2", "DeleteCustomer", json!({})).await;
    let path = folder.path().join("after").display().to_string();
    from.daybook(&format!("export {path}")).await.expect(Exit::Clean);
    to.daybook(&format!("import {path} --no-publish --yes")).await.expect(Exit::Clean);
    assert_eq!(holder(&to, "a@example.com").await, None);

    // An import that ended between the events and the claims is continued.
    give(&to, "1", "a@example.com").await;
    to.daybook(&format!("import {path} --no-publish --yes")).await.expect(Exit::Clean);
    assert_eq!(holder(&to, "a@example.com").await, None);
    to.daybook("verify --scan").await.expect(Exit::Clean);

    // A value that another aggregate of the table has.
    let other = Setup::of::<Customer>().await;
    other.copy_keys(&from).await;
    register(&other, "9", "B@example.com").await;
    let lines = other.daybook(&format!("import {path} --no-publish --yes")).await.expect(Exit::Findings);
    assert!(lines[0].contains("customer/1") && lines[0].contains("customer/9 does"), "{lines:?}");
}
