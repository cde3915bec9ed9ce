//! Claims in groups, with unknown outcomes, and after a change of `claims`.

use daybook_decider::Claim;
use daybook_event_store::{EventStore, TransactError, Transacted};
use daybook_table::{AggregateKey, keys};
use daybook_test_support::badge::Badge;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::table::TestTable;
use serde_json::json;

use crate::group::{APPEND, Request, Sent, operations, send_behind, version};
use crate::support::Subject;

async fn give(store: &EventStore, badge: &Subject, values: &[&str]) -> Sent {
    let command = if badge.load(store).await.version() == 0 { "Give" } else { "GiveAgain" };
    Request::new(badge, command, json!({ "values": values })).send(store).await
}

fn again<'a>(badge: &'a Subject, values: &[&str]) -> Request<'a> {
    Request::new(badge, "GiveAgain", json!({ "values": values }))
}

async fn holder(table: &TestTable, value: &str) -> Option<String> {
    let claim = Claim::new("badge", value);
    table.direct_store().claim(&claim).await.unwrap().map(|row| row.holder().id)
}

/// The value that is taken, and the id of its holder.
fn taken(sent: &Sent) -> (&str, &str) {
    match sent {
        Err(TransactError::ClaimTaken { claim, holder }) => (claim.value(), &holder.id),
        other => panic!("{other:?}"),
    }
}

async fn assert_holders(table: &TestTable, expected: &[(&str, Option<&str>)]) {
    for (value, id) in expected {
        assert_eq!(holder(table, value).await.as_deref(), *id, "{value}");
    }
}

