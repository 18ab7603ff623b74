//! A failed delivery, whole.

use chrono::{DateTime, Utc};
use hooklane_proto::dead_letter::DeadLetter;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::token::{ConsumerId, EventType, InvalidToken};
use hooklane_proto::trace::TraceContext;
use uuid::Uuid;

use super::Series;

pub(super) struct Row {
    pub(super) accepted_at: DateTime<Utc>,
    pub(super) message_id: Uuid,
    pub(super) endpoint_id: Uuid,
    pub(super) consumer_id: String,
    pub(super) event_type: String,
    pub(super) content_type: String,
    pub(super) payload: Vec<u8>,
    pub(super) traceparent: Option<String>,
    pub(super) tracestate: Option<String>,
    pub(super) series: i32,
    pub(super) attempt_count: i32,
    pub(super) failure_reason: Option<String>,
    pub(super) last_status: Option<i16>,
    pub(super) last_error: Option<String>,
    pub(super) settled_at: Option<DateTime<Utc>>,
    pub(super) now: DateTime<Utc>,
}

impl Row {
    pub(super) fn series(&self) -> Series {
        Series {
            key: DeliveryKey::from_uuids(self.accepted_at, self.message_id, self.endpoint_id),
            series: self.series,
        }
    }

    /// What goes on the wire.
    ///
    /// # Errors
    /// A consumer id or event type that an earlier release allowed and this one does not.
    pub(super) fn letter(self) -> Result<DeadLetter, InvalidToken> {
        let key = self.series().key;
        let Self {
            accepted_at: _,
            message_id: _,
            endpoint_id: _,
            consumer_id,
            event_type,
            content_type,
            payload,
            traceparent,
            tracestate,
            series,
            attempt_count,
            failure_reason,
            last_status,
            last_error,
            settled_at,
            now,
        } = self;
        Ok(DeadLetter {
            key,
            consumer: ConsumerId::new(&consumer_id)?,
            event_type: EventType::new(&event_type)?,
            content_type,
            series,
            attempts: attempt_count,
            reason: failure_reason.unwrap_or_else(|| "failed".to_owned()),
            last_status,
            last_error,
            failed_at: settled_at.unwrap_or(now),
            trace: traceparent
                .and_then(|parent| TraceContext::parse(&parent, tracestate.as_deref())),
            left_out: None,
            payload: payload.into(),
        })
    }
}
