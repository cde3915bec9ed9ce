//! An event that cannot be folded suspends its aggregate, and nothing else.

use aggregates::Account;
use aggregates::account::Event;
use daybook_projection::{FollowedEvent, Follows, Projection, Projections, Source};
use daybook_view_store::{Position, PositionWrite, View, ViewWrite, WriteOutcome};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::setup::Setup;

/// Counts transactions, and fails at some amounts.
struct Delicate;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct Count {
    transactions: u64,
}

impl Projection for Delicate {
    const NAME: &'static str = "delicate";
    const VERSION: u32 = 1;

    type Row = Count;
    type Change = i64;

    fn sources() -> Vec<Source<Self>> {
        vec![Source::of::<Account>()]
    }

    fn apply(row: Option<Count>, amount: &i64) -> Option<Count> {
        assert!(*amount != 14, "no row can take 14");
        Some(Count { transactions: row.unwrap_or_default().transactions + 1 })
    }
}

impl Follows<Account> for Delicate {
    type State = u64;

    fn advance(count: u64, event: &FollowedEvent<'_, Event>) -> u64 {
        assert!(!matches!(event.event, Event::TransactionAccepted { amount: 13, .. }), "13 is too much");
        count + 1
    }

    fn changes(_: &u64, event: &FollowedEvent<'_, Event>, _: &u64) -> Vec<(String, i64)> {
        match event.event {
            Event::TransactionAccepted { amount: 15, .. } => (0..101).map(|key| (format!("row-{key}"), 15)).collect(),
            Event::TransactionAccepted { amount: 16, .. } => vec![(String::new(), 16)],
            Event::TransactionAccepted { amount, .. } => vec![(event.aggregate_id.to_owned(), *amount)],
            _ => Vec::new(),
        }
    }
}

#[tokio::test]
async fn event_that_cannot_be_folded_suspends_its_aggregate_after_the_events_before_it() {
    let setup = Setup::new(Projections::new().with::<Delicate>().unwrap()).await;
    let mut keys = Vec::new();
    for (id, amount) in [("a", 13), ("b", 14), ("c", 15), ("d", 16), ("e", 17)] {
        keys.push(setup.account(id, &[1, 2, amount, 3]).await);
    }
    let projected = setup.project("delicate", &keys).await;
    assert_eq!((projected.suspended.len(), projected.unfinished.len()), (4, 0), "{projected:?}");
    for (key, reason) in keys.iter().zip([
        "advance of delicate panicked",
        "no row can take 14",
        "more rows than the 99",
        "a key has 0 characters",
    ]) {
        let (seq_num, suspended) = setup.position("delicate", key).await.unwrap();
        let suspended = suspended.unwrap();
        assert!(seq_num == 3 && suspended.contains(reason), "{key} at {seq_num}: {suspended}");
        assert_eq!(setup.rows("delicate").await[&key.id], json!({"transactions": 2}));
    }
    assert_eq!(setup.rows("delicate").await["e"], json!({"transactions": 4}));
    assert_eq!(setup.position("delicate", &keys[4]).await, Some((5, None)));

    // It stays suspended: later events wait for the repair, in order.
    setup.transactions(&keys[0], &[5]).await;
    setup.project("delicate", &keys).await;
    assert_eq!(setup.rows("delicate").await["a"], json!({"transactions": 2}));
}

/// An instance of the release with the error may be in the middle of an invocation when the aggregate is resumed.
#[tokio::test]
async fn write_that_began_before_a_resumption_does_not_suspend_the_aggregate_again() {
    let setup = Setup::new(Projections::new().with::<Delicate>().unwrap()).await;
    let (view, views) = (View::new("delicate", 1), setup.direct_views());
    let key = setup.account("a", &[1, 2, 13]).await;
    setup.project("delicate", std::slice::from_ref(&key)).await;
    let suspended = async || setup.position("delicate", &key).await.unwrap().1.is_some();
    assert!(suspended().await);
    // What the instance read before another one suspended the aggregate, and before each resumption.
    let mut read = views.positions(&view, &[key.clone()].into()).await.unwrap().remove(&key).unwrap();
    for _ in 0..3 {
        let after = Position { suspended: Some("13 is too much".to_owned()), resumed_at: None, ..read.clone() };
        let position = PositionWrite { before: Some(read.seq_num), resumed_at: read.resumed_at.clone(), after };
        let late = ViewWrite { positions: [(key.clone(), position)].into(), ..ViewWrite::default() };
        assert_eq!(views.write(&view, &late).await.unwrap(), WriteOutcome::Written);
        assert_eq!(views.resume(&view, &key, Timestamp::now()).await.unwrap(), Some(4));
        assert_eq!(views.write(&view, &late).await.unwrap(), WriteOutcome::Conflict);
        assert!(!suspended().await);
        read = views.positions(&view, &[key.clone()].into()).await.unwrap().remove(&key).unwrap();
    }
    // An invocation that begins afterwards finds that the code still has the error.
    let projected = setup.project("delicate", std::slice::from_ref(&key)).await;
    assert_eq!((projected.suspended.len(), suspended().await), (1, true));
    assert_eq!(views.resume(&view, &key, Timestamp::now()).await.unwrap(), Some(4));
    assert_eq!(views.resume(&view, &key, Timestamp::now()).await.unwrap(), None);
}

#[tokio::test]
async fn first_event_that_cannot_be_folded_suspends_its_aggregate() {
    struct Refuses;
    impl Projection for Refuses {
        const NAME: &'static str = "refuses";
        const VERSION: u32 = 1;
        type Row = Count;
        type Change = i64;
        fn sources() -> Vec<Source<Self>> {
            vec![Source::of::<Account>()]
        }
        fn apply(_: Option<Count>, _: &i64) -> Option<Count> {
            None
        }
    }
    impl Follows<Account> for Refuses {
        type State = u64;
        fn advance(_: u64, _: &FollowedEvent<'_, Event>) -> u64 {
            panic!("no event at all")
        }
        fn changes(_: &u64, _: &FollowedEvent<'_, Event>, _: &u64) -> Vec<(String, i64)> {
            Vec::new()
        }
    }
    let setup = Setup::new(Projections::new().with::<Refuses>().unwrap()).await;
    let key = setup.account("a", &[1]).await;
    setup.project("refuses", std::slice::from_ref(&key)).await;
    let (seq_num, suspended) = setup.position("refuses", &key).await.unwrap();
    assert_eq!(seq_num, 0);
    assert!(suspended.unwrap().contains("no event at all"));
}
