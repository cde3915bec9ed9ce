//! The OpenAPI document equals the generated one, contains every route, and has examples that the API returns.
//!
//! `Suite::send` checks that the document contains every response of the other tests.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use axum::body::Body;
use axum::http::{Method, Request};
use daybook_command_handler::ApiSettings;
use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Registry, Rejection};
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_projection::Projections;
use daybook_test_support::table::KEYS_TABLE;
use serde_json::{Value, json};
use suite_tests::document::{Document, escaped};
use suite_tests::{Suite, workspace};

use crate::counter::{Command, Counter, Event, State};
use crate::instance::{Instance, answer, request, send, settings};

const METHODS: [Method; 8] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
    Method::TRACE,
];

/// The operations with their paths and methods.
fn operations() -> impl Iterator<Item = (&'static str, &'static str, &'static Value)> {
    let paths = Document::get().json()["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, methods)| {
        methods.as_object().unwrap().iter().map(|(method, operation)| (path.as_str(), method.as_str(), operation))
    })
}

#[test]
fn copy_in_the_docs_equals_the_generated_document() {
    let checked_in = std::fs::read_to_string(workspace().join("docs/openapi.json")).unwrap_or_default();
    assert!(
        checked_in == daybook_cli::commands::documents::openapi_text(suite_tests::SAMPLES).unwrap(),
        "docs/openapi.json differs from the generated document; write it again, and review the difference:\n\
         cargo run -- openapi > docs/openapi.json"
    );
}

