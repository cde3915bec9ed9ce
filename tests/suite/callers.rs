//! Callers: how each kind of authorizer names them, and what they may do.
//!
//! The requests are events as API Gateway sends them, and pass through the function's own parser.

pub(crate) mod events;
mod vault;

use daybook_command_handler::{Api, ApiSettings, router};
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_projection::Projections;
use daybook_settings::Environment;
use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::{ApiResponse, Suite};

use self::events::{ApiEvent, cognito, iam, jwt, lambda};
use crate::instance::{Instance, settings};

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
async fn repetition_gets_the_stored_response_although_the_command_is_forbidden_by_now() {
    let instance = vaults().await;
    let ann = jwt(json!({"sub": "ann"}));
    ApiEvent::post("/vault", &json!({"id": "1"})).of(&ann).send(&instance).await.expect(201);
    let first = give("bob").key("k").of(&ann).send(&instance).await.expect(200);
    let again = give("bob").key("k").of(&ann).send(&instance).await.expect(200);
    assert!(is_replayed(&again) && again.body == first.body);
    give("eve").key("k").of(&ann).send(&instance).await.expect_problem(403, "forbidden");
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
    ask_as(&suite, "bob", Method::GET, "/todo/1", None).await.expect_problem(403, "forbidden");
    suite.get("/todo/1").await.expect_problem(403, "forbidden");
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

// Rules of other aggregates.

/// An instance that serves vaults.
async fn vaults() -> Instance {
    Instance::with(LocalDynamoDb::in_memory().await.unwrap(), vault::registry(), settings()).await
}

fn give(to: &str) -> ApiEvent {
    ApiEvent::post("/vault/1", &json!({ "to": to }))
}

#[tokio::test(flavor = "multi_thread")]
async fn command_is_checked_on_the_state_that_it_is_decided_on() {
    let instance = vaults().await;
    let beside = router(Api::new(vault::registry(), instance.table.direct_store(), settings()));
    let [ann, bob, eve] = ["ann", "bob", "eve"].map(|name| jwt(json!({ "sub": name })));
    ApiEvent::post("/vault", &json!({"id": "1"})).of(&ann).send(&instance).await.expect(201);
    // The cached state of the first instance still names ann as the holder.
    give("bob").of(&ann).send_to(&beside).await.expect(200);
    give("eve").of(&ann).send(&instance).await.expect_problem(403, "forbidden");
    give("bob").of(&bob).send_to(&beside).await.expect(200);
    give("eve").of(&bob).send_to(&beside).await.expect(200);
    // The cached state now names bob, but eve is the holder.
    let given = give("ann").of(&eve).send(&instance).await.expect(200);
    assert_eq!((&given.body["version"], &given.body["state"]["holder"]), (&json!(5), &json!("ann")));
    let batch = json!([{"command": "Give", "data": {"to": "bob"}}, {"command": "Give", "data": {"to": "ann"}}]);
    let batch = ApiEvent::post("/vault/1/commands", &batch).of(&ann);
    batch.send(&instance).await.expect_problem(403, "forbidden");
    assert_eq!(ApiEvent::get("/vault/1").send(&instance).await.expect(200).header("etag"), given.header("etag"));
}

#[tokio::test(flavor = "multi_thread")]
async fn meta_is_left_out_for_a_caller_who_may_not_see_it() {
    let instance = vaults().await;
    let ann = jwt(json!({"sub": "ann", "feed": "VaultOpened"}));
    let auditor = jwt(json!({"sub": "ann", "feed": "VaultOpened", "cognito:groups": "[auditors others]"}));
    let document = daybook_command_handler::openapi::document(&vault::registry(), &Projections::new());
    let event = &document["components"]["schemas"]["VaultOpened"];
    assert!(event["properties"]["meta"].is_object() && !event["required"].as_array().unwrap().contains(&json!("meta")));
    for (id, who, shows_meta) in [("1", &ann, false), ("2", &auditor, true)] {
        let created = ApiEvent::post("/vault", &json!({ "id": id })).of(who).send(&instance).await.expect(201);
        let events = ApiEvent::get(&format!("/vault/{id}/events")).of(who).send(&instance).await.expect(200);
        let feed = ApiEvent::get("/events").query("type=VaultOpened").of(who).send(&instance).await.expect(200);
        for events in [created, events, feed] {
            let event = &events.body["events"][0];
            assert_eq!(event.get("meta").is_some(), shows_meta, "{event}");
            assert!(event["eventId"].is_string());
        }
    }
    // The stored event contains the metadata in both cases.
    let events = ApiEvent::get("/vault/1/events").of(&auditor).send(&instance).await.expect(200);
    assert_eq!(events.body["events"][0]["meta"]["actor"], "ann");
    ApiEvent::get("/vault/3/events").of(&ann).send(&instance).await.expect_problem(404, "not-found");
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuild_list_and_feed_are_limited_by_groups_scopes_and_claims() {
    let instance = vaults().await;
    let ann = jwt(json!({"sub": "ann", "scope": "vault/read"}));
    let operator = jwt(json!({"sub": "ann", "cognito:groups": "[operators]"}));
    ApiEvent::post("/vault", &json!({"id": "1"})).of(&ann).send(&instance).await.expect(201);
    let rebuilt = [ApiEvent::get("/vault/1").query("rebuild=true"), give("ann").query("rebuild=true")];
    for request in &rebuilt {
        request.clone().of(&ann).send(&instance).await.expect_problem(403, "forbidden");
        request.clone().of(&operator).send(&instance).await.expect(200);
    }
    // A forbidden rebuild makes no call to the table.
    instance.table.proxy.take_calls();
    rebuilt[0].clone().of(&ann).send(&instance).await.expect(403);
    assert!(instance.table.proxy.take_calls().is_empty());

    let lister = json!({"jwt": {"claims": {"sub": "ann", "scope": "a b"}, "scopes": ["vault/list"]}});
    ApiEvent::get("/vault").of(&ann).send(&instance).await.expect_problem(403, "forbidden");
    ApiEvent::get("/vault").of(&lister).send(&instance).await.expect(200);
    let reader = lambda(json!({"principalId": "ann", "feed": "VaultGiven"}));
    let feed = |event: &str| ApiEvent::get("/events").query(&format!("type={event}")).of(&reader);
    feed("VaultOpened").send(&instance).await.expect_problem(403, "forbidden");
    feed("VaultGiven").send(&instance).await.expect(200);
    // The rule has today's name of the event.
    feed("VaultPassed").send(&instance).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn response_to_a_command_of_a_caller_who_may_not_read_has_only_the_id_and_the_version() {
    let instance = vaults().await;
    let courier = jwt(json!({"sub": "ann", "cognito:groups": "[couriers]"}));
    let open = ApiEvent::post("/vault", &json!({"id": "1"})).header("idempotency-key", "k1").of(&courier);
    let created = open.send(&instance).await.expect(201);
    ApiEvent::get("/vault/1").of(&courier).send(&instance).await.expect_problem(403, "forbidden");
    let repeated = open.send(&instance).await.expect(201);
    assert!(is_replayed(&repeated));
    let given = give("bob").of(&courier).send(&instance).await.expect(200);
    for (response, version) in [(created, 1), (repeated, 1), (given, 2)] {
        assert_eq!(response.body, json!({"id": "1", "version": version}));
        assert_eq!(response.header("etag"), format!("\"{version}-1\""));
    }
    // A conflict has the version, for a caller who may send the command.
    let stale = give("ann").header("if-match", "\"1-1\"");
    stale.clone().of(&courier).send(&instance).await.expect_problem(403, "forbidden");
    let bob = jwt(json!({"sub": "bob", "cognito:groups": "[couriers]"}));
    let conflict = stale.of(&bob).send(&instance).await.expect_problem(409, "version-conflict").body;
    assert_eq!((&conflict["expected"], &conflict["actual"]), (&json!(1), &json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn rejection_of_a_caller_who_may_not_read_has_its_name_without_the_reason() {
    let instance = vaults().await;
    let [ann, courier] = [json!({"sub": "ann"}), json!({"sub": "eve", "cognito:groups": "[couriers]"})].map(jwt);
    let visitor = jwt(json!({"sub": "mallory", "cognito:groups": "[visitors]"}));
    ApiEvent::post("/vault", &json!({"id": "1"})).of(&ann).send(&instance).await.expect(201);
    for is_recorded in [false, true] {
        let seize = json!({"command": "Seize", "data": {"is_recorded": is_recorded}});
        let seize = ApiEvent::post("/vault/1/commands", &seize);
        let hidden = "a rule of the aggregate rejects the command";
        for (who, detail, key) in [(&ann, "ann holds it", "a"), (&courier, hidden, "b"), (&visitor, hidden, "c")] {
            let keyed = seize.clone().of(who).key(key);
            // A repetition gets the stored response.
            for _ in 0..2 {
                let rejected = keyed.send(&instance).await.expect_problem(422, "refused");
                assert_eq!((&rejected.body["rejection"], &rejected.body["detail"]), (&json!("Held"), &json!(detail)));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holder_of_a_claim_is_revealed_only_to_callers_who_may_read_all_of_it() {
    let instance = vaults().await;
    let of = |name: &str, group: &str| jwt(json!({"sub": name, "cognito:groups": format!("[{group}]")}));
    let [carol, courier, visitor, reader] =
        [("carol", "owners"), ("eve", "couriers"), ("vic", "visitors"), ("bob", "readers")]
            .map(|(name, group)| of(name, group));
    ApiEvent::post("/vault", &json!({"id": "1"})).of(&carol).send(&instance).await.expect(201);
    for (command, data, status) in
        [("Give", json!({"to": "bob"}), 404), ("Give", json!({"colour": 1}), 422), ("Paint", json!({}), 422)]
    {
        for (who, reads) in [(&courier, false), (&visitor, false), (&reader, true)] {
            let command = json!([{"claim": "vault-holder:carol", "command": command, "data": data}]);
            let status = if reads { status } else { 404 };
            ApiEvent::post("/commands", &command).of(who).send(&instance).await.expect(status);
        }
    }
    let found = ApiEvent::get("/vault").query("claim=vault-holder:carol");
    for (who, status) in [(&carol, 303), (&reader, 303), (&courier, 404), (&visitor, 404)] {
        found.clone().of(who).send(&instance).await.expect(status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_who_sees_a_part_gets_it_instead_of_the_state_and_no_events() {
    let instance = vaults().await;
    let visitor = jwt(json!({"sub": "ann", "cognito:groups": "[visitors]"}));
    let part = json!({"is_held": true});
    let created = ApiEvent::post("/vault", &json!({"id": "1"})).of(&visitor).send(&instance).await.expect(201);
    let given = give("ann").of(&visitor).send(&instance).await.expect(200);
    for (response, version) in [(created, 1), (given, 2)] {
        assert_eq!(response.body, json!({"id": "1", "version": version, "state": part}));
    }
    for (query, version) in [("", 2), ("version=1", 1)] {
        let get = || ApiEvent::get("/vault/1").query(query);
        let read = get().of(&visitor).send(&instance).await.expect(200);
        assert_eq!(read.body, json!({"id": "1", "version": version, "state": part}));
        assert!(read.header("etag").starts_with(&format!("\"{version}-1-")));
        // It is no tag of the whole, but of the version.
        let cached = get().header("if-none-match", read.header("etag"));
        cached.clone().of(&visitor).send(&instance).await.expect(304);
        cached.of(&jwt(json!({"sub": "bob"}))).send(&instance).await.expect(200);
        let expecting = give("ann").header("if-match", read.header("etag")).of(&visitor).send(&instance).await;
        if version == 1 {
            expecting.expect_problem(409, "version-conflict");
        }
    }
    ApiEvent::get("/vault/1/events").of(&visitor).send(&instance).await.expect_problem(403, "forbidden");
    let all = ApiEvent::get("/vault/1").of(&jwt(json!({"sub": "bob"}))).send(&instance).await.expect(200);
    assert_eq!(all.body["state"], json!({"holder": "ann"}));
    let document = daybook_command_handler::openapi::document(&vault::registry(), &Projections::new());
    let state = &document["components"]["schemas"]["VaultRead"]["properties"]["state"];
    assert_eq!(state["anyOf"][1]["$ref"], "#/components/schemas/VaultPart", "{state}");
}

#[tokio::test(flavor = "multi_thread")]
async fn alias_of_a_command_is_checked_as_the_command() {
    let instance = vaults().await;
    let [ann, bob] = ["ann", "bob"].map(|name| jwt(json!({ "sub": name })));
    ApiEvent::post("/vault", &json!({"id": "1"})).of(&ann).send(&instance).await.expect(201);
    let pass = ApiEvent::post("/vault/1/commands", &json!({"command": "Pass", "data": {"to": "bob"}}));
    pass.clone().of(&bob).send(&instance).await.expect_problem(403, "forbidden");
    let passed = pass.of(&ann).send(&instance).await.expect(200);
    assert_eq!(passed.body["events"][0]["eventType"], "VaultGiven");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_type_without_rules_are_read_without_the_state() {
    let instance = Instance::start().await;
    let ann = jwt(json!({"sub": "ann"}));
    ApiEvent::post("/account", &json!({"id": "1"})).of(&ann).send(&instance).await.expect(201);
    instance.table.proxy.take_calls();
    ApiEvent::get("/account/1/events").of(&ann).send(&instance).await.expect(200);
    assert_eq!(instance.table.proxy.take_calls().len(), 1);
}
