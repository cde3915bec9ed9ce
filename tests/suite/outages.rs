//! DynamoDB slow or away: the caller is told when to come back, and nothing is half-written.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, Response};
use command_handler::Settings;
use lambda_http::{Context, RequestExt};
use local_dynamodb::{Fault, LocalDynamoDb};
use serde_json::{Value, json};

use crate::instance::{Instance, answer, settings, time_left};

/// What Lambda says of an invocation that has little time left.
pub(crate) fn in_a_hurry() -> Context {
    time_left(Duration::from_millis(900))
}

fn create(id: &str) -> Request<Body> {
    let body = json!({"id": id, "title": "TODO", "message": ""}).to_string();
    Request::post("/todo").header("content-type", "application/json").body(Body::from(body)).unwrap()
}

async fn problem(answer: Response<Body>) -> Value {
    serde_json::from_slice(&to_bytes(answer.into_body(), 10_000).await.unwrap()).unwrap()
}

#[tokio::test]
async fn contention_and_throttling_that_pass_are_not_noticed() {
    let instance = Instance::start().await;
    instance.wire.fail_next("TransactWriteItems", Fault::Cancel { codes: vec!["None", "TransactionConflict", "None"] });
    instance.wire.fail_next("TransactWriteItems", Fault::Refuse { status: 400, code: "ThrottlingException" });
    instance.wire.fail_next("TransactWriteItems", Fault::BreakAfter);
    assert_eq!(instance.answer(create("1")).await.status(), 201);
    let state = instance.send(Method::GET, "/todo/1", None).await;
    assert_eq!((state.status().as_u16(), &state.headers()["etag"]), (200, &"\"1\"".parse().unwrap()));
}

#[tokio::test]
async fn throttling_that_lasts_is_a_503_that_says_when_to_come_back() {
    let instance = Instance::start().await;
    for _ in 0..100 {
        instance.wire.fail_next("TransactWriteItems", Fault::Refuse { status: 400, code: "ThrottlingException" });
    }
    let answer = instance.answer(create("1").with_lambda_context(in_a_hurry())).await;
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    let problem = problem(answer).await;
    assert_eq!(problem["type"], "urn:daybook:problem:unavailable");
    assert!(!problem.to_string().contains("Throttling"), "{problem}");
    assert_eq!(instance.send(Method::GET, "/todo/1", None).await.status(), 404);
}

#[tokio::test]
async fn a_permission_that_is_missing_is_our_fault_and_not_the_callers() {
    let instance = Instance::start().await;
    instance.wire.fail_next("TransactWriteItems", Fault::Refuse { status: 400, code: "AccessDeniedException" });
    let answer = instance.answer(create("1")).await;
    assert_eq!(answer.status(), 500);
    assert!(!problem(answer).await.to_string().contains("AccessDenied"));
}

/// No writer was faster, so nobody is told to come back: somebody has to look.
#[tokio::test]
async fn a_damaged_aggregate_is_told_from_a_busy_one() {
    for lost in ["EVENT#000000000002", "#METADATA"] {
        let first = Instance::start().await;
        assert_eq!(first.answer(create("1")).await.status(), 201);
        let update = |message| Some(json!({"title": "TODO", "message": message}));
        assert_eq!(first.send(Method::POST, "/todo/1", update("Make coffee")).await.status(), 200);
        let table = aws_sdk_dynamodb::Client::new(&startup::aws_config_at(first.engine.url()));
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let deletion = table.delete_item().table_name("daybook-test").key("pk", text("AGGREGATE#todo#1"));
        deletion.key("sk", text(lost)).send().await.unwrap();

        for path in ["/todo/1", "/todo/1?rebuild=true"] {
            let router = first.beside();
            let body = Body::from(update("Drink coffee").unwrap().to_string());
            let request = Request::post(path).header("content-type", "application/json").body(body).unwrap();
            let answer = answer(&router, request).await;
            assert_eq!(answer.status(), 500, "{path} without {lost}");
            assert_eq!(problem(answer).await["type"], "urn:daybook:problem:internal");
        }
    }
}

#[tokio::test]
async fn a_write_must_say_what_it_saw_where_that_is_required() {
    let engine = LocalDynamoDb::in_memory().await.unwrap();
    let settings = Settings { require_if_match: true, ..settings() };
    let instance = Instance::with(engine, aggregates::registry().unwrap(), settings).await;
    assert_eq!(instance.answer(create("1")).await.status(), 201);

    let update = json!({"title": "TODO", "message": "Make coffee"});
    let without = instance.send(Method::POST, "/todo/1", Some(update.clone())).await;
    assert_eq!(without.status(), 428);
    assert_eq!(problem(without).await["type"], "urn:daybook:problem:if-match-required");
    assert_eq!(instance.send(Method::DELETE, "/todo/1", None).await.status(), 428);

    let with = Request::post("/todo/1").header("content-type", "application/json").header("if-match", "1");
    assert_eq!(instance.answer(with.body(Body::from(update.to_string())).unwrap()).await.status(), 200);
}

#[tokio::test]
async fn a_table_that_does_not_answer_is_a_503_before_the_time_is_up() {
    let instance = Instance::start().await;
    for operation in ["Query", "GetItem", "TransactWriteItems"] {
        for _ in 0..20 {
            instance.wire.fail_next(operation, Fault::Hang);
        }
    }
    let read = Request::get("/todo/1").body(Body::empty()).unwrap();
    for request in [read, create("1")] {
        let answer = instance.answer(request.with_lambda_context(in_a_hurry())).await;
        assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (503, &"1".parse().unwrap()));
        assert!(answer.headers().contains_key("x-correlation-id"));
    }
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_no_conflict_with_itself() {
    let unknown = || [Fault::BreakAfter, Fault::Refuse { status: 500, code: "InternalServerError" }];
    for first in unknown() {
        for if_match in [None, Some("\"1\"")] {
            let instance = Instance::start().await;
            assert_eq!(instance.answer(create("1")).await.status(), 201);
            instance.wire.fail_next("TransactWriteItems", first.clone());
            // As DynamoDB answers where it has forgotten the token, if the first attempt was carried out.
            if matches!(first, Fault::BreakAfter) {
                let codes = vec!["ConditionalCheckFailed", "ConditionalCheckFailed", "ConditionalCheckFailed"];
                instance.wire.fail_next("TransactWriteItems", Fault::Cancel { codes });
            }
            let mut update = Request::post("/todo/1").header("content-type", "application/json");
            if let Some(version) = if_match {
                update = update.header("if-match", version);
            }
            let body = json!({"title": "TODO", "message": "Make coffee"}).to_string();
            let answer = instance.answer(update.body(Body::from(body)).unwrap()).await;
            assert_eq!((answer.status().as_u16(), &answer.headers()["etag"]), (200, &"\"2\"".parse().unwrap()));
            let told = problem(answer).await["events"].take();
            let events = problem(instance.send(Method::GET, "/todo/1/events?after=1", None).await).await;
            assert_eq!(events["events"], told, "exactly what was answered is there, {first:?} {if_match:?}");
        }
    }
}
