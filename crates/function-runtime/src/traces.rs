//! Spans of the functions, and their export over OTLP, the protocol of OpenTelemetry. Off unless a collector is set.
//!
//! The functions create spans with `tracing`. Without a collector, the spans are not recorded. With one, a span is
//! exported if [`start`] or [`continue_from`] gave it a place in a sampled trace, and so are the spans within it. Other
//! spans, such as those of calls during initialization and of requests that are not sampled, are not exported.
//!
//! Lambda freezes a process between two invocations, so the spans of an invocation are sent before its response. A
//! collector that fails delays no invocation for longer than [`EXPORT_LIMIT`], and no invocation fails: the spans are
//! lost.
//!
//! This file reads and writes the headers that contain the place of a span in a trace: those of W3C Trace Context and of AWS
//! X-Ray, both with the same ids. In reading order: `recorder`: records spans. `exporter`: sends the spans.

mod exporter;
mod recorder;

use std::time::{SystemTime, UNIX_EPOCH};

pub use self::exporter::{EXPORT_LIMIT, EXPORT_PAUSE, SpanExporter};
pub use self::recorder::{began_at, context, continue_from, link, start};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: u128,
    /// 0 if the header names no span.
    span_id: u64,
    is_sampled: bool,
}

impl TraceContext {
    /// Reads a valid `traceparent` of version 00.
    pub fn of_traceparent(text: &str) -> Option<Self> {
        let ["00", trace_id, span_id, flags] = text.split('-').collect::<Vec<_>>()[..] else { return None };
        let is_sampled = hex(flags, 2)? & 1 == 1;
        Some(Self { trace_id: hex(trace_id, 32)?, span_id: span_of(span_id)?, is_sampled })
    }

    /// Reads an X-Ray trace header. Without the field `Sampled`, the trace is sampled.
    pub fn of_trace_header(text: &str) -> Option<Self> {
        let (mut trace_id, mut span_id, mut is_sampled) = (None, 0, true);
        for (name, value) in text.split(';').filter_map(|field| field.trim().split_once('=')) {
            match name {
                "Root" => {
                    let (time, unique) = value.strip_prefix("1-")?.split_once('-')?;
                    trace_id = Some(hex(time, 8)? << 96 | hex(unique, 24)?);
                }
                "Parent" => span_id = span_of(value)?,
                "Sampled" => is_sampled = value != "0",
                _ => {}
            }
        }
        Some(Self { trace_id: trace_id?, span_id, is_sampled })
    }

    pub fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    pub fn trace_header(&self) -> String {
        let (time, unique) = (self.trace_id >> 96, self.trace_id & (u128::MAX >> 32));
        let sampled = u8::from(self.is_sampled);
        format!("Root=1-{time:08x}-{unique:024x};Parent={:016x};Sampled={sampled}", self.span_id)
    }

    /// A new trace. Its id begins with the time, as X-Ray requires.
    fn of_new_trace() -> Self {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let trace_id = u128::from(seconds) << 96 | fastrand::u128(1..) >> 32;
        Self { trace_id, span_id: 0, is_sampled: true }
    }

    fn child(self) -> Self {
        Self { span_id: fastrand::u64(1..), ..self }
    }
}

fn span_of(text: &str) -> Option<u64> {
    hex(text, 16).and_then(|id| u64::try_from(id).ok())
}

fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_headers_contain_the_same_ids_and_flag() {
        for (flag, sampled) in [("01", 1), ("00", 0), ("03", 1), ("02", 0)] {
            let context =
                TraceContext::of_traceparent(&format!("00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-{flag}"));
            let header = format!("Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled={sampled}");
            assert_eq!(context.unwrap().trace_header(), header);
            assert_eq!(TraceContext::of_trace_header(&header), context);
            let with_more = format!("Self=1-67891234-12456789abcdef012345678; {header};Lineage=1:1b0cd6a3:0");
            assert_eq!(TraceContext::of_trace_header(&with_more), context);
        }
    }

    #[test]
    fn trace_header_without_a_parent_or_a_decision_begins_a_sampled_trace() {
        let root = "Root=1-00000001-000000000000000000000002";
        let expected = TraceContext { trace_id: 1 << 96 | 2, span_id: 0, is_sampled: true };
        for header in [root.to_owned(), format!("{root};Sampled=?")] {
            assert_eq!(TraceContext::of_trace_header(&header), Some(expected), "{header}");
        }
        for text in ["", "Root=1", "Sampled=1", "Root=1-0-0", &format!("{root};Parent=+000000000000001")] {
            assert_eq!(TraceContext::of_trace_header(text), None, "{text}");
        }
    }

    #[test]
    fn new_trace_begins_with_the_time() {
        let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let before = seconds();
        let (one, other) = (TraceContext::of_new_trace(), TraceContext::of_new_trace());
        assert!((before..=seconds()).contains(&u64::try_from(one.trace_id >> 96).unwrap()), "{one:?}");
        assert_ne!(one.trace_id, other.trace_id);
        assert_ne!(one.child().span_id, one.child().span_id);
    }
}
