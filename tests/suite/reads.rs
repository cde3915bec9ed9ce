//! Reads: versions, pages and cursors, with `HEAD`, and during writes.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::document::Document;
use suite_tests::{ApiResponse, Suite};

use crate::instance::{Instance, sharded};

fn transaction(amount: i64) -> Value {
    json!({"command": "RecordTransaction", "data": {"desc": "", "amount": amount}})
}

async fn head(suite: &Suite, path: &str, headers: &[(&str, &str)]) -> ApiResponse {
    suite.send(Method::HEAD, path, headers, None).await
}

#[tokio::test(flavor = "multi_thread")]
async fn head_returns_the_response_of_get_without_the_body() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    suite.post("/account/1/commands", &transaction(1)).await.expect(200);
    suite.post("/todo", &json!({"id": "gone", "title": "x", "message": ""})).await.expect(201);
    suite.send(Method::DELETE, "/todo/gone", &[], None).await.expect(200);
    // Views follow the events of the test while it reads.
    let paths = Document::get().json()["paths"].as_object().unwrap().iter();
    let documented = paths.filter(|(path, methods)| methods["get"].is_object() && !path.starts_with("/views"));
    let documented = documented.map(|(path, methods)| {
        let parameters = methods["get"]["parameters"].as_array().unwrap().iter();
        let parameters = parameters.map(|parameter| Document::get().resolve(parameter));
        let required = parameters.filter(|parameter| parameter["in"] == "query" && parameter["required"] == true);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let query: Vec<_> = required.map(|one| format!("{}={}", text(&one["name"]), text(&one["example"]))).collect();
        format!("{}?{}", path.replace("{id}", "1"), query.join("&"))
    });
    let others = [
        "/account/1?version=1",
        "/account/1?version=9",
        "/account/1/events?limit=1",
        "/account/nobody",
        "/todo/gone",
        "/todo/gone/events",
        "/account?limit=0",
        "/events?type=AccountOpened",
        "/events?type=Nothing",
    ];
    for path in documented.chain(others.map(str::to_owned)) {
        let path = path.as_str();
        let (got, headed) = (suite.get(path).await, head(&suite, path, &[]).await);
        assert_eq!((headed.status, &headed.body), (got.status, &Value::Null), "{path}");
        let comparable = |headers: &HeaderMap| -> BTreeMap<String, String> {
            let varies = ["date", "x-correlation-id"];
            let headers = headers.iter().filter(|(name, _)| !varies.contains(&name.as_str()));
            headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
        };
        assert_eq!(comparable(&headed.headers), comparable(&got.headers), "{path}");
    }
    let not_modified = head(&suite, "/account/1", &[("if-none-match", "W/\"7-1\", \"2-1\"")]).await.expect(304);
    assert_eq!(not_modified.header("etag"), "\"2-1\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn read_of_a_version_succeeds_only_from_version_1_to_the_last() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    for amount in [10, 20, 30] {
        suite.post("/account/1/commands", &transaction(amount)).await.expect(200);
    }
    for rebuild in ["", "&rebuild=true"] {
        for (version, balance) in [(1, 0), (2, 10), (3, 30), (4, 60)] {
            let read = suite.get(&format!("/account/1?version={version}{rebuild}")).await.expect(200);
            assert_eq!((&read.body["version"], &read.body["state"]["balance"]), (&json!(version), &json!(balance)));
            assert_eq!(read.header("etag"), format!("\"{version}-1\""));
        }
        for beyond in ["0", "5", "999999999999", "1000000000000", "18446744073709551615"] {
            let read = suite.get(&format!("/account/1?version={beyond}{rebuild}")).await;
            let detail = read.expect_problem(404, "no-such-version").body["detail"].take();
            assert_eq!(detail, format!("there is no version {beyond}; versions go from 1 to 4"));
        }
        for odd in ["18446744073709551616", "-1", "1.0", "x", ""] {
            suite.get(&format!("/account/1?version={odd}{rebuild}")).await.expect_problem(400, "bad-query");
        }
        for version in ["0", "1", "999999999999"] {
            suite.get(&format!("/account/2?version={version}{rebuild}")).await.expect_problem(404, "not-found");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_deleted_aggregate_can_be_read() {
    let suite = Suite::start().await;
    suite.post("/todo", &json!({"id": "1", "title": "a", "message": ""})).await.expect(201);
    suite.send(Method::DELETE, "/todo/1", &[], None).await.expect(200);
    let events = suite.get("/todo/1/events").await.expect(200).body;
    let types: Vec<_> = events["events"].as_array().unwrap().iter().map(|event| &event["eventType"]).collect();
    assert_eq!(types, ["TodoCreated", "TodoDeleted"]);
    assert_eq!(suite.get("/todo/1/events?after=1").await.expect(200).body["events"][0]["seqNum"], 2);
    assert_eq!(suite.get("/todo/1/events?after=2").await.expect(200).body["events"], json!([]));
    assert_eq!(suite.get("/todo/1?version=1").await.expect(200).body["state"]["title"], "a");
    for path in ["/todo/1", "/todo/1?version=2", "/todo/1?rebuild=true"] {
        suite.get(path).await.expect_problem(410, "deleted");
    }
    suite.send(Method::GET, "/todo/1", &[("if-none-match", "\"2-2\"")], None).await.expect_problem(410, "deleted");
    assert_eq!(suite.get("/todo").await.expect(200).body["aggregates"][0]["id"], "1");
    assert_eq!(suite.get("/events?type=TodoDeleted").await.expect(200).body["events"][0]["aggregateId"], "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_events_are_bounded_and_link_to_the_next() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    suite.post("/account/1/commands", &Value::from(vec![transaction(1); 90])).await.expect(200);
    suite.post("/account/1/commands", &Value::from(vec![transaction(1); 90])).await.expect(200);
    let numbers = |body: &Value| -> Vec<u64> {
        body["events"].as_array().unwrap().iter().map(|event| event["seqNum"].as_u64().unwrap()).collect()
    };
    let first = suite.get("/account/1/events").await.expect(200);
    assert_eq!(numbers(&first.body), (1..=100).collect::<Vec<_>>());
    let second = suite.get(first.next().unwrap()).await.expect(200);
    assert_eq!(numbers(&second.body), (101..=181).collect::<Vec<_>>());
    assert_eq!(second.header("link"), "");
    let all = suite.get("/account/1/events?limit=1000").await.expect(200);
    assert_eq!((numbers(&all.body).len(), all.header("link")), (181, ""));
    // The last page has no link to a next page.
    let exact = suite.get("/account/1/events?limit=181").await.expect(200);
    assert_eq!((numbers(&exact.body).len(), exact.header("link")), (181, ""));
    let last = suite.get("/account/1/events?after=180&limit=1").await.expect(200);
    assert_eq!((numbers(&last.body), last.header("link")), (vec![181], ""));
    for after in ["181", "999999999999", "18446744073709551615"] {
        let nothing = suite.get(&format!("/account/1/events?after={after}")).await.expect(200);
        assert_eq!((numbers(&nothing.body).len(), nothing.header("link")), (0, ""));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_events_miss_no_event_during_appends() {
    const BATCHES: u64 = 40;
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    let end = 1 + BATCHES * 3;
    let write = async {
        for _ in 0..BATCHES {
            suite.post("/account/1/commands", &Value::from(vec![transaction(1); 3])).await.expect(200);
        }
    };
    let read = async {
        let mut seen = 0;
        while seen < end {
            let mut path = Some(format!("/account/1/events?after={seen}&limit=7"));
            while let Some(here) = path {
                let page = suite.get(&here).await.expect(200);
                for event in page.body["events"].as_array().unwrap() {
                    seen += 1;
                    assert_eq!(event["seqNum"], seen, "{here}");
                }
                path = page.next().map(str::to_owned);
            }
        }
    };
    tokio::join!(write, read);
}

/// The ids on a page that an instance returns, and the path of the next page.
async fn page(instance: &Instance, path: &str) -> (Vec<String>, Option<String>) {
    let page = instance.get(path).await.expect(200);
    let (entries, name) = if path.starts_with("/events") { ("events", "aggregateId") } else { ("aggregates", "id") };
    let entries = page.body[entries].as_array().unwrap().iter();
    (entries.map(|entry| entry[name].as_str().unwrap().to_owned()).collect(), page.next().map(str::to_owned))
}

#[tokio::test(flavor = "multi_thread")]
async fn cursor_works_after_a_restart_and_with_another_number_of_shards() {
    for beginning in ["/events?type=AccountOpened&limit=2", "/account?limit=2"] {
        let mut instance = Instance::start().await;
        let open = async |instance: &Instance, n: usize| {
            // Ids are ordered by the millisecond, and randomly within a millisecond.
            let last = Timestamp::now().as_millisecond();
            while Timestamp::now().as_millisecond() == last {
                tokio::task::yield_now().await;
            }
            let id = json!({"id": format!("a{n:02}")});
            instance.post("/account", id).await.expect(201);
        };
        let mut seen = Vec::new();
        let mut path = Some(beginning.to_owned());
        // Before each page, events are appended. A new instance with another number of shards reads the page.
        for (round, shards) in [1, 1, 4, 16, 64].into_iter().enumerate() {
            instance = sharded(instance.table.engine, shards).await;
            for n in 0..4 {
                open(&instance, round * 4 + n).await;
            }
            let (ids, next) = page(&instance, &path.unwrap()).await;
            seen.extend(ids);
            path = next;
        }
        while let Some(here) = path {
            let (ids, next) = page(&instance, &here).await;
            seen.extend(ids);
            path = next;
        }
        assert_eq!(seen, (0..20).map(|n| format!("a{n:02}")).collect::<Vec<_>>(), "{beginning}");
        let engine: LocalDynamoDb = instance.table.engine;
        let (ids, _) = page(&sharded(engine, 64).await, beginning).await;
        assert_eq!(ids, ["a00", "a01"]);
    }
}
