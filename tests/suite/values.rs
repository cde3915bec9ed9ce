//! Numbers, texts and missing values: accepted values are returned unchanged everywhere; others are rejected.

use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::{ApiResponse, Suite};

const JSON: (&str, &str) = ("content-type", "application/json");

async fn send(suite: &Suite, path: &str, body: &str) -> ApiResponse {
    suite.send(Method::POST, path, &[JSON], Some(body)).await
}

/// All copies of a to-do's message: in the response, the state, the events, and on the bus.
async fn copies(suite: &Suite, id: &str, created: &ApiResponse) -> Vec<Value> {
    let path = format!("/todo/{id}");
    let state = suite.get(&path).await.expect(200).body["state"].take();
    let rebuilt = suite.get(&format!("{path}?rebuild=true")).await.expect(200).body["state"].take();
    let event = suite.get(&format!("{path}/events")).await.expect(200).body["events"][0]["data"].take();
    let message = suite.messages_of(&path[1..], 1).await.remove(0);
    let message = serde_json::from_str::<Value>(&message.detail).unwrap()["data"].take();
    let body = &created.body;
    let in_response = [&body["state"], &body["events"][0]["data"], &body["messages"][0]["data"]];
    in_response.into_iter().cloned().chain([state, rebuilt, event, message]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_returned_unchanged() {
    let suite = Suite::start().await;
    let texts = [
        "",
        " ",
        "\u{0}",
        "\u{1}\u{8}\t\n\r\u{1f}\u{7f}\u{80}",
        "\u{feff}\u{fffe}\u{ffff}\u{fdd0}",
        "\u{d7ff}\u{e000}\u{10ffff}\u{1f980}",
        "\u{2028}\u{2029}\u{202e}",
        "e\u{301} \u{e9} \u{1100}\u{1161}",
        r#"\ " \" \\ \u0041 </script> {"a": [1]}"#,
        "EVENT#000000000001",
        "null",
        "1e400",
        &"\u{1f980}".repeat(20_000),
    ];
    for (n, text) in texts.iter().enumerate() {
        // Unescaped, and with every character escaped.
        let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        for (form, json) in [("raw", json!(text).to_string()), ("escaped", format!("\"{escaped}\""))] {
            let id = format!("{n}-{form}");
            let body = format!(r#"{{"id": "{id}", "title": "x", "message": {json}}}"#);
            let created = send(&suite, "/todo", &body).await.expect(201);
            for place in copies(&suite, &id, &created).await {
                assert_eq!(place["message"], *text, "{id}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_number_of_64_bits_is_returned_unchanged() {
    let suite = Suite::start().await;
    for (n, amount) in [i64::MAX, i64::MAX - 1, (1 << 53) + 1, 1, 0, -1, -1000].into_iter().enumerate() {
        let path = format!("/account/{n}");
        suite.post("/account", &json!({"id": n.to_string()})).await.expect(201);
        let command = format!(r#"{{"command": "RecordTransaction", "data": {{"desc": "", "amount": {amount}}}}}"#);
        let response = send(&suite, &format!("{path}/commands"), &command).await.expect(200);
        assert_eq!(response.body["events"][0]["data"]["amount"].as_i64(), Some(amount));
        for query in ["", "?rebuild=true"] {
            let read = suite.get(&format!("{path}{query}")).await.expect(200);
            assert_eq!(read.body["state"]["balance"].as_i64(), Some(amount));
        }
        let events = suite.get(&format!("{path}/events?after=1")).await.expect(200).body;
        assert_eq!(events["events"][0]["data"]["amount"].as_i64(), Some(amount));
    }
    // The sum exceeds 64 bits.
    let one = r#"{"command": "RecordTransaction", "data": {"desc": "", "amount": 1}}"#;
    let over = send(&suite, "/account/0/commands", one).await.expect_problem(422, "refused");
    assert_eq!(over.body["rejection"], "AmountOutOfRange");
    // The rules reject the smallest number, and record and publish the rejection.
    let least = format!(r#"{{"command": "RecordTransaction", "data": {{"desc": "", "amount": {}}}}}"#, i64::MIN);
    send(&suite, "/account/4/commands", &least).await.expect_problem(422, "refused");
    let message = suite.messages_of("account/4", 1).await.remove(0);
    assert!(message.detail.contains(r#""amount":-9223372036854775808"#), "{}", message.detail);
}

#[tokio::test(flavor = "multi_thread")]
async fn number_that_does_not_fit_its_field_is_rejected() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    for number in [
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "12345678901234567890123456789012345678",
        "1.5",
        "1.0",
        "1e2",
        "1E-7",
        "1e400",
        "-1e400",
        "1e99999999999999999999",
        "-0",
        "-0.0",
        "0.1000000000000000055511151231257827",
        "null",
        "true",
        "\"1\"",
        "[1]",
        "{}",
    ] {
        let command = format!(r#"{{"command": "RecordTransaction", "data": {{"desc": "", "amount": {number}}}}}"#);
        // With a key, the number is part of the request's fingerprint, and is rejected too.
        for key in [&[][..], &[("idempotency-key", "k")]] {
            let headers: Vec<_> = [JSON].into_iter().chain(key.iter().copied()).collect();
            let response = suite.send(Method::POST, "/account/1/commands", &headers, Some(&command)).await;
            let response = response.expect_problem(422, "invalid-command");
            assert!(response.body["detail"].as_str().unwrap().contains("amount"), "{number}: {}", response.body);
        }
    }
    for number in ["00", "01", "+1", ".5", "1.", "1e", "0x10", "NaN", "Infinity", "-", "1_000"] {
        let command = format!(r#"{{"command": "RecordTransaction", "data": {{"desc": "", "amount": {number}}}}}"#);
        send(&suite, "/account/1/commands", &command).await.expect_problem(400, "malformed-json");
    }
    assert_eq!(suite.get("/account/1").await.expect(200).body["version"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_deep_json_or_half_surrogate_is_rejected_at_any_position() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    let lists = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let objects = |depth| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    let mut bodies = vec![];
    for depth in [101, 10_000, 1_000_000] {
        for nested in [lists(depth), objects(depth.min(500_000))] {
            bodies.push(format!(r#"{{"command": "RecordTransaction", "data": {nested}}}"#));
            bodies.push(format!(r#"{{"id": {nested}}}"#));
            bodies.push(nested);
        }
    }
    for half in [r#""\ud800""#, r#""\udfff x""#, r#""\ud800\ud800""#] {
        bodies.push(format!(r#"{{"command": "RecordTransaction", "data": {{"desc": {half}, "amount": 1}}}}"#));
        bodies.push(format!(r#"{{"id": {half}}}"#));
        bodies.push(format!("{{{half}: 1}}"));
    }
    for body in &bodies {
        for path in ["/account", "/account/1", "/account/1/commands"] {
            for key in [&[][..], &[("idempotency-key", "k")]] {
                let headers: Vec<_> = [JSON].into_iter().chain(key.iter().copied()).collect();
                let response = suite.send(Method::POST, path, &headers, Some(body)).await;
                response.expect_problem(400, "malformed-json");
            }
        }
    }
    assert_eq!(suite.get("/account/1").await.expect(200).body["version"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_or_missing_value_is_accepted_or_rejected_by_its_field() {
    let suite = Suite::start().await;
    // Empty texts are accepted and stay empty.
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    let named = suite.post("/account/1", &json!({"ownerFirst": "x", "ownerLast": ""})).await.expect(200);
    assert_eq!(named.body["state"]["ownerLast"], "");
    // A missing body is read as an empty one if the command has no fields.
    suite.send(Method::POST, "/account", &[], None).await.expect(201);
    suite.send(Method::POST, "/todo", &[], None).await.expect_problem(422, "invalid-command");
    // An empty list matches the schema, but the rules reject it.
    let nothing = json!({"customerId": "", "items": [], "total": 0});
    suite.post("/order", &nothing).await.expect_problem(422, "refused");
    for absent in [json!({"ownerFirst": null, "ownerLast": ""}), json!({"ownerFirst": "x"}), json!({}), json!(null)] {
        suite.post("/account/1", &absent).await.expect_problem(422, "invalid-command");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn body_above_four_megabytes_is_rejected() {
    const LIMIT: usize = 4 * 1024 * 1024;
    let suite = Suite::start().await;
    let padded = |bytes: usize| format!("{}{}", r#"{"id":"1"}"#, " ".repeat(bytes - 10));
    let over = send(&suite, "/account", &padded(LIMIT + 1)).await.expect_problem(413, "too-large");
    assert_eq!(over.body["detail"], format!("a body has at most {LIMIT} bytes"));
    send(&suite, "/account", &padded(LIMIT)).await.expect(201);
}
