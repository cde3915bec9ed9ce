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
//! In reading order: `context`: the place of a span in a trace, as headers contain it. `recorder`: records spans.
//! `exporter`: sends the spans.

mod context;
mod exporter;
mod recorder;

pub use self::context::TraceContext;
pub use self::exporter::{EXPORT_LIMIT, EXPORT_PAUSE, SpanExporter};
pub use self::recorder::{began_at, context, continue_from, link, start};
