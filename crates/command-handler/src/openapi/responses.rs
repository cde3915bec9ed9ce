//! The responses that operations share: problems, and the responses of the gateway in front of the API. The local stack has no
//! gateway.

use std::sync::LazyLock;

use axum::http::StatusCode;
use daybook_decider::Registry;
use serde_json::{Map, Value, json};

use super::schemas::{reference, upper_camel};
use crate::endpoints;
use crate::problem::{self, ExtensionMembers, ProblemType};

/// The problems of paths and methods that no endpoint has.
pub(super) const UNKNOWN_PATH: &[&ProblemType] = &[&problem::UNKNOWN_ROUTE, &problem::UNKNOWN_TYPE];
pub(super) const OTHER_METHOD: &[&ProblemType] = &[&problem::METHOD_NOT_ALLOWED];

fn all(has_views: bool) -> impl Iterator<Item = &'static ProblemType> {
    let lists = endpoints::served(has_views).flat_map(|endpoint| endpoint.problems);
    lists.chain(&[UNKNOWN_PATH, OTHER_METHOD]).copied().flatten().copied()
}

pub(super) fn schemas(registry: &Registry, has_views: bool) -> impl Iterator<Item = (String, Value)> {
    all(has_views).map(|problem_type| (schema_name(problem_type), schema(problem_type, registry)))
}

fn schema(problem_type: &ProblemType, registry: &Registry) -> Value {
    let fixed = fixed("problemMembers");
    let (required, optional): (&[&str], &[&str]) = match (problem_type.example)(registry).extension.as_deref() {
        None => (&[], &[]),
        Some(ExtensionMembers::Versions { .. }) => (&["expected", "actual"], &[]),
        Some(ExtensionMembers::Behind { .. }) => (&["seqNum", "suspended"], &[]),
        Some(ExtensionMembers::Rejection { .. }) => (&["rejection"], &[]),
        Some(ExtensionMembers::Claim { .. }) => (&["claim"], &["holder"]),
    };
    let is_about_a_command = problem::ABOUT_A_COMMAND.iter().any(|other| other.slug == problem_type.slug);
    let of_command: &[&str] = if is_about_a_command { &["index", "aggregate"] } else { &[] };
    let mut members = json!({
        "type": {"type": "string", "const": problem_type.urn()},
        "title": {"type": "string"},
        "status": {"type": "integer", "const": problem_type.status.as_u16()},
        "detail": fixed["detail"],
    });
    required.iter().for_each(|name| members[name] = fixed[name].clone());
    let required: Vec<_> = members.as_object().into_iter().flat_map(Map::keys).cloned().collect();
    [optional, of_command].concat().iter().for_each(|name| members[name] = fixed[name].clone());
    json!({
        "type": "object",
        "description": problem_type.description,
        "properties": members,
        "required": required,
        "examples": [example(problem_type, registry)],
    })
}

fn schema_name(problem_type: &ProblemType) -> String {
    format!("{}Problem", upper_camel(problem_type.slug))
}

/// The examples of all types, by the names that responses refer to.
pub(super) fn examples(registry: &Registry, has_views: bool) -> Value {
    let of = |problem_type: &ProblemType| {
        let example = json!({"summary": problem_type.title, "value": example(problem_type, registry)});
        (upper_camel(problem_type.slug), example)
    };
    all(has_views).map(of).collect::<Map<_, _>>().into()
}

fn example(problem_type: &ProblemType, registry: &Registry) -> Value {
    serde_json::from_str(&(problem_type.example)(registry).to_json()).unwrap_or_default()
}

pub(super) fn by_status(types: &[&[&'static ProblemType]]) -> Vec<(StatusCode, Vec<&'static ProblemType>)> {
    let mut types = types.concat();
    types.sort_by_key(|problem_type| problem_type.status.as_u16());
    types.chunk_by(|one, next| one.status == next.status).map(|chunk| (chunk[0].status, chunk.to_vec())).collect()
}

pub(super) fn response(status: StatusCode, types: &[&ProblemType]) -> Value {
    let causes: Vec<_> = types.iter().map(|one| format!("- `{}`: {}", one.urn(), one.description)).collect();
    let references: Vec<_> = types.iter().map(|one| reference("schemas", &schema_name(one))).collect();
    let schema = match references.as_slice() {
        [one] => one.clone(),
        several => {
            let mapping: Map<_, _> =
                types.iter().zip(several).map(|(one, reference)| (one.urn(), reference["$ref"].clone())).collect();
            json!({"oneOf": several, "discriminator": {"propertyName": "type", "mapping": mapping}})
        }
    };
    let names = types.iter().map(|one| upper_camel(one.slug));
    let examples: Map<_, _> = names.map(|name| (name.clone(), reference("examples", &name))).collect();
    json!({
        "description": format!("{}:\n{}", status.canonical_reason().unwrap_or_default(), causes.join("\n")),
        "headers": headers(problem_headers(status, types)),
        "content": {"application/problem+json": {"schema": schema, "examples": examples}},
    })
}

/// The headers of these problems with this status, each with whether it is always present.
fn problem_headers(status: StatusCode, types: &[&ProblemType]) -> &'static [(&'static str, bool)] {
    match status {
        StatusCode::METHOD_NOT_ALLOWED => &[("Allow", true)],
        StatusCode::CONFLICT => &[("ETag", false)],
        // A rejection that is recorded is stored and replayed like a success.
        StatusCode::UNPROCESSABLE_ENTITY => &[("ETag", false), ("Idempotency-Replayed", false)],
        // The response to a write that cannot be repeated safely has none.
        StatusCode::SERVICE_UNAVAILABLE if types.iter().any(|one| one.slug == problem::OUTCOME_UNKNOWN.slug) => {
            &[("Retry-After", false)]
        }
        StatusCode::SERVICE_UNAVAILABLE => &[("Retry-After", true)],
        _ => &[],
    }
}

pub(super) const GATEWAY_STATUSES: [StatusCode; 3] =
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS];

pub(super) fn add_to(response: &mut Value, of_gateway: &Value) {
    let text = |response: &Value| response["description"].as_str().unwrap_or_default().to_owned();
    response["description"] = format!("{}\n\n{}", text(response), text(of_gateway)).into();
    for (media_type, content) in of_gateway["content"].as_object().into_iter().flatten() {
        response["content"][media_type] = content.clone();
    }
    // The gateway sends no header of the API.
    for header in response["headers"].as_object_mut().into_iter().flat_map(|headers| headers.values_mut()) {
        header["required"] = false.into();
    }
}

/// A part of `fixed.json`, which has what depends on no code, such as the responses of the gateway and how callers identify
/// themselves to it.
pub(super) fn fixed(part: &str) -> Value {
    static PARTS: LazyLock<Value> = LazyLock::new(|| {
        serde_json::from_str(include_str!("fixed.json")).expect("the test of the document reads the file")
    });
    PARTS[part].clone()
}

/// The headers of a response by their names in `fixed.json`, each with whether it is always present. Every response has a
/// correlation id.
pub(super) fn headers(headers: &[(&str, bool)]) -> Value {
    let mut described = fixed("headers");
    let headers = headers.iter().chain(&[("X-Correlation-Id", true)]).map(|&(name, required)| {
        let mut header = described.get_mut(name).expect("fixed.json describes each header").take();
        header["required"] = required.into();
        (name.to_owned(), header)
    });
    headers.collect::<Map<_, _>>().into()
}
