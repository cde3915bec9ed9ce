//! `daybook projection` and the read models of a running `daybook dev`: what each command prints, and what readers see while
//! the queue and the projector fail.

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_function_runtime::aws_config_at;
use serde_json::{Value, json};

use crate::daybook::Daybook;

const REBUILD: &str = "rebuild orders-by-status";

/// How long a view may take to show an event. It is long because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

impl Daybook {
    async fn place_order(&self, id: &str) {
        let items = json!([{"productId": "coffee", "quantity": 2}]);
        self.post("/order", &json!({"id": id, "customerId": "alice", "items": items, "total": 100})).await;
    }

    /// The number of placed orders that the view shows.
    async fn placed_orders(&self) -> u64 {
        let row = self.get("/views/orders-by-status/placed").await;
        row["row"]["orders"].as_u64().unwrap_or_default()
    }

    async fn wait_for_placed_orders(&self, orders: u64) {
        let give_up = Instant::now() + PATIENCE;
        while self.placed_orders().await < orders {
            assert!(Instant::now() < give_up, "{} orders are shown, expected {orders}", self.placed_orders().await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(self.placed_orders().await, orders);
    }

    /// Runs `daybook projection`. Returns the exit status and the lines of the output.
    fn projection(&self, line: &str) -> (Option<i32>, Vec<String>) {
        let words: Vec<_> = ["projection"].into_iter().chain(line.split(' ')).collect();
        let (status, printed) = self.operate_to_end(&words);
        (status, printed.lines().map(str::to_owned).collect())
    }

    /// Replaces the data of an order's first event. Returns the data before.
    async fn replace_first_event(&self, order: &str, data: &str) -> String {
        let table = aws_sdk_dynamodb::Client::new(&aws_config_at(&self.dynamodb));
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let update = table.update_item().table_name("daybook-dev").key("pk", text(&format!("AGGREGATE#order#{order}")));
        let update = update.key("sk", text("EVENT#000000000001")).expression_attribute_names("#data", "data");
        let update = update.update_expression("SET #data = :data").expression_attribute_values(":data", text(data));
        let old = update.return_values(aws_sdk_dynamodb::types::ReturnValue::UpdatedOld).send().await.unwrap();
        old.attributes.unwrap()["data"].as_s().unwrap().clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn projection_commands_fill_show_resume_and_drop_the_views_of_a_running_stack() {
    let stack = Daybook::in_memory();
    stack.place_order("1").await;
    stack.wait_for_placed_orders(1).await;

    let (status, lines) = stack.projection("status orders-by-status");
    assert_eq!(status, Some(0), "{lines:?}");
    assert_eq!(lines[0], "orders-by-status@1 is read, not filled");
    assert!(lines[1].starts_with("1 versions; "), "{lines:?}");
    let begun = Instant::now();
    let (status, lines) = stack.projection(REBUILD);
    assert_eq!(status, Some(0), "{lines:?}");
    // It does not wait for other instances of the projector, because the local stack has none.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(lines[0].starts_with("orders-by-status@1 is filled: 1 of 1 aggregates checked; 0 sent"), "{lines:?}");
    let (_, lines) = stack.projection("status --json orders-by-status");
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    assert!(line["filledAt"].is_string() && line["read"] == true && line["rebuilding"].is_null(), "{line}");

    // An event that cannot be read, of an order that no projector has seen.
    stack.set_faults(&json!({"projector": [{"killAfterMs": 0, "forever": true}]})).await;
    stack.place_order("2").await;
    let data = stack.replace_first_event("2", "{").await;
    stack.set_faults(&json!({})).await;
    let (status, lines) = stack.projection(REBUILD);
    assert_eq!(status, Some(1), "{lines:?}");
    assert!(lines[0].starts_with("orders-by-status@1 order/2 suspended: "), "{lines:?}");
    assert!(lines[1].starts_with("orders-by-status@1 is not filled: 2 of 2 aggregates checked; "), "{lines:?}");
    let (status, lines) = stack.projection("suspended");
    assert_eq!(status, Some(1), "{lines:?}");
    assert!(
        lines.iter().any(|line| line.starts_with("orders-by-status@1 order/2 suspended after event 0: ")),
        "{lines:?}"
    );
    assert_eq!(stack.placed_orders().await, 1);

    stack.replace_first_event("2", &data).await;
    let (status, lines) = stack.projection("resume order/2");
    assert_eq!(status, Some(0), "{lines:?}");
    assert!(lines.contains(&"orders-by-status@1 order/2 resumed".to_owned()), "{lines:?}");
    stack.wait_for_placed_orders(2).await;
    let (status, lines) = stack.projection(REBUILD);
    assert_eq!((status, lines[0].contains("2 of 2 aggregates checked")), (Some(0), true), "{lines:?}");
    assert_eq!(stack.projection("suspended"), (Some(0), vec!["0 aggregates are suspended".to_owned()]));

    let read = "readers of orders-by-status get version 1 already".to_owned();
    assert_eq!(stack.projection("switch orders-by-status 1"), (Some(0), vec![read]));
    let (status, lines) = stack.projection("switch orders-by-status 2");
    assert_eq!(status, Some(2), "{lines:?}");
    assert!(lines[0].contains("this code does not register version 2"), "{lines:?}");
    let (status, lines) = stack.projection("drop orders-by-status 1 --yes");
    assert_eq!(status, Some(1), "{lines:?}");
    assert!(lines[0].starts_with("orders-by-status@1 rejected: this code registers it"), "{lines:?}");
    let dropped = "0 items of orders-by-status@7 deleted".to_owned();
    assert_eq!(stack.projection("drop orders-by-status 7 --yes"), (Some(0), vec![dropped]));
    assert_eq!(stack.placed_orders().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn views_show_each_order_once_whatever_fails() {
    let stack = Daybook::in_memory();
    let mut orders = 0;
    for faults in [
        // The changes queue.
        json!({"sendMessage": [{"http": 500}, {"code": "ThrottlingException"}, {"acceptThenDrop": true}]}),
        json!({"receiveMessage": [{"http": 500}]}),
        json!({"deleteMessage": [{"http": 500}, {"acceptThenDrop": true}]}),
    ] {
        stack.set_faults(&faults).await;
        orders += 1;
        stack.place_order(&orders.to_string()).await;
        stack.wait_for_placed_orders(orders).await;
    }

    // The message becomes visible again only later. The next one about the same order has both events.
    stack.set_faults(&json!({"projector": [{"killAfterMs": 0, "forever": true}]})).await;
    stack.place_order("killed").await;
    let give_up = Instant::now() + PATIENCE;
    while stack.projection("status").1.last().unwrap().ends_with(" 0 are in work") {
        assert!(Instant::now() < give_up, "{:?}", stack.projection("status"));
    }
    assert_eq!(stack.placed_orders().await, orders);
    stack.set_faults(&json!({})).await;
    let paid = json!({"command": "ProcessPayment", "data": {"amount": 100}});
    stack.post("/order/killed/commands", &paid).await;
    let give_up = Instant::now() + PATIENCE;
    while stack.get("/views/orders-by-status/paid").await["row"]["orders"] != 1 {
        assert!(Instant::now() < give_up, "the order is not shown");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(stack.placed_orders().await, orders);

    let client = reqwest::Client::new();
    let unknown = client.put(format!("{}/_dev/faults", stack.api)).json(&json!({"view": {}})).send().await.unwrap();
    assert_eq!(unknown.status(), 422);
}
