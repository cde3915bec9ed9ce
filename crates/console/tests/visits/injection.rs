//! What people wrote is text on every page.

use serde_json::json;

use crate::stack::Visit;

const SCRIPT: &str = "<script>alert(1)</script>";
/// Without a space, so that it can be in a header.
const IMAGE: &str = "\"'><img/src=x/onerror=alert(1)>";

#[tokio::test(flavor = "multi_thread")]
async fn markup_in_ids_data_headers_and_errors_is_text() {
    let visit = Visit::start().await;
    let headers = [("x-correlation-id", SCRIPT), ("x-causation-id", IMAGE), ("x-daybook-caller", SCRIPT)];
    let todo = |id: &str| json!({"id": id, "title": SCRIPT, "message": IMAGE});
    let created = visit.post("/todo", &headers, &todo("1")).await;
    assert_eq!(created["version"], 1, "{created}");
    visit.page_with("/bus", "todo/1").await;
    visit.set_faults(&json!({"entries": [{"containing": "", "code": IMAGE}]})).await;
    visit.post("/todo", &headers, &todo("2")).await;
    visit.page_with("/dead-letters", "todo/2").await;

    let escaped = "%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for path in [
        "",
        "?type=todo",
        "/aggregates/todo/1",
        "/aggregates/todo/2",
        "/aggregates/todo/1/events/1",
        "/bus",
        "/aggregates/todo/1/test?version=1",
        "/dead-letters",
        "/stream",
        "/faults",
        &format!("/search?q={escaped}"),
        &format!("/correlation?id={escaped}"),
        &format!("/bus?containing={escaped}&aggregate={escaped}&type={escaped}"),
        &format!("/command/todo?id={escaped}"),
        "/nothing",
    ] {
        let page = visit.get(path).await.text().await.unwrap();
        assert!(page.contains("<!DOCTYPE html>"), "{path}: {page}");
        assert!(!page.contains("<script>") && !page.contains("<img/src=x"), "{path}: {page}");
        // An attribute that a quote had ended would continue with the event handler.
        assert!(!page.contains("\"'>") && !page.contains("onerror=alert(1)>"), "{path}: {page}");
    }
    for path in [format!("/aggregates/todo/{escaped}"), format!("?type={escaped}"), format!("/{escaped}")] {
        let page = visit.get(&path).await.text().await.unwrap();
        assert!(!page.contains("<script>"), "{path}: {page}");
    }
    let fields = [("command", "CreateTodo"), ("id", SCRIPT), ("data.title", IMAGE), ("If-Match", SCRIPT)];
    let page = visit.submit("/command/todo", &fields).await;
    assert!(!page.body.contains("<script>") && !page.body.contains("<img/src=x"), "{}", page.body);
    // Whole messages are text for the browser, too.
    let whole = visit.get("/bus/1").await;
    assert_eq!(whole.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(whole.headers()["x-content-type-options"], "nosniff");
    visit.stop().await;
}
