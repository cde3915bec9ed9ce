//! Headers, and the other parameters that several calls share.

use serde_json::{Map, Value, json};

use super::examples::{ID, ulid};
use super::problems::CURRENT;

/// A header of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    ETag,
    Location,
    Link,
    RetryAfter,
    Allow,
    CorrelationId,
    IdempotencyReplayed,
}

impl Header {
    /// What it looks like where an answer does not say.
    fn example(self) -> Value {
        match self {
            Self::ETag => tag(CURRENT).into(),
            Self::Location => format!("/todo/{ID}").into(),
            Self::Link => format!("</todo?after={}&limit=100>; rel=\"next\"", ulid(1)).into(),
            Self::RetryAfter => 1.into(),
            Self::Allow => "GET,HEAD".into(),
            Self::CorrelationId => ulid(0).into(),
            Self::IdempotencyReplayed => "true".into(),
        }
    }

    /// Its name, what it tells, and what it can look like.
    fn described(self) -> (&'static str, &'static str, Value) {
        let text = |pattern: &str| json!({"type": "string", "pattern": pattern});
        match self {
            Self::ETag => ("ETag", "The version of the aggregate, in quotes.", text(r#"^"[0-9]+"$"#)),
            Self::Location => ("Location", "The path of the aggregate.", text("^/[^/]+/[^/]+$")),
            Self::Link => {
                ("Link", "The next page, where there is one; follow it as it is.", text(r#"^<[^<>]+>; rel="next"$"#))
            }
            Self::RetryAfter => {
                ("Retry-After", "How long to wait, in seconds.", json!({"type": "integer", "minimum": 1}))
            }
            Self::Allow => ("Allow", "The methods that the resource takes.", text("^[A-Z]+(,[A-Z]+)*$")),
            Self::CorrelationId => ("X-Correlation-Id", "That of the request, or a new one.", text(TOKEN)),
            Self::IdempotencyReplayed => (
                "Idempotency-Replayed",
                "That the answer is the first one to this `Idempotency-Key`, and nothing was appended.",
                json!({"type": "string", "const": "true"}),
            ),
        }
    }
}

/// A version as an `ETag`.
pub(super) fn tag(version: u64) -> String {
    format!("\"{version}\"")
}

/// The headers of an answer, each with whether it is always there; and what some look like there. One every answer has.
pub(super) fn of_answer(headers: &[(Header, bool)], examples: impl Fn(Header) -> Option<String>) -> Value {
    let described = headers.iter().chain(&[(Header::CorrelationId, true)]).map(|&(header, required)| {
        let (name, description, schema) = header.described();
        let example = examples(header).map_or_else(|| header.example(), Value::from);
        let told = json!({"description": description, "required": required, "schema": schema, "example": example});
        (name.to_owned(), told)
    });
    described.collect::<Map<_, _>>().into()
}

/// What is kept as it came.
const TOKEN: &str = "^[!-~]{1,128}$";

/// An id, by the rule of [`daybook_table::keys::is_id`].
pub(super) fn id_schema() -> Value {
    json!({
        "type": "string",
        "pattern": "^[A-Za-z0-9._~-]{1,128}$",
        "minLength": 1,
        "maxLength": daybook_table::keys::MAX_ID,
        "not": {"enum": [".", ".."]},
        "examples": [ID],
    })
}

/// The parameters that calls refer to by name.
pub(super) fn parameters() -> Value {
    let header = |name: &str, description: &str, example: &str, schema: Value| json!({"name": name, "in": "header", "required": false, "description": description, "example": example, "schema": schema});
    let (seen, correlation_id, causation_id) = (tag(CURRENT), ulid(0), ulid(2));
    let token = json!({"type": "string", "pattern": TOKEN});
    json!({
        "Id": {
            "name": "id",
            "in": "path",
            "required": true,
            "description": "The id of the aggregate.",
            "example": ID,
            "schema": id_schema(),
        },
        "IfMatch": header(
            "If-Match",
            "The version that the caller saw, as the `ETag` told it; the quotes are optional. The write happens on this \
             version or not at all. Without it, or with `*`, a lost race is decided again on fresh state. An aggregate \
             that does not exist is at version 0. A write takes no `If-None-Match`: a creation never overwrites.",
            &seen,
            json!({"type": "string", "pattern": r#"^("[0-9]{1,19}"|[0-9]{1,19}|\*)$"#}),
        ),
        "IfNoneMatch": header(
            "If-None-Match",
            "Versions that the caller has: an `ETag`, several with commas in between, or `*`.",
            &seen,
            json!({"type": "string"}),
        ),
        "IdempotencyKey": header(
            "Idempotency-Key",
            "The caller's name for this request; quotes around it are optional. The same request under the same key is \
             carried out once and answered alike for a day, unless the operator set another time, also where it had \
             nothing to append. What was refused without an event is decided anew. A key belongs to one aggregate; there \
             it is an error (422) with another request, another caller's included. An answer that is too large to be kept \
             has no `state`, or neither `state` nor `events` nor `messages`.",
            "8e03978e-40d5-43e8-bc93-6894a57f9324",
            json!({
                "type": "string",
                "pattern": r#"^("[!-~]{1,255}"|[!-~]{1,255})$"#,
                "not": {"const": "\"\""},
            }),
        ),
        "XCorrelationId": header(
            "X-Correlation-Id",
            "What the request belongs to. It is kept with the events and told with the messages; a new one is made where \
             there is none.",
            &correlation_id,
            token.clone(),
        ),
        "ReadCorrelationId": header(
            "X-Correlation-Id",
            "What the request belongs to. The answer tells it again, or a new one in the place of none and of one that is \
             not 1 to 128 visible characters.",
            &correlation_id,
            json!({"type": "string"}),
        ),
        "XCausationId": header(
            "X-Causation-Id",
            "The message or request that caused this one. It is kept with the events and told with the messages.",
            &causation_id,
            token,
        ),
        "Traceparent": header(
            "traceparent",
            "The trace that the request belongs to, by W3C trace context. It is kept with the events and told with the \
             messages. One that is not of that form is ignored.",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            json!({"type": "string"}),
        ),
        "XAmznTraceId": header(
            "X-Amzn-Trace-Id",
            "The same by AWS X-Ray, which Lambda sets by itself where it runs the API. It is kept with the events, told \
             with the messages, and handed to the bus, which goes on from it. One that is not of that form is ignored.",
            "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1",
            json!({"type": "string"}),
        ),
    })
}

/// The ways to say who calls, as the template offers them. A machine of one's own asks for neither.
pub(super) fn security_schemes() -> Value {
    json!({
        "iam": {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "x-amazon-apigateway-authtype": "awsSigv4",
            "description": "AWS Signature Version 4 for the service `execute-api`: how the API is deployed unless a token \
                            issuer is named. Without it, the gateway itself answers, with 403.",
        },
        "jwt": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "A JSON Web Token of the issuer and for the audience that the API is deployed with \
                            (`JwtIssuer`, `JwtAudience`). Without it, the gateway itself answers, with 401.",
        },
    })
}
