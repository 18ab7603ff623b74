//! From the trace context that travels in headers to tracing's spans, and back.
//!
//! Everything here is free of charge, and does nothing, where no exporter is configured: then a
//! context that came in is passed on untouched by [`carry`].

use hooklane_proto::trace::TraceContext;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Makes `span` a child of a context that came from outside. Call it before the span is entered.
pub fn set_parent(span: &Span, parent: &TraceContext) {
    if span.is_disabled() {
        return;
    }
    if let Some(parent) = span_context(parent) {
        let context = opentelemetry::Context::new().with_remote_span_context(parent);
        // Fails where nothing exports spans, and then there is nothing to tell.
        let _ = span.set_parent(context);
    }
}

/// Links `span` to a context without making it a child: one batch serves many traces.
pub fn link(span: &Span, to: &TraceContext) {
    if span.is_disabled() {
        return;
    }
    if let Some(to) = span_context(to) {
        span.add_link(to);
    }
}

/// The context of the span that is current here; `None` without an exporter or a span.
#[must_use]
pub fn current() -> Option<TraceContext> {
    context_of(&Span::current())
}

/// The context of `span`; `None` where nothing exports it.
#[must_use]
pub fn context_of(span: &Span) -> Option<TraceContext> {
    if span.is_disabled() {
        return None;
    }
    let context = span.context();
    let span = context.span();
    let span = span.span_context();
    span.is_valid().then(|| TraceContext {
        traceparent: format!(
            "00-{}-{}-{:02x}",
            span.trace_id(),
            span.span_id(),
            span.trace_flags().to_u8()
        ),
        tracestate: span.trace_state().header(),
    })
}

/// The context to send on: `span`'s own, or what came in where nothing exports spans.
#[must_use]
pub fn carry(span: &Span, came_in: Option<&TraceContext>) -> Option<TraceContext> {
    context_of(span).or_else(|| came_in.cloned())
}

fn span_context(context: &TraceContext) -> Option<SpanContext> {
    // Whoever holds a `TraceContext` got it from `parse`, or from a peer that did; text of any
    // other form is no context.
    let mut parts = context.traceparent.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = u8::from_str_radix(parts.next()?, 16).ok()?;
    let state: TraceState = context.tracestate.parse().unwrap_or_default();
    let context = SpanContext::new(trace, span, TraceFlags::new(flags), true, state);
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn exported<T>(run: impl FnOnce() -> T) -> T {
        let provider = SdkTracerProvider::builder().build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, run)
    }

    #[test]
    fn a_child_keeps_the_trace_and_gets_a_span_of_its_own() {
        let parent = TraceContext::parse(PARENT, Some("a=b")).unwrap();
        let child = exported(|| {
            let span = tracing::info_span!("child");
            set_parent(&span, &parent);
            span.in_scope(current)
        })
        .unwrap();
        assert_eq!(child.traceparent[..35], parent.traceparent[..35]);
        assert_ne!(child.traceparent[35..52], parent.traceparent[35..52]);
        assert_eq!(child.traceparent[52..], parent.traceparent[52..]);
        assert_eq!(child.tracestate, "a=b");
        assert!(TraceContext::parse(&child.traceparent, Some(&child.tracestate)).is_some());
    }

    #[test]
    fn a_link_does_not_make_a_child() {
        let other = TraceContext::parse(PARENT, None).unwrap();
        let own = exported(|| {
            let span = tracing::info_span!("batch");
            link(&span, &other);
            context_of(&span)
        })
        .unwrap();
        assert_ne!(own.traceparent[..35], other.traceparent[..35]);
    }

    #[test]
    fn without_an_exporter_what_came_in_is_passed_on() {
        let parent = TraceContext::parse(PARENT, None).unwrap();
        let subscriber = tracing_subscriber::registry();
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("child");
            set_parent(&span, &parent);
            assert_eq!(context_of(&span), None);
            assert_eq!(carry(&span, Some(&parent)), Some(parent.clone()));
        });
    }

    #[test]
    fn text_that_is_no_context_is_ignored() {
        for bad in ["", "00", "00-xyz-abc-01", "nonsense"] {
            let context = TraceContext {
                traceparent: bad.to_owned(),
                tracestate: String::new(),
            };
            assert!(span_context(&context).is_none(), "{bad}");
        }
    }
}
