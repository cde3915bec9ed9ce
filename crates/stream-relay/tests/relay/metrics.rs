//! The metrics of an invocation, as CloudWatch reads them. They are collected for the whole process, so this file has
//! only one test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use daybook_function_runtime::Metrics;
use daybook_settings::Environment;
use daybook_stream_relay::RetryPolicy;
use serde_json::{Value, json};
use support::{insert, moved, setup};
use tokio::time::{Duration, Instant};

/// The lines that were written since this was last called.
fn lines(metrics: Metrics) -> Vec<Value> {
    let mut written = Vec::new();
    metrics.write_to(&mut written);
    String::from_utf8(written).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn an_invocation_is_one_line_of_embedded_metrics() {
    let metrics = Metrics::collect(&Environment::from_iter([("METRICS_NAMESPACE", "Daybook/test")]));
    let faults = json!({
        "putEvents": [{"failEntries": [{"index": 0, "code": "InternalFailure"}]}],
        "entries": [{"containing": "c-1", "code": "MalformedDetail"}],
    });
    let setup = setup(faults).await;
    let mut unreadable = insert(4, "d", 1);
    unreadable["dynamodb"]["NewImage"]["detail"] = Value::Null;
    let records = [insert(1, "a", 1), insert(2, "b", 1), insert(3, "c", 1), unreadable];
    assert_eq!(setup.checkpoint(&records).await, None);

    let written = lines(metrics);
    let [line] = written.as_slice() else { panic!("{written:?}") };
    let directive = &line["_aws"]["CloudWatchMetrics"][0];
    assert_eq!((&directive["Namespace"], &directive["Dimensions"]), (&json!("Daybook/test"), &json!([[]])));
    let unit = |name: &str| {
        let mut metrics = directive["Metrics"].as_array().unwrap().iter();
        metrics.find(|metric| metric["Name"] == name).map(|metric| metric["Unit"].clone())
    };
    for (name, count) in [("BatchSize", 4), ("MessagesSent", 2), ("MessagesRetried", 1), ("MessagesDeadLettered", 2)] {
        assert_eq!((&line[name], unit(name)), (&json!(count), Some(json!("Count"))), "{name}");
    }
    assert_eq!(line.get("MessagesUnsettled"), None, "a counter of zero is not written");
    let lags = line["Lag"].as_array().unwrap();
    assert_eq!((lags.len(), unit("Lag")), (2, Some(json!("Milliseconds"))));
    assert!(lags.iter().all(|lag| lag.as_f64().unwrap() >= 0.0));

    assert_eq!(lines(metrics), Vec::<Value>::new(), "a line contains only what was recorded since the line before");

    // An open breaker, and requests without a TLS connection.
    let setup = support::setup(json!({"entries": [{"containing": "", "code": "InvalidArgument"}]})).await;
    let records = [insert(1, "a", 1), insert(2, "b", 1), insert(3, "c", 1)];
    assert_eq!(setup.checkpoint(&records).await.as_deref(), Some("1"));
    assert_eq!(lines(metrics)[0]["BreakerOpened"], 1);
    let https = setup.url().replace("http://", "https://");
    let batch = serde_json::from_value(json!({"Records": [insert(1, "a", 1)]})).unwrap();
    let relay = support::relay_with(&support::lambda_config(&https, &[]).await, RetryPolicy::default());
    relay.handle(batch, Instant::now() + Duration::from_millis(1_500)).await.unwrap();
    let written = lines(metrics);
    assert!(written[0]["TlsFailures"].as_u64().unwrap() >= 1, "{written:?}");
    assert_eq!(written[0].get("BreakerOpened"), None);

    let setup = support::setup(json!({"entries": [{"containing": "a-1", "code": "AccessDeniedException"}]})).await;
    assert_eq!(setup.checkpoint(&[insert(1, "a", 1), insert(2, "a", 2)]).await.as_deref(), Some("1"));
    let written = lines(metrics);
    let [line] = written.as_slice() else { panic!("{written:?}") };
    let unit = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap().iter();
    let unit = unit.filter(|metric| metric["Name"] == "MessagesUnsettled").map(|metric| &metric["Unit"]);
    assert_eq!((&line["MessagesUnsettled"], unit.collect::<Vec<_>>()), (&json!(2), vec![&json!("Count")]));

    assert_changes_of_aggregates_are_counted(metrics).await;

    // The failures of a version are a metric of their own, which exists only if there are any.
    let of_version = |setup: &support::Setup| setup.relay.clone().with_function_version(Some("7".to_owned()));
    let setup = support::setup(json!({"entries": [{"containing": "a-1", "code": "AccessDeniedException"}]})).await;
    let batch = |records: &[Value]| serde_json::from_value(json!({"Records": records})).unwrap();
    let deadline = || Instant::now() + Duration::from_secs(30);
    of_version(&setup).handle(batch(&[insert(1, "a", 1), insert(2, "a", 2)]), deadline()).await.unwrap();
    assert_eq!(failed_by_version(&lines(metrics)), [json!(["7", 2])]);
    let setup = support::setup(json!({"entries": [{"containing": "c-1", "code": "MalformedDetail"}]})).await;
    of_version(&setup).handle(batch(&[insert(1, "a", 1), insert(3, "c", 1)]), deadline()).await.unwrap();
    assert_eq!(failed_by_version(&lines(metrics)), [json!(["7", 1])]);
    of_version(&setup).handle(batch(&[insert(4, "d", 1)]), deadline()).await.unwrap();
    assert_eq!(failed_by_version(&lines(metrics)), Vec::<Value>::new());
}

/// The versions of the function with failed messages, and the number of these.
fn failed_by_version(lines: &[Value]) -> Vec<Value> {
    let of_version = lines.iter().filter(|line| line.get("MessagesFailed").is_some());
    let version_and_count = |line: &Value| {
        let directive = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(directive["Dimensions"], json!([["FunctionVersion"]]));
        assert_eq!(directive["Metrics"], json!([{"Name": "MessagesFailed", "Unit": "Count"}]));
        json!([line["FunctionVersion"], line["MessagesFailed"]])
    };
    of_version.map(version_and_count).collect()
}

/// Without read models, changes of aggregates are no metric, whatever the records.
async fn assert_changes_of_aggregates_are_counted(metrics: Metrics) {
    let names = |line: &Value| -> Vec<String> {
        let metrics = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap().iter();
        metrics.map(|metric| metric["Name"].as_str().unwrap().to_owned()).collect()
    };
    let about_aggregates = |line: &Value| names(line).iter().any(|name| name.starts_with("Aggregates"));
    let records = [moved(1, "a"), insert(2, "a", 1), moved(3, "b"), moved(4, "b")];
    let setup = support::setup(json!({})).await;
    assert_eq!(setup.checkpoint(&records).await, None);
    let written = lines(metrics);
    assert!(!about_aggregates(&written[0]), "{written:?}");
    let setup = support::setup(json!({})).await.with_changes_queue();
    assert_eq!(setup.checkpoint(&records[1..2]).await, None);
    let written = lines(metrics);
    assert!(!about_aggregates(&written[0]), "{written:?}");
    assert_eq!(setup.checkpoint(&records).await, None);
    let written = lines(metrics);
    assert_eq!((&written[0]["AggregatesSent"], written[0].get("AggregatesUnsettled")), (&json!(2), None));
    let denied = json!({"sendMessage": [{"http": 403, "code": "AccessDenied", "forever": true}]});
    let setup = support::setup(denied).await.with_changes_queue();
    assert_eq!(
        setup.relay_within(Duration::from_millis(200), &records).await.unwrap().checkpoint().unwrap().as_str(),
        "1"
    );
    let written = lines(metrics);
    assert_eq!((written[0].get("AggregatesSent"), &written[0]["AggregatesUnsettled"]), (None, &json!(3)));
}
