//! Any path or query has the same meaning in API Gateway's form as over HTTP.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::body::Body;
use axum::http::Request;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::fixtures::{call_api, read};
use crate::instance::{Instance, answer, whole};

/// An instance with the to-do `t9`.
async fn instance() -> Instance {
    let instance = Instance::start().await;
    let todo = json!({"id": "t9", "title": "x", "message": "y"});
    instance.post("/todo", todo).await.expect(201);
    instance
}

/// A request of `GET`, as API Gateway sends it.
fn event(path: &str, query: &str) -> Value {
    let mut event: Value = serde_json::from_str(&read("command-handler/get.json")).unwrap();
    event["rawPath"] = json!(path);
    event["requestContext"]["http"]["path"] = json!(path);
    event["rawQueryString"] = json!(query);
    event["headers"]["x-correlation-id"] = json!("here");
    event
}

/// Status, headers and body.
type GatewayResponse = (u64, Value, String);

async fn through_the_gateway(instance: &Instance, event: &Value) -> GatewayResponse {
    let response = call_api(&instance.router, &event.to_string()).await;
    let body = response["body"].as_str().unwrap_or_default().to_owned();
    (response["statusCode"].as_u64().unwrap(), response["headers"].clone(), body)
}

async fn over_http(instance: &Instance, path_and_query: &str) -> GatewayResponse {
    let request = Request::get(path_and_query).header("x-correlation-id", "here").body(Body::empty()).unwrap();
    let response = whole(answer(&instance.router, request).await).await;
    let headers = response.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
    (response.status.as_u16().into(), json!(headers.collect::<BTreeMap<_, _>>()), response.text)
}

/// A path segment in which all characters except letters and digits are escaped.
fn escaped(segment: &str) -> String {
    segment.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() {
            text.push(byte.into());
        } else {
            write!(text, "%{byte:02X}").unwrap();
        }
        text
    })
}

/// Texts with many characters that have a meaning in a URL.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "([#?%&=+/\\\\.:;@\"<> \t\n\r\0é\u{7f}]|t9|events|commands|%23|%2e|%2F|limit=|\\.\\.){0,8}",
    ]
}

fn runner() -> TestRunner {
    TestRunner::new(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })
}

#[test]
fn path_through_the_gateway_gets_the_same_response_as_over_http() {
    let runtime = Runtime::new().unwrap();
    let instance = runtime.block_on(instance());
    let same = |path: &str| {
        let there: Vec<_> = path.split('/').map(escaped).collect();
        let (got, expected) = runtime.block_on(async {
            (
                through_the_gateway(&instance, &event(&format!("/todo/{path}"), "")).await,
                over_http(&instance, &format!("/todo/{}", there.join("/"))).await,
            )
        });
        if got.0 == 404 || path.split('/').any(|segment| segment == "." || segment == "..") {
            // The detail of a problem contains these paths unchanged.
            let slug = |(status, _, body): GatewayResponse| {
                (status, serde_json::from_str::<Value>(&body).unwrap()["type"].take())
            };
            assert_eq!(slug(got), slug(expected), "{path:?}");
        } else {
            assert_eq!(got, expected, "{path:?}");
        }
    };
    for path in [
        "t9",
        "t9/events",
        "",
        ".",
        "..",
        "./t9",
        "../todo/t9",
        "t9/..",
        "t9#old",
        "t9?x",
        "%74%39",
        "%2e%2e",
        "\\t9",
        "t9\t",
        "t9//events",
        "/t9",
        ":80",
        "a b",
    ] {
        same(path);
    }
    runner()
        .run(&texts(), |path| {
            same(&path);
            Ok(())
        })
        .unwrap();
}

#[test]
fn query_through_the_gateway_is_read_or_rejected() {
    let runtime = Runtime::new().unwrap();
    let instance = runtime.block_on(instance());
    let ask = |query: &str| runtime.block_on(through_the_gateway(&instance, &event("/todo/t9/events", query)));
    for (raw, encoded) in [
        ("limit=1&after=0", "limit=1&after=0"),
        ("limit=%31", "limit=1"),
        ("limit=+1", "limit=%201"),
        ("limit=\"1\"", "limit=%221%22"),
        ("limit=<1>", "limit=%3C1%3E"),
        ("limit=1#2", "limit=1%232"),
        ("limit=1 2\t\n\u{7f}é", "limit=1%202%09%0A%7F%C3%A9"),
        ("limit=1%", "limit=1%25"),
        ("a?b", "a%3Fb"),
    ] {
        let expected = runtime.block_on(over_http(&instance, &format!("/todo/t9/events?{encoded}")));
        assert_eq!(ask(raw), expected, "{raw:?}");
    }
    runner()
        .run(&texts(), |query| {
            let status = ask(&query).0;
            assert!(status == 200 || status == 400, "{status} to {query:?}");
            Ok(())
        })
        .unwrap();
}

