//! Deadlines over HTTP: their rows, their costs, and who may send their commands.

use daybook_admin::AdminCalls;
use daybook_table::{AggregateKey, keys};
use daybook_test_support::row::{Item, text};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::callers::events::{ApiEvent, iam, jwt, lambda};
use crate::instance::Instance;

fn seats(id: &str) -> Value {
    json!({"id": id, "concert": "fidelio", "seats": 2})
}

fn payment() -> Value {
    json!({"amount": 8_000})
}

async fn rows(instance: &Instance, id: &str) -> Vec<Item> {
    instance.table.rows(&AggregateKey::new("reservation", id), keys::DEADLINE_PREFIX).await
}

/// The units of the calls since the last time, of the table and its index.
fn units(instance: &Instance) -> Vec<(f64, f64)> {
    instance.table.proxy.take_calls().iter().map(|call| (call.table_units, call.index_units)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_is_a_row_while_the_state_declares_it() {
    let instance = Instance::start().await;
    let created = instance.post("/reservation", seats("1")).await.expect(201);
    // As an aggregate without deadlines, and two units and one of the index.
    assert_eq!(units(&instance), [(8.0, 2.0)]);
    let [row] = &rows(&instance, "1").await[..] else { panic!("not one row") };
    let until: Timestamp = created.body["state"]["heldUntil"].as_str().unwrap().parse().unwrap();
    assert_eq!((text(row, "due").parse::<Timestamp>().unwrap(), text(row, "gsi1pk")), (until, "DEADLINE"));
    assert!(!row.contains_key("soon"));

    // Another instance decides on the stored state.
    let other = Instance::over(instance.table.engine).await;
    other.post("/reservation/1", payment()).await.expect(200);
    assert_eq!(units(&other).last(), Some(&(8.0, 2.0)));
    assert_eq!(rows(&other, "1").await, []);
    other.post("/reservation/1", payment()).await.expect(200);
    let (registry, key) = (aggregates::registry().unwrap(), AggregateKey::new("reservation", "1"));
    let (store, model) = (other.table.direct_store(), registry.get("reservation").unwrap());
    let verified = store.admin().verify(model, &key, Timestamp::now()).await.unwrap();
    assert_eq!(verified.findings, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_one_of_the_system() {
    let instance = Instance::start().await;
    instance.post("/reservation", seats("1")).await.expect(201);
    let expire = json!({"command": "Expire"});
    let path = "/reservation/1/commands";
    instance.post(path, expire.clone()).await.expect_problem(403, "forbidden");
    for caller in [
        jwt(json!({"sub": "daybook", "system": true, "principal": "daybook"})),
        lambda(json!({"principalId": "daybook", "system": true, "is_system": true})),
        iam("daybook", "arn:aws:iam::123456789012:user/daybook"),
    ] {
        ApiEvent::post(path, &expire).of(&caller).send(&instance).await.expect_problem(403, "forbidden");
        ApiEvent::post(path, &json!([{"command": "Pay", "data": payment()}, expire]))
            .of(&caller)
            .send(&instance)
            .await
            .expect_problem(403, "forbidden");
    }
    let joint = json!([{"aggregate": "reservation/1", "command": "Expire"}]);
    instance.post("/commands", joint).await.expect_problem(403, "forbidden");
    assert_eq!(rows(&instance, "1").await.len(), 1);
}
