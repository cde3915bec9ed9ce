//! Creates, reads, updates and deletes to-dos with optimistic concurrency over HTTP.

use reqwest::Method;
use serde_json::json;
use suite_tests::Suite;

const ID: &str = "D8E8B51E-0337-4300-B414-0CC65918AAF8";

#[tokio::test(flavor = "multi_thread")]
async fn todo_can_be_created_updated_and_deleted() {
    let suite = Suite::start().await;
    let path = format!("/todo/{ID}");
    let todo = json!({"id": ID, "title": "TODO", "message": "Make coffee"});

    let created = suite.post("/todo", &todo).await.expect(201);
    assert_eq!((created.header("location"), created.header("etag")), (path.as_str(), "\"1-2\""));
    suite.post("/todo", &todo).await.expect_problem(409, "already-exists");

    let got = suite.get(&path).await.expect(200);
    assert_eq!(got.header("etag"), "\"1-2\"");
    assert_eq!(got.body["state"], json!({"id": ID, "title": "TODO", "message": "Make coffee"}));

    let two = json!({"title": "TODO", "message": "Make 2 coffees"});
    let updated = suite.post_if_match(&path, &two, Some("\"1\"")).await.expect(200);
    assert_eq!((updated.header("etag"), &updated.body["state"]["message"]), ("\"2-2\"", &json!("Make 2 coffees")));

    let stale = suite.post_if_match(&path, &json!({"title": "TODO", "message": "Make tea"}), Some("\"1\"")).await;
    let stale = stale.expect_problem(409, "version-conflict");
    assert_eq!((&stale.body["expected"], &stale.body["actual"]), (&json!(1), &json!(2)));
    assert_eq!(stale.header("etag"), "\"2-2\"");

    suite.post("/todo/unknown", &two).await.expect_problem(404, "not-found");
    suite.send(Method::DELETE, "/todo/unknown", &[], None).await.expect_problem(404, "not-found");

    suite.send(Method::DELETE, &path, &[("if-match", "\"1\"")], None).await.expect_problem(409, "version-conflict");
    suite.send(Method::DELETE, &path, &[("if-match", "2")], None).await.expect(200);
    suite.get(&path).await.expect_problem(410, "deleted");
    suite.post(&path, &two).await.expect_problem(410, "deleted");
    suite.send(Method::DELETE, &path, &[], None).await.expect_problem(410, "deleted");
    suite.post("/todo", &todo).await.expect_problem(409, "already-exists");

    let events = suite.get(&format!("{path}/events")).await.expect(200);
    let types: Vec<_> = events.body["events"].as_array().unwrap().iter().map(|event| &event["eventType"]).collect();
    assert_eq!(types, ["TodoCreated", "TodoUpdated", "TodoDeleted"]);
    assert_eq!(suite.get(&format!("{path}?version=1")).await.expect(200).body["state"]["message"], "Make coffee");

    let published: Vec<_> = suite.messages_of(&format!("todo/{ID}"), 3).await;
    let published: Vec<_> = published.iter().map(|message| message.detail_type.as_str()).collect();
    assert_eq!(published, ["TodoCreated", "TodoUpdated", "TodoDeleted"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn update_without_a_change_appends_no_event() {
    let suite = Suite::start().await;
    suite.post("/todo", &json!({"id": "1", "title": "TODO", "message": "Make coffee"})).await.expect(201);
    let same = suite.post("/todo/1", &json!({"title": "TODO", "message": "Make coffee"})).await.expect(200);
    assert_eq!((same.header("etag"), &same.body["events"]), ("\"1-2\"", &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_support_head_and_if_none_match() {
    let suite = Suite::start().await;
    suite.post("/todo", &json!({"id": "1", "title": "TODO", "message": "Make coffee"})).await.expect(201);

    let head = suite.send(Method::HEAD, "/todo/1", &[], None).await.expect(200);
    assert_eq!(head.header("etag"), "\"1-2\"");
    for known in ["\"1-2\"", "W/\"1-2\"", "\"7-2\", \"1-2\"", "*"] {
        let unchanged = suite.send(Method::GET, "/todo/1", &[("if-none-match", known)], None).await.expect(304);
        assert_eq!(unchanged.header("etag"), "\"1-2\"");
    }
    suite.send(Method::GET, "/todo/1", &[("if-none-match", "\"2-2\"")], None).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn todo_without_an_id_gets_a_generated_one() {
    let suite = Suite::start().await;
    let created = suite.post("/todo", &json!({"title": "TODO", "message": "Make coffee"})).await.expect(201);
    let location = created.header("location").to_owned();
    assert_eq!(location, format!("/todo/{}", created.body["id"].as_str().unwrap()));
    assert_eq!(suite.get(&location).await.expect(200).body["state"]["title"], "TODO");
}

#[tokio::test(flavor = "multi_thread")]
async fn todos_are_listed_in_pages_by_creation() {
    let suite = Suite::start().await;
    for id in ["c", "a", "b", "e", "d"] {
        suite.post("/todo", &json!({"id": id, "title": "TODO", "message": ""})).await.expect(201);
    }
    let mut path = "/todo?limit=2".to_owned();
    let mut ids = Vec::new();
    loop {
        let page = suite.get(&path).await.expect(200);
        let entries = page.body["aggregates"].as_array().unwrap();
        ids.extend(entries.iter().map(|entry| entry["id"].as_str().unwrap().to_owned()));
        let Some(next) = page.next() else { break };
        path = next.to_owned();
    }
    assert_eq!(ids, ["c", "a", "b", "e", "d"]);
}
