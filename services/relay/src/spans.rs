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