/// The id of an operation on a type ends with the name of the type. If one beginning started another, two types could have the
/// same id, such as `getSummaryX` for `get` and the type `summary-x`.
#[test]
fn ids_of_operations_are_unique_for_all_names_of_types() {
    let ids: Vec<_> = operations().map(|(_, _, operation)| operation["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    let beginnings: Vec<_> = ids.iter().filter_map(|id| id.strip_suffix("Todo")).collect();
    assert!(beginnings.len() > 5, "{beginnings:?}");
    for (one, other) in beginnings.iter().flat_map(|one| beginnings.iter().map(move |other| (one, other))) {
        assert!(one == other || !one.starts_with(other), "{one} begins with {other}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn api_returns_the_document() {
    let suite = Suite::start().await;
    let response = suite.get("/openapi.json").await.expect(200);
    assert_eq!(response.header("content-type"), "application/json");
    assert_eq!(&response.body, Document::get().json());
}

#[tokio::test]
async fn each_path_accepts_exactly_the_documented_methods() {
    let instance = Instance::start().await;
    for path in Document::get().json()["paths"].as_object().unwrap().keys() {
        let documented =
            |method: &Method| operations().any(|(of, name, _)| of == path && name == method.as_str().to_lowercase());
        for method in METHODS {
            let response = answer(
                &instance.router,
                request(method.clone(), &path.replace("{id}", "1").replace("{key}", "1"), &[], None),
            )
            .await;
            let status = response.status().as_u16();
            assert_eq!(status != 405, documented(&method), "{method} {path}: {status}");
            if status == 405 {
                let mut allowed: Vec<_> = response.headers()["allow"].to_str().unwrap().split(',').collect();
                allowed.sort_unstable();
                let mut expected: Vec<_> =
                    METHODS.iter().filter(|method| documented(method)).map(Method::as_str).collect();
                expected.sort_unstable();
                assert_eq!(allowed, expected, "{path}");
            }
        }
    }
}

/// Otherwise, a misspelled parameter would be ignored.
#[tokio::test]
async fn each_operation_rejects_a_parameter_that_it_does_not_have() {
    let instance = Instance::start().await;
    for (path, method, _) in operations() {
        let path = format!("{}?nothing=1", path.replace("{id}", "1").replace("{key}", "1"));
        let method: Method = method.to_uppercase().parse().unwrap();
        let response = answer(&instance.router, request(method.clone(), &path, &[], None)).await;
        assert_eq!(response.status(), 400, "{method} {path}");
    }
}

#[test]
fn each_example_matches_its_schema() {
    let document = Document::get();
    let mut seen = 0;
    for (path, method, operation) in operations() {
        let place = format!("/paths/{}/{method}", escaped(path));
        let mut bodies = vec![(format!("{place}/requestBody"), &operation["requestBody"])];
        let responses = operation["responses"].as_object().unwrap();
        bodies.extend(responses.iter().map(|(status, response)| (format!("{place}/responses/{status}"), response)));
        for (place, body) in bodies {
            for (media_type, content) in body["content"].as_object().into_iter().flatten() {
                let Some(examples) = content["examples"].as_object() else { continue };
                assert!(!examples.is_empty(), "{place} has no example");
                for example in examples.values() {
                    seen += 1;
                    let place = format!("{place}/content/{}/schema", escaped(media_type));
                    document.fits(&place, &example["value"]).unwrap();
                }
            }
        }
    }
    assert!(seen > 30, "{seen}");
}

/// A part of the document with its references resolved, and its path.
fn resolved(place: String) -> (String, &'static Value) {
    let part = Document::get().json().pointer(&place).unwrap_or_else(|| panic!("there is no {place}"));
    match part["$ref"].as_str() {
        Some(reference) => resolved(reference.trim_start_matches('#').to_owned()),
        None => (place, part),
    }
}

/// The parts of an object, each resolved.
fn parts_of(place: &str) -> Vec<(String, &'static Value)> {
    let members = Document::get().json().pointer(place).and_then(Value::as_object).into_iter().flatten();
    members.map(|(name, _)| resolved(format!("{place}/{}", escaped(name)))).collect()
}

#[test]
fn each_problem_header_and_parameter_has_an_example() {
    let document = Document::get();
    let (mut problems, mut headers, mut parameters) = (0, 0, 0);
    for (place, schema) in parts_of("/components/schemas") {
        let urn = schema["properties"]["type"]["const"].as_str().unwrap_or_default();
        if urn.starts_with("urn:daybook:problem:") {
            let [example] = schema["examples"].as_array().unwrap().as_slice() else { panic!("{place}") };
            document.fits(&place, example).unwrap();
        }
    }
    let mut responses = parts_of("/components/responses");
    for (path, method, operation) in operations() {
        let place = format!("/paths/{}/{method}", escaped(path));
        responses.extend(parts_of(&format!("{place}/responses")));
        for index in 0..operation["parameters"].as_array().unwrap().len() {
            let (place, parameter) = resolved(format!("{place}/parameters/{index}"));
            let example = parameter.get("example").unwrap_or_else(|| panic!("{place} has no example"));
            document.fits(&format!("{place}/schema"), example).unwrap();
            parameters += 1;
        }
    }
    for (place, response) in responses {
        for (place, header) in parts_of(&format!("{place}/headers")) {
            let example = header.get("example").unwrap_or_else(|| panic!("{place} has no example"));
            document.fits(&format!("{place}/schema"), example).unwrap();
            headers += 1;
        }
        // A success has no example if the rules reject the simplest values.
        let shared = response["content"].as_object().filter(|_| place.starts_with("/components/"));
        for (media_type, content) in shared.into_iter().flatten() {
            let place = format!("{place}/content/{}", escaped(media_type));
            let examples = parts_of(&format!("{place}/examples"));
            if media_type == "application/problem+json" {
                // One example of each kind of response.
                let kinds = content["schema"]["oneOf"].as_array().map_or(1, Vec::len);
                assert_eq!(examples.len(), kinds, "{place}");
                problems += kinds;
            }
            assert!(!examples.is_empty(), "{place} has no example");
            for (_, example) in examples {
                document.fits(&format!("{place}/schema"), &example["value"]).unwrap();
            }
        }
    }
    assert!(problems > 100 && headers > 100 && parameters > 100, "{problems} {headers} {parameters}");
}

#[tokio::test]
async fn each_problem_is_returned_as_its_example() {
    let settings = ApiSettings { require_if_match: true, ..settings() };
    let engine = LocalDynamoDb::in_memory().await.unwrap();
    let strict = Instance::with(engine, aggregates::registry().unwrap(), settings).await;
    let instance = Instance::start().await;
    let todo = json!({"title": "TODO", "message": "Make coffee"});
    let update = |title: &str| json!({"title": title, "message": "Make coffee"});
    let pay = json!({"command": "RecordTransaction", "data": {"desc": "Rent", "amount": -1001}});
    let transaction = json!({"command": "RecordTransaction", "data": {"desc": "Wage", "amount": 1}});
    for (path, body) in [
        ("/todo", json!({"id": "123", "title": "TODO", "message": "Make coffee"})),
        ("/todo/123", update("2")),
        ("/todo/123", update("3")),
        ("/todo", json!({"id": "gone", "title": "TODO", "message": "Make coffee"})),
        ("/account", json!({"id": "123"})),
        ("/customer", json!({"id": "1", "email": "ann@example.com", "name": "Ann"})),
    ] {
        instance.post(path, body).await.expect(if path.matches('/').count() == 1 { 201 } else { 200 });
    }
    send(&instance.router, Method::DELETE, "/todo/gone", &[], None).await.expect(200);
    let key = ("idempotency-key", "once");
    send(&instance.router, Method::POST, "/todo", &[key], Some(todo.clone())).await.expect(201);

    // A subject that was forgotten, although its aggregate does not exist.
    let forgotten = [("pk", "customer/2"), ("forgottenAt", "2026-01-01T00:00:00.000Z")];
    let forgotten = forgotten.map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_owned())));
    let put = instance.table.raw.put_item().table_name(KEYS_TABLE).set_item(Some(forgotten.into()));
    put.send().await.unwrap();

    let post = |path: &str, headers: &[(&str, &str)], body: Value| request(Method::POST, path, headers, Some(body));
    let get = |path: &str| request(Method::GET, path, &[], None);
    let of_somebody = |request| {
        let somebody = json!({"jwt": {"claims": {"sub": "somebody"}, "scopes": null}});
        daybook_command_handler::gateway::with_authorizer(request, &somebody).unwrap()
    };
    let broken = Request::post("/todo").header("content-type", "application/json").body(Body::from("{")).unwrap();
    // Two problems concern the last registered type.
    let registry = aggregates::registry().unwrap();
    let last = registry.iter().last().unwrap().type_name();
    let cases = [
        ("MalformedJson", broken),
        ("BadId", get("/todo/two%20words")),
        ("BadQuery", get("/todo?limit=0")),
        ("BadHeader", post("/todo/123", &[("if-match", "three")], update("4"))),
        ("UnknownRoute", get("/one/two/three")),
        ("UnknownType", get("/nothing")),
        ("UnknownEventType", get("/events?type=NothingHappened")),
        ("Forbidden", of_somebody(get("/todo"))),
        ("NotFound", get("/todo/1")),
        ("NoSuchRow", get("/views/orders-by-day/2026-01-01")),
        ("NoSuchVersion", get("/todo/123?version=4")),
        ("MethodNotAllowed", request(Method::PUT, "/events", &[], None)),
        ("VersionConflict", post("/todo/123", &[("if-match", "\"2\"")], update("4"))),
        ("AlreadyExists", post("/todo", &[], json!({"id": "123", "title": "TODO", "message": ""}))),
        ("ClaimTaken", post("/customer", &[], json!({"email": "Ann@example.com", "name": "Ann"}))),
        ("SubjectForgotten", post("/customer", &[], json!({"id": "2", "email": "a@example.com", "name": "A"}))),
        ("Deleted", get("/todo/gone")),
        ("TooLarge", post("/account/123/commands", &[], vec![transaction; 100].into())),
        ("PreconditionFailed", post("/todo", &[("if-match", "*")], todo.clone())),
        ("NotJson", Request::post("/todo").body(Body::from("title=TODO")).unwrap()),
        ("BadBody", post("/todo", &[], json!([]))),
        ("UnknownCommand", post(&format!("/{last}/123/commands"), &[], json!({"command": "DoNothing"}))),
        ("InvalidCommand", post(&format!("/{last}"), &[], json!({"colour": "red"}))),
        ("Refused", post("/account/123/commands", &[], pay)),
        ("KeyReused", post("/todo", &[key], update("other"))),
    ];
    // The others need an outage, a race or an instance of another kind; the tests of those compare them.
    let elsewhere =
        ["Behind", "Contended", "IfMatchRequired", "Internal", "NewerRelease", "OutcomeUnknown", "Unavailable"];
    let covered: BTreeSet<_> = cases.iter().map(|(kind, _)| *kind).chain(elsewhere).collect();
    let schemas = Document::get().json()["components"]["schemas"].as_object().unwrap();
    assert_eq!(covered, schemas.keys().filter_map(|name| name.strip_suffix("Problem")).collect());

    let shown = |kind: &str| &Document::get().json()["components"]["examples"][kind]["value"];
    for (kind, request) in cases {
        let returned = instance.ask(request).await;
        assert_eq!(&returned.body, shown(kind), "{kind}");
        if matches!(kind, "VersionConflict" | "AlreadyExists") {
            assert_eq!(returned.header("etag"), "\"3-2\"");
        }
        if kind == "MethodNotAllowed" {
            assert_eq!(returned.header("allow"), Document::get().json()["components"]["headers"]["Allow"]["example"]);
        }
    }
    strict.post("/todo", json!({"id": "123", "title": "TODO", "message": "Make coffee"})).await.expect(201);
    assert_eq!(&strict.post("/todo/123", update("2")).await.body, shown("IfMatchRequired"));
}

#[tokio::test]
async fn each_example_request_gets_its_example_response() {
    let registry = aggregates::registry().unwrap();
    for model in registry.iter() {
        let name = model.type_name();
        let instance = Instance::start().await;
        // A subscription involves these.
        instance.post("/course", json!({"id": "rust", "seats": 20})).await.expect(201);
        instance.post("/student", json!({"id": "ann"})).await.expect(201);
        let operation = |path: &str, method: &str| Document::get().json()["paths"][path][method].clone();
        let example = |of: &Value, name: &str| of["content"]["application/json"]["examples"][name]["value"].clone();
        let ask = async |method: Method, path: String, request: Value, shown: Value| {
            let body = (!request.is_null()).then_some(request);
            let response = send(&instance.router, method, &path, &[], body).await.body;
            // Only times and ids differ.
            assert_eq!(without_times(&response["state"]), without_times(&shown["state"]), "{path}: {response}");
            assert_eq!(response["version"], shown["version"]);
            assert_eq!(response["events"].as_array().map(Vec::len), shown["events"].as_array().map(Vec::len));
        };
        let create = operation(&format!("/{name}"), "post");
        let shown = example(&create["responses"]["201"], "one");
        ask(Method::POST, format!("/{name}"), example(&create["requestBody"], "one"), shown).await;
        let get = operation(&format!("/{name}/{{id}}"), "get");
        ask(Method::GET, format!("/{name}/123"), Value::Null, example(&get["responses"]["200"], "one")).await;
        let command = operation(&format!("/{name}/{{id}}/commands"), "post");
        let shown = example(&command["responses"]["200"], "several");
        ask(Method::POST, format!("/{name}/123/commands"), example(&command["requestBody"], "several"), shown).await;
    }
}

/// A state with the same value in place of each time.
fn without_times(state: &Value) -> Value {
    let is_time = |value: &Value| value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok());
    let Some(members) = state.as_object() else { return state.clone() };
    let without =
        |(name, value): (&String, &Value)| (name.clone(), if is_time(value) { "time".into() } else { value.clone() });
    members.iter().map(without).collect()
}

