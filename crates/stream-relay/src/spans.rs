//! The spans of the relay, which a collector gets if there is one. They contain no id of an aggregate.
//!
//! A batch has messages of several traces, so its span is in a trace of its own, with a link to the span of each message.
//! The span of a message continues the trace of its command, from the header in its row.

use std::time::SystemTime;

use daybook_function_runtime::traces;
use tracing::Span;
use tracing::field::Empty;

use crate::record::OutboxRow;

/// The span of a batch with these messages, if one of them is in a sampled trace.
pub(crate) fn batch<'a>(messages: impl ExactSizeIterator<Item = &'a Span> + Clone) -> Span {
    let span = tracing::debug_span!("relay", otel.kind = "consumer", daybook.messages = messages.len());
    if !span.is_disabled() && messages.clone().any(|message| traces::context(message).is_some()) {
        traces::start(&span, None);
        messages.for_each(|message| traces::link(&span, message));
    }
    span
}

/// The span of a message from its arrival until it is settled. The time from the event to the arrival is a span too.
pub(crate) fn publish(row: &OutboxRow) -> Span {
    let span = tracing::debug_span!(
        "publish",
        otel.kind = "producer",
        otel.status_code = Empty,
        messaging.message.id = row.item.message_id,
        daybook.message_type = row.item.message_type,
        daybook.result = Empty,
    );
    if !span.is_disabled() {
        let trace_header = row.item.trace_header.as_deref();
        traces::continue_from(&span, trace_header);
        let waited = tracing::debug_span!("stream");
        traces::continue_from(&waited, trace_header);
        if let Ok(occurred_at) = SystemTime::try_from(row.occurred_at) {
            traces::began_at(&waited, occurred_at);
        }
    }
    span
}

/// The span of a request to the bus, with a link to the span of each of its messages.
pub(crate) fn put_events<'a>(messages: impl ExactSizeIterator<Item = &'a Span>) -> Span {
    let span = tracing::debug_span!(
        "PutEvents",
        otel.kind = "client",
        otel.status_code = Empty,
        daybook.entries = messages.len(),
        daybook.failed_entries = Empty,
    );
    if !span.is_disabled() {
        messages.for_each(|message| traces::link(&span, message));
    }
    span
}

/// Ends the span of a message. An error is a result other than `sent`.
pub(crate) fn end(span: &mut Span, result: &str) {
    let span = std::mem::replace(span, Span::none());
    span.record("daybook.result", result);
    if result != "sent" {
        span.record("otel.status_code", "error");
    }
}
