//! The pages for reading.

use reqwest::Method;
use serde_json::json;

use crate::stack::Visit;

#[tokio::test(flavor = "multi_thread")]
async fn first_visit_tries_the_commands_of_a_type_with_one_click() {
    let visit = Visit::start().await;
    let first = visit.page("").await;
    first.has("Nothing has happened yet").has("Try the commands of account").lacks("<h2>Latest aggregates</h2>");

    let account = visit.submit("/samples", &[]).await;
    assert_eq!(account.path, "/_console/aggregates/account/sample");
    account.has("3 of 3").has("TransactionAccepted").has("accountOverdrawn").has("no snapshot");
    account.has("<td><code>balance</code></td>");
    account.has("<del><code class=\"line\">0</code></del>").has("<ins><code class=\"line\">-300</code></ins>");
    visit.page_with("/aggregates/account/sample", "on the bus after ").await;

    let list = visit.page("").await;
    list.lacks("Nothing has happened yet").has("href=\"/_console/aggregates/account/sample\"");
    list.has("<td class=\"number\">1</td><td class=\"number\">1</td>");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_version_shows_its_state_and_who_caused_it() {
    let visit = Visit::start().await;
    let headers = [("x-daybook-caller", "ann"), ("x-correlation-id", "order-7"), ("x-causation-id", "click-1")];
    visit.post("/account", &headers, &json!({"id": "7"})).await;
    for amount in 1..=40 {
        let command = json!({"command": "RecordTransaction", "data": {"desc": "d", "amount": amount}});
        visit.post("/account/7/commands", &[], &command).await;
    }
    let first = visit.page("/aggregates/account/7?version=1").await;
    first.has("1 of 41").has("<dd>ann</dd>").has("/_console/correlation?id=order-7").has("click-1");
    first.has("rel=\"next\"").lacks("rel=\"prev\"").has("<td><code>balance</code></td>");
    let third = visit.page("/aggregates/account/7?version=3").await;
    third.has("<del><code class=\"line\">1</code></del>").has("<ins><code class=\"line\">3</code></ins>");
    third.has("version=2\" aria-label=\"The version before\"").has("version=4\" aria-label=\"The next version\"");
    let latest = visit.page("/aggregates/account/7").await;
    latest.has("41 of 41").lacks("rel=\"next\"").has("value=\"12\"").lacks("value=\"11\" ").has("Older events");
    let older = visit.page("/aggregates/account/7?version=41&until=11").await;
    older.has("AccountOpened").has("Newer events").lacks("Older events");
    let missing = visit.get("/aggregates/account/7?version=99").await;
    assert_eq!(missing.status(), 404);
    let missing = missing.text().await.unwrap();
    assert!(missing.contains("account/7 has no version 99: its versions are 1 to 41."), "{missing}");
    let rows = visit.page("/aggregates/account/7/events/1").await;
    rows.has("EVENT#000000000001").has("#METADATA").has("&quot;AGGREGATE#account#7&quot;");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn process_is_beside_its_sources() {
    let visit = Visit::start().await;
    let order = json!({"id": "1", "customerId": "alice", "items": [{"productId": "p", "quantity": 1}], "total": 4500});
    visit.post("/order", &[], &order).await;
    visit.page_with("/aggregates/fulfilment/1", "FulfilmentBegun").await.has("Beside its sources");
    let path = "/aggregates/fulfilment/1/process";
    visit
        .page_with(path, "by dispatch request-payment")
        .await
        .has("input order/1 1")
        .has("<td>payment</td><td>itself</td>");
    visit.post("/payment/1/commands", &[], &json!({"command": "ReceivePayment"})).await;
    visit.page_with(path, "by dispatch request-shipment").await.has("input payment/1 2").has("by dispatch pay-order");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn search_finds_an_aggregate_by_its_id() {
    let visit = Visit::start().await;
    visit.create_todo("one", "t").await;
    visit.create_todo("both", "t").await;
    visit.post("/account", &[], &json!({"id": "both"})).await;
    assert_eq!(visit.page("/search?q=one").await.path, "/_console/aggregates/todo/one");
    assert_eq!(visit.page("/search?q=account%2Fboth").await.path, "/_console/aggregates/account/both");
    visit.page("/search?q=both").await.has("account/both").has("todo/both");
    visit.page("/search?q=%3Cb%3E").await.has("No aggregate has the id").has("&lt;b&gt;").lacks("<b>");
    visit.page("/search?q=").await.has("Enter the id");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn list_of_a_type_is_in_pages_and_begins_with_the_latest() {
    let visit = Visit::start().await;
    for number in 0..55 {
        visit.create_todo(&format!("t{number:02}"), "t").await;
    }
    let first = visit.page("?type=todo").await;
    first.has("todo/t54").has("todo/t05").lacks("todo/t04");
    let older = first.between("<a rel=\"next\" href=\"/_console", "\"").replace("&amp;", "&");
    visit.page(&older).await.has("todo/t04").has("todo/t00").lacks("todo/t05");
    // A text in the states: those of the page are searched, and the page says so.
    visit.post("/todo", &[], &json!({"id": "other", "title": "<b>", "message": "m"})).await;
    let found = visit.page("?type=todo&containing=%22title%22%3A%22%3Cb%3E%22").await;
    found.has("todo/other").lacks("todo/t54").lacks("<b>").has("56 aggregates were loaded and searched");
    visit.page("?type=todo&containing=nowhere").await.has("There are none").lacks("Create one with a command");
    visit.page("?type=order").await.has("Create one with a command").lacks("State contains");
    assert_eq!(visit.get("?type=none").await.status(), 404);
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_version_in_an_address_has_an_error_page() {
    let visit = Visit::start().await;
    visit.create_todo("1", "t").await;
    for (query, reason) in [
        ("?version=abc", "version: invalid digit found in string"),
        ("/test?version=abc", "version: invalid digit found in string"),
        ("?until=-1", "until: invalid digit found in string"),
        ("/test", "missing field `version`"),
    ] {
        let response = visit.get(&format!("/aggregates/todo/1{query}")).await;
        assert_eq!(response.status(), 400, "{query}");
        let page = response.text().await.unwrap();
        assert!(page.contains("<h1>This cannot be shown</h1>") && page.contains("<!DOCTYPE html>"), "{query}: {page}");
        assert!(page.contains(reason), "{query}: {page}");
    }
    visit.page("/aggregates/todo/1?version=1&until=1&fold=true").await.has("1 of 1");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_value_in_an_address_has_an_error_page_of_the_console() {
    let visit = Visit::start().await;
    visit.create_todo("1", "t").await;
    for (path, status, reason) in [
        ("/bus/abc", 404, "There is no page /_console/bus/abc: Invalid URL: Cannot parse `abc`"),
        ("/bus?before=abc", 400, "before: invalid digit found in string"),
        ("/bus/live?after=abc", 400, "after: invalid digit found in string"),
        ("/aggregates/todo/1/events/abc", 404, "with value `abc`"),
        ("/aggregates/todo/1/events/99999999999999999999", 404, "with value `99999999999999999999`"),
        ("/events?before=abc", 400, "the position in the list"),
        ("/aggregates/todo/%FF", 404, "Invalid UTF-8 in `id`"),
        ("/command/%FF", 404, "Invalid UTF-8 in `type`"),
        ("/dead-letters/%FF", 404, "Invalid UTF-8 in `id`"),
        ("/aggregates/todo/1?fold=perhaps", 400, "fold: provided string was not `true` or `false`"),
        ("?before=abc", 400, "the position in the list"),
        ("?before=80000000000000000000000000", 400, "the position in the list"),
    ] {
        let response = visit.get(path).await;
        assert_eq!(response.status(), status, "{path}");
        let page = response.text().await.unwrap();
        let title = if status == 404 { "<h1>Not found</h1>" } else { "<h1>This cannot be shown</h1>" };
        assert!(page.contains(title) && page.contains("<!DOCTYPE html>"), "{path}: {page}");
        assert!(page.contains(reason), "{path}: {page}");
    }
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn address_without_a_page_is_not_found() {
    let visit = Visit::start().await;
    for path in
        ["/nothing", "/aggregates/none/1", "/aggregates/todo/%3Cb%3E", "/aggregates/todo/1/events/0/data", "/bus/1"]
    {
        let response = visit.get(path).await;
        assert_eq!(response.status(), 404, "{path}");
        assert!(!response.text().await.unwrap().contains("<b>"), "{path}");
    }
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn browser_at_the_address_of_the_api_is_led_to_the_console() {
    const OF_BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let visit = Visit::start().await;
    let response = visit.request_api(Method::GET, "/", ("accept", OF_BROWSER)).await;
    assert_eq!((response.url().path(), response.status().as_u16()), ("/_console", 200));
    assert!(response.text().await.unwrap().contains("Nothing has happened yet"));
    // Everything else is answered as by API Gateway.
    for (method, path, accept) in [
        (Method::GET, "/", "*/*"),
        (Method::GET, "/", "application/json"),
        (Method::POST, "/", OF_BROWSER),
        (Method::DELETE, "/", OF_BROWSER),
        (Method::GET, "//", OF_BROWSER),
        (Method::GET, "/nothing", OF_BROWSER),
    ] {
        let response = visit.request_api(method.clone(), path, ("accept", accept)).await;
        assert_eq!(response.status(), 404, "{method} {path}");
        assert_eq!(response.headers()["content-type"], "application/problem+json", "{method} {path}");
    }
    visit.stop().await;
}
