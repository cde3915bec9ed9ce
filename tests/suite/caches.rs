//! An instance with an outdated cached state responds like one with an empty cache. It uses the cached state only for appends,
//! whose condition detects outdated states.

use axum::http::Method;
use serde_json::{Value, json};

use crate::instance::{Instance, send};

/// Two instances over one table: `old` has cached the to-do "a", and then `new` has changed it.
struct Behind {
    old: axum::Router,
    new: axum::Router,
    _table: Instance,
}

impl Behind {
    async fn after(method: Method, change: Option<Value>) -> Self {
        let table = Instance::start().await;
        let behind = Self { old: table.beside(), new: table.beside(), _table: table };
        let todo = json!({"id": "1", "title": "a", "message": ""});
        send(&behind.old, Method::POST, "/todo", &[], Some(todo)).await.expect(201);
        send(&behind.new, method, "/todo/1", &[], change).await.expect(200);
        behind
    }
}

fn titled(title: &str) -> Value {
    json!({"title": title, "message": ""})
}

#[tokio::test]
async fn command_without_effect_on_the_cached_state_is_decided_on_the_current_state() {
    let Behind { old, new, _table } = Behind::after(Method::POST, Some(titled("b"))).await;
    let changed = send(&old, Method::POST, "/todo/1", &[], Some(titled("a"))).await.expect(200);
    assert_eq!((changed.header("etag"), &changed.body["state"]["title"]), ("\"3-2\"", &json!("a")));
    assert_eq!(send(&new, Method::GET, "/todo/1", &[], None).await.body["state"]["title"], "a");
    // Conversely, a command that would change the cached state does not change the current one.
    let unchanged = send(&new, Method::POST, "/todo/1", &[], Some(titled("a"))).await.expect(200);
    assert_eq!((unchanged.header("etag"), &unchanged.body["events"]), ("\"3-2\"", &json!([])));
}

#[tokio::test]
async fn command_rejected_on_a_cached_state_is_decided_on_the_current_state() {
    let table = Instance::start().await;
    let (old, new) = (table.beside(), table.beside());
    let pay = async |api, amount: i64| {
        let payment = json!({"command": "RecordTransaction", "data": {"desc": "", "amount": amount}});
        send(api, Method::POST, "/account/1/commands", &[], Some(payment)).await
    };
    send(&old, Method::POST, "/account", &[], Some(json!({"id": "1"}))).await.expect(201);
    pay(&new, 10_000).await.expect(200);
    assert_eq!(pay(&old, -5_000).await.expect(200).body["state"]["balance"], 5_000);
    // Rejected on the current state. The response contains the version of the recorded rejection.
    let rejected = pay(&new, -9_000).await.expect(422);
    assert_eq!((rejected.header("etag"), &rejected.body["rejection"]), ("\"4-1\"", &json!("InsufficientFunds")));
    // The response to an unrecorded rejection contains the version on which it was decided.
    assert_eq!(pay(&old, i64::MAX).await.expect(422).header("etag"), "\"4-1\"");
}

#[tokio::test]
async fn conflict_on_a_stale_instance_reports_the_current_version() {
    let Behind { old, new: _, _table } = Behind::after(Method::POST, Some(titled("b"))).await;
    let update = async |seen| send(&old, Method::POST, "/todo/1", &[("if-match", seen)], Some(titled("c"))).await;
    for (seen, expected) in [("1", 1), ("7", 7)] {
        let conflict = update(seen).await.expect(409);
        assert_eq!(conflict.header("etag"), "\"2-2\"");
        assert_eq!((&conflict.body["expected"], &conflict.body["actual"]), (&json!(expected), &json!(2)));
    }
    assert_eq!(update("2").await.expect(200).header("etag"), "\"3-2\"");
}

#[tokio::test]
async fn aggregate_deleted_by_another_instance_is_reported_as_deleted() {
    let Behind { old, new: _, _table } = Behind::after(Method::DELETE, None).await;
    for (method, path, body) in [
        (Method::GET, "/todo/1", None),
        (Method::POST, "/todo/1", Some(titled("b"))),
        (Method::DELETE, "/todo/1", None),
    ] {
        send(&old, method, path, &[], body).await.expect_problem(410, "deleted");
    }
}

#[tokio::test]
async fn conflict_on_an_aggregate_that_another_instance_deleted_is_reported_as_deleted_by_all() {
    let Behind { old, new, _table } = Behind::after(Method::DELETE, None).await;
    for instance in [&old, &new, &old, &_table.beside()] {
        let update = send(instance, Method::POST, "/todo/1", &[("if-match", "\"1\"")], Some(titled("b"))).await;
        update.expect_problem(410, "deleted");
    }
}

#[tokio::test]
async fn aggregate_created_by_another_instance_is_reported_as_existing() {
    let table = Instance::start().await;
    let (old, new) = (table.beside(), table.beside());
    let create = json!({"id": "1", "title": "a", "message": ""});
    send(&old, Method::GET, "/todo/1", &[], None).await.expect(404);
    send(&new, Method::POST, "/todo", &[], Some(create.clone())).await.expect(201);
    send(&new, Method::POST, "/todo/1", &[], Some(titled("b"))).await.expect(200);
    let late = send(&old, Method::POST, "/todo", &[], Some(create)).await.expect_problem(409, "already-exists");
    assert_eq!(late.header("etag"), "\"2-2\"");
    assert_eq!(send(&old, Method::GET, "/todo/1", &[], None).await.body["state"]["title"], "b");
}
