//! Callers: how each kind of authorizer names them, and what they may do.
//!
//! The requests are events as API Gateway sends them, and pass through the function's own parser.

pub(crate) mod events;
mod rules;
mod vault;

use daybook_command_handler::ApiSettings;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_settings::Environment;
use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::{ApiResponse, Suite};

use self::events::{ApiEvent, cognito, iam, jwt, lambda};
use crate::instance::Instance;

fn todo() -> Value {
    json!({"title": "TODO", "message": "Make coffee"})
}

fn payment() -> Value {
    json!({"command": "RecordTransaction", "data": {"desc": "", "amount": 5}})
}

/// An instance whose function has these variables.
async fn instance_with(variables: &[(&str, &str)]) -> Instance {
    let environment: Environment = variables.iter().copied().collect();
    let settings = ApiSettings::read(&environment).unwrap();
    Instance::with(LocalDynamoDb::in_memory().await.unwrap(), aggregates::registry().unwrap(), settings).await
}

fn is_replayed(response: &ApiResponse) -> bool {
    response.header("idempotency-replayed") == "true"
}

// Identity.

#[tokio::test(flavor = "multi_thread")]
async fn users_of_one_identity_pool_with_one_key_get_their_own_responses() {
    let instance = Instance::start().await;
    let create = async |who: Value| ApiEvent::post("/todo", &todo()).of(&who).key("k").send(&instance).await;
    let (ann, bob) = (cognito("eu-central-1:ann"), cognito("eu-central-1:bob"));
    let of_ann = create(ann.clone()).await.expect(201);
    let of_bob = create(bob.clone()).await.expect(201);
    assert!(!is_replayed(&of_bob));
    assert_ne!(of_ann.header("location"), of_bob.header("location"));
    assert!(is_replayed(&create(ann.clone()).await.expect(201)));

    instance.post("/account", json!({"id": "1"})).await.expect(201);
    let pay =
        async |who: &Value| ApiEvent::post("/account/1/commands", &payment()).of(who).key("k").send(&instance).await;
    pay(&ann).await.expect(200);
    pay(&bob).await.expect_problem(422, "key-reused");
    assert!(is_replayed(&pay(&ann).await.expect(200)));
}