#[tokio::test]
async fn example_of_a_joint_request_gets_its_example_response() {
    let instance = Instance::start().await;
    let joint = &Document::get().json()["paths"]["/commands"]["post"];
    let example = |of: &Value| of["content"]["application/json"]["examples"]["two"]["value"].clone();
    let response = instance.post("/commands", example(&joint["requestBody"])).await.expect(200);
    let (results, shown) = (&response.body["results"], &example(&joint["responses"]["200"])["results"]);
    for (result, shown) in results.as_array().unwrap().iter().zip(shown.as_array().unwrap()) {
        for member in ["aggregate", "id", "version", "state"] {
            assert_eq!(result[member], shown[member]);
        }
    }
    assert_eq!(shown.as_array().map(Vec::len), Some(2));
}

#[test]
fn each_operation_documents_the_responses_of_the_gateway() {
    for (path, method, operation) in operations() {
        for (status, name) in [("401", "Unauthorized"), ("403", "Forbidden"), ("429", "TooManyRequests")] {
            let shared = &Document::get().json()["components"]["responses"][format!("Gateway{name}")];
            let (place, both) = resolved(format!("/paths/{}/{method}/responses/{status}", escaped(path)));
            // What is not about one type or view can be open to every caller.
            if status == "403"
                && (both["description"] != shared["description"] || operation["tags"] != json!(["suite"]))
            {
                // The API's own 403 is documented together with that of the gateway.
                let described = both["description"].as_str().unwrap();
                assert!(described.contains(shared["description"].as_str().unwrap()), "{method} {path}");
                assert!(described.contains("urn:daybook:problem:forbidden"), "{method} {path}");
                let of_gateway = both["content"].get("application/json");
                assert_eq!(of_gateway, Some(&shared["content"]["application/json"]).filter(|_| method != "head"));
                assert_eq!(both["content"]["application/problem+json"].is_object(), method != "head");
            } else {
                let kind = if method == "head" { "Head" } else { "" };
                assert_eq!(place, format!("/components/responses/{kind}Gateway{name}"), "{method} {path}");
                assert_eq!(both["content"].is_object(), method != "head", "{method} {path}");
            }
        }
    }
    // Unlike a problem, a response of the gateway has no `type`.
    let fits = |response: &Value| Document::get().fits("/components/schemas/GatewayAnswer", response).is_ok();
    assert!(fits(&json!({"message": "Forbidden"})));
    assert!(!fits(&json!({"message": "Forbidden", "type": "urn:daybook:problem:not-found"})));
}

