//! Groups that are not stored.

use std::collections::HashSet;
use std::pin::pin;

use daybook_event_store::{TransactError, Transacted};
use daybook_test_support::fault_proxy::{InjectedFault, RecordedCall};
use daybook_test_support::table::TestTable;
use futures_util::future::{join, join_all};

use crate::group::{APPEND, Request, assert_stored, operations, poll_once, send_together, version};
use crate::support::ledger;

fn puts_are_distinct(call: &RecordedCall) -> bool {
    let mut keys = HashSet::new();
    let items = call.request["TransactItems"].as_array().into_iter().flatten();
    let mut puts = items.filter_map(|item| item.get("Put"));
    puts.all(|put| keys.insert((put["Item"]["pk"].to_string(), put["Item"]["sk"].to_string())))
}

#[tokio::test]
async fn used_key_takes_no_other_request_with_it() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    let Ok(Transacted::Decided(stored)) = Request::payment(&account, 5).with_key("used", "d0").send(&store).await
    else {
        panic!("nothing is stored")
    };
    let requests = [
        Request::payment(&account, 5).with_key("used", "d0"),
        Request::payment(&account, 2).with_key("k2", "d2"),
        Request::payment(&account, 6).with_key("used", "d1"),
        // The same request twice at once.
        Request::payment(&account, 2).with_key("k2", "d2"),
    ];
    let (sent, calls) = send_together(&table, &store, &requests, &[]).await;
    // DynamoDB rejects a transaction that has an item twice.
    assert!(calls.iter().all(puts_are_distinct), "{calls:?}");
    assert_eq!(sent[0].as_ref().unwrap(), &Transacted::Replayed(stored));
    assert!(matches!(&sent[2], Err(TransactError::KeyReused)), "{sent:?}");
    let Ok(Transacted::Decided(first)) = &sent[1] else { panic!("{sent:?}") };
    assert_eq!(sent[3].as_ref().unwrap(), &Transacted::Replayed(first.clone()));
    assert_eq!(first.version, 4);
    assert_stored(&table, &account, &sent, 4).await;
}

/// As after an outage, when the clients whose responses were lost send their requests again.
#[tokio::test]
async fn repeated_used_keys_do_not_keep_other_requests_from_being_appended() {
    const KEYS: [&str; 8] = ["k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8"];
    const PAYMENTS: usize = 5;
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    let used = KEYS.map(|key| Request::payment(&account, 1).with_key(key, "d"));
    for request in &used {
        request.send(&store).await.unwrap();
    }
    table.proxy.take_calls();

    let mut writers = pin!(join_all(KEYS.map(async |_| {
        for _ in 0..PAYMENTS {
            Request::payment(&account, 1).send(&store).await.unwrap();
        }
    })));
    let repetitions = join_all(used.iter().map(async |request| {
        loop {
            let replayed = request.send(&store).await;
            assert!(matches!(replayed, Ok(Transacted::Replayed(_))), "{replayed:?}");
        }
    }));
    tokio::select! {
        _ = &mut writers => {}
        _ = repetitions => {}
    }
    // For each payment of all writers, a transaction that used keys fail, and one without them. The repetitions can have
    // another one in between.
    let appends = operations(&table.proxy.take_calls()).into_iter().filter(|operation| *operation == APPEND).count();
    assert!(appends <= 3 * PAYMENTS + 1, "{appends} appends");
    assert_eq!(account.load(&store).await.version(), 1 + (KEYS.len() * (1 + PAYMENTS)) as u64);
}

#[tokio::test]
async fn group_that_another_writer_overtakes_is_decided_again_together() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    let requests = [
        Request::payment(&account, 1),
        Request::payment(&account, 2).with(Some(3), None),
        Request::payment(&account, 3),
    ];
    let first = Request::payment(&account, 1);
    let mut first = pin!(first.send(&store));
    assert!(poll_once(&mut first).await.is_pending());
    let mut sent = pin!(join_all(requests.iter().map(|request| request.send(&store))));
    assert!(poll_once(&mut sent).await.is_pending());
    first.await.unwrap();
    // Another process writes before the group is sent.
    ledger(&table.direct_store(), "1", 3).await;
    table.proxy.take_calls();
    let sent = sent.await;
    assert_eq!(table.operations(), ["Query", APPEND, APPEND]);
    assert_eq!([version(&sent[0]), version(&sent[2])], [4, 5]);
    assert!(matches!(&sent[1], Err(TransactError::Conflict { expected: 3, actual: 4 })), "{sent:?}");
    assert_eq!([requests[0].decided_on(), requests[2].decided_on()], [vec![2, 3], vec![4, 4]]);
    assert_stored(&table, &account, &sent, 5).await;
}

