//! A process beside its sources, as the reactor has handled its input and sent its dispatches.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::{Caller, DecisionInput};
use daybook_event_store::{EventStore, PositionMove};
use daybook_function_runtime::{QueueBatch, QueueRecord, aws_config_at};
use daybook_queue::{Queue, SqsClient, Waits};
use daybook_reactor::{Reactor, ReactorEvent};
use daybook_table::{AggregateKey, ChangedAggregates, DueDeadline, DueDeadlines, PositionItem, keys};
use daybook_test_support::clock::next_input;
use daybook_test_support::commands::execute;
use daybook_test_support::row::sealed;
use daybook_test_support::subject::Subject;
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::Bench;

/// A console with orders, and their reactor.
pub(crate) struct Shop {
    pub(crate) bench: Bench,
    store: EventStore,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        let bench = Bench::start().await;
        let store = bench.table.direct_store();
        Self { bench, store }
    }

    /// Hands a message to the reactor, whose clock is that of the commands, or ahead of it. It sends nothing to its queue.
    async fn react(&self, body: String, ahead: SignedDuration) {
        let client = SqsClient::new(&aws_config_at("http://localhost:1"));
        let queue = Queue { client, url: "http://localhost:1/1/reactions".to_owned(), waits: Waits::default() };
        let now = next_input().now + ahead;
        let store = self.bench.table.direct_store().with_clock(move || now);
        let batch = QueueBatch { records: vec![QueueRecord::new("1", body)] };
        let reactor = Reactor::new(self.bench.registry.clone(), store, queue);
        let response = reactor.handle(ReactorEvent::Messages(batch), Instant::now() + Duration::from_secs(60)).await;
        assert_eq!(response.batch_item_failures, []);
    }

    /// Hands the events of an aggregate to the processes.
    pub(crate) async fn input(&self, of_type: &str, id: &str) {
        let changed = ChangedAggregates::one(AggregateKey::new(of_type, id), 1);
        self.react(changed.to_body(), SignedDuration::ZERO).await;
    }

    /// Sends a dispatch, or fires a deadline at its time.
    async fn due(&self, id: &str, name: &str, ahead: SignedDuration) {
        let key = AggregateKey::new("fulfilment", id);
        let due = self.store.deadline(&key, name).await.unwrap().unwrap().due;
        self.react(DueDeadlines::new(&[DueDeadline { due, key, name: name.to_owned() }]).to_body(), ahead).await;
    }

    pub(crate) async fn place_order(&self, id: &str) {
        let items = json!([{"productId": "<b>coffee</b>", "quantity": 2}]);
        self.execute("order", id, "PlaceOrder", json!({"customerId": "alice", "items": items, "total": 4500})).await;
    }

    async fn execute(&self, of_type: &str, id: &str, command: &str, data: Value) {
        let model = self.bench.registry.get(of_type).unwrap();
        execute(&self.store, model, &AggregateKey::new(of_type, id), &[(command, data)]).await.unwrap();
    }

    /// A command to a fulfilment that follows from no event.
    async fn by_system(&self, id: &str, command: &str, data: Value) {
        let by_system = DecisionInput { caller: Caller::system(), ..next_input() };
        Subject::shipped("fulfilment", id).command_under(&by_system, &self.store, command, data).await;
    }

    async fn page(&self, id: &str) -> String {
        self.bench.get(&format!("/_console/aggregates/fulfilment/{id}/process")).await.body
    }
}

