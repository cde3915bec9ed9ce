//! What the rules of an aggregate type allow: those of the vault.

use daybook_command_handler::{Api, router};
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_projection::Projections;
use serde_json::{Value, json};

use super::events::{ApiEvent, jwt, lambda};
use super::{is_replayed, vault};
use crate::instance::{Instance, settings};

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
    // So it is to those who want the value.
    for (group, holder) in [("owners", json!("vault/1")), ("couriers", Value::Null), ("visitors", Value::Null)] {
        let taken = ApiEvent::post("/vault", &json!({"id": "2"})).of(&of("carol", group)).send(&instance).await;
        assert_eq!(taken.expect_problem(409, "claim-taken").body["holder"], holder, "{group}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_reads_what_its_caller_may_not_read() {
    let instance = vaults().await;
    let [ann, courier] = [json!({"sub": "ann"}), json!({"sub": "eve", "cognito:groups": "[couriers]"})].map(jwt);
    for (id, who) in [("1", &ann), ("2", &courier)] {
        ApiEvent::post("/vault", &json!({ "id": id })).of(who).send(&instance).await.expect(201);
    }
    ApiEvent::get("/vault/1").of(&courier).send(&instance).await.expect_problem(403, "forbidden");
    let give = json!({"command": "GiveToHolderOf", "data": {"vault": "1"}});
    let given = ApiEvent::post("/vault/2/commands", &give).of(&courier).send(&instance).await.expect(200);
    assert_eq!(given.body, json!({"id": "2", "version": 2}));
    let read = ApiEvent::get("/vault/2").of(&ann).send(&instance).await.expect(200);
    assert_eq!(read.body["state"], json!({"holder": "ann"}));
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
    // So is that of the create command, also as one of several.
    let make = ApiEvent::post("/vault/2/commands", &json!({"command": "Make", "data": {}})).of(&ann);
    make.clone().header("if-match", "\"1\"").send(&instance).await.expect_problem(400, "bad-header");
    make.send(&instance).await.expect(201);
    let joint = json!([
        {"aggregate": "vault/3", "command": "Make", "data": {}},
        {"aggregate": "vault/1", "command": "Pass", "data": {"to": "eve"}},
    ]);
    ApiEvent::post("/commands", &joint).of(&bob).send(&instance).await.expect(200);
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
