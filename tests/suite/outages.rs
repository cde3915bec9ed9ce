//! DynamoDB slow or unavailable: the response has `Retry-After`, and nothing is partly written.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use axum::body::Body;
use axum::http::{Method, Request};
use daybook_command_handler::ApiSettings;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_table::AggregateKey;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::log;
use lambda_http::{Context, RequestExt};
use serde_json::json;

use crate::instance::{Instance, request, send, settings, time_left};

/// The Lambda context of an invocation with little time left.
pub(crate) fn in_a_hurry() -> Context {
    time_left(Duration::from_millis(900))
}

fn create(id: &str) -> Request<Body> {
    request(Method::POST, "/todo", &[], Some(json!({"id": id, "title": "TODO", "message": ""})))
}

#[tokio::test]
async fn transient_contention_and_throttling_are_retried() {
    let instance = Instance::start().await;
    instance
        .table
        .proxy
        .fail_next("TransactWriteItems", InjectedFault::Cancel { codes: vec!["None", "TransactionConflict", "None"] });
    instance
        .table
        .proxy
        .fail_next("TransactWriteItems", InjectedFault::Refuse { status: 400, code: "ThrottlingException" });
    instance.table.proxy.fail_next("TransactWriteItems", InjectedFault::BreakAfter);
    instance.ask(create("1")).await.expect(201);
    assert_eq!(instance.get("/todo/1").await.expect(200).header("etag"), "\"1-2\"");
}

#[tokio::test]
async fn lasting_throttling_gets_a_503_with_retry_after() {
    let instance = Instance::start().await;
    for _ in 0..100 {
        instance
            .table
            .proxy
            .fail_next("TransactWriteItems", InjectedFault::Refuse { status: 400, code: "ThrottlingException" });
    }
    let response = instance.ask(create("1").with_lambda_context(in_a_hurry())).await.expect_problem(503, "unavailable");
    assert_eq!(response.header("retry-after"), "1");
    assert!(!response.text.contains("Throttling"), "{}", response.text);
    instance.get("/todo/1").await.expect(404);
}

