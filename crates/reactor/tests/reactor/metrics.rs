//! The metrics, as CloudWatch reads them. They are collected for the whole process, so this is its only test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "the other tests use the rest")]
mod setup;
mod timer;

use daybook_decider::Registry;
use daybook_function_runtime::Metrics;
use daybook_reactor::{Reactor, ReactorEvent};
use daybook_settings::Environment;
use serde_json::{Value, json};
use setup::{Setup, message, soon};

/// The metrics since this was last called, without and with the version of the function.
fn lines(metrics: Metrics) -> Vec<Value> {
    let mut written = Vec::new();
    metrics.write_to(&mut written);
    let written = String::from_utf8(written).unwrap();
    let lines = written.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|mut line| {
            let directive = line.as_object_mut().unwrap().remove("_aws").unwrap();
            let namespace = &directive["CloudWatchMetrics"][0]["Namespace"];
            assert!(namespace == "Daybook/test", "{directive}");
            line
        })
        .collect()
}

async fn tick(reactor: &Reactor) {
    reactor.handle(ReactorEvent::Tick { tick: true }, soon()).await;
}

#[tokio::test]
async fn each_tick_has_the_age_of_the_oldest_deadline_and_failures_are_counted_by_version() {
    let environment: Environment = [("METRICS_NAMESPACE", "Daybook/test")].into_iter().collect();
    let metrics = Metrics::collect(&environment);
    let setup = Setup::new().await;
    let reactor = setup.reactor().with_function_version(Some("7".to_owned()));
    lines(metrics);
    tick(&reactor).await;
    assert_eq!(lines(metrics), [json!({"OldestDeadline": [0.0]})]);

    let due = setup.after(1);
    setup.start("1", &[("ring", due), ("idle", due), ("boom", due)]).await;
    setup.advance(301);
    tick(&reactor).await;
    let oldest = lines(metrics)[0]["OldestDeadline"][0].as_f64().unwrap();
    assert!((300.0..302.0).contains(&oldest), "{oldest}");
    assert!(!message(&reactor, &[("1", "ring", due), ("1", "idle", due)]).await);
    assert_eq!(lines(metrics), [json!({"DeadlinesFired": 1, "DeadlinesWithoutEffect": 1})]);

    let sorted = || {
        let mut lines = lines(metrics);
        lines.sort_by_key(|line| line.get("FunctionVersion").is_some());
        lines
    };
    // A row of another release does not end the deployment of this one.
    let other = setup.reactor_of(Registry::new()).with_function_version(Some("8".to_owned()));
    assert!(message(&other, &[("1", "boom", due)]).await);
    assert_eq!(lines(metrics), Vec::<Value>::new());

    let of_version = json!({"FunctionVersion": "7", "ReactionAttemptsFailed": 1});
    assert!(message(&reactor, &[("1", "boom", due)]).await);
    assert_eq!(sorted(), [json!({"ReactionAttemptsFailed": 1}), of_version.clone()]);
    setup.advance(720);
    assert!(!message(&reactor, &[("1", "boom", due)]).await);
    assert_eq!(sorted(), [json!({"ReactionAttemptsFailed": 1, "ReactionsGivenUp": 1}), of_version.clone()]);
    // A message that fails has an age in any case: SQS leaves it out of its own after some attempts.
    let sent = (setup.clock.timestamp().as_millisecond() - 400_000).to_string();
    let record = json!({"messageId": "m", "body": "odd", "attributes": {"SentTimestamp": sent}});
    let batch = serde_json::from_value(json!({"Records": [record]})).unwrap();
    assert_eq!(reactor.handle(batch, soon()).await.batch_item_failures.len(), 1);
    let oldest = sorted()[0]["OldestReactionFailed"][0].as_f64().unwrap();
    assert!((400.0..402.0).contains(&oldest), "{oldest}");
    // Without a value, the alarm on late reactions rings.
    setup.bus.delete_queue("reactions");
    tick(&reactor).await;
    assert_eq!(sorted(), [json!({"ReactionAttemptsFailed": 1}), of_version]);
}
