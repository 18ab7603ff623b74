//! A span for each event taken in, as a child of its producer's.

use hooklane_core::trace;
use hooklane_store::intake::Offer;
use tracing::{Span, info_span};

/// Opens the spans of a batch and has each event carry its span's context on. Where nothing exports
/// spans, each carries on what it came with. The spans end when they are dropped.
#[must_use = "a span ends when it is dropped"]
pub(crate) fn open(offers: &mut [Offer]) -> Vec<Span> {
    offers
        .iter_mut()
        .map(|offer| {
            let span = info_span!(
                parent: None,
                "accept",
                source = %offer.origin,
                source_id = offer.source_id,
                consumer = offer.consumer,
                event_type = offer.event_type,
            );
            if let Some(parent) = &offer.trace {
                trace::set_parent(&span, parent);
            }
            offer.trace = trace::carry(&span, offer.trace.as_ref());
            span
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use hooklane_proto::trace::TraceContext;
    use hooklane_store::accept::Origin;
    use hooklane_store::intake::Payload;
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn an_event_goes_on_in_its_producers_trace() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let offer = |trace| Offer {
            origin: Origin::Intake,
            source_id: "1:1".to_owned(),
            consumer: Some("acme".to_owned()),
            event_type: None,
            content_type: String::new(),
            payload: Payload::Missing,
            key: None,
            fallback_key: None,
            trace,
        };
        let mut offers = [offer(TraceContext::parse(parent, None)), offer(None)];
        let provider = SdkTracerProvider::builder().build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || drop(open(&mut offers)));
        let carried: Vec<_> = offers.iter().filter_map(|o| o.trace.as_ref()).collect();
        assert_eq!(carried.len(), 2, "an event without a trace begins one");
        assert_eq!(carried[0].traceparent[..35], parent[..35]);
        assert_ne!(carried[0].traceparent[35..], parent[35..]);
        assert_ne!(carried[1].traceparent[..35], parent[..35]);
    }
}
