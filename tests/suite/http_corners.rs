//! The less usual requests: conditions in every form, repeated headers, batches that are refused, and requests to what does
//! not exist.

use axum::body::Body;
use axum::http::{Method, Request};
use daybook_command_handler::ApiSettings;
use daybook_local_aws::dynamodb::LocalDynamoDb;

use serde_json::{Value, json};
use suite_tests::ApiResponse;

use crate::instance::{Instance, request, send, settings};

fn todo(title: &str) -> Value {
    json!({"title": title, "message": ""})
}

/// An instance with the to-do `1`, and the deleted to-do `gone`.
async fn instance_with(settings: ApiSettings) -> Instance {
    let engine = LocalDynamoDb::in_memory().await.unwrap();
    let instance = Instance::with(engine, aggregates::registry().unwrap(), settings).await;
    for id in ["1", "gone"] {
        instance.post("/todo", json!({"id": id, "title": "TODO", "message": ""})).await.expect(201);
    }
    let delete = request(Method::DELETE, "/todo/gone", &[("if-match", "1")], None);
    instance.ask(delete).await.expect(200);
    instance
}

async fn instance() -> Instance {
    instance_with(settings()).await
}

async fn post(instance: &Instance, path: &str, headers: &[(&str, &str)], body: Value) -> ApiResponse {
    send(&instance.router, Method::POST, path, headers, Some(body)).await
}

