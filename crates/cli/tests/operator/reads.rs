//! `daybook get`, `daybook events` and `daybook feed`.

use axum::extract::Request;
use axum::middleware::map_request;
use daybook_cli::operator::{Exit, OperatorError};
use daybook_command_handler::{Api, ApiSettings, gateway, router};
use daybook_local_aws::messaging::Server;
use daybook_settings::Environment;
use serde_json::{Value, json};

use crate::support::Setup;

/// The API of the stack, whose authorizer admits every request as one of Ann.
async fn api(setup: &Setup) -> Server {
    let settings = ApiSettings::read(&Environment::default()).unwrap();
    let api = Api::new(aggregates::registry().unwrap(), setup.table.direct_store(), settings);
    let as_ann = async |request: Request| {
        gateway::with_authorizer(request, &json!({"jwt": {"claims": {"sub": "ann"}, "scopes": []}})).unwrap()
    };
    Server::start(router(api).layer(map_request(as_ann))).await.unwrap()
}

async fn get(api: &Server, path: &str) -> String {
    reqwest::get(format!("{}{path}", api.url())).await.unwrap().text().await.unwrap()
}

async fn post(api: &Server, path: &str, body: &Value) {
    let response = reqwest::Client::new().post(format!("{}{path}", api.url())).json(body).send().await.unwrap();
    assert!(response.status().is_success(), "{path}: {}", response.text().await.unwrap());
}

/// Creates a to-do with this number of events by the API, whose clock is that of the feeds.
async fn todo_now(api: &Server, id: &str, events: usize) {
    post(api, "/todo", &json!({"id": id, "title": "0", "message": ""})).await;
    let updates: Vec<_> = (1..events)
        .map(|n| json!({"command": "UpdateTodo", "data": {"title": n.to_string(), "message": ""}}))
        .collect();
    for some in updates.chunks(25) {
        post(api, &format!("/todo/{id}/commands"), &json!(some)).await;
    }
}

/// Without a delay, the feed contains the events at once.
async fn setup() -> Setup {
    let setup = Setup::with(&[("FEED_DELAY_MS", "0")]).await;
    setup.command("account/1", "OpenAccount", json!({})).await;
    setup.command("account/1", "RecordTransaction", json!({"desc": "A", "amount": -150})).await;
    setup
}

#[tokio::test]
async fn get_prints_the_body_of_the_api() {
    let setup = setup().await;
    let api = api(&setup).await;
    for (options, query) in [("", ""), (" --version 1", "?version=1"), (" --rebuild", "?rebuild=true")] {
        let lines = setup.daybook(&format!("get account/1 --json{options}")).await.expect(Exit::Clean);
        assert_eq!(lines, [get(&api, &format!("/account/1{query}")).await], "{options}");
    }
    let lines = setup.daybook("get account/1 --version 1").await.expect(Exit::Clean);
    assert_eq!(lines[0], "account/1 version 1");
    let state: Value = serde_json::from_str(&lines[1..].join("\n")).unwrap();
    assert_eq!(state["balance"], 0);
}

#[tokio::test]
async fn get_of_what_does_not_exist_is_a_finding_with_the_problem_of_the_api() {
    let setup = setup().await;
    setup.todo("gone", 1).await;
    setup.command("todo/gone", "DeleteTodo", json!({})).await;
    let api = api(&setup).await;
    for (aggregate, option, query) in
        [("account/2", "", ""), ("account/1", " --version 9", "?version=9"), ("todo/gone", "", "")]
    {
        let lines = setup.daybook(&format!("get {aggregate} --json{option}")).await.expect(Exit::Findings);
        assert_eq!(lines, [get(&api, &format!("/{aggregate}{query}")).await]);
        assert!(setup.daybook(&format!("get {aggregate}{option}")).await.expect(Exit::Findings).is_empty());
    }
    setup.daybook("get todo/gone --version 1").await.expect(Exit::Clean);
    let error = setup.daybook("get unknown/1").await.ended;
    // A type that is not registered does not exist either.
    assert!(matches!(error, Ok(Exit::Findings)), "{error:?}");
}

#[tokio::test]
async fn operator_reads_an_aggregate_whose_owner_is_somebody_else() {
    let setup = setup().await;
    let api = api(&setup).await;
    todo_now(&api, "1", 1).await;
    let lines = setup.daybook("get todo/1 --json").await.expect(Exit::Clean);
    assert_eq!(lines, [get(&api, "/todo/1").await]);
    let lines = setup.daybook("events todo/1 --json").await.expect(Exit::Clean);
    let page: Value = serde_json::from_str(&get(&api, "/todo/1/events").await).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&lines[0]).unwrap(), page["events"][0]);
    assert_eq!(page["events"][0]["meta"]["actor"], "ann");
    // The API shows the feed of all owners to nobody.
    assert!(get(&api, "/events?type=TodoCreated").await.contains("forbidden"));
    assert_eq!(setup.daybook("feed --type TodoCreated").await.expect(Exit::Clean).len(), 2);
}

