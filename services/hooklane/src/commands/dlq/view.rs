//! Dead letters as JSON has them, and as a person reads one.

use chrono::{DateTime, Utc};
use hooklane_proto::dead_letter::DeadLetter;
use hooklane_store::dead_letter::Listed;
use serde::Serialize;

use crate::commands::input::shown;
use crate::output::{exact, fields, or_dash, time};

/// Characters of a payload that a person is shown.
const PAYLOAD: usize = 2_000;

/// A dead letter of a listing.
#[derive(Debug, Serialize)]
pub(super) struct View {
    message: String,
    endpoint: String,
    consumer: String,
    event_type: String,
    accepted_at: String,
    series: i32,
    attempts: i32,
    reason: String,
    last_status: Option<i16>,
    last_error: Option<String>,
    failed_at: String,
    /// When it was put into the stream DLQ.
    dead_lettered_at: Option<String>,
    payload_bytes: i32,
}

impl From<Listed> for View {
    fn from(listed: Listed) -> Self {
        let Listed {
            series,
            consumer,
            event_type,
            attempts,
            reason,
            last_status,
            last_error,
            failed_at,
            dead_lettered_at,
            bytes,
        } = listed;
        Self {
            message: series.key.message.to_string(),
            endpoint: series.key.endpoint.to_string(),
            consumer: consumer.to_string(),
            event_type,
            accepted_at: time(series.key.accepted_at),
            series: series.series,
            attempts,
            reason,
            last_status,
            last_error,
            failed_at: time(failed_at),
            dead_lettered_at: dead_lettered_at.map(time),
            payload_bytes: bytes,
        }
    }
}

/// A dead letter, whole.
#[derive(Debug, Serialize)]
pub(super) struct Letter {
    message: String,
    endpoint: String,
    consumer: String,
    event_type: String,
    accepted_at: String,
    series: i32,
    attempts: i32,
    reason: String,
    last_status: Option<i16>,
    last_error: Option<String>,
    failed_at: String,
    dead_lettered_at: Option<String>,
    payload_bytes: usize,
    traceparent: Option<String>,
    content_type: String,
    /// The exact payload where it is text.
    payload: Option<String>,
    /// The exact payload in base64 where it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip)]
    bytes: bytes::Bytes,
}

impl Letter {
    /// A letter that was put into `DLQ` at some time.
    pub(super) fn new(letter: DeadLetter, dead_lettered_at: Option<DateTime<Utc>>) -> Self {
        let DeadLetter {
            key,
            consumer,
            event_type,
            content_type,
            series,
            attempts,
            reason,
            last_status,
            last_error,
            failed_at,
            trace,
            left_out: _,
            payload,
        } = letter;
        let (text, base64) = exact(payload.to_vec());
        Self {
            message: key.message.to_string(),
            endpoint: key.endpoint.to_string(),
            consumer: consumer.to_string(),
            event_type: event_type.to_string(),
            accepted_at: time(key.accepted_at),
            series,
            attempts,
            reason,
            last_status,
            last_error,
            failed_at: time(failed_at),
            dead_lettered_at: dead_lettered_at.map(time),
            payload_bytes: payload.len(),
            traceparent: trace.map(|trace| trace.traceparent),
            content_type,
            payload: text,
            payload_base64: base64,
            bytes: payload,
        }
    }

    pub(super) fn human(&self) -> String {
        let last = last(self.last_status, self.last_error.as_deref());
        fields(vec![
            ("message", self.message.clone()),
            ("endpoint", self.endpoint.clone()),
            ("consumer", self.consumer.clone()),
            ("event type", self.event_type.clone()),
            ("accepted", self.accepted_at.clone()),
            ("failed", self.failed_at.clone()),
            ("in DLQ since", or_dash(self.dead_lettered_at.clone())),
            ("reason", self.reason.clone()),
            ("last answer", or_dash((!last.is_empty()).then_some(last))),
            (
                "attempts",
                format!("{}, series {}", self.attempts, self.series),
            ),
            ("content type", self.content_type.clone()),
            ("payload", shown(&self.bytes, PAYLOAD)),
        ])
    }
}

/// What the last attempt came to.
pub(super) fn last(status: Option<i16>, error: Option<&str>) -> String {
    match (status, error) {
        (Some(status), _) => status.to_string(),
        (None, Some(error)) => error.to_owned(),
        (None, None) => String::new(),
    }
}
