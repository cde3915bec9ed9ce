//! The recorder of spans.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Span, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use super::TraceContext;

/// Maximum spans that wait for their export. A batch of the relay has some 200. Later spans are lost.
const MAX_WAITING: usize = 2_048;

#[derive(Debug)]
pub(super) struct RecordedSpan {
    /// Its ids; `None` while it has no place in a trace. A span without ids is not exported.
    pub(super) context: Option<TraceContext>,
    /// 0 for the first span of a trace.
    pub(super) parent_id: u64,
    pub(super) name: String,
    /// `client`, `server`, `producer`, `consumer` or empty.
    pub(super) kind: String,
    pub(super) is_error: bool,
    pub(super) start: SystemTime,
    pub(super) end: SystemTime,
    pub(super) attributes: Vec<(&'static str, AttributeValue)>,
    pub(super) links: Vec<TraceContext>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttributeValue {
    Text(String),
    Number(u64),
    Fraction(f64),
}

/// The spans that have ended and were not exported yet. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct EndedSpans(Arc<Mutex<Vec<RecordedSpan>>>);

impl EndedSpans {
    pub(super) fn take(&self) -> Vec<RecordedSpan> {
        std::mem::take(&mut *self.lock())
    }

    fn push(&self, span: RecordedSpan) {
        let mut spans = self.lock();
        if spans.len() < MAX_WAITING {
            spans.push(span);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RecordedSpan>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a span the first of a trace, or the first of this process in a trace that another process has begun. A span of a
/// trace that is not sampled is not recorded.
pub fn start(span: &Span, parent: Option<TraceContext>) {
    let parent = parent.unwrap_or_else(TraceContext::of_new_trace);
    if parent.is_sampled() {
        change(span, |recorded| recorded.place_below(parent));
    }
}

/// Makes a span a child of the span in a trace header, if the header's trace is sampled.
pub fn continue_from(span: &Span, trace_header: Option<&str>) {
    if let Some(parent) = trace_header.filter(|_| !span.is_disabled()).and_then(TraceContext::of_trace_header) {
        start(span, Some(parent));
    }
}

pub fn context(span: &Span) -> Option<TraceContext> {
    change(span, |recorded| recorded.context).flatten()
}

/// Links a recorded span to another, which may be of another trace.
pub fn link(span: &Span, to: &Span) {
    if let Some(to) = context(to) {
        change(span, |recorded| recorded.links.push(to));
    }
}

/// Replaces the time at which a recorded span began by an earlier one. Another clock, such as that of the local stack, can be
/// ahead of the clock of the spans.
pub fn began_at(span: &Span, start: SystemTime) {
    change(span, |recorded| recorded.start = recorded.start.min(start));
}

fn change<T>(span: &Span, change: impl FnOnce(&mut RecordedSpan) -> T) -> Option<T> {
    let changed = span.with_subscriber(|(id, subscriber)| {
        let span = subscriber.downcast_ref::<Registry>()?.span(id)?;
        let mut extensions = span.extensions_mut();
        extensions.get_mut().map(change)
    });
    changed.flatten()
}

impl RecordedSpan {
    fn place_below(&mut self, parent: TraceContext) {
        self.context = Some(parent.child());
        self.parent_id = parent.span_id;
    }

    fn set(&mut self, field: &Field, value: AttributeValue) {
        match (field.name(), value) {
            ("otel.name", AttributeValue::Text(name)) => self.name = name,
            ("otel.kind", AttributeValue::Text(kind)) => self.kind = kind,
            ("otel.status_code", AttributeValue::Text(code)) => self.is_error = code == "error",
            (name, value) => {
                if name == "rpc.system" {
                    // A call of the AWS SDK.
                    self.kind = "client".to_owned();
                }
                self.attributes.retain(|(other, _)| *other != name);
                self.attributes.push((name, value));
            }
        }
    }
}

pub(super) struct SpanRecorder(pub(super) EndedSpans);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanRecorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, spans: Context<'_, S>) {
        let Some(span) = spans.span(id) else { return };
        let now = SystemTime::now();
        let mut recorded = RecordedSpan {
            context: None,
            parent_id: 0,
            name: attributes.metadata().name().to_owned(),
            kind: String::new(),
            is_error: false,
            start: now,
            end: now,
            attributes: Vec::new(),
            links: Vec::new(),
        };
        attributes.record(&mut recorded);
        let parent = span.parent().and_then(|parent| parent.extensions().get::<RecordedSpan>()?.context);
        if let Some(parent) = parent {
            recorded.place_below(parent);
        }
        span.extensions_mut().insert(recorded);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, spans: Context<'_, S>) {
        if let Some(span) = spans.span(id)
            && let Some(recorded) = span.extensions_mut().get_mut::<RecordedSpan>()
        {
            values.record(recorded);
        }
    }

    fn on_close(&self, id: Id, spans: Context<'_, S>) {
        let recorded = spans.span(&id).and_then(|span| span.extensions_mut().remove::<RecordedSpan>());
        if let Some(recorded) = recorded.filter(|recorded| recorded.context.is_some()) {
            self.0.push(RecordedSpan { end: SystemTime::now().max(recorded.start), ..recorded });
        }
    }
}

impl Visit for RecordedSpan {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set(field, AttributeValue::Text(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, AttributeValue::Text(value.to_owned()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, AttributeValue::Number(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, AttributeValue::Fraction(value));
    }
}