#[test]
fn security_schemes_equal_the_authorizers_of_the_template() {
    let document = Document::get().json();
    let schemes = &document["components"]["securitySchemes"];
    let template = std::fs::read_to_string(workspace().join("template.yaml")).unwrap();
    assert!(template.contains("AuthorizationType: !If [UsesJwt, JWT, AWS_IAM]"));
    assert_eq!(document["security"], json!([{}, {"iam": []}, {"jwt": []}]));
    assert_eq!(schemes["iam"]["x-amazon-apigateway-authtype"], "awsSigv4");
    assert_eq!((&schemes["jwt"]["scheme"], &schemes["jwt"]["bearerFormat"]), (&json!("bearer"), &json!("JWT")));
    let described = schemes["jwt"]["description"].as_str().unwrap();
    for parameter in ["JwtIssuer", "JwtAudience"] {
        assert!(template.contains(&format!("\n  {parameter}:")) && described.contains(parameter));
    }
}

/// A later release of the README's counter: its first event has a second version.
struct LaterCounter;

impl Aggregate for LaterCounter {
    const TYPE: &'static str = "later-counter-2";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Start", update: None, delete: Some("Tick") };
    const EVENTS: &'static [EventType] = &[EventType::new("CounterStarted", 2), EventType::new("CounterTicked", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        Counter::decide(state, command, context)
    }

    fn evolve(state: State, event: &Event) -> State {
        Counter::evolve(state, event)
    }
}

