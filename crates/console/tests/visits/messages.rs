//! The pages of messages: bus, dead letters, correlation and stream.

use std::time::Duration;

use serde_json::json;

use crate::stack::Visit;

#[tokio::test(flavor = "multi_thread")]
async fn bus_lists_the_latest_messages_first_and_filters_them() {
    let visit = Visit::start().await;
    visit.page("/bus").await.has("No message has reached the bus yet");
    for number in 1..=3 {
        visit.create_todo(&number.to_string(), &format!("title-{number}")).await;
    }
    visit.post("/account", &[], &json!({"id": "1"})).await;
    let all = visit.page_with("/bus", "<strong>3</strong> messages").await;
    assert!(all.body.find("todo/3").unwrap() < all.body.find("todo/1").unwrap(), "{}", all.body);
    visit.page("/bus?containing=title-2").await.has("todo/2").lacks("todo/1<").has("<strong>1</strong> match");
    visit.page("/bus?aggregate=todo%2F1").await.has("todo/1<").lacks("todo/2<");
    visit.page("/bus?aggregate=todo").await.has("todo/1<").has("todo/2<");
    visit.page("/bus?aggregate=order").await.has("No message matches");
    visit.page("/bus?type=todocreated").await.has("todo/1<");
    visit.page("/bus/2").await.has("\"aggregateId\"");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_arrive_are_sent_to_the_page_and_sampled_at_a_high_rate() {
    let visit = Visit::start().await;
    let mut live = visit.get("/bus/live?after=0").await;
    assert_eq!(live.headers()["content-type"], "text/event-stream");
    visit.create_todo("1", "<i>first</i>").await;
    let text = first_event(&mut live).await;
    assert!(text.contains("id: 1\n") && !text.contains("<i>"), "{text}");
    drop(live);
    for number in 2..=60 {
        visit.create_todo(&number.to_string(), "t").await;
    }
    visit.page_with("/bus", "<strong>60</strong> messages").await;
    let mut live = visit.get("/bus/live?after=0").await;
    let text = first_event(&mut live).await;
    assert!(text.contains("\"arrived\":60") && text.contains("\"shown\":20"), "{text}");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_listed_with_a_filter_and_those_that_are_appended_are_sent_to_the_page() {
    let visit = Visit::start().await;
    visit.page("/events").await.has("There is no such event");
    visit.create_todo("1", "<i>first</i>").await;
    visit.post("/account", &[], &json!({"id": "7"})).await;
    visit.page("/events").await.has("AccountOpened").has("TodoCreated").has("&lt;i&gt;first").lacks("<i>");
    visit.page("/events?type=account").await.has("account/7 1</a>").lacks("TodoCreated");
    visit.page("/events?containing=first").await.has("todo/1 1</a>").lacks("AccountOpened");
    let mut live = visit.get("/events/live?type=todo&containing=second").await;
    assert_eq!(live.headers()["content-type"], "text/event-stream");
    let create = async {
        for (id, title) in [("2", "another"), ("3", "<b>second</b>")] {
            tokio::time::sleep(Duration::from_secs(2)).await;
            visit.create_todo(id, title).await;
        }
    };
    let (text, ()) = tokio::join!(first_event(&mut live), create);
    assert!(text.contains("todo/3 1") && text.contains("\"arrived\":1") && !text.contains("<b>"), "{text}");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_messages_are_sampled_and_all_of_them_are_counted() {
    let visit = Visit::start().await;
    let mut live = visit.get("/bus/live?after=0").await;
    let put = async {
        for call in 0..100 {
            visit.put_on_bus((0..10).map(|n| json!({"n": call * 10 + n}))).await;
        }
    };
    let counted = async {
        let (mut arrived, mut shown) = (0, Vec::new());
        while arrived < 1_000 {
            let text = first_event(&mut live).await;
            let data = text.split_once("data: ").map(|(_, data)| data.lines().next().unwrap());
            let data: serde_json::Value = serde_json::from_str(data.unwrap_or("{}")).unwrap();
            arrived += data["arrived"].as_u64().unwrap_or_default();
            shown.push(data["shown"].as_u64().unwrap_or_default());
        }
        (arrived, shown)
    };
    let ((), (arrived, shown)) = tokio::join!(put, counted);
    assert!(arrived == 1_000 && shown.iter().all(|shown| *shown <= 20), "{arrived} {shown:?}");
    visit.page("/bus").await.has("<strong>1000</strong> messages").has("Older messages");
    visit.stop().await;
}

/// The first event of a stream, which may arrive in several chunks.
async fn first_event(live: &mut reqwest::Response) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\n\n") {
        let chunk = tokio::time::timeout(Duration::from_secs(20), live.chunk()).await.unwrap().unwrap().unwrap();
        bytes.extend(chunk);
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_shows_why_and_can_be_sent_again_or_deleted() {
    let visit = Visit::start().await;
    visit.page("/dead-letters").await.has("There are none.");
    visit.set_faults(&json!({"entries": [{"containing": "", "code": "MalformedDetail"}]})).await;
    visit.create_todo("1", "t").await;
    visit.create_todo("2", "t").await;
    let dead = visit.page_with("/dead-letters", "todo/2").await;
    let dead = if dead.body.contains("todo/1") { dead } else { visit.page_with("/dead-letters", "todo/1").await };
    dead.has("<th colspan=\"7\">2 messages: MalformedDetail")
        .has("TodoCreated")
        .has("href=\"/_console/aggregates/todo/1?version=1\"");
    visit.page("/aggregates/todo/1").await.has("in the dead-letter queue: MalformedDetail");
    let id_of = |page: &crate::stack::Page, aggregate: &str| {
        let row = page.body.split("<tr data-row").find(|row| row.contains(aggregate)).unwrap().to_owned();
        row.split_once("name=\"id\" value=\"").unwrap().1.split_once('"').unwrap().0.to_owned()
    };
    let (first, second) = (id_of(&dead, "todo/1"), id_of(&dead, "todo/2"));

    let again = visit.submit("/dead-letters", &[("action", "redrive"), ("id", &first)]).await;
    again.has("<strong>rejected</strong>").has("todo/1");
    visit.set_faults(&json!({})).await;
    let again = visit.submit("/dead-letters", &[("action", "redrive"), ("id", &first)]).await;
    again.has("1 message was sent again.").lacks("todo/1<").has("todo/2<");
    assert_eq!(visit.bus().await.len(), 1);
    visit.page("/aggregates/todo/1").await.has("on the bus after ");

    visit.page(&format!("/dead-letters/{second}")).await.has("MalformedDetail");
    let deleted = visit.submit("/dead-letters", &[("action", "delete"), ("id", &second)]).await;
    deleted.has("1 message was deleted.").has("There are none.");
    assert_eq!(visit.bus().await.len(), 1);
    visit.page("/aggregates/todo/2").await.has("not on the bus yet");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn correlation_is_the_tree_of_what_one_request_caused() {
    let visit = Visit::start().await;
    let root = [("x-correlation-id", "c1")];
    visit.post("/todo", &root, &json!({"id": "root", "title": "t", "message": "m"})).await;
    visit.post("/todo", &[("x-correlation-id", "c2")], &json!({"id": "other", "title": "t", "message": "m"})).await;
    visit.page_with("/correlation?id=c1", "todo/root").await.lacks("Across aggregates");
    let bus = visit.bus().await;
    let message = bus.iter().find(|message| message["resources"][0] == "todo/root").unwrap();
    let cause = message["detail"]["metadata"]["messageId"].as_str().unwrap();
    let caused = [("x-correlation-id", "c1"), ("x-causation-id", cause)];
    visit.post("/todo", &caused, &json!({"id": "leaf", "title": "t", "message": "m"})).await;
    let tree = visit.page_with("/correlation?id=c1", "todo/leaf").await;
    tree.lacks("todo/other");
    let root = tree.body.find("todo/root").unwrap();
    let below = &tree.body[root..tree.body.find("todo/leaf").unwrap()];
    assert!(below.contains("<ul>") && !below.contains("</li>"), "{below}");
    // The arrow goes from the column of the cause to that of the effect.
    let sequence = tree.between("Across aggregates", "</table>");
    let root = "<tr><td><span class=\"tag\">TodoCreated</span></td><td><span class=\"hidden\">–</span></td></tr>";
    let leaf = "<tr><td class=\"from\"><span class=\"hidden\">–</span></td><td class=\"right\"><span class=\"tag\">TodoCreated</span></td></tr>";
    assert!(sequence.contains(&format!("<tbody>{root}{leaf}</tbody>")), "{sequence}");
    visit.page("/correlation?id=none").await.has("No message has the correlation id");
    visit.page("/correlation").await.has("Enter the correlation id");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_shows_what_each_function_waits_for() {
    let visit = Visit::start().await;
    visit.set_faults(&json!({"putEvents": [{"http": 500, "forever": true}]})).await;
    visit.create_todo("1", "t").await;
    // The message, and the event for the read models.
    let busy = visit.page_with("/stream", "<span class=\"warn\">2</span>").await;
    busy.has("stream-relay")
        .has("snapshotter")
        .has("daybook-dlq")
        .has("daybook-changes")
        .has("Requests in the last hour");
    // The request that created the todo.
    busy.has("Per minute: latest <strong>1</strong>, most <strong>1</strong>")
        .has("Median milliseconds: latest <strong>");
    visit.page("/aggregates/todo/1").await.has("not on the bus yet");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn timeline_shows_what_the_consumer_of_each_rule_did_with_a_message() {
    let visit = Visit::with_rules(&["todo/* -> queue:audit", "* -> queue:mails", "order/* -> queue:billing"]).await;
    visit.create_todo("1", "t").await;
    let page = "/aggregates/todo/1";
    visit.page_with(page, "title=\"No consumer has received it.\">waiting</span>").await.lacks("billing");

    let consumer = visit.queues();
    let received = consumer.receive("audit", 1, Duration::from_secs(30)).await.unwrap();
    visit.page(page).await.has("being processed, or waiting for a retry</span>").has(", received after ");
    consumer.delete("audit", &received[0]).await;
    let processed = visit.page(page).await;
    processed.has("queue <span class=\"message\">audit</span> <span class=\"fate good\">processed in ");

    // Another consumer fails until the message moves to the dead-letter queue.
    while let Ok(received) =
        tokio::time::timeout(Duration::from_millis(500), consumer.receive("mails", 1, Duration::ZERO)).await
    {
        assert_eq!(received.unwrap().len(), 1);
    }
    visit.page(page).await.has(">in its dead-letter queue after ").has(" times, first after ");
    let dead = visit.page("/dead-letters").await;
    dead.has("<code>mails-dlq</code>").has("its consumer did not process it").has("<strong>TodoCreated</strong>");
    dead.has("href=\"/_console/aggregates/todo/1?version=1\">todo/1</a>");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_shows_how_far_each_projection_is_behind() {
    let visit = Visit::start().await;
    let order =
        |id: &str| json!({"id": id, "customerId": "c", "items": [{"productId": "p", "quantity": 1}], "total": 1});
    visit.post("/order", &[], &order("1")).await;
    let folded = "<td>order</td><td class=\"number\">0</td><td class=\"number\">none</td><td class=\"number\">0</td>";
    visit.page_with("/stream", folded).await.has("<strong>orders-by-day</strong> version 1</a> <span class=\"tag\"");

    visit.set_faults(&json!({"projector": [{"killAfterMs": 0, "forever": true}]})).await;
    visit.post("/order", &[], &order("2")).await;
    // Both orders are compared, so the lag is known.
    visit.page_with("/stream", "<span class=\"warn\">1 of 2</span>").await.lacks("at least");
    for number in 3..=52 {
        visit.post("/order", &[], &order(&number.to_string())).await;
    }
    visit.page_with("/stream", "<span class=\"warn\">50 of 50</span>").await.has("at least ");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_of_a_projection_that_is_behind_with_every_event_is_exact() {
    let visit = Visit::start().await;
    visit.set_faults(&json!({"projector": [{"killAfterMs": 0, "forever": true}]})).await;
    let order = json!({"id": "1", "customerId": "c", "items": [{"productId": "p", "quantity": 1}], "total": 1});
    visit.post("/order", &[], &order).await;
    visit.page_with("/stream", "<span class=\"warn\">1 of 1</span>").await.lacks("at least");
    visit.stop().await;
}