/// Whether a page has these texts, in this order.
fn assert_order(page: &str, texts: &[&str]) {
    let mut rest = page;
    for text in texts {
        rest = rest.split_once(text).unwrap_or_else(|| panic!("{text:?} is not, or too early, in {page}")).1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_beside_what_they_lead_to() {
    let shop = Shop::open().await;
    assert!(shop.page("1").await.contains("There is no process fulfilment/1."));
    assert!(shop.bench.get("/_console/aggregates/order/1/process").await.body.contains("order is no process"));
    shop.place_order("1").await;
    shop.input("order", "1").await;
    let aggregate = shop.bench.get("/_console/aggregates/fulfilment/1").await.body;
    assert!(
        aggregate.contains("href=\"/_console/aggregates/fulfilment/1/process\">Beside its sources</a>"),
        "{aggregate}"
    );
    let page = shop.page("1").await;
    // A dispatch that is pending has the column of its target, which has no events yet.
    assert_order(
        &page,
        &[
            "<th>When</th>",
            ">fulfilment/1</a></th>",
            ">order/1</a></th>",
            ">payment/1</a></th>",
            "aggregates/order/1?version=1\">OrderPlaced</a>",
            "&lt;b&gt;coffee&lt;/b&gt;",
        ],
    );
    assert_order(&page, &[">FulfilmentBegun</a>", "1 · input order/1 1", "request-payment</span> to payment/1: "]);
    assert_order(&page, &["Pending and failed", "<td>payment</td><td>itself</td>", "<td>pending</td>"]);
    assert!(
        page.contains("<td>request-payment</td><td><a href=\"/_console/aggregates/payment/1\">payment/1</a>"),
        "{page}"
    );

    shop.due("1", "request-payment", SignedDuration::ZERO).await;
    shop.execute("payment", "1", "ReceivePayment", json!({})).await;
    let page = shop.page("1").await;
    assert!(page.contains("to payment/1: <span class=\"good\">accepted</span>"), "{page}");
    assert_order(&page, &[">PaymentRequested</a>", "1 · by dispatch request-payment"]);
    assert_order(&page, &["<span class=\"warn\">not input yet</span>", ">PaymentReceived</a>"]);
    let mut position = shop.store.position(&AggregateKey::new("payment", "1"), "fulfilment").await.unwrap();
    assert!(
        shop.store
            .move_position(&mut position, PositionMove::Suspend(PositionItem::ALL, 1, "<b>a bug</b>"))
            .await
            .unwrap()
    );
    let page = shop.page("1").await;
    assert_order(&page, &["<span class=\"bad\">suspended</span>", "Suspended input", "&lt;b&gt;a bug&lt;/b&gt;"]);
    assert!(shop.store.move_position(&mut position, PositionMove::Resume(PositionItem::ALL, 1)).await.unwrap());

    shop.input("payment", "1").await;
    let page = shop.page("1").await;
    assert_order(&page, &[">FulfilmentPaid</a>", "2 · input payment/1 2", "pay-order</span> to order/1: "]);
    assert!(!page.contains("not input yet") && !page.contains("Suspended input") && !page.contains("<b>"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_dispatch_has_its_answer_and_rejected_input_its_reason() {
    let shop = Shop::open().await;
    shop.by_system("1", "BeginFulfilment", json!({"total": 2_000_000})).await;
    shop.due("1", "request-payment", SignedDuration::ZERO).await;
    let page = shop.page("1").await;
    assert_order(&page, &["request-payment</span> to payment/1: ", ">rejected: WrongAmount</span>"]);
    assert_order(&page, &[">FulfilmentAbandoned</a>", "2 · by the answer to request-payment"]);
    assert!(page.contains("title=\"an amount is from 0 to 1,000,000, not 2000000\""), "{page}");
    shop.place_order("1").await;
    shop.input("order", "1").await;
    assert_order(&shop.page("1").await, &[">rejected: Exists</span>", ">OrderPlaced</a>"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn input_can_be_without_an_event_and_a_deadline_can_have_fired() {
    let shop = Shop::open().await;
    for id in ["1", "2"] {
        shop.place_order(id).await;
        shop.input("order", id).await;
        shop.due(id, "request-payment", SignedDuration::ZERO).await;
    }
    shop.by_system("1", "RecordPayment", json!({})).await;
    shop.execute("payment", "1", "ReceivePayment", json!({})).await;
    shop.input("payment", "1").await;
    let row = "<td class=\"left\"><div class=\"step\"><span class=\"tag\"><span class=\"hint\">input, no event</span></span></div></td>\
               <td class=\"left\"></td><td class=\"from\">";
    let page = shop.page("1").await;
    assert!(page.contains(row), "{page}");
    shop.due("2", "payment", SignedDuration::from_hours(73)).await;
    assert_order(&shop.page("2").await, &[">FulfilmentAbandoned</a>", "2 · by deadline payment", "give-up-payment"]);
}

/// Nothing depends on the number of events, or of inputs.
#[tokio::test(flavor = "multi_thread")]
async fn page_costs_the_same_for_few_and_for_many_events() {
    let shop = Shop::open().await;
    let mut costs = Vec::new();
    for (id, events) in [("few", 40), ("many", 2_000)] {
        let table = &shop.bench.table;
        shop.place_order(id).await;
        shop.input("order", id).await;
        shop.execute("order", id, "ProcessPayment", json!({"amount": 4500})).await;
        // No order has so many events: its last one again.
        let order = AggregateKey::new("order", id);
        let mut event = table.row(&order, &keys::event_sk(2)).await.unwrap();
        for number in 3..=events {
            event.insert("sk".to_owned(), AttributeValue::S(keys::event_sk(number)));
            event.insert("seqNum".to_owned(), AttributeValue::N(number.to_string()));
            event.insert("eventId".to_owned(), AttributeValue::S(format!("01J{number:023}")));
            table.put(sealed(event.clone())).await;
        }
        let version = AttributeValue::N(events.to_string());
        table.tamper(&order, keys::METADATA, [("currentSeqNum", version)]).await;
        // As after many inputs.
        let fulfilment = AggregateKey::new("fulfilment", id);
        let input = |number| keys::idempotency_sk(&keys::input_key(&order, number));
        let mut outcome = table.row(&fulfilment, &input(1)).await.unwrap();
        for number in 2..events / 10 {
            outcome.insert("sk".to_owned(), AttributeValue::S(input(number)));
            table.put(outcome.clone()).await;
        }
        shop.bench.table.proxy.take_calls();
        let page = shop.page(id).await;
        let calls = shop.bench.table.proxy.take_calls();
        let units: f64 = calls.iter().map(|call| call.table_units + call.index_units).sum();
        costs.push((calls.len(), units));
        let left_out = format!("order/{id} until {}</a>", events - 30);
        assert_order(&page, &["Earlier events are left out: ", &left_out]);
        assert_eq!(page.matches(">PaymentProcessed</a>").count(), 30);
    }
    assert_eq!(costs[0].0, costs[1].0, "{costs:?}");
    assert!(costs[1].1 <= costs[0].1 + 1.0, "{costs:?}");
}