async fn post_if_match(instance: &Instance, path: &str, if_match: &str, body: Value) -> ApiResponse {
    post(instance, path, &[("if-match", if_match)], body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn if_match_accepts_the_etag_and_the_bare_version() {
    let instance = instance().await;
    let mut version = 1;
    for form in ["\"{}-2\"", "{}-2", "\"{}\"", "{}", " \"{}-2\" ", "W/\"{}-2\"", "W/\"{}\"", "\"{}-7\""] {
        let stale = form.replace("{}", "9");
        let conflict = post_if_match(&instance, "/todo/1", &stale, todo("x")).await;
        let conflict = conflict.expect_problem(409, "version-conflict");
        assert_eq!(conflict.header("etag"), format!("\"{version}-2\""));
        assert_eq!((&conflict.body["expected"], &conflict.body["actual"]), (&json!(9), &json!(version)));

        let current = form.replace("{}", &version.to_string());
        let written = post_if_match(&instance, "/todo/1", &current, todo(form)).await.expect(200);
        version += 1;
        assert_eq!(written.header("etag"), format!("\"{version}-2\""), "{form}");
    }
    for malformed in [
        "\"1-\"",
        "\"-1\"",
        "\"1-x\"",
        "\"1-1-x\"",
        "\"1-1-1-1\"",
        "w/\"1\"",
        "W/",
        "\"1",
        "1\"",
        "",
        "\"*\"",
        "+1",
        "W/1",
    ] {
        post_if_match(&instance, "/todo/1", malformed, todo("x")).await.expect_problem(400, "bad-header");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn if_none_match_compares_the_whole_etag_weakly() {
    let instance = instance().await;
    for (tags, status) in [
        ("\"1-2\"", 304),
        ("W/\"1-2\"", 304),
        ("\"7-2\", W/\"1-2\"", 304),
        ("*", 304),
        ("\"1-1\"", 200),
        ("\"1\"", 200),
        ("1-2", 200),
        ("\"2-2\"", 200),
        ("\u{e9}", 200),
    ] {
        let answer = send(&instance.router, Method::GET, "/todo/1", &[("if-none-match", tags)], None).await;
        assert_eq!((answer.status.as_u16(), answer.header("etag")), (status, "\"1-2\""), "{tags}");
    }
    let earlier = send(&instance.router, Method::GET, "/todo/1?version=1", &[("if-none-match", "\"1-2\"")], None).await;
    assert_eq!(earlier.status, 304);
}

#[tokio::test(flavor = "multi_thread")]
async fn if_match_with_a_star_requires_that_the_aggregate_exists() {
    let instance = instance().await;
    post_if_match(&instance, "/todo/1", "*", todo("x")).await.expect(200);
    post_if_match(&instance, "/todo/nobody", "*", todo("x")).await.expect_problem(404, "not-found");
    post_if_match(&instance, "/todo/gone", "*", todo("x")).await.expect_problem(410, "deleted");
    let create = json!({"command": "CreateTodo", "data": todo("x")});
    for (path, body) in [
        ("/todo", json!({"id": "2", "title": "x", "message": ""})),
        ("/todo/2/commands", create.clone()),
        ("/todo/2/commands", json!([create, {"command": "DeleteTodo"}])),
    ] {
        post_if_match(&instance, path, "*", body).await.expect_problem(412, "precondition-failed");
    }
    instance.get("/todo/2").await.expect_problem(404, "not-found");

    let strict = instance_with(ApiSettings { require_if_match: true, ..settings() }).await;
    post_if_match(&strict, "/todo/1", "*", todo("x")).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn create_command_takes_no_if_match() {
    let instance = instance().await;
    let create = json!({"command": "CreateTodo", "data": todo("x")});
    for if_match in ["\"0\"", "\"1\"", "3", "\"1-2\""] {
        for (path, body) in [
            ("/todo", json!({"id": "2", "title": "x", "message": ""})),
            ("/todo/2/commands", create.clone()),
            ("/todo/2/commands", json!([create, {"command": "DeleteTodo"}])),
        ] {
            let refused = post_if_match(&instance, path, if_match, body).await.expect_problem(400, "bad-header");
            let detail = "If-Match must be left out of a creation: what is new has no version yet";
            assert_eq!(refused.body["detail"], detail, "{path} {if_match}");
        }
    }
    instance.get("/todo/2").await.expect_problem(404, "not-found");
    post(&instance, "/todo/2/commands", &[], create).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_aggregate_is_reported_before_a_missing_if_match_or_wrong_fields() {
    for settings in [settings(), ApiSettings { require_if_match: true, ..settings() }] {
        let strict = settings.require_if_match;
        let instance = instance_with(settings).await;
        let invalid = (422, "invalid-command");
        for (id, status, slug, of_invalid) in
            [("nobody", 404, "not-found", (404, "not-found")), ("gone", 410, "deleted", invalid)]
        {
            post(&instance, &format!("/todo/{id}"), &[], todo("x")).await.expect_problem(status, slug);
            for body in [json!({"colour": "red"}), json!([]), json!(7)] {
                post(&instance, &format!("/todo/{id}"), &[], body).await.expect_problem(of_invalid.0, of_invalid.1);
            }
            let path = format!("/todo/{id}/commands");
            for body in [
                json!({"command": "UpdateTodo", "data": {"colour": "red"}}),
                json!([{"command": "UpdateTodo", "data": todo("x")}, {"command": "UpdateTodo"}]),
            ] {
                post(&instance, &path, &[], body).await.expect_problem(of_invalid.0, of_invalid.1);
            }
            let delete = request(Method::DELETE, &format!("/todo/{id}"), &[], None);
            instance.ask(delete).await.expect_problem(status, slug);
        }
        // Who may not send the command does not learn that it lacks something else, and that is not known without its data.
        post(&instance, "/todo/1", &[], json!({"colour": "red"})).await.expect_problem(422, "invalid-command");
        let (status, slug) = if strict { (428, "if-match-required") } else { (200, "") };
        let changed = post(&instance, "/todo/1", &[], todo("x")).await;
        if strict {
            changed.expect_problem(status, slug)
        } else {
            changed.expect(status)
        };
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_request_with_another_form_of_if_match_is_the_same_request() {
    let instance = instance().await;
    let keyed = async |if_match: &str| {
        post(&instance, "/todo/1", &[("idempotency-key", "k"), ("if-match", if_match)], todo("x")).await
    };
    let first = keyed("\"1-2\"").await.expect(200);
    for form in ["\"1\"", "1", "1-2", "W/\"1-2\"", "\"1-7\""] {
        let again = keyed(form).await.expect(200);
        assert_eq!((again.header("idempotency-replayed"), &again.body), ("true", &first.body), "{form}");
        assert_eq!(again.header("etag"), "\"2-2\"");
    }
    keyed("2").await.expect_problem(422, "key-reused");
    keyed("*").await.expect_problem(422, "key-reused");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_type_is_not_found_whatever_the_method() {
    let instance = instance().await;
    for method in [Method::PUT, Method::PATCH, Method::OPTIONS] {
        for path in ["/nosuch", "/nosuch/a", "/nosuch/a/commands", "/nosuch/a/events"] {
            let unknown = instance.ask(request(method.clone(), path, &[], None)).await;
            assert_eq!(unknown.expect_problem(404, "unknown-type").header("allow"), "");
        }
        instance.ask(request(method.clone(), "/todo/1", &[], None)).await.expect_problem(405, "method-not-allowed");
        instance.ask(request(method.clone(), "/events", &[], None)).await.expect_problem(405, "method-not-allowed");
    }
    instance.ask(request(Method::DELETE, "/nosuch", &[], None)).await.expect_problem(404, "unknown-type");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_within_a_batch_names_the_position_of_its_command() {
    let instance = instance().await;
    instance.post("/account", json!({"id": "1"})).await.expect(201);
    let pay = |amount: i64| json!({"command": "RecordTransaction", "data": {"desc": "", "amount": amount}});
    let wrong = json!({"command": "RecordTransaction", "data": {"desc": ""}});
    let open = json!({"command": "OpenAccount"});
    let update = json!({"command": "UpdateTodo", "data": todo("x")});
    let delete = json!({"command": "DeleteTodo"});
    for (path, batch, index, slug) in [
        ("/account/1", json!([pay(1), pay(2), pay(-5000), pay(1)]), 2, "refused"),
        ("/account/1", json!([pay(-5000)]), 0, "refused"),
        ("/account/1", json!([pay(1), {"command": "Nothing"}]), 1, "unknown-command"),
        ("/account/1", json!([pay(1), pay(1), wrong]), 2, "invalid-command"),
        ("/account/2", json!([open, pay(1), open]), 2, "already-exists"),
        ("/account/1", json!([pay(1), open]), 1, "already-exists"),
        ("/todo/1", json!([update, delete, update]), 2, "deleted"),
    ] {
        let answer = post(&instance, &format!("{path}/commands"), &[], batch.clone()).await;
        assert_eq!(
            (&answer.body["index"], &answer.body["type"]),
            (&json!(index), &json!(format!("urn:daybook:problem:{slug}"))),
            "{batch}"
        );
    }
    // A request of one command needs no position.
    for (path, body) in [
        ("/account/1/commands", pay(-5000)),
        ("/account/1/commands", json!({"command": "Nothing"})),
        ("/account/1/commands", wrong),
        ("/account/1/commands", open),
        ("/account/1", json!(["a", "b"])),
        ("/account", json!({"id": "1"})),
    ] {
        let answer = instance.post(path, body.clone()).await;
        assert!(answer.status.is_client_error() && answer.body.get("index").is_none(), "{body}: {}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn header_that_may_come_once_is_rejected_when_it_is_repeated_or_joined() {
    let instance = instance().await;
    for (name, values) in [
        ("if-match", &["\"1-2\"", "\"2-2\""][..]),
        ("if-match", &["*", "*"]),
        ("if-match", &["1", "1"]),
        ("idempotency-key", &["k", "k"]),
        ("idempotency-key", &["\"a\"", "\"b\""]),
        ("content-type", &["application/json", "application/json"]),
        ("content-type", &["text/plain", "application/json; charset=utf-8"]),
    ] {
        let request = |values: &[&str]| {
            let mut request = Request::post("/todo/1");
            if name != "content-type" {
                request = request.header("content-type", "application/json");
            }
            for value in values {
                request = request.header(name, *value);
            }
            request.body(Body::from(todo("x").to_string())).unwrap()
        };
        // API Gateway joins repeated headers by commas.
        for request in [request(values), request(&[&values.join(",")]), request(&[&values.join(", ")])] {
            let answer = instance.ask(request).await.expect_problem(400, "bad-header");
            let detail = answer.body["detail"].as_str().unwrap();
            assert!(detail.to_lowercase().starts_with(&format!("{name} must be sent once")), "{detail}");
        }
    }
    // A comma within quotes separates nothing.
    let quoted = [("idempotency-key", "\"a,b\"")];
    post(&instance, "/todo/1", &quoted, todo("y")).await.expect(200);
    assert_eq!(post(&instance, "/todo/1", &quoted, todo("y")).await.header("idempotency-replayed"), "true");
    let typed = Request::post("/todo/1").header("content-type", "application/json; profile=\"a,b\"");
    instance.ask(typed.body(Body::from(todo("z").to_string())).unwrap()).await.expect(200);
}
