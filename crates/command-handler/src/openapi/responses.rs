//! The responses that operations share: problems, and the responses of the gateway in front of the API, with how callers
//! identify themselves to it. The local stack has no gateway.

use axum::http::StatusCode;
use daybook_decider::Registry;
use serde_json::{Map, Value, json};

use super::headers::headers;
use super::schemas::{reference, upper_camel};
use crate::endpoints;
use crate::endpoints::endpoint::ResponseHeader;
use crate::problem::{self, ExtensionMembers, ProblemType};

/// The problems of paths and methods that no endpoint has.
pub(super) const UNKNOWN_PATH: &[&ProblemType] = &[&problem::UNKNOWN_ROUTE, &problem::UNKNOWN_TYPE];
pub(super) const OTHER_METHOD: &[&ProblemType] = &[&problem::METHOD_NOT_ALLOWED];

/// All types that the API can return.
fn all(has_views: bool) -> impl Iterator<Item = &'static ProblemType> {
    let lists = endpoints::served(has_views).flat_map(|endpoint| endpoint.problems);
    lists.chain(&[UNKNOWN_PATH, OTHER_METHOD]).copied().flatten().copied()
}

pub(super) fn schemas(registry: &Registry, has_views: bool) -> impl Iterator<Item = (String, Value)> {
    all(has_views).map(|problem_type| (schema_name(problem_type), schema(problem_type, registry)))
}

fn schema(problem_type: &ProblemType, registry: &Registry) -> Value {
    let mut members = json!({
        "type": {"type": "string", "const": problem_type.urn()},
        "title": {"type": "string"},
        "status": {"type": "integer", "const": problem_type.status.as_u16()},
        "detail": {"type": "string", "description": "What is wrong in this case, for people to read."},
    });
    let version = |whose: &str| json!({"type": "integer", "minimum": 0, "description": whose});
    let mut optional = None;
    match (problem_type.example)(registry).extension.as_deref() {
        None => {}
        Some(ExtensionMembers::Versions { .. }) => {
            members["expected"] = version("The version that `If-Match` named.");
            members["actual"] = version("The current version of the aggregate; 0 if there is no such aggregate.");
        }
        Some(ExtensionMembers::Behind { .. }) => {
            members["seqNum"] = json!({
                "type": "integer",
                "minimum": 0,
                "description": "The last event of the aggregate that the view shows; 0 if it shows none.",
            });
            members["suspended"] = json!({
                "type": "boolean",
                "description": "Whether the view cannot show the next event until an operator has resumed it.",
            });
        }
        Some(ExtensionMembers::Rejection { .. }) => {
            members["rejection"] = json!({
                "type": "string",
                "description": "The stable name of the rejection, which the aggregate type defines, such as \
                                `InsufficientFunds`.",
            });
        }
        Some(ExtensionMembers::Claim { .. }) => {
            members["claim"] = json!({"type": "string", "description": "The name of the claim."});
            optional = Some(("holder", "The aggregate that has it, as `type/id`."));
        }
    }
    let required: Vec<_> = members.as_object().into_iter().flat_map(Map::keys).cloned().collect();
    if let Some((name, description)) = optional {
        members[name] = json!({"type": "string", "description": description});
    }
    if problem::ABOUT_A_COMMAND.iter().any(|other| other.slug == problem_type.slug) {
        let description = "The position of the command in the array, counted from 0; only if the request contains an \
                           array.";
        members["index"] = json!({"type": "integer", "minimum": 0, "description": description});
        let description =
            "The aggregate that the problem is about, as `type/id`; only if the request concerns several.";
        members["aggregate"] = json!({"type": "string", "description": description});
    }
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

/// The response with this status, which is one of these problems.
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
        "headers": headers(problem_headers(status, types), |_| None),
        "content": {"application/problem+json": {"schema": schema, "examples": examples}},
    })
}

/// The headers of these problems with this status, each with whether it is always present.
fn problem_headers(status: StatusCode, types: &[&ProblemType]) -> &'static [(ResponseHeader, bool)] {
    match status {
        StatusCode::METHOD_NOT_ALLOWED => &[(ResponseHeader::Allow, true)],
        StatusCode::CONFLICT => &[(ResponseHeader::ETag, false)],
        // A rejection that is recorded is stored and replayed like a success.
        StatusCode::UNPROCESSABLE_ENTITY => {
            &[(ResponseHeader::ETag, false), (ResponseHeader::IdempotencyReplayed, false)]
        }
        // The response to a write that cannot be repeated safely has none.
        StatusCode::SERVICE_UNAVAILABLE if types.iter().any(|one| one.slug == problem::OUTCOME_UNKNOWN.slug) => {
            &[(ResponseHeader::RetryAfter, false)]
        }
        StatusCode::SERVICE_UNAVAILABLE => &[(ResponseHeader::RetryAfter, true)],
        _ => &[],
    }
}

pub(super) const GATEWAY_STATUSES: [StatusCode; 3] =
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS];

/// The schema of the body, with its name. It has `type` so that a typed client can match on it before it knows whether
/// the gateway or the API responded; RFC 9457 defines the meaning of a missing `type`.
pub(super) fn gateway_schema() -> (&'static str, Value) {
    let schema = json!({
        "type": "object",
        "description": "A response of the gateway in front of the API. Unlike a problem, it has no `type`.",
        "properties": {
            "message": {"type": "string"},
            "type": {"const": "about:blank", "description": "Not sent. A problem without `type` has the type `about:blank`."},
        },
        "required": ["message"],
        "examples": [{"message": "Forbidden"}],
    });
    ("GatewayAnswer", schema)
}

/// The response with this status, whose body has this schema.
pub(super) fn gateway_response(status: StatusCode, schema: &Value) -> Value {
    let (name, when) = match status {
        StatusCode::UNAUTHORIZED => {
            ("unauthorized", "the API is deployed with a token issuer, and the token is missing or not accepted")
        }
        StatusCode::FORBIDDEN => (
            "forbidden",
            "the API is deployed without a token issuer, and the signature is missing or wrong, or its signer may not \
             call the API",
        ),
        _ => ("throttled", "the request exceeds the permitted rate; wait a little and repeat it"),
    };
    let reason = status.canonical_reason().unwrap_or_default();
    let mut response = json!({
        "description": format!("{reason}, of the gateway in front of the API: {when}."),
        "content": {"application/json": {
            "schema": schema,
            "examples": {name: {"value": {"message": reason}}},
        }},
    });
    if status == StatusCode::UNAUTHORIZED {
        response["headers"] = json!({"WWW-Authenticate": {
            "description": "A token is required; if the request has one, the header also describes what is wrong with \
                            it.",
            "required": false,
            "schema": {"type": "string"},
            "example": "Bearer",
        }});
    }
    response
}

/// Adds the gateway's response to that of the API with the same status.
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

/// How callers identify themselves, as the template offers it.
pub(super) fn security_schemes() -> Value {
    json!({
        "iam": {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "x-amazon-apigateway-authtype": "awsSigv4",
            "description": "AWS Signature Version 4 for the service `execute-api`, unless the API is deployed with a \
                            token issuer. Without a signature, the gateway responds with 403.",
        },
        "jwt": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "A JSON Web Token of the issuer and for the audience that the API is deployed with \
                            (`JwtIssuer`, `JwtAudience`). Without a token, the gateway responds with 401.",
        },
    })
}
