//! The rows of read models.

use serde_json::{Value, json};

use crate::stack::Visit;

/// A stack with an order of two states, and another one.
async fn with_orders() -> Visit {
    let visit = Visit::start().await;
    for (id, total) in [("1", 5), ("2", 7)] {
        let order = json!({"id": id, "customerId": "c", "items": [{"productId": "p", "quantity": 1}], "total": total});
        visit.post("/order", &[], &order).await;
    }
    visit.post("/order/1/commands", &[], &json!({"command": "ProcessPayment", "data": {"amount": 5}})).await;
    visit
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_view_are_listed_by_the_beginning_of_their_keys() {
    let visit = with_orders().await;
    let rows = visit.page_with("/views/orders-by-status/1", ">paid").await;
    rows.has("orders-by-status").has("a projection of order");
    let paid = visit.page("/views/orders-by-status/1?prefix=paid").await;
    paid.lacks("key=placed").has("value=\"paid\"");
    visit.page("/views/orders-by-status/1?prefix=%3Cb%3E").await.has("There is no such row").lacks("<b>");
    visit.page("/stream").await.has("href=\"/_console/views/orders-by-status/1\"");
    let model = visit.page("/model").await;
    model.has("href=\"/_console/views/orders-by-status/1\"").has("2 aggregates").lacks("events behind");
    model.has("<a href=\"/_console/events?type=order&amp;containing=OrderPlaced\">OrderPlaced</a>");
    visit.set_faults(&json!({"projector": [{"killAfterMs": 0, "forever": true}]})).await;
    visit.post("/order/2/commands", &[], &json!({"command": "ProcessPayment", "data": {"amount": 7}})).await;
    visit.page("/model").await.has("orders-by-status</a> <span class=\"warn\">1 event behind</span>");
    for path in ["/views/none/1", "/views/orders-by-status/9", "/views/orders-by-status/x"] {
        assert_eq!(visit.get(path).await.status(), 404, "{path}");
    }
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_is_shown_with_the_events_that_give_it_and_with_its_difference_to_them() {
    let visit = with_orders().await;
    let list = visit.page_with("/views/orders-by-day/1", "{&quot;orders&quot;:2,&quot;total&quot;:12}").await;
    let row = format!("/views/orders-by-day/1{}", list.between("<td><a href=\"/_console/views/orders-by-day/1", "\""));
    let page = visit.page(&row).await;
    page.has("The row is what the 2 events give that change it.").has("OrderPlaced").lacks("PaymentProcessed");
    page.has("<a href=\"/_console/aggregates/order/2?version=1\">order/2 1</a>");
    page.has("<del><code class=\"line\">5</code></del>").has("<ins><code class=\"line\">12</code></ins>");

    let views = "daybook-dev-views";
    let found = visit.dynamodb("Scan", &json!({"TableName": views})).await;
    let mut item: Value = found["Items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["row"]["S"].as_str().is_some_and(|row| row.contains("\"orders\":2")))
        .unwrap()
        .clone();
    item["row"]["S"] = json!("{\"orders\":3,\"total\":12}");
    visit.dynamodb("PutItem", &json!({"TableName": views, "Item": item})).await;
    let page = visit.page(&row).await;
    page.has("The events give another row");
    page.has("<del><code class=\"line\">3</code></del>").has("<ins><code class=\"line\">2</code></ins>");
    visit.page("/views/orders-by-day/1/row?key=%3Cb%3E").await.has("There is no such row").lacks("<b>");
    visit.stop().await;
}
