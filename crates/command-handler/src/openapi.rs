//! The document of the API: OpenAPI 3.1, made from the calls, the registered aggregates and the kinds of problem.
//!
//! Whatever the code knows is taken from it: schemas from the types that are read and written, problems from their
//! kinds, examples from aggregates that carry out a sample of each command. The rest is `calls`.

mod calls;
mod examples;
mod gateway;
mod headers;
mod problems;
mod schemas;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use daybook_decider::{Model, Registry};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::calls::{CALLS, Call, Verb};
use self::examples::Examples;
use self::headers::Header;
use self::schemas::{Resource, Schemas, query_parameters};
use crate::answer::JSON;
use crate::api::Api;
use crate::problem::Kind;
use crate::query::Parameters;

/// `GET /openapi.json` takes no parameters, and says so of one that is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoQuery {}

/// `GET /openapi.json`.
pub(crate) async fn endpoint(State(api): State<Api>, _: Parameters<NoQuery>) -> Response {
    ([(header::CONTENT_TYPE, JSON)], api.document().to_owned()).into_response()
}

/// The document of an API of these aggregates.
pub fn document(registry: &Registry) -> Value {
    let mut schemas = Schemas::default();
    let mut tags = Vec::new();
    let (name, answer) = gateway::schema();
    let answer = schemas.add(name, answer);
    let mut paths = Paths::default();
    let of_gateway = gateway::STATUSES.map(|status| (name_of(status), gateway::answer(status, &answer)));
    paths.shared.extend(of_gateway);
    let subjects: Vec<_> = registry.iter().map(|model| Subject::new(model, &mut schemas)).collect();
    for subject in &subjects {
        tags.push(json!({"name": subject.type_name, "description": subject.resource.description}));
        for call in CALLS.iter().filter(|call| call.is_of(subject.commands)) {
            paths.add(call, subject);
        }
    }
    let suite = Suite::new(registry, &subjects, &mut schemas);
    tags.push(json!({"name": "suite", "description": "What is not about one type of aggregate."}));
    for call in CALLS.iter().filter(|call| call.is_of_suite()) {
        paths.add(call, &suite);
    }
    for kind in Kind::ALL {
        schemas.add_problem(kind, registry);
    }
    let mut elsewhere = json!({
        "UnknownPath": problems_answer(StatusCode::NOT_FOUND, &[Kind::UnknownRoute, Kind::UnknownType], &[]),
        "MethodNotAllowed": problems_answer(
            StatusCode::METHOD_NOT_ALLOWED,
            &[Kind::MethodNotAllowed],
            &[(Header::Allow, true)],
        ),
    });
    // No operation can refer to these, so they say whose they are.
    for (name, whose) in [
        ("UnknownPath", "Of a path that is not in this document."),
        ("MethodNotAllowed", "Of a path that is in this document, with a method that it does not have here."),
    ] {
        let told = elsewhere[name]["description"].as_str().unwrap_or_default();
        elsewhere[name]["description"] = format!("{whose}\n\n{told}").into();
    }
    paths.shared.extend(elsewhere.as_object().cloned().unwrap_or_default());
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Daybook",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Commands to aggregates, and what became of them.",
            "description": include_str!("openapi/description.md").trim_end(),
            "license": {"name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE")},
        },
        "servers": [{"url": "/", "description": "Where this document is."}],
        "security": [{}, {"iam": []}, {"jwt": []}],
        "tags": tags,
        "paths": paths.all,
        "components": {
            "schemas": schemas.into_all(),
            "responses": paths.shared,
            "parameters": headers::parameters(),
            "examples": problems::examples(registry),
            "securitySchemes": headers::security_schemes(),
        },
    })
}

/// What a call is made to: a type of aggregate, or the suite.
trait Target {
    /// What makes an operation's id unique, and its tag.
    fn names(&self) -> (String, &str);
    /// The path of a call.
    fn path(&self, call: &Call) -> String;
    /// In a few words.
    fn summary(&self, call: &Call) -> String;
    /// The schema and the examples of a request body, and whether there must be one.
    fn body(&self, call: &Call) -> Option<(Value, Value, bool)>;
    /// The schema and the examples of a success.
    fn answer(&self, call: &Call, status: StatusCode) -> Option<(Value, Value)>;
    /// The query parameters.
    fn query(&self, call: &Call) -> Vec<Value> {
        call.query.map(|schema| query_parameters(schema())).unwrap_or_default()
    }
    /// What can be done with what was created.
    fn links(&self, _call: &Call) -> Option<Value> {
        None
    }
}

