//! An instance whose cache holds an old state answers as one whose cache is empty: only an append, whose condition finds
//! out, is ever built on it.

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request};
use serde_json::{Value, json};

use crate::instance::{Instance, answer};

/// Status, `ETag` and body.
type Answer = (u16, String, Value);

async fn send(api: &axum::Router, method: Method, path: &str, if_match: Option<&str>, body: Option<Value>) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    if let Some(version) = if_match {
        request = request.header("if-match", version);
    }
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let answer = answer(api, request.body(body).unwrap()).await;
    let etag = answer.headers().get("etag").map(|etag| etag.to_str().unwrap().to_owned()).unwrap_or_default();
    let status = answer.status().as_u16();
    let bytes = to_bytes(answer.into_body(), 1_000_000).await.unwrap();
    (status, etag, serde_json::from_slice(&bytes).unwrap())
}

/// Two instances over one table: `old` has the to-do "a" in its cache, and then `new` changed it.
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
        assert_eq!(send(&behind.old, Method::POST, "/todo", None, Some(todo)).await.0, 201);
        assert_eq!(send(&behind.new, method, "/todo/1", None, change).await.0, 200);
        behind
    }
}

fn titled(title: &str) -> Value {
    json!({"title": title, "message": ""})
}

#[tokio::test]
async fn what_would_have_changed_nothing_changes_what_is_there_now() {
    let Behind { old, new, _table } = Behind::after(Method::POST, Some(titled("b"))).await;
    let (status, etag, body) = send(&old, Method::POST, "/todo/1", None, Some(titled("a"))).await;
    assert_eq!((status, etag.as_str(), &body["state"]["title"]), (200, "\"3\"", &json!("a")));
    assert_eq!(send(&new, Method::GET, "/todo/1", None, None).await.2["state"]["title"], "a");
    // And the other way round: what was a change is none now.
    let (status, etag, body) = send(&new, Method::POST, "/todo/1", None, Some(titled("a"))).await;
    assert_eq!((status, etag.as_str(), &body["events"]), (200, "\"3\"", &json!([])));
}

#[tokio::test]
async fn a_refusal_is_of_what_is_there_now() {
    let table = Instance::start().await;
    let (old, new) = (table.beside(), table.beside());
    let pay = |amount: i64| json!({"command": "RecordTransaction", "data": {"desc": "", "amount": amount}});
    send(&old, Method::POST, "/account", None, Some(json!({"id": "1"}))).await;
    send(&new, Method::POST, "/account/1/commands", None, Some(pay(10_000))).await;
    let (status, _, body) = send(&old, Method::POST, "/account/1/commands", None, Some(pay(-5_000))).await;
    assert_eq!((status, &body["state"]["balance"]), (200, &json!(5_000)));
    // Refused on what is there now, and told so: with the version that this refusal is recorded as.
    let (status, etag, body) = send(&new, Method::POST, "/account/1/commands", None, Some(pay(-9_000))).await;
    assert_eq!((status, etag.as_str(), &body["rejection"]), (422, "\"4\"", &json!("InsufficientFunds")));
    // A refusal that records nothing tells the version that it is about.
    let (status, etag, _) = send(&old, Method::POST, "/account/1/commands", None, Some(pay(i64::MAX))).await;
    assert_eq!((status, etag.as_str()), (422, "\"4\""));
}

#[tokio::test]
async fn a_conflict_tells_the_version_that_is_there_now() {
    let Behind { old, new: _, _table } = Behind::after(Method::POST, Some(titled("b"))).await;
    for (seen, expected) in [("1", 1), ("7", 7)] {
        let (status, etag, body) = send(&old, Method::POST, "/todo/1", Some(seen), Some(titled("c"))).await;
        assert_eq!((status, etag.as_str()), (409, "\"2\""), "{body}");
        assert_eq!((&body["expected"], &body["actual"]), (&json!(expected), &json!(2)));
    }
    let (status, etag, _) = send(&old, Method::POST, "/todo/1", Some("2"), Some(titled("c"))).await;
    assert_eq!((status, etag.as_str()), (200, "\"3\""));
}

#[tokio::test]
async fn what_was_deleted_meanwhile_is_gone() {
    let Behind { old, new: _, _table } = Behind::after(Method::DELETE, None).await;
    for (method, path, body) in [
        (Method::GET, "/todo/1", None),
        (Method::POST, "/todo/1", Some(titled("b"))),
        (Method::DELETE, "/todo/1", None),
    ] {
        let (status, _, answer) = send(&old, method, path, None, body).await;
        assert_eq!((status, &answer["type"]), (410, &json!("urn:daybook:problem:deleted")));
    }
}

#[tokio::test]
async fn what_was_created_meanwhile_exists() {
    let table = Instance::start().await;
    let (old, new) = (table.beside(), table.beside());
    let create = json!({"id": "1", "title": "a", "message": ""});
    assert_eq!(send(&old, Method::GET, "/todo/1", None, None).await.0, 404);
    assert_eq!(send(&new, Method::POST, "/todo", None, Some(create.clone())).await.0, 201);
    assert_eq!(send(&new, Method::POST, "/todo/1", None, Some(titled("b"))).await.0, 200);
    let (status, etag, body) = send(&old, Method::POST, "/todo", None, Some(create)).await;
    assert_eq!((status, etag.as_str()), (409, "\"2\""), "{body}");
    assert_eq!(body["type"], "urn:daybook:problem:already-exists");
    assert_eq!(send(&old, Method::GET, "/todo/1", None, None).await.2["state"]["title"], "b");
}
