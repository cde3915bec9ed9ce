//! Spans of the functions, and their export over OTLP, the protocol of OpenTelemetry. Off unless a collector is set.
//!
//! The functions name spans with `tracing`. Without a collector, nothing records them. With one, [`SpanExporter::layer`]
//! records a span if [`start`] or [`continue_from`] gave it a place in a sampled trace, and the spans within it. Other spans,
//! such as those of calls during initialization and of requests that are not sampled, are not recorded.
//!
//! Lambda freezes a process between two invocations, so the spans of an invocation are sent before its response. A
//! collector that fails delays no invocation for longer than [`EXPORT_LIMIT`], and fails none: the spans are lost.
//!
//! In reading order: `context`: the place in a trace, as headers contain it. `recorder`: records spans. `otlp`: their form
//! in a request. `exporter`: sends them.

mod context;
mod exporter;
mod otlp;
mod recorder;

pub use self::context::TraceContext;
pub use self::exporter::{EXPORT_LIMIT, EXPORT_PAUSE, SpanExporter};
pub use self::recorder::{began_at, context, continue_from, link, start};