/// A type of aggregate.
struct Subject<'a> {
    type_name: &'static str,
    commands: daybook_decider::Commands,
    resource: Resource,
    examples: Examples<'a>,
}

impl<'a> Subject<'a> {
    fn new(model: &'a dyn Model, schemas: &mut Schemas) -> Self {
        let examples = Examples::of(model);
        let resource = Resource::new(model, schemas);
        Self { type_name: model.type_name(), commands: model.commands(), resource, examples }
    }
}

impl Target for Subject<'_> {
    fn names(&self) -> (String, &str) {
        (self.resource.name.clone(), self.type_name)
    }

    fn path(&self, call: &Call) -> String {
        call.path.replace("{type}", self.type_name)
    }

    fn summary(&self, call: &Call) -> String {
        let command = match call.verb {
            Verb::Create => Some(self.commands.create),
            Verb::Update => self.commands.update,
            Verb::Delete => self.commands.delete,
            _ => None,
        };
        let does = command.and_then(|command| self.resource.command_descriptions.get(command)).map(String::as_str);
        match (command, does) {
            (Some(command), Some(does)) => format!("{command}: {}", does.trim_end_matches('.')),
            _ => format!("{} ({})", call.summary, self.type_name),
        }
    }

    fn body(&self, call: &Call) -> Option<(Value, Value, bool)> {
        let schema = match call.verb {
            Verb::Create => &self.resource.create,
            Verb::Update => self.resource.update.as_ref()?,
            Verb::Command => &self.resource.commands,
            _ => return None,
        };
        let needed = call.verb != Verb::Create || self.resource.create_needs_data;
        Some((schema.clone(), self.examples.requests(call.verb), needed))
    }

    fn answer(&self, call: &Call, status: StatusCode) -> Option<(Value, Value)> {
        let schema = match call.verb {
            _ if status == StatusCode::NOT_MODIFIED => return None,
            Verb::List => &self.resource.list,
            Verb::Get => &self.resource.read,
            Verb::Events => &self.resource.events,
            _ => &self.resource.written,
        };
        Some((schema.clone(), self.examples.answers(call.verb, status)))
    }

    fn links(&self, call: &Call) -> Option<Value> {
        if call.verb != Verb::Create {
            return None;
        }
        let id = "$response.body#/id";
        let seen = json!({"id": id, "header.If-Match": "$response.header.ETag"});
        let link = |call: &Call| {
            let parameters = if call.method == "get" { json!({"id": id}) } else { seen.clone() };
            (
                call.operation_id(&self.resource.name),
                json!({"operationId": call.operation_id(&self.resource.name), "parameters": parameters}),
            )
        };
        let others = CALLS.iter().filter(|call| call.path.contains("{id}") && call.is_of(self.commands));
        Some(others.map(link).collect::<Map<_, _>>().into())
    }
}

/// What is not about one type.
struct Suite {
    /// The names under which streams hold events, those of earlier releases too.
    event_types: Vec<&'static str>,
    feed: Value,
    feed_example: Value,
}

impl Suite {
    fn new(registry: &Registry, subjects: &[Subject<'_>], schemas: &mut Schemas) -> Self {
        let event_types = registry.iter().flat_map(Model::stored_events).map(|(name, _)| name).collect();
        let resources = subjects.iter().map(|subject| (subject.type_name, &subject.resource));
        let feed = schemas.add_feed(resources);
        let feed_example = subjects.first().map(|subject| subject.examples.feed()).unwrap_or_default();
        Self { event_types, feed, feed_example }
    }
}

impl Target for Suite {
    fn names(&self) -> (String, &str) {
        (String::new(), "suite")
    }

    fn path(&self, call: &Call) -> String {
        call.path.to_owned()
    }

    fn summary(&self, call: &Call) -> String {
        call.summary.to_owned()
    }