#[tokio::test]
async fn missing_permission_gets_a_500() {
    let instance = Instance::start().await;
    instance
        .table
        .proxy
        .fail_next("TransactWriteItems", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
    let response = instance.ask(create("1")).await.expect(500);
    assert!(!response.text.contains("AccessDenied"));
}

/// There was no concurrent writer, so a retry does not help: the damage needs an operator.
#[tokio::test]
async fn damaged_aggregate_gets_a_500_instead_of_a_conflict() {
    for lost in ["EVENT#000000000002", "#METADATA"] {
        let first = Instance::start().await;
        first.ask(create("1")).await.expect(201);
        let update = |message| json!({"title": "TODO", "message": message});
        first.post("/todo/1", update("Make coffee")).await.expect(200);
        let table = aws_sdk_dynamodb::Client::new(&daybook_function_runtime::aws_config_at(first.table.engine.url()));
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let deletion = table.delete_item().table_name("daybook-test").key("pk", text("AGGREGATE#todo#1"));
        deletion.key("sk", text(lost)).send().await.unwrap();

        for path in ["/todo/1", "/todo/1?rebuild=true"] {
            let response = send(&first.beside(), Method::POST, path, &[], Some(update("Drink coffee"))).await;
            assert_eq!(response.status, 500, "{path} without {lost}");
            response.expect_problem(500, "internal");
        }
        // With `If-Match`, the response is not a conflict either.
        if lost == "#METADATA" {
            let seen = [("if-match", "2")];
            let response = send(&first.router, Method::POST, "/todo/1", &seen, Some(update("Drink coffee"))).await;
            response.expect_problem(500, "internal");
        }
    }
}

#[tokio::test]
async fn briefly_outdated_metadata_are_not_reported_as_damage() {
    let instance = Instance::start().await;
    instance.ask(create("1")).await.expect(201);
    let codes = vec!["ConditionalCheckFailed", "None", "None"];
    instance.table.proxy.fail_next("TransactWriteItems", InjectedFault::Cancel { codes });
    instance.post("/todo/1?rebuild=true", json!({"title": "TODO", "message": "Make coffee"})).await.expect(200);
}

#[tokio::test]
async fn write_without_if_match_is_rejected_where_it_is_required() {
    let engine = LocalDynamoDb::in_memory().await.unwrap();
    let settings = ApiSettings { require_if_match: true, ..settings() };
    let instance = Instance::with(engine, aggregates::registry().unwrap(), settings).await;
    instance.ask(create("1")).await.expect(201);

    let update = json!({"title": "TODO", "message": "Make coffee"});
    instance.post("/todo/1", update.clone()).await.expect_problem(428, "if-match-required");
    instance.ask(request(Method::DELETE, "/todo/1", &[], None)).await.expect(428);
    instance.ask(request(Method::POST, "/todo/1", &[("if-match", "1")], Some(update))).await.expect(200);
}

#[tokio::test]
async fn log_line_of_a_failed_request_has_the_correlation_id_of_its_response() {
    let instance = Instance::start().await;
    let take_log = || log::take("daybook_command_handler");
    take_log();
    for (given, returned) in [(Some("sale-7"), "sale-7"), (Some("two words"), ""), (None, "")] {
        for fault in [InjectedFault::Refuse { status: 400, code: "AccessDeniedException" }, InjectedFault::Hang] {
            let headers: Vec<_> = given.map(|id| ("x-correlation-id", id)).into_iter().collect();
            let get = request(Method::GET, "/todo/1", &headers, None).with_lambda_context(in_a_hurry());
            for operation in ["Query", "GetItem"] {
                instance.table.proxy.fail_next(operation, fault.clone());
            }
            let response = instance.ask(get).await;
            assert!(response.status.is_server_error(), "{}", response.status);
            let id = response.header("x-correlation-id");
            assert!(if returned.is_empty() { id.len() == 26 } else { id == returned }, "{given:?}: {id}");
            let lines = take_log();
            let [line] = &lines[..] else { panic!("{lines:?}") };
            assert_eq!((&line["message"], &line["correlation_id"]), (&json!("request failed"), &json!(id)));
        }
    }
}

#[tokio::test]
async fn hanging_table_gets_a_503_before_the_time_out() {
    let instance = Instance::start().await;
    for operation in ["Query", "GetItem", "TransactWriteItems"] {
        for _ in 0..20 {
            instance.table.proxy.fail_next(operation, InjectedFault::Hang);
        }
    }
    let with_key = [("idempotency-key", "k-1")];
    let todo = json!({"id": "1", "title": "TODO", "message": ""});
    // A write without a response may have happened, and only a key makes it safe to repeat.
    for (request, slug, retry_after) in [
        (request(Method::GET, "/todo/1", &[], None), "unavailable", true),
        (create("1"), "outcome-unknown", false),
        (request(Method::POST, "/todo", &with_key, Some(todo)), "outcome-unknown", true),
    ] {
        let response = instance.ask(request.with_lambda_context(in_a_hurry())).await.expect_problem(503, slug);
        assert_eq!(response.headers.contains_key("retry-after"), retry_after, "{slug}");
        assert!(response.headers.contains_key("x-correlation-id"));
    }
}

#[tokio::test]
async fn lost_response_with_a_failed_check_gets_an_unknown_outcome() {
    for key in [None, Some(("idempotency-key", "k-1"))] {
        let instance = Instance::start().await;
        instance.post("/account", json!({"id": "1"})).await.expect(201);
        instance.table.proxy.fail_next("TransactWriteItems", InjectedFault::BreakAfter);
        // With a key, the next attempt would find the stored response.
        let refused = InjectedFault::Refuse { status: 400, code: "AccessDeniedException" };
        instance.table.proxy.fail_next("TransactWriteItems", refused);
        for operation in ["GetItem", "Query"] {
            for _ in 0..12 {
                let error = InjectedFault::Refuse { status: 500, code: "InternalServerError" };
                instance.table.proxy.fail_next(operation, error);
            }
        }
        let withdrawal = json!({"command": "RecordTransaction", "data": {"desc": "", "amount": -700}});
        let withdraw = || request(Method::POST, "/account/1/commands", key.as_slice(), Some(withdrawal.clone()));
        let response = instance.ask(withdraw()).await.expect_problem(503, "outcome-unknown");
        assert_eq!(response.headers.contains_key("retry-after"), key.is_some());
        let detail = response.body["detail"].as_str().unwrap();
        let check = if key.is_some() { "the same Idempotency-Key" } else { "GET /account/1/events?after=1" };
        assert!(detail.contains(check), "{detail}");

        // The check that the detail names shows that the withdrawal was stored.
        let events = instance.table.direct_store().events(&AggregateKey::new("account", "1"), 1, 10).await.unwrap();
        assert_eq!(events.items.len(), 1);
        if key.is_some() {
            let other = instance.beside();
            let again = send(&other, Method::POST, "/account/1/commands", key.as_slice(), Some(withdrawal)).await;
            assert_eq!(again.expect(200).header("idempotency-replayed"), "true");
        }
    }
}

#[tokio::test]
async fn commit_with_a_lost_response_is_recognized_and_not_a_conflict() {
    let unknown = || [InjectedFault::BreakAfter, InjectedFault::Refuse { status: 500, code: "InternalServerError" }];
    for first in unknown() {
        for if_match in [&[][..], &[("if-match", "\"1\"")]] {
            let instance = Instance::start().await;
            instance.ask(create("1")).await.expect(201);
            instance.table.proxy.fail_next("TransactWriteItems", first.clone());
            // If DynamoDB executed the first attempt and no longer remembers its token, it rejects the second one like
            // this.
            if matches!(first, InjectedFault::BreakAfter) {
                let codes = vec!["ConditionalCheckFailed", "ConditionalCheckFailed", "ConditionalCheckFailed"];
                instance.table.proxy.fail_next("TransactWriteItems", InjectedFault::Cancel { codes });
            }
            let update = json!({"title": "TODO", "message": "Make coffee"});
            let response = instance.ask(request(Method::POST, "/todo/1", if_match, Some(update))).await.expect(200);
            assert_eq!(response.header("etag"), "\"2-2\"");
            let stored = instance.get("/todo/1/events?after=1").await.body;
            let (returned, stored) = (&response.body["events"], &stored["events"]);
            assert_eq!(stored, returned, "the stored events are those of the response, {first:?} {if_match:?}");
        }
    }
}
