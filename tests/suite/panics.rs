//! A panic in an aggregate's code fails one request, and is logged with the aggregate and the place of the panic.

use axum::http::Method;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_test_support::fragile::Fragile;
use daybook_test_support::log;
use serde_json::{Value, json};
use suite_tests::{release_profile, workspace};

use crate::instance::{Instance, send, settings};

async fn instance() -> Instance {
    let registry = aggregates::registry().unwrap().with::<Fragile>().unwrap();
    Instance::with(LocalDynamoDb::in_memory().await.unwrap(), registry, settings()).await
}

/// The lines that the command handler logged since this was last called.
fn take_log() -> Vec<Value> {
    log::take("daybook_command_handler")
}

#[tokio::test]
async fn panic_of_an_aggregate_fails_only_its_request() {
    let instance = instance().await;
    instance.post("/fragile", json!({"id": "1"})).await.expect(201);
    instance.post("/todo", json!({"id": "1", "title": "x", "message": ""})).await.expect(201);
    take_log();
    for method in ["decide", "evolve", "announce", "is_deleted", "serialize"] {
        let touch = json!({"command": "Touch", "data": {"panics": method, "by": 1}});
        let answer = instance.post("/fragile/1/commands", touch).await.expect_problem(500, "internal");
        assert!(!answer.body.to_string().contains("fragile"), "{}", answer.body);
        let lines = take_log();
        let [line] = &lines[..] else { panic!("{method}: {lines:?}") };
        let cause = line["cause"].as_str().unwrap();
        assert_eq!(line["level"], "ERROR");
        assert_eq!(line["correlation_id"], answer.header("x-correlation-id"));
        for part in ["fragile/1", method, &format!("{method} of fragile breaks"), "fragile.rs:"] {
            assert!(cause.contains(part), "{part} is not in {cause}");
        }
        // Nothing was appended, and the aggregate goes on.
        assert_eq!(instance.get("/fragile/1").await.expect(200).body["version"], 1);
        instance.post("/todo/1", json!({"title": method, "message": ""})).await.expect(200);
    }
    let touch = json!({"command": "Touch", "data": {"panics": "", "by": 1}});
    instance.post("/fragile/1/commands", touch).await.expect(200);
    assert_eq!(instance.get("/fragile/1").await.expect(200).body["state"]["sum"], 1);
}

#[tokio::test]
async fn overflow_in_an_aggregate_is_a_panic_of_its_code() {
    let instance = instance().await;
    instance.post("/fragile", json!({"id": "1"})).await.expect(201);
    let touch = |by: i64| json!({"command": "Touch", "data": {"panics": "", "by": by}});
    instance.post("/fragile/1/commands", touch(i64::MAX)).await.expect(200);
    take_log();
    instance.post("/fragile/1/commands", touch(1)).await.expect_problem(500, "internal");
    let cause = take_log()[0]["cause"].as_str().unwrap().to_owned();
    assert!(cause.contains("attempt to add with overflow") && cause.contains("evolve"), "{cause}");
    assert_eq!(instance.get("/fragile/1").await.expect(200).body["state"]["sum"], i64::MAX);
}

#[tokio::test]
async fn panic_on_a_stored_event_fails_the_reads_of_that_aggregate_only() {
    let instance = instance().await;
    for id in ["1", "2"] {
        instance.post("/fragile", json!({"id": id})).await.expect(201);
        let touch = json!({"command": "Touch", "data": {"panics": "", "by": 1}});
        instance.post(&format!("/fragile/{id}/commands"), touch).await.expect(200);
    }
    for (version, method) in [(1, "evolve"), (1, "is_deleted"), (2, "upcast")] {
        let data = json!({"panics": method, "by": 1}).to_string();
        let change = [
            ("data", aws_sdk_dynamodb::types::AttributeValue::S(data)),
            ("eventVersion", aws_sdk_dynamodb::types::AttributeValue::N(version.to_string())),
        ];
        let key = daybook_table::AggregateKey::new("fragile", "1");
        instance.table.tamper(&key, &daybook_table::keys::event_sk(2), change).await;
        take_log();
        for path in ["/fragile/1?rebuild=true", "/fragile/1?version=2"] {
            instance.get(path).await.expect_problem(500, "internal");
            let cause = take_log()[0]["cause"].as_str().unwrap().to_owned();
            for part in ["fragile/1", "event 2", method, "breaks", "fragile.rs:"] {
                assert!(cause.contains(part), "{part} is not in {cause}");
            }
        }
        let touch = json!({"command": "Touch", "data": {"panics": "", "by": 1}});
        send(&instance.router, Method::POST, "/fragile/1/commands?rebuild=true", &[], Some(touch))
            .await
            .expect_problem(500, "internal");
        instance.get("/fragile/2?rebuild=true").await.expect(200);
        instance.get("/fragile/1?version=1").await.expect(200);
        instance.get("/fragile/1/events").await.expect(200);
    }
}

#[test]
fn release_profile_checks_overflow_and_unwinds_panics() {
    // Of this workspace, and of a generated project.
    for manifest in ["Cargo.toml", "crates/scaffold/template/project.toml"] {
        let settings = release_profile(manifest);
        assert!(settings.contains("overflow-checks = true"), "{manifest}: {settings:?}");
        // `abort` would end the process, and with it every other request of a batch or an instance. `cargo lambda build` adds
        // it where the profile does not set `panic`.
        assert!(settings.contains("panic = \"unwind\""), "{manifest}: {settings:?}");
    }
}

/// Link-time optimization is for functions alone: with it, `cargo build --release` of the `daybook` binary takes several times as
/// long.
#[test]
fn release_profile_leaves_link_time_optimization_to_cargo_lambda() {
    let settings = ["lto", "codegen-units", "strip"];
    for manifest in ["Cargo.toml", "crates/scaffold/template/project.toml"] {
        let profile = release_profile(manifest);
        assert!(!settings.iter().any(|setting| profile.iter().any(|line| line.starts_with(setting))), "{profile:?}");
        let text = std::fs::read_to_string(workspace().join(manifest)).unwrap();
        let lambda = text.split("[workspace.metadata.lambda.build]\n").nth(1).unwrap().split("\n\n").next().unwrap();
        assert!(lambda.starts_with("disable_optimizations = true"), "{lambda}");
        for setting in settings {
            assert!(lambda.contains(&format!("'profile.release.{setting} = ")), "{setting}: {lambda}");
        }
    }
}
