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
/// A text that is stored unchanged.
const VISIBLE_TEXT: fn() -> Value = || json!({"type": "string", "pattern": "^[!-~]{1,128}$"});

pub(super) const IF_MATCH: RequestHeader = RequestHeader {
    component: "IfMatch",
    name: "If-Match",
    description: "The version that the caller saw: the `ETag`, or the version alone; the quotes are optional. Only \
                  the version is compared, so a weak tag is accepted too. The write is executed on this version or \
                  fails. `*` requires that the aggregate exists. Without the header, or with `*`, a write that loses \
                  a race is decided again on the new state. A creation takes no `If-Match`. A write does not accept \
                  `If-None-Match`: a creation never overwrites.",
    example: "\"3-1\"",
    schema: || {
        let pattern = r#"^((W/)?"[0-9]{1,19}(-[0-9]{1,10})?"|[0-9]{1,19}(-[0-9]{1,10})?|\*)$"#;
        json!({"type": "string", "pattern": pattern})
    },
};

pub(super) const IF_NONE_MATCH: RequestHeader = RequestHeader {
    component: "IfNoneMatch",
    name: "If-None-Match",
    description: "The states that the caller has: one `ETag`, several separated by commas, or `*`. Weak tags match \
                  too.",
    example: "\"3-1\"",
    schema: ANY_TEXT,
};

pub(super) const ROW_IF_NONE_MATCH: RequestHeader = RequestHeader {
    component: "RowIfNoneMatch",
    name: "If-None-Match",
    description: "The rows that the caller has: one `ETag`, several separated by commas, or `*`. Weak tags match too.",
    example: "\"90f3a1c27b5e4d68\"",
    schema: ANY_TEXT,
};

const IDEMPOTENCY_KEY: RequestHeader = RequestHeader {
    component: "IdempotencyKey",
    name: "Idempotency-Key",
    description: "The caller's name for this request; quotes around it are optional, unless it has a comma. A request \
                  that is repeated under the same key is executed once. A repetition gets the stored response, also if \
                  the request appended nothing, for a day unless the operator set another time. A request that was \
                  rejected without an event is decided again. A key belongs to one aggregate; there, the same key with \
                  another request or from another caller is an error (422). A response that is too large to be stored \
                  omits `state`, or `state`, `events` and `messages`.",
    example: "8e03978e-40d5-43e8-bc93-6894a57f9324",
    schema: || json!({"type": "string", "pattern": r#"^("[!#-~]{1,255}"|[!-+\--~]{1,255})$"#, "not": {"const": "\"\""}}),
};

const CORRELATION_ID: RequestHeader = RequestHeader {
    component: "XCorrelationId",
    name: "X-Correlation-Id",
    description: "The id of the business transaction that the request belongs to. It is stored with the events and \
                  sent with the messages. Without the header, a new id is generated.",
    example: "01KDVDNA000000000000000000",
    schema: VISIBLE_TEXT,
};

/// `X-Correlation-Id` of a request that stores nothing, so that its form is not checked.
pub(super) const READ_CORRELATION_ID: RequestHeader = RequestHeader {
    component: "ReadCorrelationId",
    name: "X-Correlation-Id",
    description: "The id of the business transaction that the request belongs to. The response repeats it. If the \
                  header is missing, or is not 1 to 128 visible characters, the response has a new id.",
    example: "01KDVDNA000000000000000000",
    schema: ANY_TEXT,
};

const CAUSATION_ID: RequestHeader = RequestHeader {
    component: "XCausationId",
    name: "X-Causation-Id",
    description: "The id of the message or request that caused this one. It is stored with the events and sent with \
                  the messages.",
    example: "01KDVDNA000000000000000002",
    schema: VISIBLE_TEXT,
};

const TRACEPARENT: RequestHeader = RequestHeader {
    component: "Traceparent",
    name: "traceparent",
    description: "The trace that the request belongs to, in the format of W3C Trace Context. It is stored with the \
                  events and sent with the messages. A value of another format is ignored.",
    example: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    schema: ANY_TEXT,
};

const AMZN_TRACE_ID: RequestHeader = RequestHeader {
    component: "XAmznTraceId",
    name: "X-Amzn-Trace-Id",
    description: "The AWS X-Ray trace, which Lambda sets when it runs the API. It is stored with the events, sent \
                  with the messages, and passed to the bus, which continues the trace. A value of another format is \
                  ignored.",
    example: "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1",
    schema: ANY_TEXT,
};