#[tokio::test]
async fn events_prints_each_event_as_the_api_does() {
    let setup = setup().await;
    setup.todo("1", 230).await;
    let api = api(&setup).await;
    let lines = setup.daybook("events todo/1 --json").await.expect(Exit::Clean);
    let page: Value = serde_json::from_str(&get(&api, "/todo/1/events?limit=1000").await).unwrap();
    let printed: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(printed[..230], page["events"].as_array().unwrap()[..]);
    assert_eq!(printed[230]["summary"], json!({"events": 230, "unreadable": 0}));

    let lines = setup.daybook("events account/1 --after 1").await.expect(Exit::Clean);
    assert!(lines[0].contains(r#" 2 TransactionAccepted {"#) && lines[0].contains(r#""amount":-150"#), "{lines:?}");
    assert_eq!(lines[lines.len() - 1], format!("{} events, 0 unreadable", lines.len() - 1));
    let lines = setup.daybook("events todo/1 --limit 3").await.expect(Exit::Clean);
    assert_eq!(lines[3], "3 events, 0 unreadable; stopped early, go on with --after 3");
    assert!(setup.daybook("events todo/2").await.expect(Exit::Findings).is_empty());
    let lines = setup.daybook_until("events todo/1", 1).await.expect(Exit::Interrupted);
    assert_eq!(lines[100], "100 events, 0 unreadable; stopped early, go on with --after 100");
}

#[tokio::test]
async fn feed_prints_the_events_of_all_types_in_order_of_time() {
    let setup = Setup::with(&[("FEED_DELAY_MS", "0")]).await;
    let api = api(&setup).await;
    post(&api, "/account", &json!({"id": "1"})).await;
    todo_now(&api, "1", 150).await;
    let lines = setup.daybook("feed --json").await.expect(Exit::Clean);
    let events: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (summary, events) = events.split_last().unwrap();
    let ids: Vec<_> = events.iter().map(|event| event["eventId"].as_str().unwrap()).collect();
    assert!(ids.is_sorted() && ids.len() == 151, "{ids:?}");
    assert_eq!((&summary["summary"]["events"], &summary["summary"]["more"]), (&json!(ids.len()), &json!(false)));
    assert_eq!(summary["summary"]["cursor"], ids[ids.len() - 1]);

    // A type, a time and a cursor select.
    let of_type = setup.daybook("feed --type TodoUpdated").await.expect(Exit::Clean);
    assert_eq!(of_type.len(), 150);
    assert!(of_type[0].contains(" todo/1 2 TodoUpdated {"), "{}", of_type[0]);
    let from = events[100]["occurredAt"].as_str().unwrap();
    let later = setup.daybook(&format!("feed --json --from {from}")).await.expect(Exit::Clean);
    let expected = events.iter().filter(|event| event["occurredAt"].as_str().unwrap() >= from).count();
    assert_eq!(later.len() - 1, expected);
    assert_eq!(setup.daybook("feed --from 1h").await.expect(Exit::Clean).len(), ids.len() + 1);
    assert_eq!(setup.daybook("feed --from now").await.expect(Exit::Clean).len(), 1);
    let after = setup.daybook(&format!("feed --after {}", ids[100])).await.expect(Exit::Clean);
    assert_eq!(after.len() - 1, ids.len() - 101);
    // A cursor above the last id does not restart the feed.
    let ended = setup.daybook("feed --after 80000000000000000000000000").await.ended;
    assert!(
        matches!(&ended, Err(OperatorError::Usage(text)) if text == "after must be the cursor of a page"),
        "{ended:?}"
    );
    let limited = setup.daybook("feed --limit 5").await.expect(Exit::Clean);
    assert!(limited[5].ends_with(&format!("stopped early, go on with --after {}", ids[4])), "{limited:?}");

    // The entries are those of the API for a reader who may see them.
    let page: Value = serde_json::from_str(&get(&api, "/events?type=AccountOpened").await).unwrap();
    let of_type = setup.daybook("feed --json --type AccountOpened").await.expect(Exit::Clean);
    assert_eq!(serde_json::from_str::<Value>(&of_type[0]).unwrap(), page["events"][0]);
}

#[tokio::test]
async fn unreadable_event_is_printed_and_is_a_finding() {
    let setup = Setup::with(&[("FEED_DELAY_MS", "0")]).await;
    todo_now(&api(&setup).await, "1", 3).await;
    let key = crate::support::key("todo/1");
    let broken = aws_sdk_dynamodb::types::AttributeValue::N("7".to_owned());
    setup.table.tamper(&key, "EVENT#000000000002", [("eventType", broken)]).await;
    let lines = setup.daybook("events todo/1").await.expect(Exit::Findings);
    assert!(lines.iter().any(|line| line.starts_with("unreadable {") && line.contains("\"seqNum\":2")), "{lines:?}");
    assert_eq!(lines[3], "2 events, 1 unreadable");
    let lines = setup.daybook("feed --type TodoUpdated --json").await.expect(Exit::Findings);
    assert!(lines.iter().any(|line| line.starts_with(r#"{"unreadable":"#)), "{lines:?}");
}

#[tokio::test]
async fn feed_of_an_unknown_event_type_is_empty() {
    let setup = setup().await;
    assert_eq!(setup.daybook("feed --type Nothing").await.expect(Exit::Clean).len(), 1);
}

#[tokio::test]
async fn feed_with_too_few_shards_is_a_usage_error() {
    let setup = Setup::with(&[("EVENT_TYPE_SHARDS", "8")]).await;
    for id in 0..8 {
        setup.todo(&id.to_string(), 1).await;
    }
    let error = setup.daybook("EVENT_TYPE_SHARDS=1 feed").await.ended.unwrap_err();
    assert!(error.to_string().starts_with("EVENT_TYPE_SHARDS is 1") && error.exit_code() == 2, "{error}");
}
