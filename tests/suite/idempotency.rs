//! A request that is repeated with its idempotency key gets the first response and appends nothing.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use axum::body::Body;
use axum::http::Request;
use daybook_command_handler::gateway;
use daybook_test_support::fault_proxy::InjectedFault;
use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::{ApiResponse, Suite};

use crate::instance::{Instance, ask, request, send};

async fn post(suite: &Suite, path: &str, key: &str, body: &Value) -> ApiResponse {
    let headers = [("content-type", "application/json"), ("idempotency-key", key)];
    suite.send(Method::POST, path, &headers, Some(&body.to_string())).await
}

fn transaction(amount: i64) -> Value {
    json!({"command": "RecordTransaction", "data": {"desc": "", "amount": amount}})
}

async fn version(suite: &Suite, path: &str) -> Value {
    suite.get(path).await.expect(200).body["version"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_command_gets_the_first_response_and_appends_nothing() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    let first = post(&suite, "/account/1/commands", "k-1", &transaction(5)).await.expect(200);
    assert_eq!(first.header("idempotency-replayed"), "");
    // Another request writes in between.
    suite.post("/account/1/commands", &transaction(7)).await.expect(200);

    for key in ["k-1", "\"k-1\""] {
        let again = post(&suite, "/account/1/commands", key, &transaction(5)).await.expect(200);
        assert_eq!(again.header("idempotency-replayed"), "true");
        assert_eq!((&again.body, again.header("etag")), (&first.body, "\"2-1\""));
        assert_eq!(again.header("content-type"), "application/json");
    }
    assert_eq!(version(&suite, "/account/1").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_with_other_white_space_or_member_order_is_the_same_request() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
    for body in [
        r#"{"command":"RecordTransaction","data":{"desc":"","amount":5}}"#,
        r#" {"data": {"amount": 5, "desc": ""}, "command": "RecordTransaction"}"#,
    ] {
        suite.send(Method::POST, "/account/1/commands", &headers, Some(body)).await.expect(200);
    }
    assert_eq!(version(&suite, "/account/1").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_with_a_rebuild_is_the_same_request() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    let first = post(&suite, "/account/1/commands", "k", &transaction(5)).await.expect(200);
    let again = post(&suite, "/account/1/commands?rebuild=true", "k", &transaction(5)).await.expect(200);
    assert_eq!((again.header("idempotency-replayed"), &again.body), ("true", &first.body));
}

#[tokio::test(flavor = "multi_thread")]
async fn different_request_under_the_same_key_is_rejected() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    post(&suite, "/account/1/commands", "k", &transaction(5)).await.expect(200);
    post(&suite, "/account/1/commands", "k", &transaction(6)).await.expect_problem(422, "key-reused");
    post(&suite, "/account/1", "k", &json!({"ownerFirst": "", "ownerLast": ""}))
        .await
        .expect_problem(422, "key-reused");
    assert_eq!(version(&suite, "/account/1").await, 2);
    // A key belongs to one aggregate.
    suite.post("/account", &json!({"id": "2"})).await.expect(201);
    post(&suite, "/account/2/commands", "k", &transaction(6)).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn creation_without_an_id_derives_it_from_the_key() {
    let suite = Suite::start().await;
    let todo = json!({"title": "TODO", "message": ""});
    let first = post(&suite, "/todo", "k", &todo).await.expect(201);
    let again = post(&suite, "/todo", "k", &todo).await.expect(201);
    assert_eq!((again.header("location"), &again.body), (first.header("location"), &first.body));
    assert_eq!(again.header("idempotency-replayed"), "true");
    post(&suite, "/todo", "k", &json!({"title": "Other", "message": ""})).await.expect_problem(422, "key-reused");
    assert_eq!(suite.get("/todo").await.expect(200).body["aggregates"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_creation_and_deletion_get_the_first_response() {
    let suite = Suite::start().await;
    let todo = json!({"id": "1", "title": "TODO", "message": ""});
    let created = post(&suite, "/todo", "create", &todo).await.expect(201);
    assert_eq!(post(&suite, "/todo", "create", &todo).await.expect(201).body, created.body);
    let delete = async || suite.send(Method::DELETE, "/todo/1", &[("idempotency-key", "delete")], None).await;
    let deleted = delete().await.expect(200);
    assert_eq!(delete().await.expect(200).body, deleted.body);
    // Without the key, the aggregate is reported as deleted. The stored responses do not change.
    suite.send(Method::DELETE, "/todo/1", &[], None).await.expect_problem(410, "deleted");
    assert_eq!(post(&suite, "/todo", "create", &todo).await.expect(201).body, created.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_command_with_a_recorded_rejection_gets_it_again_and_appends_nothing() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    let first = post(&suite, "/account/1/commands", "k", &transaction(-5000)).await.expect_problem(422, "refused");
    // The command would now be accepted, but the stored rejection is returned.
    suite.post("/account/1/commands", &transaction(100_000)).await.expect(200);
    let again = post(&suite, "/account/1/commands", "k", &transaction(-5000)).await.expect_problem(422, "refused");
    assert_eq!((&again.body, again.header("etag")), (&first.body, "\"2-1\""));
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(version(&suite, "/account/1").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_command_after_a_failure_without_an_event_is_executed() {
    let suite = Suite::start().await;
    post(&suite, "/account/1/commands", "k", &transaction(5)).await.expect_problem(404, "not-found");
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    post(&suite, "/account/1/commands", "k", &transaction(5)).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_command_without_an_event_gets_the_first_response() {
    let suite = Suite::start().await;
    let say = |message: &str| json!({"title": "A", "message": message});
    suite.post("/todo", &json!({"id": "1", "title": "A", "message": "B"})).await.expect(201);
    let first = post(&suite, "/todo/1", "k", &say("B")).await.expect(200);
    assert_eq!((&first.body["version"], &first.body["events"]), (&json!(1), &json!([])));
    suite.post("/todo/1", &say("C")).await.expect(200);
    // The command would now change the state.
    let again = post(&suite, "/todo/1", "k", &say("B")).await.expect(200);
    assert_eq!((again.header("idempotency-replayed"), &again.body), ("true", &first.body));
    assert_eq!(version(&suite, "/todo/1").await, 2);
    post(&suite, "/todo/1", "k", &say("D")).await.expect_problem(422, "key-reused");
}

#[tokio::test(flavor = "multi_thread")]
async fn keyed_command_without_an_event_is_decided_on_the_current_state() {
    let instance = Instance::start().await;
    let say = |message: &str| json!({"title": "A", "message": message});
    let create = json!({"id": "1", "title": "A", "message": "B"});
    instance.post("/todo", create).await.expect(201);
    // The cache of this instance does not contain the change of the other one.
    send(&instance.beside(), Method::POST, "/todo/1", &[], Some(say("C"))).await.expect(200);
    let keyed = request(Method::POST, "/todo/1", &[("idempotency-key", "k")], Some(say("B")));
    assert_eq!(instance.ask(keyed).await.expect(200).header("etag"), "\"3-2\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_two_clients_with_one_key_append_one_event_and_get_one_response() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    let send = async |_| post(&suite, "/account/1/commands", "k", &transaction(5)).await;
    let responses = futures_util::future::join_all((0..32).map(send)).await;
    for response in &responses {
        assert_eq!((response.status.as_u16(), &response.body), (200, &responses[0].body));
    }
    let firsts = responses.iter().filter(|response| response.header("idempotency-replayed").is_empty()).count();
    assert_eq!(firsts, 1);
    assert_eq!(version(&suite, "/account/1").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_key_can_be_used_again_before_its_row_is_deleted() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    post(&suite, "/account/1/commands", "k", &transaction(5)).await.expect(200);
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let row = HashMap::from([("pk".to_owned(), text("AGGREGATE#account#1")), ("sk".to_owned(), text("IDEMPOTENCY#k"))]);
    suite
        .table()
        .update_item()
        .table_name(suite.stack.table_name())
        .set_key(Some(row))
        .update_expression("SET #ttl = :past")
        .expression_attribute_names("#ttl", "ttl")
        .expression_attribute_values(":past", AttributeValue::N("1000000000".to_owned()))
        .send()
        .await
        .unwrap();
    let anew = post(&suite, "/account/1/commands", "k", &transaction(6)).await.expect(200);
    assert_eq!(anew.header("idempotency-replayed"), "");
    assert_eq!(version(&suite, "/account/1").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_key_is_rejected() {
    let suite = Suite::start().await;
    for key in ["", "\"\"", "two words", &"x".repeat(256)] {
        post(&suite, "/account", key, &json!({"id": "1"})).await.expect_problem(400, "bad-header");
    }
    suite.get("/account/1").await.expect_problem(404, "not-found");
}

/// A request with a key, for one instance.
fn keyed(amount: i64) -> Request<Body> {
    request(Method::POST, "/account/1/commands", &[("idempotency-key", "k")], Some(transaction(amount)))
}

#[tokio::test(flavor = "multi_thread")]
async fn command_with_a_key_costs_no_read() {
    let instance = Instance::start().await;
    instance.post("/account", json!({"id": "1"})).await.expect(201);
    instance.table.proxy.take_calls();
    instance.ask(keyed(5)).await.expect(200);
    let operations = |calls: Vec<daybook_test_support::fault_proxy::RecordedCall>| {
        calls.into_iter().map(|call| call.operation).collect::<Vec<_>>()
    };
    assert_eq!(operations(instance.table.proxy.take_calls()), ["TransactWriteItems"]);
    // A repetition costs no read either: the transaction that fails returns the stored response.
    assert_eq!(instance.ask(keyed(5)).await.expect(200).header("idempotency-replayed"), "true");
    assert_eq!(operations(instance.table.proxy.take_calls()), ["TransactWriteItems"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_command_after_a_lost_response_gets_the_first_response() {
    let instance = Instance::start().await;
    instance.post("/account", json!({"id": "1"})).await.expect(201);
    instance.table.proxy.fail_next("TransactWriteItems", InjectedFault::BreakAfter);
    instance.ask(keyed(5)).await.expect(200);
    assert_eq!(instance.ask(keyed(5)).await.header("idempotency-replayed"), "true");
    assert_eq!(instance.get("/account/1").await.header("etag"), "\"2-1\"");
}

/// A creation with a key, as API Gateway sends it for a session of a role.
fn created_by(user_id: &str, session: &str) -> Request<Body> {
    let authorizer = json!({"iam": {
        "userId": format!("{user_id}:{session}"),
        "userArn": format!("arn:aws:sts::123456789012:assumed-role/shop/{session}"),
    }});
    let request =
        request(Method::POST, "/todo", &[("idempotency-key", "k")], Some(json!({"title": "TODO", "message": ""})));
    gateway::with_authorizer(request, &authorizer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_creation_is_recognized_for_another_session_and_not_for_another_caller() {
    let instance = Instance::start().await;
    let first = instance.ask(created_by("AROA1", "task-1")).await.expect(201);
    let again = instance.ask(created_by("AROA1", "task-2")).await.expect(201);
    assert_eq!((again.header("location"), again.header("idempotency-replayed")), (first.header("location"), "true"));

    let somebody_else = instance.ask(created_by("AROA2", "task-1")).await.expect(201);
    assert_ne!(somebody_else.header("location"), first.header("location"));
    // Federated users are identified by the name after the account.
    let [ann, bob] = ["ann", "bob"].map(|name| created_by("123456789012", name));
    let (ann, bob) = (instance.ask(ann).await.expect(201), instance.ask(bob).await.expect(201));
    assert_ne!(ann.header("location"), bob.header("location"));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_command_with_if_match_gets_the_first_response_instead_of_a_conflict() {
    let instance = Instance::start().await;
    instance.post("/account", json!({"id": "1"})).await.expect(201);
    let keyed = || {
        let mut request = keyed(5);
        request.headers_mut().insert("if-match", "\"1\"".parse().unwrap());
        request
    };
    // Another instance executes the request first, so the cache of this one is outdated.
    ask(&instance.beside(), keyed()).await.expect(200);
    // DynamoDB may report only the failed condition of the version.
    let codes = vec!["ConditionalCheckFailed", "None", "None"];
    instance.table.proxy.fail_next("TransactWriteItems", InjectedFault::Cancel { codes });
    assert_eq!(instance.ask(keyed()).await.expect(200).header("idempotency-replayed"), "true");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_instances_return_one_response_for_one_key() {
    // An accepted command, and one whose rejection is an event.
    for amount in [5, -5000] {
        let first = Instance::start().await;
        first.post("/account", json!({"id": "1"})).await.expect(201);
        let instances = [first.beside(), first.beside(), first.beside(), first.beside()];
        let send = async |n: usize| {
            let response = ask(&instances[n % 4], keyed(amount)).await;
            let replayed = response.headers.contains_key("idempotency-replayed");
            (replayed, (response.status, response.headers["etag"].clone(), response.text))
        };
        let responses = futures_util::future::join_all((0..32).map(send)).await;
        assert!(responses.iter().all(|(_, response)| *response == responses[0].1), "{responses:?}");
        assert_eq!(responses.iter().filter(|(replayed, _)| !replayed).count(), 1);
        assert_eq!(first.get("/account/1").await.header("etag"), "\"2-1\"");
    }
}
