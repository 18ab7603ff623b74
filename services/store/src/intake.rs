//! Events as they come from outside, nothing checked: from an outbox or from `INTAKE` to accept.
//!
//! Owns the check of each event's parts and what happens to the ones that can't be accepted: they
//! are set aside ([`crate::rejected`]) in the very transaction that accepts their neighbours, so
//! whoever hands events over may let go of all of them once it is committed. An event whose
//! consumer or event type is not known yet waits among the ones set aside and is tried again.

use std::time::Duration;

use bytes::Bytes;
use hooklane_proto::id::MessageId;
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_proto::trace::TraceContext;
use sqlx::PgConnection;

use crate::accept::{
    self, Accepted, Alongside, Item, MAX_PAYLOAD, NewMessage, Origin, Outcome, Reason, Rejection,
    Settings, Via, too_large,
};
use crate::rejected;
use crate::{Error, Store};

/// How long an event with an unknown consumer or event type is tried again, by default.
pub const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// An event as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Which way it came.
    pub origin: Origin,
    /// What finds it again there: the outbox row's id, or the `INTAKE` message's time and sequence.
    pub source_id: String,
    /// Its consumer id.
    pub consumer: Option<String>,
    /// Its event type.
    pub event_type: Option<String>,
    /// Its content type.
    pub content_type: String,
    /// Its payload.
    pub payload: Payload,
    /// Its producer's idempotency key.
    pub key: Option<String>,
    /// The key where the producer gave none and the event has no id to serve as one.
    pub fallback_key: Option<String>,
    /// The trace that it belongs to.
    pub trace: Option<TraceContext>,
}

/// A payload as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Null.
    Missing,
    /// Over the limit, and so not even read: its size in bytes.
    TooLarge(usize),
    /// The exact bytes.
    Bytes(Bytes),
}

impl Offer {
    /// The id that it keeps: the outbox row's, where that is a UUID.
    #[must_use]
    pub fn id(&self) -> Option<MessageId> {
        match self.origin {
            Origin::Outbox(_) => uuid::Uuid::try_parse(&self.source_id)
                .ok()
                .map(MessageId::from_uuid),
            Origin::Intake | Origin::Api => None,
        }
    }

    /// The key that it goes by.
    pub(crate) fn effective_key(&self) -> Option<&str> {
        let fallback = || {
            let fallback = self.fallback_key.as_deref();
            fallback.filter(|_| self.id().is_none())
        };
        self.key.as_deref().or_else(fallback)
    }

    /// Bytes that the payload occupies here.
    #[must_use]
    pub fn size(&self) -> usize {
        match &self.payload {
            Payload::Missing | Payload::TooLarge(_) => 0,
            Payload::Bytes(bytes) => bytes.len(),
        }
    }

    fn check(&self) -> Item {
        let no = |reason, detail: String| Err(Rejection { reason, detail });
        let Some(consumer) = &self.consumer else {
            return no(Reason::BadConsumer, "there is no consumer id".to_owned());
        };
        let consumer = match ConsumerId::new(consumer) {
            Ok(consumer) => consumer,
            Err(error) => return no(Reason::BadConsumer, error.to_string()),
        };
        let Some(event_type) = &self.event_type else {
            return no(Reason::BadEventType, "there is no event type".to_owned());
        };
        let event_type = match EventType::new(event_type) {
            Ok(event_type) => event_type,
            Err(error) => return no(Reason::BadEventType, error.to_string()),
        };
        let payload = match &self.payload {
            Payload::Missing => {
                return no(Reason::PayloadMissing, "the payload is null".to_owned());
            }
            Payload::TooLarge(size) => return Err(too_large(*size)),
            Payload::Bytes(bytes) if bytes.len() > MAX_PAYLOAD => {
                return Err(too_large(bytes.len()));
            }
            Payload::Bytes(bytes) => bytes.clone(),
        };
        Ok(NewMessage {
            id: self.id(),
            consumer,
            event_type,
            content_type: self.content_type.clone(),
            payload,
            key: self.effective_key().map(str::to_owned),
            only: None,
            origin: self.origin.clone(),
            trace: self.trace.clone(),
        })
    }
}

