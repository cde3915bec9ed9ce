//! The rows of positions: read and moved on condition of the row that was read, and found while they are suspended.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_event_store::{EventStore, PositionMove, StoreError};
use daybook_table::{AggregateKey, DeadlineItem, PositionItem, keys};
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::row::sealed;
use daybook_test_support::table::TestTable;
use jiff::Timestamp;

use crate::support::ledger;

const PROCESS: &str = "fulfilment";

fn source(id: &str) -> AggregateKey {
    AggregateKey::new("order", id)
}

async fn suspended(store: &EventStore, limit: usize) -> (Vec<String>, bool) {
    let found = store.suspended_positions(limit).await.unwrap();
    (found.items.iter().map(|position| position.source.id.clone()).collect(), found.more)
}

#[tokio::test]
async fn position_moves_only_from_where_it_was_read() {
    let table = TestTable::new().await;
    let (store, key) = (table.store(), source("1"));
    let read = async || store.position(&key, PROCESS).await.unwrap();
    let (mut first, mut second) = (read().await, read().await);
    assert_eq!(first.item, PositionItem::new(&key, PROCESS, 0));
    assert_eq!(table.rows(&key, keys::POSITION_PREFIX).await, []);
    assert!(store.move_position(&mut first, PositionMove::To(3)).await.unwrap());
    assert!(!store.move_position(&mut second, PositionMove::To(2)).await.unwrap());
    assert_eq!((second.item.seq_num, read().await), (0, first.clone()));
    assert!(store.move_position(&mut first, PositionMove::To(4)).await.unwrap());
    assert!(!store.move_position(&mut second, PositionMove::Suspend(PositionItem::ALL, 0, "late")).await.unwrap());
    assert_eq!(read().await.item, PositionItem::new(&key, PROCESS, 4));

    // Those of another type of processes, and of another source, are others.
    assert_eq!(store.position(&key, "billing").await.unwrap().item.seq_num, 0);
    let [row] = &table.rows(&key, keys::POSITION_PREFIX).await[..] else { panic!("not one row") };
    assert_eq!(*row, sealed(row.clone()));
    assert_eq!(first.item.process_type(), PROCESS);
}

#[tokio::test]
async fn suspended_positions_are_found_until_they_go_on() {
    let table = TestTable::new().await;
    let store = table.store();
    for id in ["1", "2", "3"] {
        let mut position = store.position(&source(id), PROCESS).await.unwrap();
        assert!(
            store
                .move_position(&mut position, PositionMove::Suspend(PositionItem::ALL, 1, &"é".repeat(1_000)))
                .await
                .unwrap()
        );
        assert!(position.item.suspended[PositionItem::ALL].error.len() <= DeadlineItem::MAX_ERROR);
    }
    assert_eq!(suspended(&store, 3).await, (vec!["1".to_owned(), "2".to_owned(), "3".to_owned()], false));
    assert_eq!(suspended(&store, 2).await, (vec!["1".to_owned(), "2".to_owned()], true));
    let key = source("1");
    let sk = keys::position_sk(PROCESS);
    table.tamper(&key, &sk, [("later", AttributeValue::N("1".to_owned()))]).await;
    let mut position = store.position(&key, PROCESS).await.unwrap();
    assert!(store.move_position(&mut position, PositionMove::Resume(PositionItem::ALL, 1)).await.unwrap());
    assert_eq!(suspended(&store, 9).await.0, ["2", "3"]);
    let row = table.row(&key, &sk).await.unwrap();
    // An attribute of another release is still there.
    assert!(row.contains_key("later") && !row.contains_key("error"), "{row:?}");
}

#[tokio::test]
async fn suspension_whose_response_was_lost_is_noticed_after_others_have_gone_on() {
    let table = TestTable::new().await;
    let at = Timestamp::now();
    let (store, key) = (table.store().with_clock(move || at), source("1"));
    let suspend = PositionMove::Suspend("7", 4, "a bug");
    let mut repeated = store.position(&key, PROCESS).await.unwrap();
    let mut position = repeated.clone();
    for to in [suspend, PositionMove::To(9)] {
        assert!(store.move_position(&mut position, to).await.unwrap());
    }
    // As the client repeats the call.
    assert!(store.move_position(&mut repeated, suspend).await.unwrap());
    assert_eq!(repeated, position);
}

#[tokio::test]
async fn position_that_cannot_be_read_is_corrupt_and_an_outage_is_not() {
    let table = TestTable::new().await;
    let (store, key) = (table.store(), source("1"));
    let mut position = store.position(&key, PROCESS).await.unwrap();
    store.move_position(&mut position, PositionMove::Suspend(PositionItem::ALL, 1, "it is")).await.unwrap();
    let mut is_unavailable = async |operation, code| {
        let refused = InjectedFault::Refuse { status: 400, code };
        (0..10).for_each(|_| table.proxy.fail_next(operation, refused.clone()));
        let read = store.position(&key, PROCESS).await;
        let moved = store.move_position(&mut position, PositionMove::To(1)).await;
        table.proxy.take_faults();
        matches!(read.map(drop).and(moved), Err(StoreError::Unavailable { .. }))
    };
    assert!(is_unavailable("GetItem", "ThrottlingException").await);
    // A transaction is under way on the row.
    assert!(is_unavailable("PutItem", "TransactionConflictException").await);
    table.tamper(&key, &keys::position_sk(PROCESS), [("seqNum", AttributeValue::S("x".to_owned()))]).await;
    assert!(matches!(store.position(&key, PROCESS).await, Err(StoreError::Corrupt { .. })));
    let found = store.suspended_positions(9).await.unwrap();
    assert_eq!((found.items.len(), found.unreadable.len()), (0, 1));
}

#[tokio::test]
async fn imported_events_without_messages_are_not_published() {
    let table = TestTable::new().await;
    let store = table.store();
    let ledger = ledger(&store, "1", 2).await;
    let sk = keys::event_sk(1);
    table.tamper(&ledger.key, &sk, [("notPublished", AttributeValue::Bool(true))]).await;
    let page = store.published_or_not(&ledger.key, 0, 10).await.unwrap();
    let seen: Vec<_> = page.items.iter().map(|(event, is_published)| (event.seq_num, *is_published)).collect();
    assert_eq!((seen, page.more), (vec![(1, false), (2, true)], false));
}
