//! Deadlines and processes over HTTP: what states declare happens when the clock is moved, unless they change first.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::{PATIENCE, Suite};
use tokio::time::{Instant, sleep};

async fn reserve(suite: &Suite, id: &str) -> Value {
    suite.post("/reservation", &json!({"id": id, "concert": "fidelio", "seats": 2})).await.expect(201).body
}

async fn status(suite: &Suite, id: &str) -> Value {
    suite.get(&format!("/reservation/{id}")).await.expect(200).body["state"]["status"].clone()
}

async fn forward(suite: &Suite, by: &str) {
    let headers = [("content-type", "application/json")];
    let body = json!({"forwardBy": by}).to_string();
    suite.send(Method::PUT, "/_dev/clock", &headers, Some(&body)).await.expect(200);
}

/// Waits until a reservation is expired.
async fn expired(suite: &Suite, id: &str) {
    let give_up = Instant::now() + PATIENCE;
    while status(suite, id).await != "expired" {
        assert!(Instant::now() < give_up, "{id} does not expire");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reservation_expires_when_its_time_has_come_unless_it_is_paid() {
    let suite = Suite::start().await;
    let held = reserve(&suite, "held").await;
    reserve(&suite, "paid").await;
    let pay = json!({"command": "Pay", "data": {"amount": 8_000}});
    suite.post("/reservation/paid/commands", &pay).await.expect(200);
    forward(&suite, "9m").await;
    reserve(&suite, "later").await;
    assert_eq!(status(&suite, "held").await, "held");
    forward(&suite, "1m").await;
    expired(&suite, "held").await;
    assert_eq!((status(&suite, "paid").await, status(&suite, "later").await), ("paid".into(), "held".into()));

    let events = suite.get("/reservation/held/events").await.expect(200).body["events"].clone();
    let expiry = &events[1];
    assert_eq!((&expiry["eventType"], events.as_array().unwrap().len()), (&json!("ReservationExpired"), 2));
    assert_eq!((&expiry["meta"]["actor"], &expiry["meta"]["causationId"]), (&json!("daybook"), &events[0]["eventId"]));
    assert!(expiry["occurredAt"].as_str().unwrap() >= held["state"]["heldUntil"].as_str().unwrap());

    // Whoever calls himself daybook is not the system.
    let expire = json!({"command": "Expire", "data": {}});
    let headers = [("content-type", "application/json"), ("x-daybook-caller", "daybook")];
    suite.send(Method::POST, "/reservation/later/commands", &headers, Some(&expire.to_string())).await.expect(403);
    forward(&suite, "1d").await;
    expired(&suite, "later").await;
    assert_eq!(status(&suite, "paid").await, "paid");
}

async fn place_order(suite: &Suite, id: &str) {
    let items = json!([{"productId": "coffee", "quantity": 2}]);
    suite.post("/order", &json!({"id": id, "customerId": "alice", "items": items, "total": 4500})).await.expect(201);
}

/// Waits until an aggregate has a status, or a process gets it.
async fn reaches(suite: &Suite, path: &str, status: &str) {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let seen = suite.get(path).await;
        if seen.status == 200 && seen.body["state"]["status"] == status {
            return;
        }
        assert!(Instant::now() < give_up, "{path} is not {status}: {}", seen.body);
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn order_that_is_paid_is_shipped_and_one_that_is_not_is_abandoned() {
    let suite = Suite::start().await;
    place_order(&suite, "paid").await;
    place_order(&suite, "unpaid").await;
    for id in ["paid", "unpaid"] {
        reaches(&suite, &format!("/payment/{id}"), "requested").await;
    }
    suite.post("/payment/paid/commands", &json!({"command": "ReceivePayment"})).await.expect(200);
    reaches(&suite, "/shipment/paid", "requested").await;
    assert_eq!(suite.get("/order/paid").await.expect(200).body["state"]["status"], "paid");
    let collect = json!({"command": "CollectShipment", "data": {"trackingNumber": "T-1"}});
    suite.post("/shipment/paid/commands", &collect).await.expect(200);
    reaches(&suite, "/order/paid", "shipped").await;

    forward(&suite, "71h").await;
    assert_eq!(suite.get("/fulfilment/unpaid").await.expect(200).body["state"]["status"], "awaitsPayment");
    forward(&suite, "1h").await;
    reaches(&suite, "/payment/unpaid", "givenUp").await;
    assert_eq!(suite.get("/fulfilment/unpaid").await.expect(200).body["state"]["status"], "abandoned");
    assert_eq!(suite.get("/order/unpaid").await.expect(200).body["state"]["status"], "placed");
    assert_eq!(suite.get("/order/paid").await.expect(200).body["state"]["status"], "shipped");
}

#[tokio::test(flavor = "multi_thread")]
async fn order_whose_shipment_is_late_or_lost_is_paid_back() {
    let suite = Suite::start().await;
    for id in ["late", "lost"] {
        place_order(&suite, id).await;
        reaches(&suite, &format!("/payment/{id}"), "requested").await;
        suite.post(&format!("/payment/{id}/commands"), &json!({"command": "ReceivePayment"})).await.expect(200);
        reaches(&suite, &format!("/shipment/{id}"), "requested").await;
    }
    let collect = json!({"command": "CollectShipment", "data": {"trackingNumber": "T-1"}});
    suite.post("/shipment/lost/commands", &collect).await.expect(200);
    suite.post("/shipment/lost/commands", &json!({"command": "LoseShipment"})).await.expect(200);
    reaches(&suite, "/order/lost", "refunded").await;
    reaches(&suite, "/payment/lost", "refunded").await;

    forward(&suite, "167h").await;
    assert_eq!(suite.get("/fulfilment/late").await.expect(200).body["state"]["status"], "awaitsShipment");
    forward(&suite, "1h").await;
    reaches(&suite, "/shipment/late", "abandoned").await;
    reaches(&suite, "/order/late", "refunded").await;
    assert_eq!(suite.get("/payment/late").await.expect(200).body["state"]["status"], "refunded");
}