#[test]
fn document_describes_any_registered_aggregate() {
    let registry = Registry::new().with::<LaterCounter>().unwrap();
    let document = daybook_command_handler::openapi::document(&registry, &Projections::new());
    let (paths, schemas) = (&document["paths"], &document["components"]["schemas"]);
    let examples = |call: &Value| call["requestBody"]["content"]["application/json"]["examples"].clone();
    // Without explicit examples, the simplest values are the examples.
    assert_eq!(examples(&paths["/later-counter-2"]["post"])["one"]["value"], json!({"id": "123", "from": 1}));
    let commands = &paths["/later-counter-2/{id}/commands"]["post"];
    assert_eq!(examples(commands)["one"]["value"], json!({"command": "Tick", "data": {}}));
    let methods: Vec<_> = paths["/later-counter-2/{id}"].as_object().unwrap().keys().collect();
    assert_eq!(methods, ["delete", "get", "head"]);
    assert_eq!(paths["/later-counter-2/{id}"]["delete"]["operationId"], "deleteLaterCounter_2");
    // An event stream may contain the older version of an event.
    let [started, ticked] = ["CounterStarted", "CounterTicked"].map(|event| &schemas[event]["properties"]);
    assert_eq!((&started["eventVersion"]["maximum"], &ticked["eventVersion"]["const"]), (&json!(2), &json!(1)));
    assert_eq!(started["data"]["anyOf"].as_array().map(Vec::len), Some(2));
    // A schema whose name is not derived from the aggregate type gets it as a prefix.
    assert!(schemas["LaterCounter_2Command"]["oneOf"].is_array(), "{schemas:.2000}");
}

/// A counter that rejects the simplest values.
struct LongCounter;

impl Aggregate for LongCounter {
    const TYPE: &'static str = "long-counter";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Start", update: None, delete: None };
    const EVENTS: &'static [EventType] = Counter::EVENTS;

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::Start { from: ..1000 } => Err(Rejection::new("TooShort", "begin at 1000")),
            command => Counter::decide(state, command, context),
        }
    }

    fn evolve(state: State, event: &Event) -> State {
        Counter::evolve(state, event)
    }
}

#[test]
fn command_that_the_rules_reject_is_not_an_example() {
    let registry = Registry::new().with::<LongCounter>().unwrap();
    let document = daybook_command_handler::openapi::document(&registry, &Projections::new());
    let paths = &document["paths"];
    for (call, status) in [
        (&paths["/long-counter"]["post"], "201"),
        (&paths["/long-counter"]["get"], "200"),
        (&paths["/long-counter/{id}"]["get"], "200"),
        (&paths["/long-counter/{id}/commands"]["post"], "200"),
        (&paths["/long-counter/{id}/commands"]["post"], "201"),
    ] {
        let json = &call["responses"][status]["content"]["application/json"];
        assert_eq!((json["schema"].is_object(), json.get("examples")), (true, None), "{call:.200}");
    }
}
