//! The metrics of failures, as CloudWatch reads them. They are collected for the whole process, so this is its only test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "the other tests use the rest")]
mod setup;

use std::time::Duration;

use aggregates::Account;
use aggregates::account::Event;
use daybook_function_runtime::Metrics;
use daybook_projection::{FollowedEvent, Follows, Projection, Projections, Source};
use daybook_projector::{EventTarget, Projector, QueueBatch, TargetError, TargetEvent};
use daybook_settings::Environment;
use daybook_test_support::fault_proxy::InjectedFault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use setup::Setup;
use tokio::time::Instant;

/// Counts the transactions of each account. It cannot fold an amount of 13.
struct Delicate;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct Count {
    transactions: u64,
}

impl Projection for Delicate {
    const NAME: &'static str = "delicate";
    const VERSION: u32 = 1;

    type Row = Count;
    type Change = ();

    fn sources() -> Vec<Source<Self>> {
        vec![Source::of::<Account>()]
    }

    fn apply(row: Option<Count>, (): &()) -> Option<Count> {
        Some(Count { transactions: row.unwrap_or_default().transactions + 1 })
    }
}

impl Follows<Account> for Delicate {
    type State = ();

    fn advance((): (), event: &FollowedEvent<'_, Event>) {
        assert!(!matches!(event.event, Event::TransactionAccepted { amount: 13, .. }), "13 is too much");
    }

    fn changes((): &(), event: &FollowedEvent<'_, Event>, (): &()) -> Vec<(String, ())> {
        vec![(event.aggregate_id.to_owned(), ())]
    }
}

/// A target that accepts no event of the account `closed`.
struct Ledger;

impl EventTarget<Account> for Ledger {
    async fn position(&self, aggregate_id: &str) -> Result<u64, TargetError> {
        if aggregate_id == "closed" { Err("it is closed".into()) } else { Ok(u64::MAX) }
    }

    async fn handle(&self, _: TargetEvent<'_, Event>, _: u64) -> Result<(), TargetError> {
        Ok(())
    }
}

/// The values of all lines of metrics, in two groups: without and with the version of the function.
fn counted(metrics: Metrics) -> [Value; 2] {
    let mut written = Vec::new();
    metrics.write_to(&mut written);
    let mut counts = [json!({}), json!({})];
    for line in String::from_utf8(written).unwrap().lines() {
        let line: Value = line.parse().unwrap();
        let directive = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(directive["Namespace"], "Daybook/test");
        let of_version = directive["Dimensions"] == json!([["FunctionVersion"]]);
        assert!(of_version || directive["Dimensions"] == json!([[]]), "{directive}");
        assert!(!of_version || line["FunctionVersion"] == "7", "{line}");
        for metric in directive["Metrics"].as_array().unwrap() {
            let name = metric["Name"].as_str().unwrap();
            assert_eq!(metric["Unit"], if name == "OldestChangeFailed" { "Seconds" } else { "Count" }, "{name}");
            counts[usize::from(of_version)][name] = line[name].clone();
        }
    }
    counts
}

fn batch(bodies: &[String]) -> QueueBatch {
    let records = bodies.iter().enumerate().map(|(id, body)| json!({"messageId": id.to_string(), "body": body}));
    serde_json::from_value(json!({"Records": records.collect::<Vec<_>>()})).unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[tokio::test]
async fn failures_of_any_kind_are_counted_under_the_version_of_the_function() {
    let metrics = Metrics::collect(&Environment::from_iter([("METRICS_NAMESPACE", "Daybook/test")]));
    let projections = || Projections::new().with::<Delicate>().unwrap();
    let setup = Setup::new(projections()).await;
    for (id, amounts) in [("good", [1, 2]), ("bad", [1, 13]), ("closed", [1, 2])] {
        setup.account(id, &amounts).await;
    }
    let projector = |version: Option<&str>| {
        let projector = Projector::new(projections(), setup.table.store(), setup.views()).with_target("ledger", Ledger);
        projector.with_function_version(version.map(str::to_owned))
    };
    let changed = |id: &str| json!({"changed": [["account", id, 3]]}).to_string();
    let one = projector(Some("7"));

    // Without a failure, no metric has the version, because each of its values is billed.
    assert_eq!(one.handle(batch(&[changed("good")]), soon()).await.batch_item_failures, []);
    assert_eq!(counted(metrics), [json!({"EventsProjected": 3}), json!({})]);

    // An aggregate that is suspended from now on, a target that fails, and a message that cannot be read.
    let messages = [changed("bad"), changed("closed"), "odd".to_owned()];
    assert_eq!(one.handle(batch(&messages), soon()).await.batch_item_failures.len(), 2);
    let [all, of_version] = counted(metrics);
    assert_eq!((&all["AggregatesSuspended"], &all["TargetsFailed"]), (&json!(1), &json!(1)), "{all}");
    assert_eq!(of_version, json!({"ChangesFailed": 3}));

    // A projection that cannot use its table.
    let denied = InjectedFault::Refuse { status: 400, code: "AccessDeniedException" };
    let fail_once = || setup.table.proxy.fail_next("BatchGetItem", denied.clone());
    fail_once();
    assert_eq!(one.handle(batch(&[changed("good")]), soon()).await.batch_item_failures.len(), 1);
    assert_eq!(counted(metrics), [json!({"ProjectionsFailed": 1}), json!({"ChangesFailed": 1})]);

    // A message that fails has an age in any case: SQS leaves it out of its own after some attempts.
    let record = json!({"messageId": "m", "body": "odd", "attributes": {"SentTimestamp": "0"}});
    let odd = serde_json::from_value(json!({"Records": [record]})).unwrap();
    assert_eq!(one.handle(odd, soon()).await.batch_item_failures.len(), 1);
    assert!(counted(metrics)[0]["OldestChangeFailed"][0].as_f64() > Some(1.0e9));

    // Outside of Lambda, there is no version.
    fail_once();
    assert_eq!(projector(None).handle(batch(&[changed("good")]), soon()).await.batch_item_failures.len(), 1);
    assert_eq!(counted(metrics), [json!({"ProjectionsFailed": 1}), json!({})]);
}
