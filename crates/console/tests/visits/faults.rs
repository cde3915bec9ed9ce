//! The page of the faults.

use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::stack::Visit;

#[tokio::test(flavor = "multi_thread")]
async fn switches_set_the_faults_and_show_them() {
    let visit = Visit::start().await;
    let set = visit.submit("/faults", &[("action", "apply"), ("on", "bus"), ("rejected", "TodoCreated")]).await;
    set.has("The faults are set.")
        .has("value=\"bus\" checked")
        .has("value=\"TodoCreated\"")
        .lacks("value=\"queue\" checked");
    // Each page shows that there are faults, so that nobody looks for another reason.
    visit.page("/bus").await.has("Faults <span class=\"tag warn\">on</span>");
    let faults: serde_json::Value = {
        let text = visit.page("/faults").await.between("<textarea id=\"json\"", "</textarea>").to_owned();
        serde_json::from_str(&text.split_once('>').unwrap().1.replace("&quot;", "\"")).unwrap()
    };
    let expected = json!({
        "putEvents": [{"http": 500, "forever": true}],
        "entries": [{"containing": "TodoCreated", "code": "MalformedDetail"}],
    });
    assert_eq!(faults, expected);
    let reset = visit.submit("/faults", &[("action", "reset")]).await;
    reset.has("No part of the stack fails any more.").lacks(" checked").lacks(">on</span>");
    visit
        .submit("/faults", &[("action", "json"), ("json", "{\"unknown\": []}")])
        .await
        .has("does not accept these faults");
    visit.submit("/faults", &[("action", "json"), ("json", "{")]).await.has("This is not JSON");
    let once = [("action", "json"), ("json", "{\"putEvents\": [{\"delayMs\": 1}]}")];
    visit.submit("/faults", &once).await.has("The faults are set.").has(">on</span>");
    // Empty lists are no faults.
    for json in ["{\"putEvents\": []}", "{\"entries\": [], \"paused\": []}"] {
        let set = visit.submit("/faults", &[("action", "json"), ("json", json)]).await;
        set.has("No part of the stack fails any more.").lacks(">on</span>");
    }
    visit.stop().await;
}

/// A page of another site, or a name that another site gave this machine, is admitted nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn other_sites_reach_neither_the_api_nor_the_faults() {
    let visit = Visit::start().await;
    for (method, path) in [(Method::PUT, "/_dev/faults"), (Method::POST, "/todo"), (Method::GET, "/_console")] {
        for (name, value) in [("origin", "https://example.com"), ("host", "rebound.example.com")] {
            let response = visit.request_api(method.clone(), path, (name, value)).await;
            assert_eq!(response.status(), StatusCode::FORBIDDEN, "{method} {path} {name}");
        }
    }
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_relay_sends_the_waiting_messages_in_order_after_it_is_resumed() {
    let visit = Visit::start().await;
    visit.create_todo("before", "t").await;
    visit.page_with("/bus", "<strong>1</strong> messages").await;
    let paused = visit.submit("/faults", &[("action", "apply"), ("on", "relay")]).await;
    paused.has("The faults are set.").has("value=\"relay\" checked");
    for id in ["a", "b", "c"] {
        visit.create_todo(id, "t").await;
    }
    // The relay gets two records of each: the message, and the event for the read models.
    let stream = visit.page_with("/stream", "<span class=\"warn\">6</span>").await;
    stream.has("<span class=\"tag\">paused</span>");
    visit.submit("/faults", &[("action", "idle")]).await.has("Still busy").has("6 at stream-relay");
    assert_eq!(visit.bus().await.len(), 1);

    visit.submit("/faults", &[("action", "reset")]).await.has("No part of the stack fails any more.");
    visit.page_with("/bus", "<strong>4</strong> messages").await;
    visit.page_with("/stream", "<td class=\"number\">0</td>").await.lacks(">paused<");
    let unknown = [("action", "json"), ("json", "{\"paused\": [\"projector\"]}")];
    visit.submit("/faults", &unknown).await.has("does not accept these faults");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_waits_until_the_stack_is_idle() {
    let visit = Visit::start().await;
    for number in 0..20 {
        visit.create_todo(&number.to_string(), "t").await;
    }
    visit.submit("/faults", &[("action", "idle")]).await.has("The stack is idle");
    assert_eq!(visit.bus().await.len(), 20);
    visit.set_faults(&json!({"putEvents": [{"http": 500, "forever": true}]})).await;
    visit.create_todo("last", "t").await;
    visit.submit("/faults", &[("action", "idle")]).await.has("Still busy").has("2 at stream-relay");
    visit.stop().await;
}
