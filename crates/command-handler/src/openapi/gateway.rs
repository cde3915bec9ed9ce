//! The gateway in front of the API: its own responses, and how callers identify themselves to it. The local stack has
//! no gateway.

use axum::http::StatusCode;
use serde_json::{Value, json};

pub(super) const STATUSES: [StatusCode; 3] =
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS];

/// The schema of the body, with its name. It has `type` so that a typed client can match on it before it knows whether
/// the gateway or the API responded; RFC 9457 defines the meaning of a missing `type`.
pub(super) fn schema() -> (&'static str, Value) {
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
pub(super) fn response(status: StatusCode, schema: &Value) -> Value {
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