    fn body(&self, _call: &Call) -> Option<(Value, Value, bool)> {
        None
    }

    fn answer(&self, call: &Call, _status: StatusCode) -> Option<(Value, Value)> {
        Some(match call.verb {
            Verb::Feed => (self.feed.clone(), json!({"one": {"value": self.feed_example}})),
            _ => (json!({"type": "object"}), json!({"beginning": {"value": {"openapi": "3.1.1"}}})),
        })
    }

    fn query(&self, call: &Call) -> Vec<Value> {
        let mut parameters = call.query.map(|schema| query_parameters(schema())).unwrap_or_default();
        for parameter in parameters.iter_mut().filter(|parameter| parameter["name"] == "type") {
            parameter["schema"]["enum"] = json!(self.event_types);
            parameter["example"] = json!(self.event_types.first());
        }
        parameters
    }
}

/// The paths as they are gathered, and the answers that they refer to.
#[derive(Default)]
struct Paths {
    all: Map<String, Value>,
    shared: Map<String, Value>,
}

impl Paths {
    fn add(&mut self, call: &Call, target: &impl Target) {
        let mut answers = Map::new();
        for &(status, headers) in call.successes {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            answers.insert(status.as_str().to_owned(), success(call, target, status, headers));
        }
        let bodiless = answers.iter().map(|(status, answer)| (status.clone(), without_body(answer)));
        let mut heads: Map<_, _> = bodiless.collect();
        for (status, kinds) in by_status(call.problems) {
            let headers = call.problem_headers(status);
            let name = format!("{:?}{}", call.verb, name_of(status));
            let answer = problems_answer(status, &kinds, &headers);
            heads.insert(status.as_str().to_owned(), without_body(&answer));
            self.shared.insert(name.clone(), answer);
            answers.insert(status.as_str().to_owned(), json!({"$ref": format!("#/components/responses/{name}")}));
        }
        for status in gateway::STATUSES {
            let name = name_of(status);
            heads.insert(status.as_str().to_owned(), without_body(&self.shared[&name]));
            answers.insert(status.as_str().to_owned(), json!({"$ref": format!("#/components/responses/{name}")}));
        }
        let (name, tag) = target.names();
        let id = call.operation_id(&name);
        let mut parameters = Vec::new();
        if call.path.contains("{id}") {
            parameters.push(json!({"$ref": "#/components/parameters/Id"}));
        }
        parameters.extend(target.query(call));
        parameters.extend(call.headers.iter().map(|name| json!({"$ref": format!("#/components/parameters/{name}")})));
        let mut operation = json!({
            "operationId": id,
            "tags": [tag],
            "summary": target.summary(call),
            "description": call.description,
            "parameters": parameters,
            "responses": answers,
        });
        if let Some((schema, examples, required)) = target.body(call) {
            operation["requestBody"] = json!({"required": required, "content": content(schema, examples)});
        }
        let path = self.all.entry(target.path(call)).or_insert_with(|| json!({}));
        if call.method == "get" {
            let mut head = operation.clone();
            head["operationId"] = format!("head{}{}", id[..1].to_uppercase(), &id[1..]).into();
            head["summary"] = format!("{}: the headers alone", target.summary(call)).into();
            head["responses"] = heads.into();
            path["head"] = head;
        }
        path[call.method] = operation;
    }
}

fn success(call: &Call, target: &impl Target, status: StatusCode, headers: &[(Header, bool)]) -> Value {
    let body = target.answer(call, status);
    let shown = body.as_ref().and_then(|(_, examples)| examples.as_object()?.values().next());
    let version = shown.and_then(|shown| shown["value"]["version"].as_u64());
    let path = target.path(call).replace("{id}", examples::ID);
    let examples = |header| match header {
        Header::ETag => version.map(headers::tag),
        // A creation is sent to the type, or as commands to what it creates.
        Header::Location if call.verb == Verb::Create => Some(format!("{path}/{}", examples::ID)),
        Header::Location => Some(path.trim_end_matches("/commands").to_owned()),
        Header::Link => Some(next_page(&path, &target.query(call))),
        _ => None,
    };
    let headers = headers::of_answer(headers, examples);
    let mut answer = json!({"description": success_description(call, status), "headers": headers});
    if let Some((schema, examples)) = body {
        answer["content"] = content(schema, examples);
    }
    if let Some(links) = target.links(call) {
        answer["links"] = links;
    }
    answer
}

/// A link with the examples of the parameters that make a page.
fn next_page(path: &str, query: &[Value]) -> String {
    let value = |name: &str| {
        let example = &query.iter().find(|parameter| parameter["name"] == name)?["example"];
        Some(format!("{name}={}", example.as_str().map_or_else(|| example.to_string(), str::to_owned)))
    };
    let query: Vec<_> = ["type", "after", "limit"].into_iter().filter_map(value).collect();
    format!("<{path}?{}>; rel=\"next\"", query.join("&"))
}

/// JSON of a schema, with the examples that there are.
fn content(schema: Value, examples: Value) -> Value {
    let mut json = json!({ "schema": schema });
    if examples.as_object().is_some_and(|examples| !examples.is_empty()) {
        json["examples"] = examples;
    }
    json!({ "application/json": json })
}

/// The answer of a status, which is one of these problems.
fn problems_answer(status: StatusCode, kinds: &[Kind], headers: &[(Header, bool)]) -> Value {
    let told: Vec<_> = kinds.iter().map(|kind| format!("- `{}`: {}", kind.urn(), kind.when())).collect();
    let references: Vec<_> = kinds.iter().map(|&kind| schemas::problem_reference(kind)).collect();
    let schema = match references.as_slice() {
        [one] => one.clone(),
        several => {
            let mapping: Map<_, _> =
                kinds.iter().zip(several).map(|(kind, reference)| (kind.urn(), reference["$ref"].clone())).collect();
            json!({"oneOf": several, "discriminator": {"propertyName": "type", "mapping": mapping}})
        }
    };
    let reason = status.canonical_reason().unwrap_or_default();
    json!({
        "description": format!("{reason}:\n{}", told.join("\n")),
        "headers": headers::of_answer(headers, |_| None),
        "content": {"application/problem+json": {"schema": schema, "examples": problems::references(kinds)}},
    })
}

fn without_body(answer: &Value) -> Value {
    let mut answer = answer.clone();
    if let Some(members) = answer.as_object_mut() {
        members.remove("content");
    }
    answer
}

/// A success in words.
fn success_description(call: &Call, status: StatusCode) -> &'static str {
    match (call.verb, status) {
        (_, StatusCode::CREATED) => "It is created; what that came to.",
        (_, StatusCode::NOT_MODIFIED) => "The version is one that `If-None-Match` names.",
        (Verb::Create | Verb::Update | Verb::Delete | Verb::Command, _) => "It is done; what it came to.",
        (Verb::List | Verb::Events | Verb::Feed, _) => "A page.",
        (Verb::Get, _) => "The state.",
        (Verb::Describe, _) => "The document.",
    }
}

