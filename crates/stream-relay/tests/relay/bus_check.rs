//! The check that the bus exists, at the start and once a minute: EventBridge accepts and drops messages to a missing bus.

use std::time::Duration;

use daybook_local_aws::messaging::{Bus, Faults, Server};
use daybook_settings::Environment;
use daybook_stream_relay::RelaySettings;
use daybook_stream_relay::clients::{eventbridge, warm};
use serde_json::{Value, json};

use crate::support::{insert, insert_detail, setup, take_log};

async fn warmed(name: &str, faults: Value) -> Result<bool, String> {
    let bus = Bus::with("main", "dlq");
    bus.set_faults(serde_json::from_value::<Faults>(faults).unwrap());
    let server = Server::start(bus.router()).await.unwrap();
    let environment = [("EVENT_BUS_NAME", name), ("EVENT_SOURCE", "daybook"), ("DLQ_URL", "http://localhost/1/dlq")];
    let settings = RelaySettings::read(&environment.into_iter().collect::<Environment>()).unwrap();
    let client = eventbridge(&daybook_function_runtime::aws_config_at(server.url()));
    warm(&client, &settings).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn relay_does_not_start_without_its_bus() {
    assert_eq!(warmed("main", json!({})).await, Ok(true));
    assert_eq!(
        warmed("nope", json!({})).await,
        Err("the event bus \"nope\" does not exist, and EventBridge would drop every message to it: create the bus, or \
             correct EVENT_BUS_NAME"
            .to_owned())
    );
}

/// Lets the next batch check the bus.
async fn minute_passes() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn messages_to_a_deleted_bus_stay_unsettled_until_it_exists_again() {
    let setup = setup(json!({"putEvents": [
        {"failEntries": [{"index": 1, "code": "MalformedDetail"}]},
    ]}))
    .await;
    setup.bus.delete_event_bus("main");
    minute_passes().await;
    take_log();
    let records = [insert(1, "a", 1), insert(2, "b", 1), insert(3, "c", 1)];
    for _ in 0..2 {
        // The bus accepts each message, and drops it.
        assert_eq!(setup.checkpoint(&records).await.as_deref(), Some("1"));
        let lines = take_log();
        let line = lines.iter().find(|line| line["level"] == "ERROR").unwrap();
        let message = "the bus rejects this deployment, stopped sending";
        assert_eq!((&line["code"], &line["message"]), (&json!("NoSuchBus"), &json!(message)));
    }
    assert_eq!((setup.bus.delivered().len(), setup.dead_letters().len()), (0, 1));
    setup.bus.create_event_bus("main");
    assert_eq!(setup.checkpoint(&records).await, None);
    assert_eq!((setup.delivered().len(), setup.dead_letters().len()), (2, 1));
}

#[tokio::test]
async fn messages_that_a_missing_bus_had_accepted_are_sent_when_it_exists_again() {
    let setup = setup(json!({})).await;
    setup.bus.delete_event_bus("main");
    // The first message stays unsettled, because it is too large. The bus drops the second one before a check finds this out.
    let records = [insert_detail(1, "a", 1, &"x".repeat(1_200_000)), insert(2, "b", 1)];
    assert_eq!(setup.checkpoint(&records).await.as_deref(), Some("1"));
    minute_passes().await;
    assert_eq!(setup.checkpoint(&records).await.as_deref(), Some("1"));
    setup.bus.create_event_bus("main");
    assert_eq!(setup.checkpoint(&records).await.as_deref(), Some("1"));
    assert_eq!(setup.delivered().len(), 1);
}

#[tokio::test]
async fn bus_is_checked_once_a_minute_at_most_and_never_without_messages() {
    let (missing, throttled) = (json!({"code": "ResourceNotFoundException"}), json!({"code": "ThrottlingException"}));
    let faults = json!({"describeEventBus": [throttled, missing, throttled, {"http": 500}, {}, missing]});
    let setup = setup(faults).await;
    // The function has just checked it.
    assert_eq!(setup.checkpoint(&[insert(1, "a", 1)]).await, None);
    minute_passes().await;
    assert_eq!(setup.checkpoint(&[]).await, None);
    minute_passes().await;
    // No result: the bus still counts as existing.
    assert_eq!(setup.checkpoint(&[insert(2, "a", 2)]).await, None);
    minute_passes().await;
    // It is missing until a check has another result.
    for _ in 0..3 {
        assert_eq!(setup.checkpoint(&[insert(3, "a", 3)]).await.as_deref(), Some("3"));
    }
    // It exists again, and no check is made in the same minute: the last fault is left.
    for n in 3..100 {
        assert_eq!(setup.checkpoint(&[insert(n, "a", n)]).await, None, "{n}");
    }
    minute_passes().await;
    assert_eq!(setup.checkpoint(&[insert(100, "a", 100)]).await.as_deref(), Some("100"));
}

#[tokio::test]
async fn first_batch_checks_a_bus_that_could_not_be_checked_at_the_start() {
    let setup = setup(json!({})).await;
    setup.bus.delete_event_bus("main");
    let records = [insert(1, "a", 1)];
    assert_eq!(setup.checkpoint(&records).await, None);
    let mut setup = setup.new_process();
    setup.relay = setup.relay.with_unchecked_bus();
    assert_eq!(setup.checkpoint(&records).await.as_deref(), Some("1"));
}

#[tokio::test]
async fn relay_starts_when_its_bus_cannot_be_checked() {
    for fault in [
        json!({"http": 403, "code": "AccessDeniedException"}),
        json!({"code": "AccessDeniedException"}),
        json!({"code": "ThrottlingException"}),
        json!({"http": 500}),
        json!({"delayMs": 60_000}),
    ] {
        take_log();
        assert_eq!(warmed("nope", json!({"describeEventBus": [fault]})).await, Ok(false), "{fault}");
        let lines = take_log();
        assert_eq!(lines[0]["message"], "the event bus could not be checked", "{fault}");
        assert!(!lines[0]["reason"].as_str().unwrap().is_empty());
    }
    // EventBridge may search the caller's account for the bus of another account.
    let foreign = "arn:aws:events:us-east-1:123456789012:event-bus/central";
    assert_eq!(warmed(foreign, json!({})).await, Ok(false));
}