/// The offers as accept takes them.
pub(crate) fn items(offers: &[Offer]) -> Vec<Item> {
    offers.iter().map(Offer::check).collect()
}

/// Sets aside what is rejected.
pub(crate) struct SetAside<'a> {
    /// The offers that the outcomes are of.
    pub(crate) offers: &'a [Offer],
    /// How long to try those again for which that may help.
    pub(crate) patience: Duration,
}

impl Alongside for SetAside<'_> {
    async fn write(&self, conn: &mut PgConnection, outcomes: &[Outcome]) -> Result<(), Error> {
        rejected::set_aside(conn, self.offers, outcomes, self.patience).await
    }
}

impl Store {
    /// Accepts as much from the front of `offers` as one transaction should take, and sets aside
    /// what can't be accepted. Afterwards every offer taken is the ledger's.
    ///
    /// # Errors
    /// As [`Store::accept`]; every offer goes by a key, so trying again is harmless.
    pub async fn take_in(
        &self,
        settings: &Settings,
        patience: Duration,
        offers: &[Offer],
    ) -> Result<Accepted, Error> {
        let items = items(offers);
        let aside = SetAside { offers, patience };
        accept::accept(self, Via::Pool, settings, &items, &aside).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn offer() -> Offer {
        Offer {
            origin: Origin::Outbox(Arc::from("main")),
            source_id: MessageId::for_test(1).uuid().to_string(),
            consumer: Some("acme".to_owned()),
            event_type: Some("invoice.paid".to_owned()),
            content_type: "application/json".to_owned(),
            payload: Payload::Bytes(Bytes::from_static(b"{}")),
            key: None,
            fallback_key: Some("main:1".to_owned()),
            trace: None,
        }
    }

    fn reason(offer: &Offer) -> Reason {
        offer.check().unwrap_err().reason
    }

    #[test]
    fn a_uuid_of_an_outbox_row_becomes_the_message_id_and_the_key() {
        let checked = offer().check().unwrap();
        assert_eq!(checked.id, Some(MessageId::for_test(1)));
        assert_eq!(checked.key, None);
    }

    #[test]
    fn another_id_becomes_a_key_with_the_sources_name() {
        let offer = Offer {
            source_id: "4711".to_owned(),
            fallback_key: Some("main:4711".to_owned()),
            ..offer()
        };
        let checked = offer.check().unwrap();
        assert_eq!(checked.id, None);
        assert_eq!(checked.key.as_deref(), Some("main:4711"));
    }

    #[test]
    fn each_bad_part_has_its_reason() {
        let bytes = |n| Payload::Bytes(Bytes::from(vec![b'x'; n]));
        let cases = [
            (
                Offer {
                    consumer: None,
                    ..offer()
                },
                Reason::BadConsumer,
            ),
            (
                Offer {
                    consumer: Some("a.b".to_owned()),
                    ..offer()
                },
                Reason::BadConsumer,
            ),
            (
                Offer {
                    event_type: None,
                    ..offer()
                },
                Reason::BadEventType,
            ),
            (
                Offer {
                    event_type: Some("a..b".to_owned()),
                    ..offer()
                },
                Reason::BadEventType,
            ),
            (
                Offer {
                    payload: Payload::Missing,
                    ..offer()
                },
                Reason::PayloadMissing,
            ),
            (
                Offer {
                    payload: Payload::TooLarge(300_000),
                    ..offer()
                },
                Reason::PayloadTooLarge,
            ),
            (
                Offer {
                    payload: bytes(MAX_PAYLOAD + 1),
                    ..offer()
                },
                Reason::PayloadTooLarge,
            ),
        ];
        for (offer, expected) in cases {
            assert_eq!(reason(&offer), expected);
        }
        assert!(
            Offer {
                payload: bytes(MAX_PAYLOAD),
                ..offer()
            }
            .check()
            .is_ok()
        );
    }
}
