//! Messages on `INTAKE` that can't be delivered, because their headers or their subject are
//! malformed: they are set aside like whatever else can't be accepted.
//!
//! What can be read of such a message is kept, so that it can be requeued: it is accepted then with
//! its payload, under its key where that is whole, without the header that was malformed.

use futures::future::BoxFuture;
use hooklane_nats::Unreadable;
use hooklane_nats::stored::Stored;
use hooklane_proto::header;
use hooklane_proto::subject::parse_intake;
use hooklane_store::accept::{MAX_PAYLOAD, Origin, Outcome, Reason, Rejection};
use hooklane_store::intake::{Offer, Payload};
use tracing::warn;

use crate::Parts;
use crate::intake::{JSON, place};

/// Sets aside what the puller hands over; its answer is whether that is done.
pub(crate) fn keep(
    parts: &Parts,
) -> impl Fn(Vec<Unreadable>) -> BoxFuture<'static, bool> + Send + Sync + use<> {
    let (store, handle) = (parts.store.clone(), parts.handle.clone());
    move |unreadable| {
        let (store, handle) = (store.clone(), handle.clone());
        Box::pin(async move {
            let refused: Vec<_> = unreadable.iter().map(refused).collect();
            if let Err(error) = store.refuse(&refused).await {
                warn!(%error, "unreadable messages can't be set aside yet");
                return false;
            }
            for (_, rejection) in refused {
                handle.outcomes(&[Outcome::Rejected(rejection)]);
            }
            true
        })
    }
}

fn refused(unreadable: &Unreadable) -> (Offer, Rejection) {
    let message = &unreadable.message;
    let (consumer, event_type) = parse_intake(&message.subject).unzip();
    let nanos = message.stored_at.timestamp_nanos_opt();
    let place = place(nanos.unwrap_or_default(), message.sequence);
    let payload = match message.payload.len() {
        size if size > MAX_PAYLOAD => Payload::TooLarge(size),
        _ => Payload::Bytes(message.payload.clone()),
    };
    let offer = Offer {
        origin: Origin::Intake,
        fallback_key: Some(format!("intake:{place}")),
        source_id: place,
        consumer: consumer.map(str::to_owned),
        event_type: event_type.map(str::to_owned),
        content_type: whole(message, header::CONTENT_TYPE)
            .unwrap_or(JSON)
            .to_owned(),
        payload,
        key: whole(message, header::IDEMPOTENCY_KEY).map(str::to_owned),
        trace: None,
    };
    let rejection = Rejection {
        reason: Reason::Unreadable,
        detail: format!("the message can't be read: {}", unreadable.reason),
    };
    (offer, rejection)
}

/// A header's value, unless something in it was replaced: two keys must not become one.
fn whole<'a>(message: &'a Stored, name: &str) -> Option<&'a str> {
    message
        .header(name)
        .filter(|value| !value.contains(char::REPLACEMENT_CHARACTER))
}