#[tokio::test(flavor = "multi_thread")]
async fn actor_of_an_event_is_the_principal_that_the_authorizer_names() {
    let instance = Instance::start().await;
    let arn = "arn:aws:sts::123456789012:assumed-role/teller/jane";
    for (who, actor) in [
        (Some(cognito("eu-central-1:ann")), json!("eu-central-1:ann")),
        (Some(iam("AROAIOSFODNN7EXAMPLE:jane", arn)), json!(arn)),
        (Some(jwt(json!({"sub": "user-4711", "iss": "https://login.example.com/"}))), json!("user-4711")),
        (Some(lambda(json!({"principalId": "ann", "sub": "other"}))), json!("ann")),
        (Some(lambda(json!({"sub": "ann", "tenant": 7}))), json!("ann")),
        (Some(lambda(json!({"principalId": 42}))), json!("42")),
        (Some(lambda(json!({"tenant": "a"}))), Value::Null),
        (Some(lambda(Value::Null)), Value::Null),
        (Some(jwt(json!({"sub": ""}))), Value::Null),
        (None, Value::Null),
    ] {
        let mut event = ApiEvent::post("/account", &json!({}));
        if let Some(who) = &who {
            event = event.of(who);
        }
        let created = event.send(&instance).await.expect(201);
        assert_eq!(created.body["events"][0]["meta"]["actor"], actor, "{who:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idempotency_key_of_a_caller_whom_the_authorizer_does_not_name_is_rejected() {
    let instance = Instance::start().await;
    for who in [lambda(json!({"tenant": "a"})), lambda(Value::Null), jwt(json!({"scope": "x"})), json!({})] {
        let keyed = ApiEvent::post("/todo", &todo()).of(&who).key("k").send(&instance).await;
        let keyed = keyed.expect_problem(400, "bad-header");
        assert!(keyed.body["detail"].as_str().unwrap().contains("names no caller"), "{}", keyed.body);
        ApiEvent::post("/todo", &todo()).of(&who).send(&instance).await.expect(201);
    }
    // Without an authorizer, all requests are of one principal.
    let first = ApiEvent::post("/todo", &todo()).key("k").send(&instance).await.expect(201);
    let again = ApiEvent::post("/todo", &todo()).key("k").send(&instance).await.expect(201);
    assert!(is_replayed(&again) && again.header("location") == first.header("location"));
}

#[tokio::test(flavor = "multi_thread")]
async fn same_subject_of_another_issuer_is_another_principal() {
    let instance = instance_with(&[("JWT_ISSUER", "https://login.example.com/")]).await;
    let create = async |issuer: &str| {
        let who = jwt(json!({"sub": "1", "iss": issuer}));
        ApiEvent::post("/account", &json!({})).of(&who).key("k").send(&instance).await.expect(201)
    };
    let ours = create("https://login.example.com/").await;
    assert_eq!(ours.body["events"][0]["meta"]["actor"], "1");
    let theirs = create("https://partner.example.com").await;
    assert_eq!(theirs.body["events"][0]["meta"]["actor"], "https://partner.example.com#1");
    assert!(!is_replayed(&theirs) && theirs.header("location") != ours.header("location"));
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_claim_never_fails_an_invocation() {
    let instance = Instance::start().await;
    let long = "é".repeat(20_000);
    let mut deep = json!("leaf");
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let odd = [
        json!(["a", "b"]),
        json!({"a": {"b": [1]}}),
        json!(7),
        json!(1.5e300),
        json!(true),
        Value::Null,
        json!(""),
        json!("é\u{1f980}"),
        json!("\u{0}\u{1}\n\"\\"),
        json!(long),
        deep,
    ];
    let mut sent = 0;
    for value in &odd {
        for who in [
            jwt(json!({"sub": "ann", "odd": value})),
            jwt(json!({"sub": value})),
            jwt(json!({"sub": "ann", "iss": value, "cognito:groups": value, "scope": value})),
            json!({"jwt": {"claims": {"sub": "ann"}, "scopes": value}}),
            json!({"jwt": {"claims": value, "scopes": [value, "a"]}}),
            json!({"jwt": value}),
            json!({"iam": {"userArn": value, "userId": value, "cognitoIdentity": value}}),
            json!({"iam": {"cognitoIdentity": {"amr": value, "identityId": value}}}),
            json!({"iam": value}),
            lambda(json!({"principalId": value, "sub": value})),
            lambda(value.clone()),
            value.clone(),
        ] {
            let created = ApiEvent::post("/account", &json!({})).of(&who).send(&instance).await.expect(201);
            let actor = &created.body["events"][0]["meta"]["actor"];
            assert!(actor.is_null() || actor.as_str().is_some_and(|actor| !actor.is_empty()), "{who:.200}: {actor}");
            sent += 1;
        }
    }
    assert_eq!(sent, 132);
    // The other claims of such a token are read.
    let who = jwt(json!({"sub": "ann", "roles": ["a"], "nothing": null, "level": 3}));
    let created = ApiEvent::post("/account", &json!({})).of(&who).send(&instance).await.expect(201);
    assert_eq!(created.body["events"][0]["meta"]["actor"], "ann");
    // Half of a surrogate pair is not a valid JSON text. The other claims are read.
    let broken = r#"{"jwt": {"claims": {"sub": "ann", "odd": "\ud800"}, "scopes": null}}"#;
    let text = ApiEvent::post("/account", &json!({})).of(&json!("here")).text().replacen("\"here\"", broken, 1);
    let created = events::send_text(&instance.router, &text).await.expect(201);
    assert_eq!(created.body["events"][0]["meta"]["actor"], "ann");
}

// Ownership of to-dos.

#[tokio::test(flavor = "multi_thread")]
async fn todo_of_a_caller_is_read_and_changed_by_its_owner_only() {
    let instance = Instance::start().await;
    let (ann, bob) = (jwt(json!({"sub": "ann"})), jwt(json!({"sub": "bob"})));
    let new = json!({"id": "1", "title": "TODO", "message": "Make coffee"});
    let created = ApiEvent::post("/todo", &new).of(&ann).send(&instance).await.expect(201);
    assert_eq!(created.body["state"]["owner"], "ann");
    let update = json!({"command": "UpdateTodo", "data": {"title": "TODO", "message": "Make tea"}});
    let batch = json!([{"command": "CreateTodo", "data": todo()}, update]);
    let requests = [
        ApiEvent::get("/todo/1"),
        ApiEvent::get("/todo/1").method("HEAD"),
        ApiEvent::get("/todo/1").header("if-none-match", "\"1\""),
        ApiEvent::get("/todo/1").query("version=1"),
        ApiEvent::get("/todo/1").query("version=7"),
        ApiEvent::get("/todo/1").query("rebuild=true"),
        ApiEvent::get("/todo/1/events"),
        ApiEvent::get("/todo/1/events").query("after=1"),
        ApiEvent::post("/todo", &new),
        ApiEvent::post("/todo/1", &todo()),
        ApiEvent::post("/todo/1", &todo()).header("if-match", "\"7\""),
        ApiEvent::post("/todo/1/commands", &update),
        ApiEvent::post("/todo/1/commands", &batch),
        ApiEvent::get("/todo/1").method("DELETE"),
    ];
    let anonymous_lambda = lambda(json!({"tenant": "a"}));
    for request in &requests {
        for stranger in [Some(&bob), Some(&anonymous_lambda), None] {
            let mut request = request.clone();
            if let Some(stranger) = stranger {
                request = request.of(stranger);
            }
            let forbidden = request.send(&instance).await.expect(403);
            if !request.is_head() {
                assert_eq!(forbidden.body["type"], "urn:daybook:problem:forbidden", "{request:?}");
                assert!(!forbidden.text.contains("ann"), "{}", forbidden.text);
            }
            assert_eq!(forbidden.header("etag"), "", "{request:?}");
        }
    }
    // A caller gets 404 for a to-do that does not exist, as everybody does.
    ApiEvent::get("/todo/2").of(&bob).send(&instance).await.expect_problem(404, "not-found");
    ApiEvent::get("/todo/2/events").of(&bob).send(&instance).await.expect_problem(404, "not-found");
    ApiEvent::post("/todo/2", &todo()).of(&bob).send(&instance).await.expect_problem(404, "not-found");

    ApiEvent::get("/todo/1").of(&ann).send(&instance).await.expect(200);
    ApiEvent::get("/todo/1/events").of(&ann).send(&instance).await.expect(200);
    ApiEvent::post("/todo/1/commands", &update).of(&ann).send(&instance).await.expect(200);
    ApiEvent::get("/todo/1").method("DELETE").of(&ann).send(&instance).await.expect(200);
    ApiEvent::get("/todo/1").of(&ann).send(&instance).await.expect_problem(410, "deleted");
    for request in &requests {
        request.clone().of(&bob).send(&instance).await.expect(403);
    }
    assert_eq!(
        ApiEvent::get("/todo/1/events").of(&ann).send(&instance).await.body["events"].as_array().unwrap().len(),
        3
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_feeds_of_todos_are_forbidden_to_authenticated_callers() {
    let instance = Instance::start().await;
    let ann = jwt(json!({"sub": "ann"}));
    ApiEvent::post("/todo", &todo()).of(&ann).send(&instance).await.expect(201);
    let list = ApiEvent::get("/todo");
    let feed = ApiEvent::get("/events").query("type=TodoCreated");
    for who in [&ann, &jwt(json!({"sub": "bob"})), &lambda(Value::Null)] {
        for request in [&list, &feed] {
            request.clone().of(who).send(&instance).await.expect_problem(403, "forbidden");
        }
        // Other types have no owners.
        ApiEvent::get("/account").of(who).send(&instance).await.expect(200);
        ApiEvent::get("/events").query("type=AccountOpened").of(who).send(&instance).await.expect(200);
    }
    // An API without an authorizer has no callers to distinguish.
    list.send(&instance).await.expect(200);
    feed.send(&instance).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn todo_without_an_owner_is_open_to_every_caller() {
    let instance = Instance::start().await;
    let new = json!({"id": "1", "title": "TODO", "message": "Make coffee"});
    let created = instance.post("/todo", new).await.expect(201);
    assert_eq!(created.body["state"], json!({"id": "1", "title": "TODO", "message": "Make coffee"}));
    let bob = jwt(json!({"sub": "bob"}));
    ApiEvent::get("/todo/1").of(&bob).send(&instance).await.expect(200);
    let changed =
        ApiEvent::post("/todo/1", &json!({"title": "A", "message": ""})).of(&bob).send(&instance).await.expect(200);
    assert_eq!(changed.body["state"], json!({"id": "1", "title": "A", "message": ""}));
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_response_is_returned_only_to_its_own_principal() {
    let instance = Instance::start().await;
    let beside = instance.beside();
    let new = json!({"id": "1", "title": "TODO", "message": "Make coffee"});
    let create = async |who: &str, router: &axum::Router| {
        let who = jwt(json!({"sub": who}));
        ApiEvent::post("/todo", &new).of(&who).key("k").send_to(router).await
    };
    create("ann", &instance.router).await.expect(201);
    // An instance with the state in its cache, and one that does not know that the aggregate exists.
    for router in [&instance.router, &beside] {
        let of_bob = create("bob", router).await.expect_problem(403, "forbidden");
        assert!(!of_bob.text.contains("coffee") && !is_replayed(&of_bob));
    }
    assert!(is_replayed(&create("ann", &instance.router).await.expect(201)));
}

#[tokio::test(flavor = "multi_thread")]
async fn stranger_with_a_stored_key_is_forbidden_and_costs_others_no_call() {
    let instance = Instance::start().await;
    let (ann, bob) = (jwt(json!({"sub": "ann"})), jwt(json!({"sub": "bob"})));
    let new = json!({"id": "1", "title": "TODO", "message": "Make coffee"});
    let update = || ApiEvent::post("/todo/1", &todo()).key("k");
    ApiEvent::post("/todo", &new).of(&ann).send(&instance).await.expect(201);
    instance.table.operations();
    update().of(&ann).send(&instance).await.expect(200);
    assert!(is_replayed(&update().of(&ann).send(&instance).await.expect(200)));
    assert_eq!(instance.table.operations(), ["TransactWriteItems", "TransactWriteItems"]);
    let other = ApiEvent::post("/todo/1", &json!({"title": "Other", "message": ""})).key("k");
    other.of(&ann).send(&instance).await.expect_problem(422, "key-reused");
    // An instance with the state in its cache, and one without.
    for router in [&instance.router, &instance.beside()] {
        for request in
            [update(), ApiEvent::post("/todo", &new).key("k"), ApiEvent::get("/todo/1").method("DELETE").key("k")]
        {
            request.of(&bob).send_to(router).await.expect_problem(403, "forbidden");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_if_match_is_reported_only_to_a_caller_who_may_send_the_command() {
    let instance = instance_with(&[("REQUIRE_IF_MATCH", "true")]).await;
    let (ann, bob) = (jwt(json!({"sub": "ann"})), jwt(json!({"sub": "bob"})));
    let new = json!({"id": "1", "title": "TODO", "message": "Make coffee"});
    ApiEvent::post("/todo", &new).of(&ann).send(&instance).await.expect(201);
    let update = json!({"command": "UpdateTodo", "data": todo()});
    for request in [
        ApiEvent::post("/todo/1", &todo()),
        ApiEvent::post("/todo/1/commands", &json!([update])),
        ApiEvent::get("/todo/1").method("DELETE"),
    ] {
        request.clone().of(&ann).send(&instance).await.expect_problem(428, "if-match-required");
        request.of(&bob).send(&instance).await.expect_problem(403, "forbidden");
    }
    // No rule allows or forbids a command that does not exist, so its response does not depend on the aggregate.
    for id in ["1", "2"] {
        let unknown = ApiEvent::post(&format!("/todo/{id}/commands"), &json!({"command": "Paint"}));
        unknown.of(&bob).send(&instance).await.expect_problem(422, "unknown-command");
    }
}

// The local stack's callers.

async fn ask_as(suite: &Suite, caller: &str, method: Method, path: &str, body: Option<Value>) -> ApiResponse {
    let headers = [("content-type", "application/json"), ("x-daybook-caller", caller)];
    suite.send(method, path, &headers, body.map(|body| body.to_string()).as_deref()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn local_stack_takes_the_caller_from_a_header() {
    let suite = Suite::start().await;
    let new = json!({"id": "1", "title": "TODO", "message": "Make coffee"});
    let created = ask_as(&suite, "ann", Method::POST, "/todo", Some(new)).await.expect(201);
    assert_eq!(
        (&created.body["state"]["owner"], &created.body["events"][0]["meta"]["actor"]),
        (&json!("ann"), &json!("ann"))
    );
    ask_as(&suite, "ann", Method::GET, "/todo/1", None).await.expect(200);
    ask_as(&suite, r#"{"principal": "ann", "groups": ["a"]}"#, Method::GET, "/todo/1", None).await.expect(200);
    let forbidden = ask_as(&suite, "bob", Method::GET, "/todo/1", None).await.expect_problem(403, "forbidden");
    assert_eq!(forbidden.body["detail"], "the caller bob may not do this: Read");
    let forbidden = suite.get("/todo/1").await.expect_problem(403, "forbidden");
    assert_eq!(forbidden.body["detail"], "the caller without a name may not do this: Read");
    // The context of any authorizer, as API Gateway sends it.
    let iam = r#"{"iam": {"cognitoIdentity": {"identityId": "ann"}}}"#;
    ask_as(&suite, iam, Method::GET, "/todo/1", None).await.expect(200);
    // An authorizer that names no caller.
    let nameless = ask_as(&suite, r#"{"groups": ["a"]}"#, Method::POST, "/todo", Some(todo())).await.expect(201);
    assert_eq!(nameless.body["events"][0]["meta"].get("actor"), None);
    for bad in ["{", "[]", "", r#"{"principal": 1}"#, r#"{"colour": "red"}"#] {
        let request = reqwest::Client::new().get(format!("{}/todo", suite.stack.api_url()));
        let rejected = request.header("x-daybook-caller", bad).send().await.unwrap();
        assert_eq!(rejected.status(), 400, "{bad}");
        assert!(rejected.text().await.unwrap().contains("X-Daybook-Caller must be a name"), "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn function_ignores_the_callers_header_of_the_local_stack() {
    let instance = Instance::start().await;
    for (who, actor) in [(None, Value::Null), (Some(jwt(json!({"sub": "bob"}))), json!("bob"))] {
        let mut event = ApiEvent::post("/todo", &todo()).header("x-daybook-caller", "ann");
        if let Some(who) = &who {
            event = event.of(who);
        }
        let created = event.send(&instance).await.expect(201);
        assert_eq!(created.body["events"][0]["meta"]["actor"], actor);
    }
}

// Recorded data of callers.

#[tokio::test(flavor = "multi_thread")]
async fn source_address_is_recorded_only_if_a_setting_enables_it() {
    for (variables, recorded) in [
        (&[][..], Value::Null),
        (&[("RECORD_SOURCE_IP", "false")], Value::Null),
        (&[("RECORD_SOURCE_IP", "true")], json!("203.0.113.7")),
    ] {
        let instance = instance_with(variables).await;
        let ann = jwt(json!({"sub": "ann"}));
        let created = ApiEvent::post("/account", &json!({"id": "1"})).of(&ann).send(&instance).await.expect(201);
        let stored = ApiEvent::get("/account/1/events").of(&ann).send(&instance).await.expect(200);
        for events in [created, stored] {
            assert_eq!(events.body["events"][0]["meta"]["sourceIp"], recorded, "{variables:?}");
        }
    }
}