#[tokio::test]
async fn group_takes_each_claim_once_and_a_taken_one_fails_its_own_request_alone() {
    let table = TestTable::new().await;
    let store = table.store();
    let (one, other) = (Subject::of::<Badge>("1"), Subject::of::<Badge>("2"));
    give(&store, &other, &["x"]).await.unwrap();
    give(&store, &one, &["a"]).await.unwrap();
    // The second request releases what the first one takes, so they cannot share a transaction.
    let requests = [again(&one, &["b"]), again(&one, &["c"]), again(&one, &["c", "d"])];
    let (sent, calls) = send_behind(&table, &store, &again(&one, &["a"]), &requests, &[]).await;
    assert_eq!(sent.iter().map(version).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(operations(&calls), [APPEND, APPEND]);
    assert_holders(&table, &[("a", None), ("b", None), ("c", Some("1")), ("d", Some("1")), ("x", Some("2"))]).await;

    let requests = [again(&one, &["e"]), again(&one, &["e", "x"]), again(&one, &["e", "f"])];
    let (sent, _) = send_behind(&table, &store, &again(&one, &["c"]), &requests, &[]).await;
    assert_eq!((version(&sent[0]), taken(&sent[1]), version(&sent[2])), (7, ("x", "2"), 8));
    assert_holders(&table, &[("c", None), ("e", Some("1")), ("f", Some("1")), ("x", Some("2"))]).await;
}

#[tokio::test]
async fn taken_claim_keeps_no_other_request_of_its_group_from_being_appended_with_the_others() {
    let table = TestTable::new().await;
    let store = table.store();
    let (one, other) = (Subject::of::<Badge>("1"), Subject::of::<Badge>("2"));
    give(&store, &other, &["x"]).await.unwrap();
    give(&store, &one, &["a"]).await.unwrap();
    let requests = [again(&one, &["a"]), again(&one, &["a", "x"]), again(&one, &["a"]), again(&one, &["a"])];
    let (sent, calls) = send_behind(&table, &store, &again(&one, &["a"]), &requests, &[]).await;
    assert_eq!([0, 2, 3].map(|index| version(&sent[index])), [3, 4, 5]);
    assert_eq!(taken(&sent[1]), ("x", "2"));
    // The first request, the group, the others of the group together, and the request with the taken claim: on the state that
    // it knows, and on one that is read.
    let appends = operations(&calls).into_iter().filter(|operation| *operation == APPEND).count();
    assert_eq!(appends, 5);
}

#[tokio::test]
async fn taken_claim_after_an_unknown_outcome_is_an_unknown_outcome() {
    let table = TestTable::new().await;
    let store = table.store();
    let (one, other) = (Subject::of::<Badge>("1"), Subject::of::<Badge>("2"));
    give(&store, &one, &["a"]).await.unwrap();
    give(&store, &other, &["x"]).await.unwrap();
    table.proxy.fail_next(APPEND, InjectedFault::BreakBefore);
    let sent = again(&one, &["x"]).send(&store).await;
    assert!(matches!(sent, Err(TransactError::OutcomeUnknown { after: 1, .. })), "{sent:?}");
    // The one that was lost after it was stored has the claim itself.
    table.proxy.fail_next(APPEND, InjectedFault::BreakAfter);
    assert_eq!(version(&again(&one, &["y"]).send(&store).await), 2);
    assert_eq!(holder(&table, "y").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn lost_race_is_decided_again_before_a_claim_is_taken() {
    let table = TestTable::new().await;
    let (store, beside) = (table.store(), table.direct_store());
    let (one, other) = (Subject::of::<Badge>("1"), Subject::of::<Badge>("2"));
    give(&store, &one, &["a"]).await.unwrap();
    give(&store, &other, &["x"]).await.unwrap();
    // The cached state of `store` is outdated.
    give(&beside, &one, &["b"]).await.unwrap();
    assert_eq!(taken(&again(&one, &["x"]).send(&store).await), ("x", "2"));
    assert_eq!(one.load(&store).await.version(), 2);
    give(&store, &other, &["z"]).await.unwrap();
    assert_eq!(version(&again(&one, &["x"]).send(&store).await), 3);
    assert_eq!(holder(&table, "b").await, None);
}

#[tokio::test]
async fn value_that_another_aggregate_had_before_there_were_claims_stops_no_command() {
    let table = TestTable::new().await;
    let store = table.store();
    let (one, other) = (Subject::of::<Badge>("1"), Subject::of::<Badge>("2"));
    give(&store, &Subject::of::<Badge<false>>("1"), &["x"]).await.unwrap();
    give(&store, &other, &["x"]).await.unwrap();
    // Its state has the value, and it does not have the claim.
    assert_eq!(version(&again(&one, &["x", "a"]).send(&table.store()).await), 2);
    assert_eq!(version(&again(&one, &["b"]).send(&table.store()).await), 3);
    assert_holders(&table, &[("x", Some("2")), ("a", None), ("b", Some("1"))]).await;
}

#[tokio::test]
async fn claims_that_cannot_be_stored_are_errors_of_the_decision() {
    let table = TestTable::new().await;
    let store = table.store();
    let badge = Subject::of::<Badge>("1");
    let (long, many) = ("x".repeat(Claim::MAX_VALUE + 1), ["a", "b", "c"].repeat(7));
    let many: Vec<_> = many.iter().zip(0..).map(|(name, number)| format!("{name}{number}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    for (values, reason) in [
        (vec![&*long], "a claim of badge cannot be written: a value of badge must have 1 to 512 bytes"),
        (vec![""], "a claim of badge cannot be written: a value of badge must have 1 to 512 bytes"),
        (many, "a claim of badge cannot be written: it would have 21 claims, the maximum is 20"),
        (vec!["panic"], "claims"),
    ] {
        let sent = give(&store, &badge, &values).await;
        let Err(TransactError::Decide(error)) = sent else { panic!("{sent:?}") };
        assert!(error.contains(reason), "{error}");
        assert!(table.rows(&AggregateKey::new("badge", "1"), keys::METADATA).await.is_empty());
    }
    // A value that is returned twice is one claim.
    let sent = give(&store, &badge, &["a", "b", "a"]).await;
    assert!(matches!(sent, Ok(Transacted::Decided(_))), "{sent:?}");
    assert_eq!(holder(&table, "a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn one_of_two_processes_takes_a_value_and_the_other_one_when_it_is_free() {
    let table = TestTable::new().await;
    let (store, beside) = (table.store(), table.direct_store());
    let (one, other) = (Subject::of::<Badge>("1"), Subject::of::<Badge>("2"));
    give(&store, &one, &["a"]).await.unwrap();
    give(&beside, &other, &["b"]).await.unwrap();
    let (to_one, to_other) = (again(&one, &["x"]), again(&other, &["x"]));
    let (sent, at_the_same_time) = tokio::join!(to_one.send(&store), to_other.send(&beside));
    let (winner, loser, error) = match (&sent, &at_the_same_time) {
        (Ok(_), error) => (&one, &other, error),
        (error, _) => (&other, &one, error),
    };
    assert_eq!(taken(error), ("x", &*winner.key.id));
    assert_eq!(holder(&table, "x").await.as_ref(), Some(&winner.key.id));
    // The two exchange their values: each value is free before it is taken.
    assert_eq!(
        taken(&again(winner, &[if loser.key.id == "1" { "a" } else { "b" }]).send(&store).await).1,
        loser.key.id
    );
    again(winner, &["y"]).send(&store).await.unwrap();
    again(loser, &["x"]).send(&store).await.unwrap();
    assert_eq!(holder(&table, "x").await.as_ref(), Some(&loser.key.id));
}

#[tokio::test]
async fn recorded_rejection_changes_claims_like_an_accepted_command_and_is_not_recorded_with_a_taken_one() {
    let table = TestTable::new().await;
    let store = table.store();
    let (one, other) = (Subject::of::<Badge>("1"), Subject::of::<Badge>("2"));
    give(&store, &one, &["a"]).await.unwrap();
    give(&store, &other, &["x"]).await.unwrap();
    let refuse = |values: &[&str]| Request::new(&one, "Refuse", json!({ "values": values })).with_key("key", "digest");
    assert_eq!(taken(&refuse(&["x"]).send(&store).await), ("x", "2"));
    assert_eq!(one.load(&store).await.version(), 1);
    assert_eq!(version(&refuse(&["b"]).send(&store).await), 2);
    assert_eq!((holder(&table, "a").await, holder(&table, "b").await.as_deref()), (None, Some("1")));
}

#[tokio::test]
async fn repeated_request_gets_its_response_after_its_claim_belongs_to_another_aggregate() {
    let table = TestTable::new().await;
    let store = table.store();
    let (one, other) = (Subject::of::<Badge>("1"), Subject::of::<Badge>("2"));
    give(&store, &one, &["a"]).await.unwrap();
    let take = || again(&one, &["x"]).with_key("key", "digest");
    assert_eq!(version(&take().send(&store).await), 2);
    again(&one, &["b"]).send(&store).await.unwrap();
    give(&store, &other, &["x"]).await.unwrap();
    for repeated in [take().send(&store).await, take().send(&table.direct_store()).await] {
        assert!(matches!(repeated, Ok(Transacted::Replayed(_))), "{repeated:?}");
    }
    assert_eq!((one.load(&store).await.version(), holder(&table, "x").await.as_deref()), (3, Some("2")));
}
