//! An order is fulfilled by a process: over the API, the reactor and the embedded engine, and what that costs.

use std::time::Duration;

use axum::http::Method;
use daybook_function_runtime::{QueueBatch, QueueRecord, aws_config_at};
use daybook_local_aws::messaging::{Bus, Server};
use daybook_queue::{Queue, SqsClient, Waits};
use daybook_reactor::{Reactor, ReactorEvent};
use daybook_table::{AggregateKey, ChangedAggregates, DueDeadline, DueDeadlines};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::instance::{Instance, send};

struct Shop {
    instance: Instance,
    reactor: Reactor,
    _server: Server,
}

impl Shop {
    async fn open() -> Self {
        let instance = Instance::start().await;
        let bus = Bus::in_memory();
        bus.create_work_queue("reactions");
        let server = Server::start(bus.router()).await.unwrap();
        let client = SqsClient::new(&aws_config_at(server.url()));
        let queue = Queue { client, url: "http://localhost/1/reactions".to_owned(), waits: Waits::default() };
        let reactor = Reactor::new(aggregates::registry().unwrap(), instance.table.store(), queue);
        Self { instance, reactor, _server: server }
    }

    async fn place_order(&self) {
        let items = json!([{"productId": "coffee", "quantity": 2}]);
        let order = json!({"id": "1", "customerId": "alice", "items": items, "total": 4500});
        self.instance.post("/order", order).await.expect(201);
    }

    async fn execute(&self, path: &str, command: Value) {
        send(&self.instance.router, Method::POST, path, &[], Some(command)).await.expect(200);
    }

    async fn deliver(&self, body: String) {
        let batch = QueueBatch { records: vec![QueueRecord::new("1", body)] };
        let response =
            self.reactor.handle(ReactorEvent::Messages(batch), Instant::now() + Duration::from_secs(60)).await;
        assert_eq!(response.batch_item_failures, []);
    }

    /// What the relay sends after a change of an aggregate.
    async fn changed(&self, aggregate_type: &str) {
        self.deliver(ChangedAggregates::one(AggregateKey::new(aggregate_type, "1"), 1).to_body()).await;
    }

    /// What the relay sends after a dispatch was set.
    async fn dispatched(&self, name: &str) {
        let key = AggregateKey::new("fulfilment", "1");
        let due = self.instance.table.direct_store().deadline(&key, name).await.unwrap().unwrap().due;
        self.deliver(DueDeadlines::new(&[DueDeadline { due, key, name: name.to_owned() }]).to_body()).await;
    }

    async fn status(&self, of: &str) -> Value {
        self.instance.get(of).await.expect(200).body["state"]["status"].clone()
    }

    /// The operations of the calls since the last time, and their units: of writes of the table, of its index, and of reads.
    fn costs(&self) -> (Vec<String>, f64, f64, f64) {
        let calls = self.instance.table.proxy.take_calls();
        let is_write = |operation: &str| ["TransactWriteItems", "PutItem"].contains(&operation);
        let sum = |writes: bool, index: bool| {
            let of = calls.iter().filter(|call| is_write(&call.operation) == writes);
            of.map(|call| if index { call.index_units } else { call.table_units }).sum()
        };
        let operations = calls.iter().map(|call| call.operation.clone()).collect();
        (operations, sum(true, false), sum(true, true), sum(false, false))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn order_is_fulfilled_from_its_placement_to_its_shipment() {
    let shop = Shop::open().await;
    shop.place_order().await;
    shop.changed("order").await;
    shop.dispatched("request-payment").await;
    assert_eq!(shop.status("/payment/1").await, "requested");
    shop.execute("/payment/1/commands", json!({"command": "ReceivePayment"})).await;
    shop.changed("payment").await;
    // Both dispatches, in their order.
    shop.dispatched("request-shipment").await;
    assert_eq!((shop.status("/order/1").await, shop.status("/shipment/1").await), ("paid".into(), "requested".into()));
    let collect = json!({"command": "CollectShipment", "data": {"trackingNumber": "T-1"}});
    shop.execute("/shipment/1/commands", collect).await;
    shop.changed("shipment").await;
    shop.dispatched("ship-order").await;
    let order = shop.instance.get("/order/1").await.expect(200).body["state"].clone();
    assert_eq!((&order["status"], &order["trackingNumber"]), (&json!("shipped"), &json!("T-1")));
    assert_eq!(shop.status("/fulfilment/1").await, "shipped");
}

/// The figures of docs/processes.md.
#[tokio::test(flavor = "multi_thread")]
async fn costs_of_an_input_and_of_a_dispatch() {
    let shop = Shop::open().await;
    shop.place_order().await;
    shop.costs();
    let (query, transact) = ("Query".to_owned(), "TransactWriteItems".to_owned());
    let (get, put) = ("GetItem".to_owned(), "PutItem".to_owned());
    // With effect: the position, the events, and the append of a new process with two rows and the key; then the position.
    shop.changed("order").await;
    assert_eq!(shop.costs(), (vec![get.clone(), query.clone(), transact.clone(), put.clone()], 13.0, 3.0, 2.0));
    // Of no interest: the position moves.
    shop.execute("/order/1/commands", json!({"command": "ProcessPayment", "data": {"amount": 4500}})).await;
    shop.costs();
    shop.changed("order").await;
    assert_eq!(shop.costs(), (vec![get.clone(), query.clone(), put.clone()], 1.0, 0.0, 2.0));
    // A repeated message.
    shop.changed("order").await;
    assert_eq!(shop.costs(), (vec![get, query.clone()], 0.0, 0.0, 2.0));
    // A dispatch that creates its target, beside the rows before and after it: the check of its row, the key, and the mark.
    shop.dispatched("request-payment").await;
    let (operations, writes, index, reads) = shop.costs();
    assert_eq!(operations, [query.clone(), query.clone(), transact, put, query.clone(), query]);
    assert_eq!((writes, index, reads), (11.0, 2.0, 4.0));
}
