//! What was given up, on `DLQ`: the payload as body, the why in headers, for a person to read.
//!
//! Two kinds share the stream: a delivery that the ledger has as failed, and a message that could
//! not be read at all, kept with what is there.

use bytes::Bytes;
use chrono::{DateTime, Utc};

use crate::delivery::DeliveryKey;
use crate::header::{self, HeaderError, Headers, Reader};
use crate::micros;
use crate::subject;
use crate::token::{ConsumerId, EventType};
use crate::trace::TraceContext;

/// The reason of what could not be read.
pub const UNREADABLE: &str = "unreadable";

/// Headers of ours that an unreadable message keeps, where it has them.
const KEPT: [&str; 16] = [
    header::MESSAGE,
    header::ENDPOINT,
    header::ENDPOINTS,
    header::PART,
    header::EVENT_TYPE,
    header::CONTENT_TYPE,
    header::SERIES,
    header::DRIVE,
    header::ATTEMPTS,
    header::COUNTED,
    header::ENDPOINT_VERSION,
    header::ACCEPTED_AT,
    header::DUE_AT,
    header::DEADLINE,
    header::NOT_AFTER,
    header::TRACEPARENT,
];

/// A delivery that failed for good, in one of its series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Which delivery.
    pub key: DeliveryKey,
    /// Whose endpoint it is.
    pub consumer: ConsumerId,
    /// What happened.
    pub event_type: EventType,
    /// The payload's media type.
    pub content_type: String,
    /// The series that failed, from 1.
    pub series: i32,
    /// Attempts made, in all series.
    pub attempts: i32,
    /// Why it failed, as the ledger names it: `exhausted`, `deadline`, `gone` or `poison`.
    pub reason: String,
    /// The last answer's status code.
    pub last_status: Option<i16>,
    /// The last attempt's error class.
    pub last_error: Option<String>,
    /// When the series ended.
    pub failed_at: DateTime<Utc>,
    /// The event's trace.
    pub trace: Option<TraceContext>,
    /// Bytes of a payload that is not here, because with it the broker would not take the message.
    pub left_out: Option<usize>,
    /// The exact bytes.
    pub payload: Bytes,
}

impl DeadLetter {
    /// Where it is published.
    #[must_use]
    pub fn subject(&self) -> String {
        subject::dead_letters(&self.consumer, self.key.endpoint)
    }

    /// The same without its payload, which says how much is missing.
    #[must_use]
    pub fn without_payload(self) -> Self {
        Self {
            left_out: Some(self.payload.len()),
            payload: Bytes::new(),
            ..self
        }
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
        headers.push(header::MSG_ID, self.key.nth(self.series));
        headers.push(header::REASON, one_line(&self.reason));
        if let Some(status) = self.last_status {
            headers.push(header::LAST_STATUS, status.to_string());
        }
        if let Some(error) = &self.last_error {
            headers.push(header::LAST_ERROR, one_line(error));
        }
        headers.push(header::FAILED_AT, micros::text(self.failed_at));
        headers.push(header::ATTEMPTS, self.attempts.to_string());
        headers.push(header::SERIES, self.series.to_string());
        headers.push(header::MESSAGE, message.to_string());
        headers.push(header::ENDPOINT, endpoint.to_string());
        headers.push(header::EVENT_TYPE, self.event_type.as_str());
        headers.push(header::CONTENT_TYPE, self.content_type.as_str());
        headers.push(header::ACCEPTED_AT, micros::text(accepted_at));
        if let Some(bytes) = self.left_out {
            headers.push(header::LEFT_OUT, bytes.to_string());
        }
        headers.push_trace(self.trace.as_ref());
        headers
    }

    /// Reads a stored message. `subject` is `dlq.<consumer>.<endpoint>`.
    ///
    /// # Errors
    /// [`HeaderError`] where a header is missing or malformed, or the subject is not a dead
    /// letter's; an unreadable message is none.
    pub fn read<'a>(
        subject: &str,
        header: impl Fn(&str) -> Option<&'a str>,
        payload: Bytes,
    ) -> Result<Self, HeaderError> {
        let r = Reader(header);
        Ok(Self {
            key: DeliveryKey::read(&r)?,
            consumer: header::consumer(subject, 1)?,
            event_type: r.parsed(header::EVENT_TYPE)?,
            content_type: r.text(header::CONTENT_TYPE)?.to_owned(),
            series: r.parsed(header::SERIES)?,
            attempts: r.parsed(header::ATTEMPTS)?,
            reason: r.text(header::REASON)?.to_owned(),
            last_status: r.optional(header::LAST_STATUS)?,
            last_error: r.optional(header::LAST_ERROR)?,
            failed_at: r.time(header::FAILED_AT)?,
            left_out: r.optional(header::LEFT_OUT)?,
            trace: r.trace(),
            payload,
        })
    }
}

/// A message of `EVENTS` or `DELIVERIES` that can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    stream: &'static str,
    sequence: u64,
    stored_at: DateTime<Utc>,
    subject: String,
    problem: String,
    kept: Vec<(&'static str, String)>,
    /// The exact bytes.
    pub payload: Bytes,
}

impl Unreadable {
    /// What is there of a message that was stored in `stream` under `subject`, with what is wrong.
    #[must_use]
    pub fn new<'a>(
        stream: &'static str,
        sequence: u64,
        stored_at: DateTime<Utc>,
        subject: &str,
        header: impl Fn(&str) -> Option<&'a str>,
        payload: Bytes,
        problem: &HeaderError,
    ) -> Self {
        let kept = KEPT
            .into_iter()
            .filter_map(|name| Some((name, one_line(header(name)?))))
            .collect();
        Self {
            stream,
            sequence,
            stored_at,
            subject: subject.to_owned(),
            problem: problem.to_string(),
            kept,
            payload,
        }
    }

    /// Where it is published: under the consumer and endpoint of its subject, `_` where it has none.
    #[must_use]
    pub fn subject(&self) -> String {
        let mut tokens = self.subject.split('.').skip(2);
        let consumer = tokens.next().unwrap_or("_");
        let endpoint = match self.stream {
            subject::DELIVERIES => tokens.next().unwrap_or("_"),
            _ => "_",
        };
        format!("dlq.{consumer}.{endpoint}")
    }

    /// The headers to publish it with.
    #[must_use]
    pub fn headers(&self) -> Headers {
        let mut headers = Headers::new();
        headers.push(
            header::MSG_ID,
            format!(
                "{UNREADABLE}:{}:{}:{}",
                self.stream,
                self.stored_at.timestamp_micros(),
                self.sequence
            ),
        );
        headers.push(header::REASON, UNREADABLE);
        headers.push(header::DETAIL, one_line(&self.problem));
        headers.push(
            header::ORIGIN,
            format!("{} {} {}", self.stream, self.sequence, self.subject),
        );
        headers.push(header::FAILED_AT, micros::text(self.stored_at));
        for (name, value) in &self.kept {
            headers.push(name, value.as_str());
        }
        headers
    }
}

/// A header's value has no line breaks.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
