//! The API below a base path: a named stage of API Gateway, or the key of an API mapping of a custom domain.

use axum::http::Method;
use daybook_command_handler::ApiSettings;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_settings::Environment;
use serde_json::{Value, json};

use crate::fixtures::{call_api, read};
use crate::instance::{Instance, request, settings};

async fn instance(base_path: &str) -> Instance {
    let environment = Environment::from_iter([("BASE_PATH", base_path)]);
    let settings = ApiSettings::read(&environment).unwrap();
    let engine = LocalDynamoDb::in_memory().await.unwrap();
    Instance::with(engine, aggregates::registry().unwrap(), settings).await
}

fn todo(id: &str) -> Value {
    json!({"id": id, "title": "x", "message": ""})
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_in_responses_begin_with_the_base_path_and_can_be_followed() {
    let instance = instance("/v1/shop").await;
    for id in ["1", "2"] {
        let created = instance.post("/v1/shop/todo", todo(id)).await.expect(201);
        assert_eq!(created.header("location"), format!("/v1/shop/todo/{id}"));
        instance.get(created.header("location")).await.expect(200);
    }
    for first in ["/v1/shop/todo?limit=1", "/v1/shop/events?type=TodoCreated&limit=1"] {
        let page = instance.get(first).await.expect(200);
        let next = page.next().unwrap();
        assert!(next.starts_with("/v1/shop/"), "{next}");
        instance.get(next).await.expect(200);
    }
    let document = instance.get("/v1/shop/openapi.json").await.expect(200).body;
    assert_eq!(document["servers"][0]["url"], "/v1/shop");
    // API Gateway may have removed the base path.
    assert_eq!(instance.get("/todo/1").await.expect(200).body["id"], "1");
    for path in ["/v1/shop", "/v1/shop/", "/v1/shopping/todo", "/v1"] {
        instance.ask(request(Method::GET, path, &[], None)).await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_request_gets_the_location_below_the_base_path() {
    let instance = instance("/v1").await;
    let keyed = |path: &str| request(Method::POST, path, &[("idempotency-key", "k")], Some(todo("1")));
    let first = instance.ask(keyed("/v1/todo")).await.expect(201);
    // With the path as API Gateway passes it on, the request is the same.
    for path in ["/v1/todo", "/todo"] {
        let again = instance.ask(keyed(path)).await.expect(201);
        assert_eq!((again.header("location"), again.header("idempotency-replayed")), ("/v1/todo/1", "true"));
        assert_eq!(again.body, first.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_base_path_the_document_is_at_the_root() {
    let instance = instance("").await;
    let document = instance.get("/openapi.json").await.expect(200).body;
    assert_eq!(document["servers"][0]["url"], "/");
    let created = instance.post("/todo", todo("1")).await.expect(201);
    assert_eq!(created.header("location"), "/todo/1");
}

#[test]
fn base_path_of_another_form_is_rejected_at_the_start() {
    for wrong in ["v1", "/", "/v1/", "//v1", "/a b", "/é", "/a?b", "/.."] {
        let environment = Environment::from_iter([("BASE_PATH", wrong)]);
        let error = ApiSettings::read(&environment).unwrap_err().to_string();
        assert!(error.contains("BASE_PATH") && error.contains("/v1"), "{wrong}: {error}");
    }
    assert_eq!(settings(), ApiSettings::read(&Environment::from_iter([("BASE_PATH", "")])).unwrap());
}

/// The status and the body of a `GET` that API Gateway passes on.
async fn through_the_gateway(instance: &Instance, domain: &str, stage: &str, path: &str) -> (u64, Value) {
    let mut event: Value = serde_json::from_str(&read("command-handler/get.json")).unwrap();
    event["rawPath"] = json!(path);
    event["requestContext"]["http"]["path"] = json!(path);
    event["requestContext"]["stage"] = json!(stage);
    event["requestContext"]["domainName"] = json!(domain);
    event["headers"]["host"] = json!(domain);
    let answer = call_api(&instance.router, &event.to_string()).await;
    (answer["statusCode"].as_u64().unwrap(), answer["body"].as_str().unwrap_or_default().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_match_with_a_named_stage_or_a_mapping_key_in_the_path() {
    const API: &str = "a1b2c3d4e5.execute-api.eu-west-1.amazonaws.com";
    const OWN: &str = "api.example.com";
    for (base_path, domain, stage, path) in [
        ("", API, "$default", "/todo/t9"),
        ("", API, "prod", "/prod/todo/t9"),
        ("/prod", API, "prod", "/prod/todo/t9"),
        // A stage with the name of a type.
        ("", API, "todo", "/todo/todo/t9"),
        ("", OWN, "todo", "/todo/t9"),
        // A custom domain passes on the mapping key, and not the stage.
        ("", OWN, "prod", "/todo/t9"),
        ("/orders", OWN, "prod", "/orders/todo/t9"),
        ("/orders/v1", OWN, "$default", "/orders/v1/todo/t9"),
        ("/orders", API, "prod", "/prod/todo/t9"),
    ] {
        let instance = instance(base_path).await;
        instance.post("/todo", todo("t9")).await.expect(201);
        let (status, body) = through_the_gateway(&instance, domain, stage, path).await;
        assert_eq!((status, &body["id"]), (200, &json!("t9")), "{base_path} {domain} {stage} {path}: {body}");
    }
    let instance = instance("").await;
    let (status, body) = through_the_gateway(&instance, API, "prod", "/production/todo/t9").await;
    assert_eq!((status, &body["type"]), (404, &json!("urn:daybook:problem:unknown-route")));
}
