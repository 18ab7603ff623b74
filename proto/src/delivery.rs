//! One drive of one delivery on `DELIVERIES`: the payload as body, the rest in headers.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::event::{Event, Target};
use crate::header::{self, HeaderError, Headers, Reader};
use crate::id::{EndpointId, MessageId};
use crate::micros;
use crate::subject;
use crate::token::{ConsumerId, EventType};
use crate::trace::TraceContext;

/// One message for one endpoint, with what finds its row: the ledger is partitioned by the day
/// of acceptance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeliveryKey {
    /// When the ledger took the message, to the microsecond.
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub accepted_at: DateTime<Utc>,
    /// The message.
    pub message: MessageId,
    /// The endpoint.
    pub endpoint: EndpointId,
}

impl DeliveryKey {
    /// The key of a row.
    #[must_use]
    pub fn from_uuids(accepted_at: DateTime<Utc>, message: Uuid, endpoint: Uuid) -> Self {
        Self {
            accepted_at,
            message: MessageId::from_uuid(message),
            endpoint: EndpointId::from_uuid(endpoint),
        }
    }

    /// What the broker knows the `n`-th of something of this delivery by.
    pub(crate) fn nth(&self, n: i32) -> String {
        let Self {
            accepted_at,
            message,
            endpoint,
        } = self;
        let accepted_at = accepted_at.timestamp_micros();
        format!("{message}:{accepted_at}:{endpoint}:{n}")
    }

    pub(crate) fn read<'a, F: Fn(&str) -> Option<&'a str>>(
        r: &Reader<F>,
    ) -> Result<Self, HeaderError> {
        Ok(Self {
            accepted_at: r.time(header::ACCEPTED_AT)?,
            message: r.parsed(header::MESSAGE)?,
            endpoint: r.parsed(header::ENDPOINT)?,
        })
    }
}

/// A drive: one trip of a delivery through the broker, for one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Which delivery.
    pub key: DeliveryKey,
    /// Whose endpoint it is.
    pub consumer: ConsumerId,
    /// What happened.
    pub event_type: EventType,
    /// The payload's media type.
    pub content_type: String,
    /// The series of attempts, from 1; a replay opens the next.
    pub series: i32,
    /// The trip, from 1; it grows over all series.
    pub drive: i32,
    /// Attempts made before, in all series.
    pub attempts: i32,
    /// Attempts counted before, in this series.
    pub counted: i32,
    /// The endpoint's version that it was made for.
    pub endpoint_version: i64,
    /// When the attempt is due.
    pub due_at: DateTime<Utc>,
    /// No attempt after this.
    pub deadline: DateTime<Utc>,
    /// A copy stored by the broker after this is dropped.
    pub not_after: DateTime<Utc>,
    /// The event's trace.
    pub trace: Option<TraceContext>,
    /// The exact bytes.
    pub payload: Bytes,
}

impl Delivery {
    /// The first drive of an event's delivery to one of its endpoints.
    #[must_use]
    pub fn first(event: &Event, target: Target, not_after: DateTime<Utc>) -> Self {
        Self {
            key: DeliveryKey {
                accepted_at: event.accepted_at,
                message: event.message,
                endpoint: target.endpoint,
            },
            consumer: event.consumer.clone(),
            event_type: event.event_type.clone(),
            content_type: event.content_type.clone(),
            series: 1,
            drive: 1,
            attempts: 0,
            counted: 0,
            endpoint_version: target.version,
            due_at: event.accepted_at,
            deadline: event.deadline,
            not_after,
            trace: event.trace.clone(),
            payload: event.payload.clone(),
        }
    }

    /// Where it is published.
    #[must_use]
    pub fn subject(&self) -> String {
        subject::deliveries(&self.consumer, self.key.endpoint)
    }

    /// The headers to publish it with.
    #[must_use]
    pub fn headers(&self) -> Headers {
        let mut headers = Headers::new();
        let DeliveryKey {
            accepted_at,
            message,
            endpoint,
        } = self.key;
        headers.push(header::MSG_ID, self.key.nth(self.drive));
        headers.push(header::MESSAGE, message.to_string());
        headers.push(header::ENDPOINT, endpoint.to_string());
        headers.push(header::EVENT_TYPE, self.event_type.as_str());
        headers.push(header::CONTENT_TYPE, self.content_type.as_str());
        headers.push(header::SERIES, self.series.to_string());
        headers.push(header::DRIVE, self.drive.to_string());
        headers.push(header::ATTEMPTS, self.attempts.to_string());
        headers.push(header::COUNTED, self.counted.to_string());
        headers.push(header::ENDPOINT_VERSION, self.endpoint_version.to_string());
        headers.push(header::ACCEPTED_AT, micros::text(accepted_at));
        headers.push(header::DUE_AT, micros::text(self.due_at));
        headers.push(header::DEADLINE, micros::text(self.deadline));
        headers.push(header::NOT_AFTER, micros::text(self.not_after));
        headers.push_trace(self.trace.as_ref());
        headers
    }

    /// Reads a stored message. `subject` is the stored one,
    /// `deliveries.<partition>.<consumer>.<endpoint>`.
    ///
    /// # Errors
    /// [`HeaderError`] where a header is missing or malformed, or the subject is not a delivery's.
    pub fn read<'a>(
        subject: &str,
        header: impl Fn(&str) -> Option<&'a str>,
        payload: Bytes,
    ) -> Result<Self, HeaderError> {
        let r = Reader(header);
        Ok(Self {
            key: DeliveryKey::read(&r)?,
            consumer: header::consumer(subject, 2)?,
            event_type: r.parsed(header::EVENT_TYPE)?,
            content_type: r.text(header::CONTENT_TYPE)?.to_owned(),
            series: r.parsed(header::SERIES)?,
            drive: r.parsed(header::DRIVE)?,
            attempts: r.parsed(header::ATTEMPTS)?,
            counted: r.parsed(header::COUNTED)?,
            endpoint_version: r.parsed(header::ENDPOINT_VERSION)?,
            due_at: r.time(header::DUE_AT)?,
            deadline: r.time(header::DEADLINE)?,
            not_after: r.time(header::NOT_AFTER)?,
            trace: r.trace(),
            payload,
        })
    }
}