/// Only used keys keep later requests away: here, each transaction less is a race less.
#[tokio::test]
async fn later_request_joins_a_group_that_another_writer_has_overtaken() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    let payments = [1, 2].map(|amount| Request::payment(&account, amount));
    let first = Request::payment(&account, 3);
    let mut first = pin!(first.send(&store));
    assert!(poll_once(&mut first).await.is_pending());
    let mut sent = pin!(join_all(payments.iter().map(|request| request.send(&store))));
    assert!(poll_once(&mut sent).await.is_pending());
    first.await.unwrap();
    // Another process writes before the group is sent.
    ledger(&table.direct_store(), "1", 3).await;
    table.proxy.take_calls();
    table.proxy.hold(&mut sent, |calls| operations(calls) == [APPEND]).await;
    let late = Request::payment(&account, 4);
    let (mut sent, late) = join(sent, late.send(&store)).await;
    sent.push(late);
    assert_eq!(table.operations(), ["Query", APPEND]);
    assert_stored(&table, &account, &sent, 6).await;
}

/// No other process has written, so the next request is appended without a read and a pause.
#[tokio::test]
async fn group_after_one_with_a_lost_response_is_no_race_with_another_process() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    let requests = [1, 2, 3].map(|amount| Request::payment(&account, amount));
    let (sent, _) = send_together(&table, &store, &requests, &[InjectedFault::BreakAfter]).await;
    assert_eq!(sent.iter().map(version).collect::<Vec<_>>(), [3, 4, 5]);
    Request::payment(&account, 4).send(&store).await.unwrap();
    assert_eq!(table.operations(), [APPEND]);
}

#[tokio::test]
async fn group_with_a_failed_call_is_settled_as_each_request_alone() {
    let cancelled = |code| InjectedFault::Cancel { codes: vec!["None", code, "None", "None"] };
    for fault in [
        InjectedFault::BreakBefore,
        InjectedFault::BreakAfter,
        cancelled("TransactionConflict"),
        cancelled("ThrottlingError"),
        // The group is given up, and each request is decided alone.
        cancelled("ValidationError"),
        InjectedFault::Refuse { status: 400, code: "ThrottlingException" },
        InjectedFault::Refuse { status: 500, code: "InternalServerError" },
    ] {
        let table = TestTable::new().await;
        let store = table.store();
        let account = ledger(&store, "1", 1).await;
        let requests = [
            Request::payment(&account, 1),
            Request::payment(&account, 2).with_key("k1", "d1"),
            Request::payment(&account, 3),
        ];
        let (sent, _) = send_together(&table, &store, &requests, std::slice::from_ref(&fault)).await;
        let versions: Vec<_> = sent.iter().map(version).collect();
        assert_eq!(versions, [3, 4, 5], "{fault:?}");
        assert_stored(&table, &account, &sent, 5).await;
    }
}

/// A group that the service rejects is decided again, each request alone, in the order of arrival.
#[tokio::test]
async fn requests_of_a_rejected_group_are_appended_one_after_the_other() {
    let table = TestTable::new().await;
    let account = ledger(&table.direct_store(), "1", 1).await;
    let store = table.store();
    let requests = [
        Request::payment(&account, 1),
        // It has the version of the request before it, which nobody has read.
        Request::payment(&account, 2).with(Some(2), None),
        Request::payment(&account, 3).with_key("k1", "d1"),
    ];
    let mut sent = pin!(join_all(requests.iter().map(|request| request.send(&store))));
    // The first one reads, so the others wait for it.
    table.proxy.hold(&mut sent, |calls| !calls.is_empty()).await;
    table.proxy.fail_next(APPEND, InjectedFault::Cancel { codes: vec!["ValidationError"] });
    let sent = sent.await;
    assert_eq!(sent.iter().map(version).collect::<Vec<_>>(), [2, 3, 4]);
    let appends = table.operations();
    let appends = &appends[appends.iter().position(|operation| operation == APPEND).unwrap()..];
    assert_eq!(appends, [APPEND; 4], "one for the group, and one for each request, without a read or a lost race");
    assert_stored(&table, &account, &sent, 4).await;
}
