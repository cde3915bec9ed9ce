//! Events and rows that cannot be read.

use aws_sdk_dynamodb::types::AttributeValue;

use crate::Bench;

#[tokio::test]
async fn event_that_the_code_does_not_know_is_named_and_the_state_before_it_is_one_click_away() {
    let bench = Bench::start().await;
    let key = bench.fill_account("1", 5).await;
    let name = "<b>Unknown</b>".to_owned();
    bench.table.tamper(&key, "EVENT#000000000004", [("eventType", AttributeValue::S(name))]).await;
    let page = bench.get("/_console/aggregates/account/1").await;
    assert!(page.body.contains("The state of this version cannot be computed"), "{}", page.body);
    assert!(page.body.contains("event 4 (&lt;b&gt;Unknown&lt;/b&gt; version 1)"), "{}", page.body);
    assert!(!page.body.contains("<b>Unknown"), "{}", page.body);
    assert!(
        page.body.contains("href=\"/_console/aggregates/account/1?version=3\">The state before it"),
        "{}",
        page.body
    );
    let before = bench.get("/_console/aggregates/account/1?version=3").await;
    assert!(before.body.contains("<ins><code class=\"line\">5</code></ins>"), "{}", before.body);
}

#[tokio::test]
async fn row_that_is_no_event_is_shown_with_the_reason() {
    let bench = Bench::start().await;
    let key = bench.fill_account("1", 3).await;
    let text = "<script>alert(1)</script>".to_owned();
    bench.table.tamper(&key, "EVENT#000000000002", [("occurredAt", AttributeValue::S(text))]).await;
    let page = bench.get("/_console/aggregates/account/1").await;
    assert!(page.body.contains("A row cannot be read: <code>EVENT#000000000002</code>"), "{}", page.body);
    assert!(
        page.body.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && !page.body.contains("<script>alert"),
        "{}",
        page.body
    );
    let rows = bench.get("/_console/aggregates/account/1/events/2").await;
    assert!(rows.body.contains("EVENT#000000000002") && rows.body.contains("#METADATA"), "{}", rows.body);
    assert!(!rows.body.contains("<script>alert"), "{}", rows.body);
}

#[tokio::test]
async fn aggregate_that_does_not_exist_has_a_link_to_the_command_that_creates_it() {
    let bench = Bench::start().await;
    let page = bench.get("/_console/aggregates/account/1").await;
    assert!(page.body.contains("Create it with OpenAccount"), "{}", page.body);
    assert!(page.body.contains("/_console/command/account?id=1&amp;command=OpenAccount"), "{}", page.body);
}
