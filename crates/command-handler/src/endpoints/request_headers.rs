//! The request headers that endpoints read, as the document describes them.

use serde_json::{Value, json};

pub(crate) struct RequestHeader {
    /// The name of its component in the document.
    pub(crate) component: &'static str,
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) example: &'static str,
    pub(crate) schema: fn() -> Value,
}

/// The headers of every write. A change of an aggregate has `If-Match` too.
pub(super) const WRITE_HEADERS: &[&RequestHeader] =
    &[&IDEMPOTENCY_KEY, &CORRELATION_ID, &CAUSATION_ID, &TRACEPARENT, &AMZN_TRACE_ID];

const ANY_TEXT: fn() -> Value = || json!({"type": "string"});
/// A text that is stored as it came.
const VISIBLE_TEXT: fn() -> Value = || json!({"type": "string", "pattern": "^[!-~]{1,128}$"});

pub(super) const IF_MATCH: RequestHeader = RequestHeader {
    component: "IfMatch",
    name: "If-Match",
    description: "The version that the caller saw, as the `ETag` told it; the quotes are optional. The write happens \
                  on this version or not at all. Without it, or with `*`, a lost race is decided again on fresh state. \
                  An aggregate that does not exist is at version 0. A write takes no `If-None-Match`: a creation never \
                  overwrites.",
    example: "\"3\"",
    schema: || json!({"type": "string", "pattern": r#"^("[0-9]{1,19}"|[0-9]{1,19}|\*)$"#}),
};

pub(super) const IF_NONE_MATCH: RequestHeader = RequestHeader {
    component: "IfNoneMatch",
    name: "If-None-Match",
    description: "Versions that the caller has: an `ETag`, several with commas in between, or `*`.",
    example: "\"3\"",
    schema: ANY_TEXT,
};

const IDEMPOTENCY_KEY: RequestHeader = RequestHeader {
    component: "IdempotencyKey",
    name: "Idempotency-Key",
    description: "The caller's name for this request; quotes around it are optional. The same request under the same \
                  key is carried out once and answered alike for a day, unless the operator set another time, also \
                  where it had nothing to append. What was refused without an event is decided anew. A key belongs to \
                  one aggregate; there it is an error (422) with another request, another caller's included. An answer \
                  that is too large to be kept has no `state`, or neither `state` nor `events` nor `messages`.",
    example: "8e03978e-40d5-43e8-bc93-6894a57f9324",
    schema: || json!({"type": "string", "pattern": r#"^("[!-~]{1,255}"|[!-~]{1,255})$"#, "not": {"const": "\"\""}}),
};

const CORRELATION_ID: RequestHeader = RequestHeader {
    component: "XCorrelationId",
    name: "X-Correlation-Id",
    description: "What the request belongs to. It is kept with the events and told with the messages; a new one is \
                  made where there is none.",
    example: "01KDVDNA000000000000000000",
    schema: VISIBLE_TEXT,
};

/// `X-Correlation-Id` of a request that stores nothing, so that its form is not checked.
pub(super) const READ_CORRELATION_ID: RequestHeader = RequestHeader {
    component: "ReadCorrelationId",
    name: "X-Correlation-Id",
    description: "What the request belongs to. The answer tells it again, or a new one in the place of none and of one \
                  that is not 1 to 128 visible characters.",
    example: "01KDVDNA000000000000000000",
    schema: ANY_TEXT,
};

const CAUSATION_ID: RequestHeader = RequestHeader {
    component: "XCausationId",
    name: "X-Causation-Id",
    description: "The message or request that caused this one. It is kept with the events and told with the messages.",
    example: "01KDVDNA000000000000000002",
    schema: VISIBLE_TEXT,
};

const TRACEPARENT: RequestHeader = RequestHeader {
    component: "Traceparent",
    name: "traceparent",
    description: "The trace that the request belongs to, by W3C trace context. It is kept with the events and told \
                  with the messages. One that is not of that form is ignored.",
    example: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    schema: ANY_TEXT,
};

const AMZN_TRACE_ID: RequestHeader = RequestHeader {
    component: "XAmznTraceId",
    name: "X-Amzn-Trace-Id",
    description: "The same by AWS X-Ray, which Lambda sets by itself where it runs the API. It is kept with the \
                  events, told with the messages, and handed to the bus, which goes on from it. One that is not of \
                  that form is ignored.",
    example: "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1",
    schema: ANY_TEXT,
};
