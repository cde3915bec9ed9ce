//! The metrics of invocations, as CloudWatch reads them. They are collected for the whole process, so this is its only test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "the other tests use the rest")]
mod support;

use daybook_function_runtime::Metrics;
use daybook_settings::Environment;
use serde_json::{Value, json};
use support::{EVERY, Setup, checkpoint, due, handle};

/// The counts in the line of metrics; `None` if no line was written.
fn counted(metrics: Metrics) -> Option<[Value; 3]> {
    let mut written = Vec::new();
    metrics.write_to(&mut written);
    let lines: Vec<Value> = String::from_utf8(written).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert!(lines.len() <= 1, "{lines:?}");
    let line = lines.into_iter().next()?;
    let directive = &line["_aws"]["CloudWatchMetrics"][0];
    assert_eq!((&directive["Namespace"], &directive["Dimensions"]), (&json!("Daybook/test"), &json!([[]])));
    assert!(directive["Metrics"].as_array().unwrap().iter().all(|metric| metric["Unit"] == "Count"), "{directive}");
    Some(["SnapshotsTaken", "SnapshotsTooLarge", "SnapshotsFailed"].map(|name| line[name].clone()))
}

#[tokio::test]
async fn batch_counts_taken_too_large_and_failed_snapshots() {
    let metrics = Metrics::collect(&Environment::from_iter([("METRICS_NAMESPACE", "Daybook/test")]));
    let setup = Setup::new().await;
    let snapshotter = setup.snapshotter();
    let [one, other, torn] =
        [setup.account("a", EVERY).await, setup.account("b", EVERY).await, setup.account("torn", EVERY).await];
    setup.delete_event(&torn, 5).await;
    let large = setup.large_notebook("1").await;
    let broken = setup.broken("1").await;

    let batch = [due(1, &one), due(2, &other), due(3, &large), due(4, &torn), json!("odd"), due(5, &broken)];
    assert_eq!(checkpoint(handle(&snapshotter, &batch).await), None);
    assert_eq!(counted(metrics), Some([json!(2), json!(1), json!(3)]));

    // A snapshot that already exists is not taken again, and a count of zero is not written.
    assert_eq!(checkpoint(handle(&snapshotter, &batch[..2]).await), None);
    assert_eq!(counted(metrics), None);
    assert_eq!(checkpoint(handle(&snapshotter, &[due(6, &large)]).await), None);
    assert_eq!(counted(metrics), Some([json!(null), json!(1), json!(null)]));

    // A failure is also counted under the version of the function.
    let snapshotter = setup.snapshotter().with_function_version(Some("7".to_owned()));
    assert_eq!(checkpoint(handle(&snapshotter, &[due(7, &torn)]).await), None);
    let mut written = Vec::new();
    metrics.write_to(&mut written);
    let lines: Vec<Value> = String::from_utf8(written).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    let of_version = |line: &&Value| line["FunctionVersion"] == "7";
    let failed = lines.iter().map(|line| line["SnapshotsFailed"].clone()).collect::<Vec<_>>();
    assert_eq!((failed, lines.iter().filter(of_version).count()), (vec![json!(1), json!(1)], 1), "{lines:?}");
    let of_version = lines.iter().find(of_version).unwrap();
    assert_eq!(of_version["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([["FunctionVersion"]]));
}
