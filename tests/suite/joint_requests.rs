//! Decisions over several aggregates, over HTTP: `POST /commands`, and commands that aggregates send.

use axum::http::Method;
use daybook_table::{AggregateKey, keys};
use serde_json::{Value, json};
use suite_tests::workspace;

use crate::instance::{Instance, send};

fn subscribe(course: &str, student: &str) -> Value {
    json!({"id": format!("{student}-{course}"), "course": course, "student": student})
}

fn both() -> Value {
    json!([
        {"aggregate": "course/rust", "command": "CreateCourse", "data": {"seats": 1}},
        {"aggregate": "student/ann", "command": "Enrol"},
    ])
}

/// An instance with the course `rust`, which has one seat, and the student `ann`.
async fn with_both() -> Instance {
    let instance = Instance::start().await;
    instance.post("/commands", both()).await.expect(200);
    instance.table.proxy.take_calls();
    instance
}

/// The units of the calls since the last time, of the table and its index.
fn units(instance: &Instance) -> Vec<f64> {
    instance.table.proxy.take_calls().iter().map(|call| call.table_units + call.index_units).collect()
}

async fn together(instance: &Instance, aggregate_type: &str, id: &str) -> Vec<Value> {
    let rows = instance.table.rows(&AggregateKey::new(aggregate_type, id), keys::EVENT_PREFIX).await;
    let texts = |row: &std::collections::HashMap<String, _>| {
        let list: Option<&aws_sdk_dynamodb::types::AttributeValue> = row.get("together");
        list.map(|list| list.as_l().unwrap().iter().map(|text| text.as_s().unwrap().clone()).collect::<Vec<_>>())
    };
    rows.iter().map(|row| json!(texts(row))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_page_has_the_units_of_the_samples() {
    let instance = Instance::start().await;
    instance.post("/commands", both()).await.expect(200);
    let two_creations = units(&instance);
    instance.post("/subscription", json!({"course": "rust", "student": "bob"})).await.expect_problem(422, "refused");
    let rejected = units(&instance);
    instance.post("/student", json!({"id": "bob"})).await.expect(201);
    let alone = units(&instance);
    instance.post("/subscription", subscribe("rust", "ann")).await.expect(201);
    let subscribed = units(&instance);
    let calls = [&two_creations, &rejected, &alone, &subscribed].map(|units| *units.last().unwrap());
    // The student that does not exist is read: it is in no cache.
    assert_eq!((two_creations.len(), alone.len(), subscribed.len()), (1, 1, 1), "{rejected:?}");
    let [two_creations, rejected, alone, subscribed] = calls;
    let page = std::fs::read_to_string(workspace().join("docs/rules.md")).unwrap();
    for row in [
        format!("| a command to one aggregate | {alone}: 6 of the table, 1 of the index | 1 |"),
        format!("| each aggregate that gets a sent command | {}, as alone |", (subscribed - alone - 2.0) / 2.0),
        format!("| a new subscription of the samples, with its claim | {subscribed} | 1 |"),
        format!("such as `NoSuchStudent` | {rejected}: {} for each of three aggregates | 1 |", rejected / 3.0),
        format!("| `POST /commands` with two creations | {two_creations} | 1 |"),
    ] {
        assert!(page.contains(&row), "docs/rules.md lacks {row}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_events_of_a_joint_append_name_each_other() {
    let instance = with_both().await;
    instance.post("/subscription", subscribe("rust", "ann")).await.expect(201);
    instance.post("/course/rust", json!({"seats": 2})).await.expect(200);
    let (course, student, subscription) = ("course/rust@2", "student/ann@2", "subscription/ann-rust@1");
    // The order is that of the decision: the subscription, and then what it sends.
    let of_course = [json!(["student/ann@1"]), json!([subscription, student]), Value::Null];
    assert_eq!(together(&instance, "course", "rust").await, of_course);
    assert_eq!(together(&instance, "student", "ann").await, [json!(["course/rust@1"]), json!([subscription, course])]);
    assert_eq!(together(&instance, "subscription", "ann-rust").await, [json!([course, student])]);
}

#[tokio::test(flavor = "multi_thread")]
async fn problem_of_a_joint_request_names_the_command_and_its_aggregate() {
    let instance = with_both().await;
    instance.post("/subscription", subscribe("rust", "ann")).await.expect(201);
    let course = |command: &str, data: Value| json!({"aggregate": "course/rust", "command": command, "data": data});
    let enrol = |id: &str| json!({"aggregate": format!("student/{id}"), "command": "Enrol"});
    let seats = |seats: u32| course("ChangeSeats", json!({"seats": seats}));
    let with_version = |version: u64| {
        let mut command = seats(3);
        command["ifMatch"] = version.into();
        command
    };
    let by_claim = |claim: &str| json!({"claim": claim, "command": "Cancel"});
    for (commands, status, slug, index, aggregate) in [
        (json!([seats(0)]), 422, "refused", json!(0), json!("course/rust")),
        (json!([seats(0), enrol("bob")]), 422, "refused", json!(0), json!("course/rust")),
        (json!([enrol("bob"), seats(0)]), 422, "refused", json!(1), json!("course/rust")),
        (json!([course("TakeSeat", json!({}))]), 403, "forbidden", json!(0), json!("course/rust")),
        (json!([course("Paint", json!({}))]), 422, "unknown-command", json!(0), json!("course/rust")),
        (
            json!([enrol("bob"), seats(3), course("Paint", json!({}))]),
            422,
            "unknown-command",
            json!(2),
            json!("course/rust"),
        ),
        (
            json!([course("ChangeSeats", json!({"seats": "no"}))]),
            422,
            "invalid-command",
            json!(0),
            json!("course/rust"),
        ),
        (json!([enrol("ann"), seats(3)]), 409, "already-exists", json!(0), json!("student/ann")),
        (json!([with_version(1), enrol("bob")]), 409, "version-conflict", json!(0), json!("course/rust")),
        (
            json!([{"aggregate": "course/none", "command": "TakeSeat"}]),
            404,
            "not-found",
            json!(0),
            json!("course/none"),
        ),
        (
            json!([enrol("bob"), {"aggregate": "course/none", "command": "TakeSeat"}]),
            404,
            "not-found",
            json!(1),
            json!("course/none"),
        ),
        // There is no aggregate to name.
        (json!([enrol("bob"), by_claim("subscription:none/ann")]), 404, "not-found", json!(1), Value::Null),
        (json!([enrol("bob"), by_claim("subscription")]), 422, "bad-body", json!(1), Value::Null),
        (json!([enrol("bob"), {"command": "Enrol"}]), 422, "bad-body", json!(1), Value::Null),
        (json!([enrol("bob"), {"aggregate": "rust", "command": "Enrol"}]), 422, "bad-body", json!(1), Value::Null),
        (json!([enrol("a b")]), 400, "bad-id", json!(0), Value::Null),
        (json!([{"aggregate": "lesson/1", "command": "Enrol"}]), 404, "unknown-type", json!(0), Value::Null),
        (
            json!([{"aggregate": "student/bob", "claim": null, "command": "Enrol"}]),
            422,
            "bad-body",
            Value::Null,
            Value::Null,
        ),
        (
            json!([{"aggregate": "student/bob", "command": "Enrol", "ifMatch": null}]),
            422,
            "bad-body",
            Value::Null,
            Value::Null,
        ),
        (json!([]), 422, "bad-body", Value::Null, Value::Null),
    ] {
        let response = instance.post("/commands", commands.clone()).await.expect_problem(status, slug);
        let members = (&response.body["index"], &response.body["aggregate"], response.header("etag"));
        assert_eq!(members, (&index, &aggregate, ""), "{commands}: {}", response.body);
    }
    instance.get("/student/bob").await.expect(404);
    // The claim that a student has on a course finds the subscription.
    let cancelled = instance.post("/commands", json!([by_claim("subscription:rust/ann")])).await.expect(200);
    assert_eq!(cancelled.body["results"][0]["aggregate"], "subscription/ann-rust");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejection_by_another_aggregate_names_it() {
    let instance = with_both().await;
    instance.post("/student", json!({"id": "bob"})).await.expect(201);
    instance.post("/subscription", subscribe("rust", "ann")).await.expect(201);
    let full = instance.post("/subscription", subscribe("rust", "bob")).await.expect_problem(422, "refused");
    assert_eq!((&full.body["aggregate"], &full.body["rejection"]), (&json!("course/rust"), &json!("CourseFull")));
    // One that it rejects itself is about the only aggregate of the request.
    let unknown = instance.post("/subscription", subscribe("go", "bob")).await.expect_problem(422, "refused");
    assert_eq!((&unknown.body["aggregate"], &unknown.body["rejection"]), (&Value::Null, &json!("NoSuchCourse")));
    instance.get("/subscription/bob-rust").await.expect(404);
}

/// A caller chooses the ids that a decision involves.
#[tokio::test(flavor = "multi_thread")]
async fn text_that_is_no_id_names_no_aggregate() {
    let instance = with_both().await;
    for id in ["", "a b", "a/b", "\u{0}", "é", ".", &"x".repeat(3000)] {
        let subscription = json!({"course": id, "student": "ann"});
        let rejected = instance.post("/subscription", subscription).await.expect_problem(422, "refused");
        assert_eq!(rejected.body["rejection"], "NoSuchCourse", "{id:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn joint_request_is_repeated_with_its_key() {
    let instance = Instance::start().await;
    let key = [("idempotency-key", "k")];
    let create = async || send(&instance.router, Method::POST, "/commands", &key, Some(both())).await.expect(200);
    let (first, second) = (create().await, create().await);
    assert_eq!(first.body, second.body);
    assert_eq!((second.header("idempotency-replayed"), first.header("etag")), ("true", ""));
    assert_eq!(first.body["results"][1]["aggregate"], "student/ann");
}