/// A status as part of a component's name.
fn name_of(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or_default().replace(' ', "")
}

/// The kinds that share a status, in order of the statuses.
fn by_status(kinds: &[&[Kind]]) -> Vec<(StatusCode, Vec<Kind>)> {
    let mut kinds: Vec<_> = kinds.concat();
    kinds.sort_unstable_by_key(|&kind| (kind.status().as_u16(), kind));
    kinds.dedup();
    let chunks = kinds.chunk_by(|one, next| one.status() == next.status());
    chunks.map(|chunk| (chunk[0].status(), chunk.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_of_problem_is_an_answer_in_the_document() {
        let document = document(&aggregates::registry().unwrap());
        let answers = document["components"]["responses"].to_string();
        for kind in Kind::ALL {
            assert!(answers.contains(&format!("`{}`", kind.urn())), "{}", kind.urn());
        }
    }

    #[test]
    fn the_ids_of_operations_are_unique() {
        let document = document(&aggregates::registry().unwrap());
        let paths = document["paths"].as_object().unwrap().values();
        let ids: Vec<_> =
            paths.flat_map(|path| path.as_object().unwrap().values()).map(|one| &one["operationId"]).collect();
        assert_eq!(ids.iter().map(|id| id.as_str().unwrap()).collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    }
}
