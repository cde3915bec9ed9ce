//! Bad input to every route gets the right status and a problem with instructions, and leaves the table unchanged.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_command_handler::{Api, router};
use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::aws_config_at;
use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::Suite;

use crate::instance;

const JSON: (&str, &str) = ("content-type", "application/json");

/// A request and the expected problem.
struct Case<'a> {
    method: Method,
    path: &'a str,
    headers: Vec<(&'a str, &'a str)>,
    body: Option<&'a str>,
    status: u16,
    slug: &'a str,
}

fn post<'a>(path: &'a str, body: &'a str, status: u16, slug: &'a str) -> Case<'a> {
    Case { method: Method::POST, path, headers: vec![JSON], body: Some(body), status, slug }
}

fn get<'a>(path: &'a str, status: u16, slug: &'a str) -> Case<'a> {
    Case { method: Method::GET, path, headers: vec![], body: None, status, slug }
}

/// Every row of the table, in a stable order.
async fn rows(suite: &Suite) -> Vec<String> {
    let scan = suite.table().scan().table_name(suite.stack.table_name()).into_paginator().items().send();
    let rows = scan.try_collect().await.unwrap();
    let mut rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let mut fields: Vec<_> = row.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
            fields.sort_unstable();
            fields.join(" ")
        })
        .collect();
    rows.sort_unstable();
    rows
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "a list of requests, each with its problem")]
async fn bad_input_gets_the_documented_problem_and_changes_nothing() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    suite.post("/todo", &json!({"id": "1", "title": "TODO", "message": ""})).await.expect(201);
    suite.post("/todo", &json!({"id": "gone", "title": "TODO", "message": ""})).await.expect(201);
    suite.send(Method::DELETE, "/todo/gone", &[], None).await.expect(200);
    let before = rows(&suite).await;

    let transaction = r#"{"command":"RecordTransaction","data":{"desc":"A","amount":1}}"#;
    let long_id = "x".repeat(129);
    let [long_path, long_body] = [format!("/account/{long_id}"), json!({"id": long_id}).to_string()];
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let huge = json!({"title": "x".repeat(5 * 1024 * 1024), "message": ""}).to_string();
    let large = json!({"title": "x".repeat(410 * 1024), "message": ""}).to_string();
    let one = json!({"command": "RecordTransaction", "data": {"desc": "", "amount": 1}});
    let hundred = Value::from(vec![one.clone(); 100]).to_string();
    // Each title is stored in an event and in a message, so the rows are twice as large as the request.
    let heavy = |n| json!({"command": "UpdateTodo", "data": {"title": format!("{n}{}", "x".repeat(340 * 1024)), "message": ""}});
    let heavy = Value::from((0..7).map(heavy).collect::<Vec<_>>()).to_string();
    let with = |name, value, case: Case<'static>| Case { headers: vec![JSON, (name, value)], ..case };
    let twice = |name, value, case: Case<'static>| Case { headers: vec![JSON, (name, value), (name, value)], ..case };
    let update = r#"{"title":"x","message":"y"}"#;

    let cases = [
        // 400: cannot be parsed
        post("/account", "{", 400, "malformed-json"),
        post("/account/1", "not json", 400, "malformed-json"),
        post("/account/1/commands", "[{]", 400, "malformed-json"),
        post("/account/1/commands", &deep, 400, "malformed-json"),
        post("/account", "{} {}", 400, "malformed-json"),
        post("/account", r#"{"id":"a b"}"#, 400, "bad-id"),
        post("/account", r#"{"id":""}"#, 400, "bad-id"),
        post("/account", r#"{"id":".."}"#, 400, "bad-id"),
        post("/account", &long_body, 400, "bad-id"),
        get(&long_path, 400, "bad-id"),
        get("/account/a%20b", 400, "bad-id"),
        get("/account/a%2Fb", 400, "bad-id"),
        get("/account/%FF", 400, "bad-id"),
        get("/account/a%23b/events", 400, "bad-id"),
        get("/account/1?version=x", 400, "bad-query"),
        get("/account/1?version=-1", 400, "bad-query"),
        get("/account/1?verson=1", 400, "bad-query"),
        get("/account/1?rebuild=maybe", 400, "bad-query"),
        post("/account/1/commands?rebuild=1", transaction, 400, "bad-query"),
        get("/account/1/events?limit=0", 400, "bad-query"),
        get("/account/1/events?limit=1001", 400, "bad-query"),
        get("/account/1/events?after=x", 400, "bad-query"),
        get("/events", 400, "bad-query"),
        get("/events?type=OrderPlaced&after=nonsense", 400, "bad-query"),
        get("/events?type=OrderPlaced&after=80000000000000000000000000", 400, "bad-query"),
        get("/account?after=nonsense", 400, "bad-query"),
        get("/account?after=80000000000000000000000000", 400, "bad-query"),
        with("if-match", "\"x\"", post("/todo/1", update, 400, "bad-header")),
        with("if-match", "\"1\", \"2\"", post("/todo/1", update, 400, "bad-header")),
        with("if-match", "W/1", post("/todo/1", update, 400, "bad-header")),
        with("if-match", "99999999999999999999999", post("/todo/1", update, 400, "bad-header")),
        with("if-match", "\"3\"", post("/todo", r#"{"title":"x","message":"y"}"#, 400, "bad-header")),
        with("if-none-match", "*", post("/todo/1", update, 400, "bad-header")),
        with("if-none-match", "\"1\"", post("/todo", update, 400, "bad-header")),
        twice("if-match", "\"1\"", post("/todo/1", update, 400, "bad-header")),
        twice("if-match", "*", post("/todo/1", update, 400, "bad-header")),
        twice("idempotency-key", "k", post("/todo/1", update, 400, "bad-header")),
        twice("x-correlation-id", "c", post("/todo/1", update, 400, "bad-header")),
        twice("x-causation-id", "c", post("/todo/1", update, 400, "bad-header")),
        with("x-correlation-id", "two words", post("/todo/1", update, 400, "bad-header")),
        // 404: does not exist
        get("/", 404, "unknown-route"),
        get("/account/1/nothing", 404, "unknown-route"),
        get("/account/1/events/1", 404, "unknown-route"),
        get("/nothing", 404, "unknown-type"),
        get("/nothing/1", 404, "unknown-type"),
        get("/nothing/1/events", 404, "unknown-type"),
        post("/nothing", "{}", 404, "unknown-type"),
        post("/nothing/1/commands", transaction, 404, "unknown-type"),
        get("/events?type=Nothing", 404, "unknown-event-type"),
        get("/account/2", 404, "not-found"),
        get("/account/2?version=1", 404, "not-found"),
        get("/account/2?rebuild=true", 404, "not-found"),
        get("/account/2/events", 404, "not-found"),
        get("/account/2/events?after=7", 404, "not-found"),
        get("/account/1?version=0", 404, "no-such-version"),
        get("/account/1?version=2", 404, "no-such-version"),
        post("/account/2", r#"{"ownerFirst":"a","ownerLast":"b"}"#, 404, "not-found"),
        post("/account/2/commands", transaction, 404, "not-found"),
        // 405: wrong method
        Case { method: Method::PUT, ..post("/account/1", "{}", 405, "method-not-allowed") },
        Case { method: Method::DELETE, ..get("/account", 405, "method-not-allowed") },
        Case { method: Method::DELETE, ..get("/account/1", 405, "method-not-allowed") },
        Case { method: Method::GET, ..get("/account/1/commands", 405, "method-not-allowed") },
        Case { method: Method::POST, ..post("/events", "{}", 405, "method-not-allowed") },
        post("/order/1", "{}", 405, "method-not-allowed"),
        // 409 and 410: exists or is deleted
        post("/account", r#"{"id":"1"}"#, 409, "already-exists"),
        post("/account/1/commands", r#"{"command":"OpenAccount"}"#, 409, "already-exists"),
        with("if-match", "\"2\"", post("/todo/1", update, 409, "version-conflict")),
        with("if-match", "999999999999", post("/todo/1", update, 409, "version-conflict")),
        with("if-match", "\"1\"", post("/account/2/commands", r#"{"command":"OpenAccount"}"#, 400, "bad-header")),
        with("if-match", "*", post("/account/2/commands", r#"{"command":"OpenAccount"}"#, 412, "precondition-failed")),
        post("/account/2/commands", r#"[{"command":"OpenAccount"},{"command":"OpenAccount"}]"#, 409, "already-exists"),
        get("/todo/gone", 410, "deleted"),
        get("/todo/gone?rebuild=true", 410, "deleted"),
        post("/todo/gone", update, 410, "deleted"),
        // 413: too large for DynamoDB
        post("/todo", &huge, 413, "too-large"),
        post("/todo", &large, 413, "too-large"),
        post("/account/1/commands", &hundred, 413, "too-large"),
        post("/todo/1/commands", &heavy, 413, "too-large"),
        // 415: not JSON
        Case { headers: vec![], ..post("/account", "{}", 415, "not-json") },
        Case { headers: vec![("content-type", "text/plain")], ..post("/account/1", "{}", 415, "not-json") },
        Case {
            headers: vec![("content-type", "application/x-www-form-urlencoded")],
            ..post("/account/1/commands", "a=1", 415, "not-json")
        },
        // 422: parsed, and invalid
        post("/account", "[]", 422, "bad-body"),
        post("/account", "7", 422, "bad-body"),
        post("/account", r#"{"id":7}"#, 422, "bad-body"),
        post("/account", r#"{"id":"x","id":"y"}"#, 422, "bad-body"),
        post("/account", r#"{"owner":"x"}"#, 422, "invalid-command"),
        post("/todo", r#"{"title":"x","title":"y","message":""}"#, 422, "invalid-command"),
        post("/todo", r#"{"title":"x"}"#, 422, "invalid-command"),
        post("/todo", r#"{"title":" ","message":""}"#, 422, "refused"),
        post("/account/1/commands", "[]", 422, "bad-body"),
        post("/account/1/commands", "\"x\"", 422, "bad-body"),
        post("/account/2/commands", r#"[["OpenAccount",{}]]"#, 422, "bad-body"),
        post("/account/1/commands", r#"["RecordTransaction",{"desc":"A","amount":1}]"#, 422, "bad-body"),
        post("/account/1", r#"["a","b"]"#, 422, "invalid-command"),
        post("/order", r#"{"customerId":"a","items":[["coffee",2]],"total":1}"#, 422, "invalid-command"),
        post(
            "/order",
            r#"{"customerId":"a","items":{"productId":"coffee","quantity":2},"total":1}"#,
            422,
            "invalid-command",
        ),
        post("/account/1/commands", r#"{"data":{}}"#, 422, "bad-body"),
        post("/account/1/commands", r#"{"command":"OpenAccount","dta":{}}"#, 422, "bad-body"),
        post("/account/1/commands", r#"{"command":"Nothing","data":{}}"#, 422, "unknown-command"),
        post("/account/1/commands", r#"{"command":"RecordTransaction"}"#, 422, "invalid-command"),
        post(
            "/account/1/commands",
            r#"{"command":"RecordTransaction","data":{"desc":"A","amount":1.5}}"#,
            422,
            "invalid-command",
        ),
        post(
            "/account/1/commands",
            r#"{"command":"RecordTransaction","data":{"desc":"A","amount":9223372036854775808}}"#,
            422,
            "invalid-command",
        ),
        post(
            "/account/1/commands",
            r#"[{"command":"RecordTransaction","data":{"desc":"A","amount":1}},{"command":"Nothing"}]"#,
            422,
            "unknown-command",
        ),
        Case { method: Method::DELETE, ..post("/todo/1", r#"{"a":1}"#, 422, "bad-body") },
    ];
    for Case { method, path, headers, body, status, slug } in cases {
        println!("{method} {path} {headers:?} {}", body.map_or("", |body| &body[..body.len().min(100)]));
        let response = suite.send(method, path, &headers, body).await.expect_problem(status, slug);
        let detail = response.body["detail"].as_str().unwrap();
        for name_of_the_source in [
            "struct",
            "enum",
            "::",
            "CommandRequest",
            "sequence",
            "i64",
            "u32",
            "u64",
            "floating",
            "deserialize",
            "digit found",
        ] {
            assert!(!detail.contains(name_of_the_source), "{detail}");
        }
    }
    assert_eq!(rows(&suite).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_member_is_reported_with_its_path() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    for (path, body, detail) in [
        (
            "/order",
            r#"{"customerId":"a","items":[{"productId":"tea","quantity":1},["coffee",2]],"total":1}"#,
            "PlaceOrder: data.items[1]: invalid type: array, expected an object",
        ),
        ("/account/1", r#"["a","b"]"#, "UpdateOwner: data: invalid type: array, expected an object"),
        (
            "/account/1/commands",
            r#"[{"command":"OpenAccount"},["OpenAccount",{}]]"#,
            r#"the body must be {"command", "data"} or an array of them: [1]: invalid type: array, expected an object"#,
        ),
        (
            "/account/1/commands",
            r#"{"command":7}"#,
            r#"the body must be {"command", "data"} or an array of them: command: invalid type: integer `7`, expected a string"#,
        ),
    ] {
        let response = suite.send(Method::POST, path, &[JSON], Some(body)).await.expect(422);
        assert_eq!(response.body["detail"], detail);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_query_is_reported_with_its_parameter() {
    let suite = Suite::start().await;
    let number = format!("a whole number from 0 to {}", u64::MAX);
    for (path, detail) in [
        ("/account/1?version=x", format!("version must be {number}")),
        ("/account/1?version=", format!("version must be {number}")),
        ("/account/1?version=-1", format!("version must be {number}")),
        ("/account/1?version=18446744073709551616", format!("version must be {number}")),
        ("/account/1/events?limit=1.0", format!("limit must be {number}")),
        ("/account/1/events?limit=1001", "limit must be from 1 to 1000".to_owned()),
        ("/account/1?rebuild=1", "rebuild must be true or false".to_owned()),
        ("/account/1?verson=1", r#"there is no parameter "verson" here; known: version, rebuild"#.to_owned()),
        ("/account/1?=x", r#"there is no parameter "" here; known: version, rebuild"#.to_owned()),
        ("/account/1?version=1&version=1", "the parameter version comes twice".to_owned()),
        ("/events", "the parameter type is missing".to_owned()),
        ("/openapi.json?version=3", r#"there is no parameter "version" here, nor any other"#.to_owned()),
    ] {
        let response = suite.get(path).await.expect_problem(400, "bad-query");
        assert_eq!(response.body["detail"], detail, "{path}");
    }
    // Valid queries are accepted, including escapes.
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    for path in
        ["/account/1?version=1&rebuild=true", "/account/1?%76ersion=%31", "/account/1?", "/account/1?rebuild=false"]
    {
        suite.get(path).await.expect(200);
    }
    suite.get("/events?type=AccountOpened&limit=1").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_version_or_command_array_is_reported_with_the_reason() {
    let suite = Suite::start().await;
    let todo = r#"{"title":"x","message":""}"#;
    let create = r#"{"command":"CreateTodo","data":{"title":"x","message":""}}"#;
    let [delete, update] = [r#"{"command":"DeleteTodo"}"#, &create.replace("Create", "Update")];
    for (path, headers, body, status, slug, detail) in [
        (
            "/todo",
            &[JSON, ("if-match", "\"3\"")][..],
            todo.to_owned(),
            400,
            "bad-header",
            "If-Match must be left out of a creation: what is new has no version yet",
        ),
        (
            "/todo/1/commands",
            &[JSON, ("if-match", "\"3\"")],
            create.to_owned(),
            400,
            "bad-header",
            "If-Match must be left out of a creation: what is new has no version yet",
        ),
        (
            "/todo/1",
            &[JSON, ("if-match", "\"1\""), ("if-match", "\"2\"")],
            todo.to_owned(),
            400,
            "bad-header",
            "If-Match must be sent once",
        ),
        (
            "/todo",
            &[JSON, ("if-none-match", "*")],
            todo.to_owned(),
            400,
            "bad-header",
            "If-None-Match must be left out of a write: a creation never overwrites, and a change names its version by \
             If-Match",
        ),
        (
            "/todo/1/commands",
            &[JSON],
            format!("[{create},{create}]"),
            409,
            "already-exists",
            "command 2 of the array creates it again",
        ),
        (
            "/todo/1/commands",
            &[JSON],
            format!("[{create},{delete},{update}]"),
            410,
            "deleted",
            "command 3 of the array comes after its deletion",
        ),
    ] {
        let response = suite.send(Method::POST, path, headers, Some(&body)).await.expect_problem(status, slug);
        assert_eq!(
            (&response.body["detail"], response.header("etag")),
            (&json!(detail), ""),
            "{path} {headers:?} {body}"
        );
    }
    // For an existing and a deleted aggregate, the problem describes its state.
    suite.send(Method::POST, "/todo/1/commands", &[JSON], Some(create)).await.expect(201);
    let commands = async |body: String| suite.send(Method::POST, "/todo/1/commands", &[JSON], Some(&body)).await;
    let again = commands(format!("[{update},{create}]")).await.expect_problem(409, "already-exists");
    assert!(again.body["detail"].as_str().unwrap().contains("ids are used once"), "{}", again.body);
    let late = commands(format!("[{delete},{update}]")).await.expect_problem(410, "deleted");
    assert_eq!(late.body["detail"], "command 2 of the array comes after its deletion");
    suite.send(Method::DELETE, "/todo/1", &[], None).await.expect(200);
    let gone = commands(format!("[{update},{delete}]")).await.expect_problem(410, "deleted");
    assert!(gone.body["detail"].as_str().unwrap().contains("its events can be read"), "{}", gone.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn method_that_is_not_allowed_gets_the_allowed_methods() {
    let suite = Suite::start().await;
    for (path, allowed) in [
        ("/account", "POST,GET,HEAD"),
        ("/account/1", "GET,HEAD,POST"),
        ("/order/1", "GET,HEAD"),
        ("/todo/1", "GET,HEAD,POST,DELETE"),
        ("/account/1/commands", "POST"),
        ("/account/1/events", "GET,HEAD"),
        ("/events", "GET,HEAD"),
    ] {
        let response = suite.send(Method::PATCH, path, &[], None).await.expect_problem(405, "method-not-allowed");
        assert_eq!(response.header("allow"), allowed, "{path}");
    }
    for (method, path) in [(Method::POST, "/order/1"), (Method::DELETE, "/order/1")] {
        let response = suite.send(method, path, &[], None).await.expect_problem(405, "method-not-allowed");
        assert_eq!(response.header("allow"), "GET,HEAD");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn internal_error_response_contains_no_internal_text() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    let transaction = transaction();
    let sound = row(&suite, "EVENT#000000000001").await;
    // The local stack explains such an error, and a deployed API does not.
    let deployed = deployed(&suite);
    // The event is unreadable. This is an internal error, whose details the caller does not see.
    for (attribute, value) in [
        ("data", AttributeValue::S(r#"{"id":"1","Secret":"#.into())),
        ("data", AttributeValue::S(r#"{"Secret":7}"#.into())),
        ("occurredAt", AttributeValue::S("Secret".into())),
        ("eventId", AttributeValue::S("Secret".into())),
        ("messageSeq", AttributeValue::S("Secret".into())),
        ("eventType", AttributeValue::Bool(true)),
        ("meta", AttributeValue::S("Secret".into())),
    ] {
        let corrupt = sound.clone().into_iter().chain([(attribute.to_owned(), value)]).collect();
        put(&suite, corrupt).await;
        for (method, path, body) in [
            (Method::GET, "/account/1?rebuild=true", None),
            (Method::GET, "/account/1?version=1", None),
            (Method::POST, "/account/1/commands?rebuild=true", Some(transaction.as_str())),
        ] {
            let local = suite.send(method.clone(), path, &[JSON], body).await.expect_problem(500, "internal");
            assert!(local.body["detail"].as_str().unwrap().contains("account"), "{}", local.body);
            let body = body.map(|body| serde_json::from_str(body).unwrap());
            let response = instance::send(&deployed, method, path, &[], body).await.expect_problem(500, "internal");
            assert_eq!(response.body["detail"], "the service failed; its log contains the reason", "{attribute}");
        }
    }
    put(&suite, sound).await;
    // The same holds for an unreadable stored response.
    let keyed = [JSON, ("idempotency-key", "k")];
    suite.send(Method::POST, "/account/1/commands", &keyed, Some(&transaction)).await.expect(200);
    let mut kept = row(&suite, "IDEMPOTENCY#k").await;
    kept.insert("status".into(), AttributeValue::S("Secret".into()));
    put(&suite, kept).await;
    let body = serde_json::from_str(&transaction).unwrap();
    let again = instance::send(&deployed, Method::POST, "/account/1/commands", &keyed[1..], Some(body)).await;
    assert!(!again.expect_problem(500, "internal").body.to_string().contains("Secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn event_of_a_newer_release_gets_a_retryable_503() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    let transaction = transaction();
    let sound = row(&suite, "EVENT#000000000001").await;
    for (attribute, value) in
        [("eventType", AttributeValue::S("Secret".into())), ("eventVersion", AttributeValue::N("99".into()))]
    {
        put(&suite, sound.clone().into_iter().chain([(attribute.to_owned(), value)]).collect()).await;
        for (method, path, body) in [
            (Method::GET, "/account/1?rebuild=true", None),
            (Method::POST, "/account/1/commands?rebuild=true", Some(transaction.as_str())),
        ] {
            let response = suite.send(method, path, &[JSON], body).await.expect_problem(503, "newer-release");
            assert_eq!(response.header("retry-after"), "1");
            assert!(!response.body.to_string().contains("Secret"), "{}", response.body);
        }
    }
    // The next request succeeds, as if another instance handled it.
    put(&suite, sound).await;
    suite.get("/account/1?rebuild=true").await.expect(200);
}

/// An API over the table, as it is deployed.
fn deployed(suite: &Suite) -> axum::Router {
    let settings = StoreSettings::new(suite.stack.table_name());
    let store = EventStore::new(&aws_config_at(suite.stack.dynamodb_url()), settings);
    router(Api::new(aggregates::registry().unwrap(), store, instance::settings()))
}

fn transaction() -> String {
    json!({"command": "RecordTransaction", "data": {"desc": "", "amount": 1}}).to_string()
}

/// A row of the account `1`.
async fn row(suite: &Suite, sk: &str) -> HashMap<String, AttributeValue> {
    let key = [("pk", "AGGREGATE#account#1"), ("sk", sk)];
    let key = key.map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_owned()))).into();
    let read = suite.table().get_item().table_name(suite.stack.table_name()).set_key(Some(key)).send().await;
    read.unwrap().item.unwrap()
}

async fn put(suite: &Suite, row: HashMap<String, AttributeValue>) {
    suite.table().put_item().table_name(suite.stack.table_name()).set_item(Some(row)).send().await.unwrap();
}
