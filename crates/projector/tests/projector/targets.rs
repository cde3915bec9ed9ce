//! A target besides the views gets each event once and in order, whatever fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use aggregates::Account;
use aggregates::account::Event;
use daybook_function_runtime::aws_config_at;
use daybook_projection::Projections;
use daybook_projector::{EventTarget, Projector, QueueBatch, TargetError, TargetEvent};
use daybook_table::AggregateKey;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::log;
use daybook_view_store::ViewStore;
use futures_util::future::join;
use serde_json::json;

use crate::setup::{Setup, soon};

/// An account as the target stores it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Stored {
    position: u64,
    amounts: Vec<i64>,
}

/// Stands for a database with transactions. Every third call fails: before it stores anything, or afterwards.
#[derive(Clone, Default)]
struct Ledger {
    accounts: Arc<Mutex<BTreeMap<String, Stored>>>,
    calls: Arc<Mutex<u32>>,
    fails: bool,
}

impl Ledger {
    fn stored(&self, id: &str) -> Stored {
        self.accounts.lock().unwrap().get(id).cloned().unwrap_or_default()
    }
}

impl EventTarget<Account> for Ledger {
    async fn position(&self, aggregate_id: &str) -> Result<u64, TargetError> {
        Ok(self.stored(aggregate_id).position)
    }

    async fn handle(&self, event: TargetEvent<'_, Event>, position: u64) -> Result<(), TargetError> {
        let call = {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            if self.fails { *calls % 6 } else { 1 }
        };
        tokio::task::yield_now().await;
        if call == 0 {
            return Err("nothing was stored".into());
        }
        let mut accounts = self.accounts.lock().unwrap();
        let account = accounts.entry(event.aggregate_id.to_owned()).or_default();
        if account.position != position {
            return Err(format!("the position is {}", account.position).into());
        }
        account.position = event.seq_num;
        account.amounts.extend(event.events.iter().filter_map(|event| match event {
            Event::TransactionAccepted { amount, .. } => Some(*amount),
            _ => None,
        }));
        if call == 3 { Err("the response was lost".into()) } else { Ok(()) }
    }
}

fn projector(setup: &Setup, ledger: &Ledger) -> Projector {
    let views = ViewStore::new(&aws_config_at(setup.table.proxy.url()), "unused");
    Projector::new(Projections::new(), setup.table.store(), views).with_target("ledger", ledger.clone())
}

fn batch(keys: &[AggregateKey]) -> QueueBatch {
    batch_of_events(keys, 0)
}

/// The messages that these aggregates have events up to number `last`.
fn batch_of_events(keys: &[AggregateKey], last: u64) -> QueueBatch {
    let body = |key: &AggregateKey| json!({"changed": [["account", key.id, last]]}).to_string();
    let message = |key: &AggregateKey| json!({"messageId": key.id, "body": body(key)});
    let records: Vec<_> = keys.iter().map(message).collect();
    serde_json::from_value(json!({ "Records": records })).unwrap()
}

#[tokio::test]
async fn target_that_fails_gets_each_event_once_and_in_order() {
    let setup = Setup::new(Projections::new()).await;
    let ledger = Ledger { fails: true, ..Ledger::default() };
    let amounts: Vec<i64> = (1..=40).collect();
    let mut keys = Vec::new();
    for id in ["a", "b", "c"] {
        keys.push(setup.account(id, &amounts).await);
    }
    let (one, other) = (projector(&setup, &ledger), projector(&setup, &ledger));
    let mut invocations = 0;
    loop {
        setup.table.proxy.fail_next("Query", InjectedFault::BreakAfter);
        let (first, second) = join(one.handle(batch(&keys), soon()), other.handle(batch(&keys), soon())).await;
        invocations += 1;
        if first.batch_item_failures.is_empty() && second.batch_item_failures.is_empty() {
            break;
        }
    }
    assert!(invocations > 3, "{invocations}");
    for key in &keys {
        assert_eq!(ledger.stored(&key.id), Stored { position: 41, amounts: amounts.clone() });
    }
}

#[tokio::test]
async fn failure_of_a_target_is_logged_with_its_causes() {
    let setup = Setup::new(Projections::new()).await;
    let key = setup.account("a", &[1]).await;
    log::take("daybook_projector");
    setup.table.proxy.fail_next("Query", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
    projector(&setup, &Ledger::default()).handle(batch(&[key]), soon()).await;
    let lines = log::take("daybook_projector");
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((&line["message"], &line["target_name"]), (&json!("the target failed"), &json!("ledger")), "{line}");
    let error = line["error"].as_str().unwrap();
    assert!(error.starts_with("the request to read a feed is rejected: ") && error.contains("AccessDenied"), "{line}");
}

#[tokio::test]
async fn target_waits_for_an_event_that_is_not_visible_yet() {
    let setup = Setup::new(Projections::new()).await;
    let ledger = Ledger::default();
    let key = setup.account("a", &[1, 2, 3]).await;
    let hidden = setup.table.row(&key, "EVENT#000000000003").await.unwrap();
    setup.table.delete(&key, "EVENT#000000000003").await;
    let projector = projector(&setup, &ledger);
    let response = projector.handle(batch(std::slice::from_ref(&key)), soon()).await;
    assert_eq!((response.batch_item_failures.len(), ledger.stored("a").position), (1, 2));
    setup.table.put(hidden).await;
    let response = projector.handle(batch_of_events(std::slice::from_ref(&key), 4), soon()).await;
    assert_eq!((response.batch_item_failures.len(), ledger.stored("a").amounts), (0, vec![1, 2, 3]));
    let response = projector.handle(batch_of_events(std::slice::from_ref(&key), 5), soon()).await;
    assert_eq!(response.batch_item_failures.len(), 1);
}

/// The message may arrive before the last rows of an append are visible.
#[tokio::test]
async fn target_gets_an_event_that_becomes_visible_during_the_invocation() {
    let setup = Setup::new(Projections::new()).await;
    let ledger = Ledger::default();
    let key = setup.account("a", &[1, 2]).await;
    let hidden = setup.table.row(&key, "EVENT#000000000003").await.unwrap();
    setup.table.delete(&key, "EVENT#000000000003").await;
    let projector = projector(&setup, &ledger);
    let mut run = Box::pin(projector.handle(batch_of_events(std::slice::from_ref(&key), 3), soon()));
    setup.table.proxy.hold(&mut run, |calls| calls.iter().any(|call| call.operation == "Query")).await;
    setup.table.put(hidden).await;
    let response = run.await;
    assert_eq!((response.batch_item_failures.len(), ledger.stored("a").amounts), (0, vec![1, 2]));
}

#[tokio::test]
async fn target_gets_no_event_after_one_that_cannot_be_read() {
    let setup = Setup::new(Projections::new()).await;
    let ledger = Ledger::default();
    let keys = [setup.account("a", &[1, 2, 3]).await, setup.account("b", &[4]).await];
    let unreadable = aws_sdk_dynamodb::types::AttributeValue::S("not JSON".to_owned());
    setup.table.tamper(&keys[0], "EVENT#000000000003", [("data", unreadable)]).await;
    let response = projector(&setup, &ledger).handle(batch(&keys), soon()).await;
    let failed: Vec<_> = response.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect();
    assert_eq!(failed, ["a"]);
    assert_eq!((ledger.stored("a").amounts, ledger.stored("b").amounts), (vec![1], vec![4]));
}