#[test]
fn path_longer_than_a_uri_is_not_found() {
    let runtime = Runtime::new().unwrap();
    let instance = runtime.block_on(instance());
    let ask = |path: &str, query: &str| runtime.block_on(through_the_gateway(&instance, &event(path, query))).0;
    let half = "x".repeat(32_400);
    assert_eq!(ask(&format!("/todo/{half}"), &half), 400);
    let long = "é".repeat(40_000);
    assert_eq!(ask(&format!("/todo/{long}"), ""), 404);
    assert_eq!(ask("/todo/t9", &long), 404);
}

#[test]
fn odd_header_or_missing_member_never_ends_the_process() {
    let runtime = Runtime::new().unwrap();
    let instance = runtime.block_on(instance());
    let status = |event: &Value| runtime.block_on(through_the_gateway(&instance, event)).0;
    let visible = "[ -~\t]{0,40}";
    let headers = (visible, visible, visible);
    runner()
        .run(&headers, |(host, proto, cookie)| {
            let mut event = event("/todo/t9", "");
            event["headers"]["host"] = json!(host);
            event["headers"]["x-forwarded-proto"] = json!(proto);
            event["requestContext"]["domainName"] = json!(host);
            event["cookies"] = json!([cookie, "é"]);
            assert_eq!(status(&event), 200, "{host:?} {proto:?} {cookie:?}");
            Ok(())
        })
        .unwrap();
    for part in ["rawQueryString", "headers", "cookies", "body", "isBase64Encoded", "routeKey", "version"] {
        let mut event = event("/todo/t9", "");
        event.as_object_mut().unwrap().remove(part);
        assert_eq!(status(&event), 200, "without {part}");
    }
    let mut pathless = event("", "");
    assert_eq!(status(&pathless), 404);
    pathless.as_object_mut().unwrap().remove("rawPath");
    assert_eq!(status(&pathless), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_with_an_invalid_id_deletes_nothing() {
    let instance = instance().await;
    for path in ["/todo/t9#old", "/todo/t9?old", "/todo/x/../t9", "/todo/t9\\..", "/todo/\tt9", "//todo/t9"] {
        let mut event = event(path, "");
        event["requestContext"]["http"]["method"] = json!("DELETE");
        let (status, _, body) = through_the_gateway(&instance, &event).await;
        assert!([400, 404].contains(&status), "{path}: {status} {body}");
    }
    assert_eq!(instance.get("/todo/t9").await.header("etag"), "\"1-2\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_is_not_base64_as_the_event_says_is_rejected() {
    let instance = instance().await;
    let mut event: Value = serde_json::from_str(&read("command-handler/base64.json")).unwrap();
    event["body"] = json!("not base64");
    let (status, _, body) = through_the_gateway(&instance, &event).await;
    assert_eq!(status, 400, "{body}");
    assert!(body.contains("urn:daybook:problem:malformed-json"), "{body}");
}

/// Header values as a client can send them, and API Gateway passes them on.
#[tokio::test(flavor = "multi_thread")]
async fn header_value_of_any_characters_never_fails_an_invocation() {
    let instance = instance().await;
    let values = ["J\u{fc}rgen", "\u{0}", "a\nb", "a\rb", "\u{7f}", "\u{1f980}", "\u{1}\u{e9}", "\u{feff}"];
    for name in
        ["user-agent", "x-name", "if-none-match", "x-correlation-id", "traceparent", "host", "X\u{e9}", "two words", ""]
    {
        for value in values {
            let mut event = event("/todo/t9", "");
            event["headers"][name] = json!(value);
            let (status, headers, body) = through_the_gateway(&instance, &event).await;
            assert_eq!(status, 200, "{name}: {value:?}: {body}");
            assert_eq!(headers["etag"], "\"1-2\"");
        }
    }
    // A write does not take a header for missing that it cannot read.
    for name in ["idempotency-key", "if-match", "x-causation-id", "x-correlation-id"] {
        for value in values {
            let mut event: Value = serde_json::from_str(&read("command-handler/update.json")).unwrap();
            event["rawPath"] = json!("/todo/t9");
            event["requestContext"]["http"]["path"] = json!("/todo/t9");
            event["body"] = json!(r#"{"title": "x", "message": "z"}"#);
            event["headers"][name] = json!(value);
            let (status, _, body) = through_the_gateway(&instance, &event).await;
            assert_eq!(status, 400, "{name}: {value:?}: {body}");
            assert!(body.contains("urn:daybook:problem:bad-header"), "{body}");
        }
    }
}
